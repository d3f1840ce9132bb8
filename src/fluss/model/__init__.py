"""The nouns of the system: data types, schemas, descriptors, paths, table properties, and names that are allowed.

Every other package may import this one; it imports none of them. Start with `types` and `schema`.
"""
