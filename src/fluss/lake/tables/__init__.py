"""What a table looks like in a lake. The only part of `lake` that the server imports; pyiceberg is loaded when used."""
