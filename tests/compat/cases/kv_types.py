"""Every data type in primary-key tables, in rows and in keys."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, poll_records
from tests.compat.cases.kv_kit import create_keyed, delete, lookup, upsert
from tests.compat.cases.values import ALL, NESTED, SCALARS


def same(left: Any, right: Any) -> bool:
    """Equality of values as they come back, NaN included."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


async def check_columns(context: Context, columns: dict[str, tuple[pa.DataType, str, list[Any]]]) -> None:
    """Write each sample value and null, look the rows up, update them, and read the changes."""
    fields = {"id": pa.int32(), **{name: kind for name, (kind, _, _) in columns.items()}}
    path = await create_keyed(context, fields)
    count = max(len(values) for _, _, values in columns.values())
    rows = [
        {"id": index, **{name: values[index % len(values)] for name, (_, _, values) in columns.items()}}
        for index in range(count)
    ]
    rows.append({"id": count, **dict.fromkeys(columns)})
    await upsert(context, path, rows)
    looked_up = [await lookup(context, path, [row["id"]]) for row in rows]
    await upsert(context, path, [{"id": 0, **dict.fromkeys(columns)}])
    records = await poll_records(await context.scanner(path), len(rows) + 2)
    logged = [record.row for record in records]
    for name in fields:
        for row, found, change in zip(rows, looked_up, logged, strict=False):
            assert same(found[name], change[name]), f"{name}: {found[name]!r} looked up, {change[name]!r} in the log"
            assert found[name] is not None or row[name] is None, f"{name}: {row[name]!r} came back as null"
    assert logged[-2] == logged[0]
    assert logged[-1] == {"id": 0, **dict.fromkeys(columns)}


@case(peer=True)
async def scalars_in_rows(context: Context) -> None:
    """All scalar types, least and greatest values, null."""
    await check_columns(context, SCALARS)


@case(peer=True)
async def nested_in_rows(context: Context) -> None:
    """Arrays, maps and rows, inside each other too."""
    await check_columns(context, NESTED)


KEY_TYPES = [name for name in SCALARS if name not in ("float", "double")]


@case(peer=True)
async def scalars_as_keys(context: Context) -> None:
    """Every scalar type is a key of its own table: written, found, updated, deleted."""
    for name in KEY_TYPES:
        kind, _, values = ALL[name]
        path = await create_keyed(context, {"k": kind, "v": pa.string()}, ("k",), f"by_{name}", bucket_count=2)
        await upsert(context, path, [[value, "first"] for value in values])
        await upsert(context, path, [[values[0], "second"]])
        assert (await lookup(context, path, [values[0]]))["v"] == "second", name
        if len(values) > 1:
            assert (await lookup(context, path, [values[1]]))["v"] == "first", name
        await delete(context, path, [[values[0]]])
        assert await lookup(context, path, [values[0]]) is None, name
