"""Small files become large ones, with the same rows in order for every reader, and the offsets of the newest round."""

from __future__ import annotations

import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.compaction import compact, groups_worth_rewriting, rewrite
from fluss.lake.maintenance.options import MaintenanceOptions
from fluss.lake.maintenance.service import maintain_if_due
from fluss.lake.maintenance.task_runners import LocalRunner
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.lake.tables.interface.format import OFFSETS_PATH_PROPERTY, LakeFile, LakeSplit
from fluss.model.schema import Column
from fluss.model.types import StringType
from tests.lake.tables.test_readers import all_types, by_key, check_all_see, outside
from tests.lake.tiering.test_rounds import FAR_FUTURE_MS, bucket
from tests.support.lake.maintenance import ROUNDS, Registry, keyed_table, log_table, maintenance_of
from tests.support.lake.tables import COMMITTED, PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of
from tools.waiting import patience


def test_small_files_of_a_log_table_become_one_per_bucket(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake)
    offsets = table_writer.table.committed_offsets(TABLE_ID)
    before = table_writer.table.snapshot_id
    registry = Registry()
    jobs = maintenance_of(table_writer, registry=registry)
    plan = jobs.plan_compaction()
    assert table_writer.table.refreshed().snapshot_id == before, "a plan changes nothing"
    assert (
        str(plan).splitlines()[0] == f"compact db.{table_writer.spec.path.table_name}: {2 * ROUNDS} files in 2 groups"
    )
    assert "  bucket 1: 6 files, 0.0 MiB, 18 rows" in str(plan)
    result = jobs.compact(plan)
    assert (result.files_before, result.files_after, result.groups_given_up) == (2 * ROUNDS, 2, 0)
    assert str(result).startswith("12 files became 2 (0.0 MiB) in snapshot ")

    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)
    files = table_writer.table.plan_files()
    assert [(file.bucket_id, file.row_count, file.first_offset, file.last_offset) for file in files] == [
        (0, 18, 0, 17),
        (1, 18, 0, 17),
    ]
    for file in files:
        read = table_writer.rows([file], ["__offset", "__bucket"])
        assert read == [{"__offset": each, "__bucket": file.bucket_id} for each in range(18)], "in order"
    newest = table_writer.table.last_commit(TABLE_ID)
    assert newest is not None
    assert (newest.snapshot_id, newest.offsets) == (result.snapshot_id, offsets)
    assert newest.properties[OFFSETS_PATH_PROPERTY] == "remote/1.offsets"
    assert (registry.prepared, registry.registered) == ([offsets], [result.snapshot_id])
    snapshot = outside(lake, table_writer).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace", "no change for readers that follow the table"
    assert (snapshot.summary["total-data-files"], snapshot.summary["total-records"]) == ("2", "36")
    assert by_key(table_writer.rows(table_writer.table.plan_files(before))) == rows, "time travel to before"
    # Tiering continues where it was, and there is nothing left to compact.
    table_writer.commit(table_writer.write(people(36, 2), start=18))
    check_all_see(lake, table_writer, [*rows, *people(36, 2)])
    assert maintenance_of(table_writer).compact().snapshot_id is None


def test_position_deletes_are_folded(lake: IcebergFormat) -> None:
    table_writer, rows = keyed_table(lake)
    check_all_see(lake, table_writer, rows)
    plan = maintenance_of(table_writer, compaction_max_delete_files=ROUNDS).plan_compaction()
    assert "7 files" in str(plan)
    assert "6 hidden rows removed" in str(plan)
    assert maintenance_of(table_writer, compaction_max_delete_files=ROUNDS).compact().files_after == 1
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)
    (file,) = table_writer.table.plan_files()
    assert (file.row_count, file.deleted_rows, file.delete_file_count) == (20, 0, 0)
    summary = outside(lake, table_writer).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("0", "0")
    assert [row["__offset"] for row in table_writer.rows([file], ["__offset"])] == [*range(6, 20), *range(20, 26)]


def test_rows_of_files_with_overlapping_ranges_are_sorted(lake: IcebergFormat) -> None:
    """A bucket that was written from its state has offsets of all times in one file."""
    table_writer = made(lake, spec_of(PEOPLE, primary_key=["id"]))
    for number in range(5):
        batch = table_writer.batch(people(number * 2, 2), 0)
        offsets = pa.array([number, 10 - number], pa.int64())
        batch = batch.set_column(batch.schema.get_field_index("__offset"), "__offset", offsets)
        message = table_writer.write([], start=number * 2)
        split = type(message.split)(message.split.bucket, None, number * 2, number * 2 + 2)
        table_writer.commit(table_writer.table.target().write_split(split, [batch]))
    assert maintenance_of(table_writer).compact().files_after == 1
    table_writer.table = table_writer.table.refreshed()
    found = [row["__offset"] for row in table_writer.rows(columns=["__offset"])]
    assert found == sorted(found)
    check_all_see(lake, table_writer, people(0, 10))


