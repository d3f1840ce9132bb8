"""Primary-key tables as a whole: scans of their store, snapshots, and changelogs folded by key."""
