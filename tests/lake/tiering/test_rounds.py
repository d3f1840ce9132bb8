"""Rounds commit one snapshot or nothing; the first commit wins; a dead round leaves only unknown files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg import table as table_module
from fluss.lake.tables.iceberg.tables import IcebergFormat, identifier
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    OFFSETS_PATH_PROPERTY,
    OFFSETS_PROPERTY,
    CommitMessage,
    LakeSplit,
    LakeTableSpec,
)
from fluss.model.paths import TableBucket
from tests.lake.tables.test_readers import by_key, check_all_see, outside
from tests.support.lake.tables import PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of
from tools.waiting import patience

FAR_FUTURE_MS = 10**14


def keyed(lake: IcebergFormat) -> LakeTableWriter:
    return made(lake, spec_of(PEOPLE, primary_key=["id"]))


def bucket(bucket_id: int) -> TableBucket:
    return TableBucket(TABLE_ID, None, bucket_id)


def test_copy_on_write_replaces_one_bucket_in_one_snapshot(lake: IcebergFormat) -> None:
    table_writer = keyed(lake)
    table_writer.commit(table_writer.write(people(0, 4), bucket=0), table_writer.write(people(10, 4), bucket=1))
    before = table_writer.table.snapshot_id
    old = table_writer.table.plan_files(buckets=[(None, 0)])
    table_writer.commit(table_writer.write(people(2, 5, name="new"), start=4, bucket=0, replaces=old))
    check_all_see(lake, table_writer, [*people(2, 5, name="new"), *people(10, 4)])
    table = outside(lake, table_writer)
    assert len(table.metadata.snapshots) == 2
    summary = table.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["total-records"], summary["deleted-records"], summary["total-data-files"]) == ("9", "4", "2")
    assert by_key(table_writer.rows(table_writer.table.plan_files(before))) == [*people(0, 4), *people(10, 4)], (
        "time travel"
    )


def test_position_deletes_hide_rows_and_copy_on_write_folds_them(lake: IcebergFormat) -> None:
    table_writer = keyed(lake)
    table_writer.commit(table_writer.write(people(0, 6)))
    (file,) = table_writer.table.plan_files()
    target = table_writer.table.target()
    message = target.delete_rows(table_writer.write(people(1, 1, name="new"), start=6), {file: pa.array([4, 1, 1])})
    table_writer.commit(message)
    rows = [*people(0, 1), *people(1, 1, name="new"), *people(2, 2), *people(5, 1)]
    check_all_see(lake, table_writer, rows)
    (damaged,) = [each for each in table_writer.table.plan_files() if each.deleted_rows]
    assert (damaged.path, damaged.row_count, damaged.deleted_rows) == (file.path, 6, 2)
    (positions,) = target.read_positions(damaged, table_writer.schema, ["id"])
    assert positions.to_pydict() == {"id": [0, 2, 3, 5], "__position": [0, 2, 3, 5]}

    # A second delete of the same file, then everything is folded into one new file.
    table_writer.commit(target.delete_rows(table_writer.write([], start=7), {damaged: pa.array([5])}))
    check_all_see(lake, table_writer, rows[:-1])
    files = table_writer.table.plan_files()
    table_writer.commit(table_writer.write(rows[:-1], start=7, replaces=files))
    check_all_see(lake, table_writer, rows[:-1])
    summary = outside(lake, table_writer).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    totals = [summary[key] for key in ("total-data-files", "total-delete-files", "total-position-deletes")]
    assert totals == ["1", "0", "0"], "deletes are removed with the file to which they apply"


def test_invalid_deletes_are_refused(lake: IcebergFormat) -> None:
    table_writer = keyed(lake)
    table_writer.commit(table_writer.write(people(0, 3)))
    (file,) = table_writer.table.plan_files()
    target = table_writer.table.target()
    with pytest.raises(FlussError, match="must be from 0 to 2"):
        target.delete_rows(table_writer.write([], start=3), {file: pa.array([3])})
    replacing = table_writer.write([], start=3, replaces=[file])
    with pytest.raises(FlussError, match="replaces the whole file"):
        target.delete_rows(replacing, {file: pa.array([0])})


@pytest.mark.parametrize("retries", ["0", "4"])
def test_of_two_committers_from_the_same_state_one_wins(lake: IcebergFormat, retries: str) -> None:
    """Even if the table allows retries: a second attempt would not check the offsets."""
    one = made(lake, spec_of(PEOPLE))
    with outside(lake, one).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": retries})
    one.table = one.table.refreshed()
    other = LakeTableWriter(lake, one.spec)
    late = other.write(people(0, 3))
    one.commit(one.write(people(0, 3)))
    with pytest.raises(FlussError, match="load the table again") as caught:
        other.commit(late)
    assert caught.value.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
    other.table = other.table.refreshed()
    with pytest.raises(FlussError, match="tiered up to offset 3, but the round starts at 0") as caught:
        other.commit(late)
    assert caught.value.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
    other.table.target().discard([late])
    check_all_see(lake, one, people(0, 3))
    assert one.table.unreferenced_files(FAR_FUTURE_MS) == []


def test_of_many_committers_at_once_one_wins(lake: IcebergFormat) -> None:
    table_writers = [made(lake, spec_of(PEOPLE))]
    table_writers += [LakeTableWriter(lake, table_writers[0].spec) for _ in range(3)]
    messages = [table_writer.write(people(0, 3)) for table_writer in table_writers]
    together = threading.Barrier(len(table_writers))

    def commit(table_writer: LakeTableWriter, message: CommitMessage) -> int:
        together.wait(patience(60))
        try:
            table_writer.commit(message)
        except FlussError as error:
            return error.error_code
        return ErrorCode.NONE

    with ThreadPoolExecutor(len(table_writers)) as pool:
        codes = sorted(pool.map(commit, table_writers, messages))
    assert codes == [ErrorCode.NONE] + [ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION] * 3
    assert LakeTableWriter(lake, table_writers[0].spec).rows() == people(0, 3)


def test_a_round_whose_files_were_rewritten_from_outside_fails(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    table_writer.commit(table_writer.write(people(0, 3)))
    files = table_writer.table.plan_files()
    replacing = table_writer.write(people(0, 2), start=3, replaces=files)
    deleting = table_writer.table.target().delete_rows(table_writer.write([], start=3), {files[0]: pa.array([0])})
    outside(lake, table_writer).overwrite(outside(lake, table_writer).scan().to_arrow())
    table_writer.table = table_writer.table.refreshed()
    for message in (replacing, deleting):
        with pytest.raises(FlussError, match="no longer in the table") as caught:
            table_writer.commit(message)
        assert caught.value.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
    assert by_key(table_writer.rows()) == people(0, 3)


def test_offsets_of_all_buckets_are_in_every_snapshot(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    assert table_writer.table.last_commit(TABLE_ID) is None
    table_writer.commit(table_writer.write(people(0, 3), bucket=0), table_writer.write(people(3, 2), bucket=2))
    empty = table_writer.table.commit(TABLE_ID, [], {bucket(1): 17}, {OFFSETS_PATH_PROPERTY: "remote/x.offsets"})
    commit = table_writer.table.last_commit(TABLE_ID)
    assert commit is not None
    assert (commit.snapshot_id, commit.offsets) == (empty, {bucket(0): 3, bucket(1): 17, bucket(2): 2})
    assert commit.properties["commit-user"] == COMMIT_USER
    assert commit.properties[OFFSETS_PATH_PROPERTY] == "remote/x.offsets"
    # An empty round keeps the rows, another writer's commit keeps the progress.
    check_all_see(lake, table_writer, people(0, 5))
    outside(lake, table_writer).delete("id = 4")
    assert table_writer.table.refreshed().last_commit(TABLE_ID) == commit
    assert table_writer.table.refreshed().committed_offsets(TABLE_ID + 1) == {}, "an earlier Fluss table of this name"
    with pytest.raises(FlussError, match="go back to an earlier offset"):
        table_writer.table.refreshed().commit(TABLE_ID, [], {bucket(0): 2})
    with pytest.raises(FlussError, match="cannot be committed for table 5"):
        table_writer.table.commit(5, [table_writer.write(people(0, 1), bucket=3)])


def test_offsets_of_many_buckets_are_a_file(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    offsets = {bucket(each): 10**12 + each for each in range(2000)}
    table_writer.table.commit(TABLE_ID, [], offsets)
    commit = table_writer.table.refreshed().last_commit(TABLE_ID)
    assert commit is not None
    assert commit.offsets == offsets
    assert len(commit.properties[OFFSETS_PROPERTY]) < table_module.INLINE_OFFSETS_LIMIT_BYTES
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == []


def test_a_round_that_dies_before_its_commit_leaves_only_unknown_files(lake: IcebergFormat, tmp_path: Path) -> None:
    """A process writes the files of a round and dies; the next round is not affected and the files can be found."""
    table_writer = made(lake, spec_of(PEOPLE))
    table_writer.commit(table_writer.write(people(0, 2)))
    script = """
