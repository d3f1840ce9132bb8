"""Files of a tablet, local and remote: logs, key-value stores, staged rows, snapshots."""
