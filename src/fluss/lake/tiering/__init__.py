"""Tiering: log ranges become files of the lake, round by round. No Spark in here: engines run the splits."""
