"""Lookups: rows of primary-key tables by key and by prefix."""

from fluss.client.lookup.lookuper import Lookuper, PrefixLookuper, TableLookup, TablePrefixLookup

__all__ = ["Lookuper", "PrefixLookuper", "TableLookup", "TablePrefixLookup"]
