"""What a tablet keeps on disk."""
