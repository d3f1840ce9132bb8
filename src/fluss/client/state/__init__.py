"""Reading whole primary-key tables: scans of their store, snapshots, and changelogs folded by key."""
