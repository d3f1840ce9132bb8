"""What clients saw of a server that is killed repeatedly, judged afterwards."""
