"""The table of docs/values.md for keys: lookups and deletes do what upserts do, and mean the same row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fluss
from fluss import FlussError
from fluss.model import types as t
from tests.support.servers.targets import Target
from tests.support.values.documented_values import COLUMNS, cells, tried


@pytest.fixture
def db(target: Target) -> Iterator[fluss.Database]:
    with fluss.connect(target.bootstrap_servers) as db:
        yield db


class KeyedTable:
    """A table whose key has one type."""

    def __init__(self, db: fluss.Database, name: str, data_type: t.DataType) -> None:
        self.db, self.name = db, name
        schema = fluss.Schema.builder().column("k", data_type).column("v", fluss.DataTypes.int())
        db.create_table(name, schema.primary_key("k").build(), bucket_count=1)

    def taken(self, key: Any) -> Any:
        """The row that was written for a key, looked up, deleted, and then no longer there; or FlussError."""
        refusals = [self._refusal(call, key) for call in (self._upsert, self._lookup, self._lookup_many, self._delete)]
        if any(refusals):
            assert all(refusals), (self.name, key, refusals)
            assert all("k" in str(refusal) for refusal in refusals), refusals
            raise FlussError(str(refusals[0]))
        assert self.row is not None, f"{self.name}: what was written for {key!r} is not found by it"
        assert self.rows == [self.row]
        assert self.db.lookup(self.name, key) is None, f"{self.name}: the delete of {key!r} meant another row"
        return self.row["k"]

    def _refusal(self, call: Any, key: Any) -> FlussError | None:
        try:
            call(key)
        except FlussError as error:
            return error
        return None

    def _upsert(self, key: Any) -> None:
        self.db.upsert(self.name, [(key, 1)])

    def _lookup(self, key: Any) -> None:
        self.row = self.db.lookup(self.name, key)

    def _lookup_many(self, key: Any) -> None:
        self.rows = self.db.lookup_many(self.name, [key])

    def _delete(self, key: Any) -> None:
        self.db.delete(self.name, [(key,)])


@pytest.mark.parametrize("column", COLUMNS)
def test_keys_do_what_the_table_says(db: fluss.Database, table_name: str, column: str) -> None:
    names = {data_type: f"{table_name}_{number}" for number, data_type in enumerate(COLUMNS[column])}
    tables = {data_type: KeyedTable(db, name, data_type) for data_type, name in names.items()}
    for source, of_column, word in cells():
        if of_column == column:
            tried(lambda data_type, key: tables[data_type].taken(key), source, column, word)
