"""The nouns of the system: types, schemas, paths, properties.

Imports nothing else of the package but the modules that are open to all; every layer may import it. Start with `schema`
and `types`.
"""