def test_all_types_partitions_and_added_columns(lake: IcebergFormat) -> None:
    """Whole rows are copied, even columns that the compacting process does not know."""
    table_writer, batch = all_types(lake)
    target = table_writer.table.target()
    for number in range(1, 5):
        offsets = pa.array(range(number * 3, number * 3 + 3), pa.int64())
        more = batch.append_column("__offset", offsets).append_column("__timestamp", pa.array([COMMITTED] * 3))
        table_writer.commit(target.write_split(LakeSplit(bucket(0), None, number * 3, number * 3 + 3), [more]))
    rows = table_writer.rows()
    lake.add_columns(table_writer.spec.path, [Column("later", StringType())])
    assert maintenance_of(table_writer).compact().files_after == 1
    table_writer.table = table_writer.table.refreshed()
    assert table_writer.rows() == rows
    assert "later" in outside(lake, table_writer).scan().to_arrow().column_names

    columns = {"region": StringType(), **PEOPLE}
    parted = made(lake, spec_of(columns, primary_key=["region", "id"], partition_keys=["region"]))
    expected = []
    for number in range(5):
        for index, name in enumerate(("north", "so/uth")):
            some = people(number * 10 + index, 1, region=name)
            expected += some
            parted.commit(parted.write(some, start=number, bucket=1, partition=(11 + index, name)))
    plan = maintenance_of(parted).plan_compaction()
    assert [task.split.partition_name for task in plan.tasks] == ["north", "so/uth"]
    assert "partition so/uth, bucket 1: 5 files" in str(plan)
    maintenance_of(parted).compact()
    parted.table = parted.table.refreshed()
    check_all_see(lake, parted, expected)
    assert len(parted.table.plan_files()) == 2


def file_of(number: int, size: int, *, deleted: int = 0, deletes: int = 0) -> LakeFile:
    return LakeFile(f"f{number}", 0, None, 100, size, deleted, None, number * 100, number * 100 + 99, deletes)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([1] * 4, []),
        ([1] * 5, [[0, 1, 2, 3, 4]]),
        ([90, 1, 1, 1, 1, 1], [[1, 2, 3, 4, 5]]),  # large ones stay
        ([1, 1, 1, 90, 1, 1], []),  # neighbours only: ranges must not reach over a file that stays
        ([30, 1, 1, 1, 1, 1], [[1, 2, 3, 4, 5]]),  # it would be copied for little
        ([4, 1, 1, 1, 1, 1], [[0, 1, 2, 3, 4, 5]]),
        ([40, 20, 10, 5, 2, 1, 1], []),
        ([20] * 12, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),  # about one new file each
    ],
)
def test_which_files_are_worth_it(sizes: list[int], groups: list[list[int]]) -> None:
    options = MaintenanceOptions(target_file_bytes=100)
    files = [file_of(number, size) for number, size in enumerate(sizes)]
    random.Random(1).shuffle(files)
    found = groups_worth_rewriting(files, options)
    assert [[int(file.path[1:]) for file in group] for group in found] == groups


def test_deletes_are_worth_it_alone(lake: IcebergFormat) -> None:
    options = MaintenanceOptions(target_file_bytes=100)
    assert groups_worth_rewriting([file_of(0, 99, deleted=30, deletes=9)], options) == []
    for worn in (file_of(0, 99, deleted=31, deletes=1), file_of(0, 99, deleted=10, deletes=10)):
        assert groups_worth_rewriting([worn, file_of(1, 90)], options) == [[worn]]


def test_rounds_do_not_copy_everything_repeatedly() -> None:
    """A thousand rounds of one unit each: the bytes written stay near n log n, and there are few files."""
    options = MaintenanceOptions(target_file_bytes=10**9)
    files: list[LakeFile] = []
    written = most = 0
    for number in range(1000):
        files.append(LakeFile(f"f{number}", 0, None, 1, 1, 0, None, number, number))
        for group in groups_worth_rewriting(files, options):
            size = sum(file.size_bytes for file in group)
            written += size
            first, last = group[0].first_offset, group[-1].last_offset
            files = [file for file in files if file not in group]
            files.append(LakeFile(f"c{number}", 0, None, size, size, 0, None, first, last))
        most = max(most, len(files))
    assert written < 10 * 1000
    assert most < 20


