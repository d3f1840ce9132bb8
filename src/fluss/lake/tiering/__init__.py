"""Tiering: rounds turn log ranges into files of the lake. No Spark in here: engines run the splits."""