import os, pickle, sys
from pathlib import Path
from tests.support.lake.tables import LakeTableWriter, local_lake, people
directory, spec = pickle.loads(bytes.fromhex(sys.argv[1]))
table_writer = LakeTableWriter(local_lake(directory), spec)
print(table_writer.write(people(2, 3), start=2).added[0].file_path, flush=True)
os.kill(os.getpid(), 9)
"""
    root = Path(str(lake.catalog.properties["warehouse"]).removeprefix("file://")).parents[1]
    argument = pickle.dumps((root, table_writer.spec)).hex()
    died = subprocess.run(
        [sys.executable, "-c", script, argument], capture_output=True, text=True, timeout=patience(120)
    )
    assert died.returncode == -9, died.stderr
    lost = died.stdout.strip()
    check_all_see(lake, table_writer, people(0, 2))
    fresh = LakeTableWriter(lake, table_writer.spec)
    assert fresh.table.committed_offsets(TABLE_ID) == {bucket(0): 2}
    fresh.commit(fresh.write(people(2, 3), start=2))
    check_all_see(lake, fresh, people(0, 5))
    assert fresh.table.unreferenced_files(FAR_FUTURE_MS) == [lost]
    assert fresh.table.unreferenced_files(int(os.stat(lost.removeprefix("file://")).st_mtime * 1000) - 1000) == []


def test_a_split_that_fails_half_way_commits_nothing(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))

    def broken() -> Any:
        yield table_writer.batch(people(0, 2), 0)
        raise ConnectionError("the server is gone")

    split = LakeSplit(bucket(0), None, 0, 4)
    with pytest.raises(FlussError, match="the server is gone"):
        table_writer.table.target().write_split(split, broken())
    row = table_writer.batch(people(0, 1), 0).append_column("city", pa.array(["Ulm"]))
    with pytest.raises(FlussError, match=r"columns that the lake table lacks: city.*Load the lake table again"):
        table_writer.table.target().write_split(split, [row])
    assert table_writer.table.refreshed().snapshot_id is None


def test_large_splits_become_several_files_of_several_row_groups(
    lake: IcebergFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fluss.lake.tables.iceberg import writing

    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 100)
    table_writer = made(lake, spec_of(PEOPLE, properties={"iceberg.write.target-file-size-bytes": "4000"}))
    split = LakeSplit(bucket(0), None, 0, 1000)
    batches = (table_writer.batch(people(each * 50, 50), each * 50) for each in range(20))
    message = table_writer.table.target().write_split(split, batches)
    assert message.row_count == 1000
    assert len(message.added) > 1
    assert sum(file.record_count for file in message.added) == 1000
    table_writer.commit(message)
    check_all_see(lake, table_writer, people(0, 1000))


def test_small_manifests_are_merged(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE, properties={"iceberg.commit.manifest.min-count-to-merge": "3"}))
    for each in range(5):
        table_writer.commit(table_writer.write(people(each, 1), start=each))
    snapshot = outside(lake, table_writer).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table_writer.table.target().open_io())) <= 3
    assert by_key(table_writer.rows()) == people(0, 5)


def test_an_expired_snapshot_is_a_clear_error(lake: IcebergFormat) -> None:
    table_writer = made(lake, spec_of(PEOPLE))
    first = table_writer.commit(table_writer.write(people(0, 1)))
    planned = table_writer.table.plan_files(first)
    table_writer.commit(table_writer.write(people(1, 1), start=1))
    outside(lake, table_writer).maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(FlussError, match="expired snapshots cannot be read") as caught:
        table_writer.table.refreshed().plan_files(first)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
    os.remove(planned[0].path.removeprefix("file://"))
    with pytest.raises(FlussError, match=r"reading file://.*parquet of the lake"):
        table_writer.rows(planned)


def test_files_are_on_disk_before_the_catalog_names_them(lake: IcebergFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    table_writer = made(lake, spec_of(PEOPLE))
    monkeypatch.setattr(os, "fsync", recording)
    table_writer.commit(table_writer.write(people(0, 1)))
    table = outside(lake, table_writer)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [each.manifest_path for each in snapshot.manifests(table.io)]
    needed = [table.metadata_location, snapshot.manifest_list, *manifests, table_writer.table.plan_files()[0].path]
    assert {path.removeprefix("file://") for path in needed} <= set(synced)
    assert {os.path.dirname(path.removeprefix("file://")) for path in needed} <= set(synced)


def check_refused(lake: IcebergFormat, spec: LakeTableSpec, words: str) -> None:
    with pytest.raises(FlussError, match=words) as caught:
        lake.create_table(spec)
    assert caught.value.error_code == ErrorCode.LAKE_TABLE_ALREADY_EXIST


def test_tables_are_created_once_and_checked_after(lake: IcebergFormat) -> None:
    spec = spec_of(PEOPLE, primary_key=["id"], properties={"iceberg.write.parquet.compression-codec": "snappy"})
    lake.create_table(spec)
    lake.create_table(spec)  # the coordinator died before it had created the Fluss table
    assert len(lake.catalog.load_table(identifier(spec.path)).metadata.metadata_log) == 0
    gzip = {"iceberg.write.parquet.compression-codec": "gzip"}
    different = {
        "its columns are id, name, age": spec_of({**PEOPLE, "x": PEOPLE["age"]}, primary_key=["id"]),
        "its column 'age' is int instead of long": spec_of({**PEOPLE, "age": PEOPLE["id"]}, primary_key=["id"]),
        r"its column 'id' is long \(required\) instead of long": spec_of(PEOPLE),
        "is 'snappy' instead of 'gzip'": spec_of(PEOPLE, primary_key=["id"], properties=gzip),
    }
    for words, other in different.items():
        check_refused(lake, type(spec)(spec.path, other.descriptor), words)
    log = spec_of(PEOPLE, bucket_keys=["age"])
    lake.create_table(log)
    words = r"it is partitioned by bucket\[4\]\(age\)"
    check_refused(lake, type(log)(log.path, spec_of(PEOPLE).descriptor), words)
    table_writer = LakeTableWriter(lake, spec)
    table_writer.commit(table_writer.write(people(0, 1)))
    with pytest.raises(FlussError, match="it has rows"):
        lake.create_table(spec)
    lake.create_table(spec, must_be_empty=False)  # the lake is enabled again


def test_columns_that_were_added_while_the_lake_was_disabled_are_added(lake: IcebergFormat) -> None:
    spec = spec_of(PEOPLE, primary_key=["id"])
    table_writer = made(lake, spec)
    table_writer.commit(table_writer.write(people(0, 1)))
    more = {**PEOPLE, "more": PEOPLE["name"]}
    longer = type(spec)(spec.path, spec_of({**more, "most": PEOPLE["id"]}, primary_key=["id"]).descriptor)
    with pytest.raises(FlussError, match="its columns are id, name, age"):
        lake.create_table(longer, must_be_empty=False)
    for columns, key in (
        ({**PEOPLE, "age": PEOPLE["id"], "more": PEOPLE["name"]}, ["id"]),
        ({"id": PEOPLE["id"], "more": PEOPLE["name"], "name": PEOPLE["name"], "age": PEOPLE["age"]}, ["id"]),
        (more, ["id", "more"]),
        ({"id": PEOPLE["id"]}, ["id"]),
    ):
        other = type(spec)(spec.path, spec_of(columns, primary_key=key, bucket_keys=["id"]).descriptor)
        with pytest.raises(FlussError) as caught:
            lake.create_table(other, must_be_empty=False, may_lack_columns=True)
        assert caught.value.error_code == ErrorCode.LAKE_TABLE_ALREADY_EXIST
    assert len(lake.catalog.load_table(identifier(spec.path)).schema().fields) == 6, "nothing else was added"
    for _ in ("first", "again"):
        lake.create_table(longer, must_be_empty=False, may_lack_columns=True)
        names = lake.catalog.load_table(identifier(spec.path)).schema().column_names
        assert names == ["id", "name", "age", "more", "most", "__bucket", "__offset", "__timestamp"]


def test_a_table_that_a_user_prepared_gets_what_tiering_needs(lake: IcebergFormat) -> None:
    spec = spec_of(PEOPLE)
    lake.create_table(spec)
    with lake.catalog.load_table(identifier(spec.path)).transaction() as transaction:
        transaction.remove_properties("fluss.table.datalake.format")
        transaction.set_properties({"commit.retry.num-retries": "7"})
    lake.create_table(spec)
    properties = lake.catalog.load_table(identifier(spec.path)).properties
    assert properties["commit.retry.num-retries"] == "0"
    assert properties["fluss.table.datalake.format"] == "iceberg"


def test_columns_that_do_not_fit_are_refused(lake: IcebergFormat) -> None:
    spec = spec_of(PEOPLE, primary_key=["id"])
    lake.create_table(spec)
    name, age = spec.descriptor.schema.columns[1:]
    with pytest.raises(FlussError, match="already has a column 'age' of type int") as caught:
        lake.add_columns(spec.path, [type(age)("age", name.data_type)])
    assert caught.value.error_code == ErrorCode.INVALID_ALTER_TABLE_EXCEPTION
    with pytest.raises(FlussError, match="is NOT NULL, but rows"):
        lake.add_columns(spec.path, [type(age)("x", name.data_type.not_null())])
    with pytest.raises(FlussError, match="there is no lake table") as caught:
        lake.load(type(spec.path)("db", "nothing"))
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