def test_a_round_comes_first_and_the_rest_of_the_compaction_fits(lake: IcebergFormat) -> None:
    """Between rewrite and commit, a round appends to one bucket and rewrites the other one."""
    table_writer, rows = log_table(lake)
    plan = maintenance_of(table_writer).plan_compaction()

    class Overtaken(LocalRunner):
        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            done = list(super().run(function, tasks))
            replaced = table_writer.table.plan_files(buckets=[(None, 1)])
            again = table_writer.rows(replaced)
            table_writer.commit(
                table_writer.write(people(100, 1), start=18), table_writer.write(again, 18, 1, replaces=replaced)
            )
            return iter(done)

    result = compact(table_writer.table, TABLE_ID, plan, Overtaken(), Registry())
    assert (result.files_before, result.files_after, result.groups_given_up) == (ROUNDS, 1, 1)
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, [*rows, *people(100, 1)])
    assert table_writer.table.committed_offsets(TABLE_ID) == {bucket(0): 19, bucket(1): 36}
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == [], "what did not fit was discarded"


def test_a_row_deleted_in_the_meantime_stays_deleted(lake: IcebergFormat) -> None:
    table_writer, rows = keyed_table(lake)
    jobs = maintenance_of(table_writer, compaction_max_delete_files=ROUNDS)
    plan = jobs.plan_compaction()
    messages = [rewrite(pickle.loads(pickle.dumps(task))) for task in plan.tasks]

    class Done(LocalRunner):
        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            return iter(messages)

    (file,) = [each for each in table_writer.table.plan_files() if each.deleted_rows]
    message = table_writer.write([], start=26)
    message = type(message)(type(message.split)(message.split.bucket, None, 26, 27), 0)
    table_writer.commit(table_writer.table.target().delete_rows(message, {file: pa.array([19])}))
    result = compact(table_writer.table, TABLE_ID, plan, Done())
    assert (result.snapshot_id, result.groups_given_up) == (None, 1)
    assert str(result) == "nothing compacted: the table changed in the meantime"
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, [row for row in rows if row["id"] != 19])


def test_a_coordinator_that_refuses_costs_nothing(lake: IcebergFormat) -> None:
    """The snapshot is already in the lake: its files must stay, whatever the coordinator answers."""

    class Refusing(Registry):
        def register(self, snapshot_id: int, offsets_path: str, earliest_snapshot_id: int | None) -> None:
            raise FlussError("behind the newest one", ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION)

    table_writer, rows = log_table(lake)
    assert maintenance_of(table_writer, registry=Refusing()).compact().files_after == 2
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)


def test_a_round_that_was_planned_before_a_compaction_is_fenced(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake)
    late = LakeTableWriter(lake, table_writer.spec)
    message = late.write(people(100, 2), start=18)
    maintenance_of(table_writer).compact()
    with pytest.raises(FlussError, match="load the table again") as caught:
        late.commit(message)
    assert caught.value.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
    late.table = late.table.refreshed()
    late.commit(message)
    check_all_see(lake, late, [*rows, *people(100, 2)])


def test_tiering_and_maintenance_at_the_same_time_lose_nothing(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake, rounds=1, buckets=1)
    rounds_done = threading.Event()

    def tier() -> list[dict[str, object]]:
        mine = LakeTableWriter(lake, table_writer.spec)
        added: list[dict[str, object]] = []
        for number in range(12):
            batch = people(100 + number, 1)
            while True:
                try:
                    mine.commit(mine.write(batch, start=3 + number))
                    break
                except FlussError as error:
                    if error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION:
                        raise
                    mine.table = mine.table.refreshed()
            added += batch
        rounds_done.set()
        return added

    with ThreadPoolExecutor(1) as pool:
        tiering = pool.submit(tier)
        reports = []
        while not rounds_done.is_set():
            reports.append(maintain_if_due(table_writer.table, TABLE_ID, {}, registry=Registry()))
        added = tiering.result(patience(60))
    # On a busy machine every compaction may have lost to a round: then it is done after the rounds.
    reports.append(maintain_if_due(table_writer.table, TABLE_ID, {}, registry=Registry()))
    assert [report.errors for report in reports] == [()] * len(reports)
    assert any(report.compaction is not None and report.compaction.snapshot_id is not None for report in reports)
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, [*rows, *added])
    assert table_writer.table.committed_offsets(TABLE_ID) == {bucket(0): 15}
    offsets = [row["__offset"] for row in table_writer.rows(columns=["__offset"])]
    assert sorted(offsets) == list(range(15))


def test_tables_of_other_writers_are_left_alone(lake: IcebergFormat) -> None:
    table_writer, _ = log_table(lake)
    other = type(maintenance_of(table_writer))(table_writer.table, TABLE_ID + 1)
    assert other.plan_compaction().tasks == (), "nothing was tiered from this table id"
    off = {"table.datalake.auto-compaction": "false", "table.datalake.auto-expire-snapshot": "false"}
    assert str(maintain_if_due(table_writer.table, TABLE_ID, off)) == "nothing was due"
    bad = made(lake, spec_of(PEOPLE, properties={"iceberg.maintenance.compaction.min-files": "many"}))
    report = maintain_if_due(bad.table, TABLE_ID, {})
    assert (
        "'maintenance.compaction.min-files' of the lake table must be a number that is not negative, got 'many'"
        in report.errors[0]
    )
