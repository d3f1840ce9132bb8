"""What clients saw of a server that is killed again and again, judged afterwards."""
