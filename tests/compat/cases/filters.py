"""Filters: rows that match always come; batches that cannot match stay away where the table keeps statistics.

Apache Fluss 0.9.1 knows no statistics: there the same scans return everything, which the contract of pyfluss allows.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_records, raises
from tests.compat.cases.values import SCALARS, schema_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64()), ("day", pa.date32())])
BATCH_ROWS = 10
BATCHES = 4


def sample(number: int) -> dict[str, Any]:
    """A row of batch `number // 10`: ids rise, names start with the batch's letter, scores exist in even batches."""
    batch = number // BATCH_ROWS
    return {
        "id": number,
        "name": f"{'abcd'[batch]}{number:03d}",
        "score": None if batch % 2 else number / 2,
        "day": datetime.date(2024, 1, 1) + datetime.timedelta(days=number),
    }


async def four_batches(context: Context) -> Any:
    """A table with statistics (where the server knows them) and four batches with separate ranges."""
    properties = {} if context.is_apache else {"table.statistics.columns": "*"}
    path = await context.create(SCHEMA, properties=properties)
    for start in range(0, BATCH_ROWS * BATCHES, BATCH_ROWS):
        await context.append(path, [sample(number) for number in range(start, start + BATCH_ROWS)])
    return path


async def batches_that_come(context: Context, path: Any, predicate: Any) -> set[int]:
    """Which of the four batches a filtered bounded read returns."""
    table = await context.read_arrow(path, filter=predicate)
    counts: dict[int, int] = {}
    for number in table.column("id").to_pylist():
        counts[number // BATCH_ROWS] = counts.get(number // BATCH_ROWS, 0) + 1
    assert set(counts.values()) <= {BATCH_ROWS}, "only whole batches are left away"
    return set(counts)


async def check(context: Context, cases: list[tuple[Callable[[], Any], set[int]]]) -> None:
    """Each predicate lets exactly these batches through, and the newest one (all of them on the peer).

    The newest batch comes to a bounded read of pyfluss, which ends only when it sees it.
    """
    path = await four_batches(context)
    everything = set(range(BATCHES))
    for number, (predicate, expected) in enumerate(cases):
        came = await batches_that_come(context, path, predicate())
        assert came == (everything if context.is_apache else expected | {BATCHES - 1}), (number, came, expected)


@case(peer=True)
async def comparisons(context: Context) -> None:
    """Each comparison operator against the ranges of the batches."""
    col = fluss.col
    await check(
        context,
        [
            (lambda: col("id") > 29, {3}),
            (lambda: col("id") >= 29, {2, 3}),
            (lambda: col("id") < 10, {0}),
            (lambda: col("id") <= 10, {0, 1}),
            (lambda: col("id") == 15, {1}),
            (lambda: col("id") != 15, {0, 1, 2, 3}),
            (lambda: col("id") > 1000, set()),
            (lambda: col("id").is_in([3, 39]), {0, 3}),
            (lambda: col("id").not_in([3, 39]), {0, 1, 2, 3}),
            (lambda: col("day") >= datetime.date(2024, 2, 5), {3}),
            (lambda: col("score") > 14.0, {2}),
        ],
    )


@case()
async def texts_and_nulls(context: Context) -> None:
    """Prefixes prune by range, nulls by their count; suffixes and infixes cannot prune."""
    col = fluss.col
    await check(
        context,
        [
            (lambda: col("name").starts_with("c"), {2}),
            (lambda: col("name").ends_with("9"), {0, 1, 2, 3}),
            (lambda: col("name").contains("03"), {0, 1, 2, 3}),
            (lambda: col("name") == "b015", {1}),
            (lambda: col("score").is_null(), {1, 3}),
            (lambda: col("score").is_not_null(), {0, 2}),
            (lambda: col("id").is_null(), set()),
        ],
    )


@case()
async def combinations(context: Context) -> None:
    """and, or, nested."""
    col = fluss.col
    await check(
        context,
        [
            (lambda: (col("id") > 5) & (col("id") < 15), {0, 1}),
            (lambda: (col("id") < 5) | (col("id") > 35), {0, 3}),
            (lambda: ((col("id") < 5) | (col("id") > 25)) & col("score").is_not_null(), {0, 2}),
            (lambda: (col("id") < 5).and_(col("name").starts_with("z")), set()),
            (lambda: (col("id") < 5).or_(col("name").starts_with("d")), {0, 3}),
        ],
    )


@case()
async def filter_with_projection_and_polls(context: Context) -> None:
    """The filter may use a column that is not read; a poll steps over what is left away."""
    path = await four_batches(context)
    predicate = fluss.col("id") >= 30
    scanner = await context.scanner(path, project_by_name=["name"], filter=predicate)
    names = [record.row["name"] for record in await poll_records(scanner, BATCH_ROWS)]
    assert {"d030", "d039"} <= set(names) or context.is_apache
    await context.append(path, [sample(5), sample(35)])
    seen: list[str] = []
    while "d035" not in seen:
        seen += [record.row["name"] for record in await poll_records(scanner, 1)]
    table = await context.read_arrow(path, project=[2, 1], filter=predicate)
    assert table.schema.names == ["score", "name"]
    assert "d039" in table.column("name").to_pylist()


@case()
async def filters_of_every_type(context: Context) -> None:
    """A literal of every scalar type that statistics can hold: what matches comes, what cannot does not."""
    properties = {} if context.is_apache else {"table.statistics.columns": "*"}
    path = await context.create(schema_of(SCALARS), properties=properties)
    writer = (await context.table(path)).new_append().create_writer()
    rows = [{"id": 0, **{name: values[0] for name, (_, _, values) in SCALARS.items()}}]
    newest = [{"id": 1, **dict.fromkeys(SCALARS)}]
    for part in (rows, newest):
        writer.write_arrow(pa.Table.from_pylist(part, schema=schema_of(SCALARS)))
        await writer.flush()
    for name, (_, text, values) in SCALARS.items():
        if name in ("bytes", "binary"):
            continue
        equal = await context.read_arrow(path, filter=fluss.col(name) == values[0])
        assert equal.num_rows == 2, (text, "a matching row was left away")
        if len(values) > 1:
            other = await context.read_arrow(path, filter=fluss.col(name) == values[1])
            assert other.num_rows == (2 if context.is_apache else 1), (text, "a batch that cannot match came")


@case()
async def refused_filters(context: Context) -> None:
    """The client refuses unknown columns and filters with a limit."""
    path = await context.create(SCHEMA)

    async def scan(predicate: Any) -> None:
        await context.scanner(path, filter=predicate)

    await raises(-2, scan(fluss.col("zz") > 1), "zz")
    builder = (await context.table(path)).new_scan().limit(3).filter(fluss.col("id") > 1)
    bucket = fluss.TableBucket((await context.table(path)).get_table_info().table_id, 0)

    async def limited() -> Any:
        return await builder.create_bucket_batch_scanner(bucket).next_batch()

    await raises(-2, limited(), "filter")


@case()
async def statistics_property(context: Context) -> None:
    """Code 39 for a column that is not there; 0.9.1 knows the property not at all."""
    admin = await context.admin()
    bad = fluss.TableDescriptor(fluss.Schema(SCHEMA), properties={"table.statistics.columns": "id,zz"})
    await raises(39, admin.create_table(context.path(), bad), "table.statistics.columns")
