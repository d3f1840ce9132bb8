"""The nouns of the system: types, schemas, paths. Imports nothing else of the package."""
