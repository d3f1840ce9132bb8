"""The layout of a table in a lake. The only part of `lake` that the server imports; pyiceberg is loaded when used."""
