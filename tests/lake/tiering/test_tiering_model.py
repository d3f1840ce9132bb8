"""Random rounds on a primary-key table against a dict, and columns added while a round commits."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.lake.tables.interface.format import CommitMessage, LakeFile
from fluss.model.schema import Column
from fluss.model.types import StringType
from tests.lake.tables.test_readers import by_key, check_all_see
from tests.support.lake.tables import PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of
from tools.waiting import patience

BUCKETS = 2
KEYS = 30
ROUNDS = 8

Rows = dict[int, dict[str, Any]]


class Model:
    """The rows that the lake must have, per bucket; a key belongs to the bucket of its remainder."""

    def __init__(self, table_writer: LakeTableWriter, seed: int) -> None:
        self.table_writer, self.random = table_writer, random.Random(seed)
        self.rows: list[Rows] = [{} for _ in range(BUCKETS)]
        self.offsets = [0] * BUCKETS

    def all_rows(self) -> list[dict[str, Any]]:
        return by_key([row for rows in self.rows for row in rows.values()])

    def round_of(self, bucket: int) -> CommitMessage:
        """Random upserts and deletes of a bucket, by copy-on-write or by position deletes."""
        keys = [key for key in range(KEYS) if key % BUCKETS == bucket]
        changed = self.random.sample(keys, self.random.randint(1, 8))
        version = f"v{self.offsets[bucket]}"
        upserts = {key: people(key, 1, name=version)[0] for key in changed if self.random.random() < 0.7}
        before = self.rows[bucket]
        self.rows[bucket] = {key: row for key, row in before.items() if key not in changed} | upserts
        start = self.offsets[bucket]
        self.offsets[bucket] += len(changed)
        files = self.table_writer.table.plan_files(buckets=[(None, bucket)])
        if self.random.random() < 0.4:
            whole = list(self.rows[bucket].values())
            return self.with_end(self.table_writer.write(whole, start, bucket, replaces=files), bucket)
        message = self.with_end(self.table_writer.write(list(upserts.values()), start, bucket), bucket)
        return self.table_writer.table.target().delete_rows(message, self.positions(files, set(changed)))

    def with_end(self, message: CommitMessage, bucket: int) -> CommitMessage:
        """Deletes take offsets too: the range ends after all changes."""
        split = type(message.split)(message.split.bucket, None, message.split.start_offset, self.offsets[bucket])
        return type(message)(split, message.row_count, message.added, message.removed, message.position_deletes)

    def positions(self, files: list[LakeFile], keys: set[int]) -> dict[LakeFile, pa.Array]:
        found = {}
        for file in files:
            read = list(self.table_writer.table.target().read_positions(file, self.table_writer.schema, ["id"]))
            pairs = [(row["id"], row["__position"]) for batch in read for row in batch.to_pylist()]
            found[file] = pa.array([position for key, position in pairs if key in keys], pa.int64())
        return found


@pytest.mark.parametrize("seed", [1, 2])
def test_random_rounds_give_the_rows_of_a_dict(lake: IcebergFormat, seed: int) -> None:
    model = Model(made(lake, spec_of(PEOPLE, primary_key=["id"])), seed)
    history: dict[int, list[dict[str, Any]]] = {}
    for _ in range(ROUNDS):
        touched = model.random.sample(range(BUCKETS), model.random.randint(1, BUCKETS))
        snapshot_id = model.table_writer.commit(*[model.round_of(bucket) for bucket in touched])
        history[snapshot_id] = model.all_rows()
        assert by_key(model.table_writer.rows()) == history[snapshot_id]
    check_all_see(lake, model.table_writer, model.all_rows())
    for snapshot_id, rows in history.items():
        assert by_key(model.table_writer.rows(model.table_writer.table.plan_files(snapshot_id))) == rows, "time travel"
    committed = model.table_writer.table.refreshed().committed_offsets(TABLE_ID)
    assert [committed[bucket] for bucket in sorted(committed)] == model.offsets


def test_columns_are_added_while_a_round_commits(lake: IcebergFormat) -> None:
    """A change of the table never fails because of a round; a slower round loads it again and continues."""
    spec = spec_of(PEOPLE)
    table_writer = made(lake, spec)

    def tier() -> None:
        for number in range(10):
            message = table_writer.write(people(number, 1), start=number)
            while True:
                try:
                    table_writer.commit(message)
                    break
                except FlussError as error:
                    if error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION:
                        raise
                    table_writer.table = table_writer.table.refreshed()

    with ThreadPoolExecutor(1) as pool:
        tiering = pool.submit(tier)
        for number in range(5):
            lake.add_columns(spec.path, [Column(f"c{number}", StringType())])
        tiering.result(patience(60))
    table = LakeTableWriter(lake, spec)
    assert by_key(table.rows()) == people(0, 10)
    names = [field.name for field in lake.catalog.load_table(("db", spec.path.table_name)).schema().fields]
    assert names == ["id", "name", "age", "c0", "c1", "c2", "c3", "c4", "__bucket", "__offset", "__timestamp"]
