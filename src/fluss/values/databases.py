"""Descriptions of databases: the form in which users define them, and the form in which servers return them."""

from __future__ import annotations

from collections.abc import Mapping

from fluss.model import descriptor as wire


class DatabaseDescriptor:
    """The definition of a database to create: its comment and custom properties."""

    def __init__(self, comment: str | None = None, custom_properties: Mapping[str, str] | None = None) -> None:
        self._inner = wire.DatabaseDescriptor(comment, dict(custom_properties or {}))

    @staticmethod
    def builder() -> DatabaseDescriptorBuilder:
        """A builder without comment and properties."""
        return DatabaseDescriptorBuilder()

    @property
    def comment(self) -> str | None:
        """The comment that describes the database; None if it has none."""
        return self._inner.comment

    @property
    def custom_properties(self) -> dict[str, str]:
        """Alias of `get_custom_properties()`."""
        return self.get_custom_properties()

    def get_custom_properties(self) -> dict[str, str]:
        """Properties that only the user interprets."""
        return dict(self._inner.custom_properties)

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, DatabaseDescriptor) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.comment, frozenset(self._inner.custom_properties.items())))

    def __repr__(self) -> str:
        return f"DatabaseDescriptor(comment={self.comment!r}, custom_properties={self.get_custom_properties()!r})"


class DatabaseDescriptorBuilder:
    """Builds a `DatabaseDescriptor` step by step; each method returns the builder."""

    def __init__(self) -> None:
        self._comment: str | None = None
        self._custom_properties: dict[str, str] = {}

    def comment(self, comment: str) -> DatabaseDescriptorBuilder:
        """Set the comment, which describes the database."""
        self._comment = comment
        return self

    def custom_property(self, key: str, value: str) -> DatabaseDescriptorBuilder:
        """Add one custom property."""
        self._custom_properties[key] = value
        return self

    def custom_properties(self, properties: Mapping[str, str]) -> DatabaseDescriptorBuilder:
        """Add several custom properties."""
        self._custom_properties.update(properties)
        return self

    def build(self) -> DatabaseDescriptor:
        """Return the descriptor with the values set so far."""
        return DatabaseDescriptor(self._comment, self._custom_properties)


class DatabaseInfo:
    """A database of the cluster: its name, its descriptor, and when it was created and changed."""

    def __init__(self, name: str, descriptor: DatabaseDescriptor, created_time: int, modified_time: int) -> None:
        self._database_name = name
        self._descriptor = descriptor
        self._created_time = created_time
        self._modified_time = modified_time

    @property
    def database_name(self) -> str:
        """The name of the database."""
        return self._database_name

    @property
    def created_time(self) -> int:
        """Time of creation in milliseconds since 1970."""
        return self._created_time

    @property
    def modified_time(self) -> int:
        """Time of the last change in milliseconds since 1970."""
        return self._modified_time

    @property
    def database_descriptor(self) -> DatabaseDescriptor:
        """Alias of `get_database_descriptor()`."""
        return self._descriptor

    def get_database_descriptor(self) -> DatabaseDescriptor:
        """The comment and custom properties of the database, as a descriptor."""
        return self._descriptor

    def _parts(self) -> tuple[str, DatabaseDescriptor, int, int]:
        return self._database_name, self._descriptor, self._created_time, self._modified_time

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, DatabaseInfo) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"DatabaseInfo({self._database_name!r}, {self._descriptor}, created_time={self._created_time})"


def model_database(descriptor: DatabaseDescriptor) -> wire.DatabaseDescriptor:
    """Unwrap a public descriptor: the `model.descriptor.DatabaseDescriptor` inside it."""
    return descriptor._inner
