"""Merge engines, delete behaviour, changelog images and numbered columns."""

from __future__ import annotations

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises
from tests.compat.cases.kv_kit import COLUMNS, changes, create_keyed, delete, lookup, upsert


@case(peer=True)
async def the_first_row_stays(context: Context) -> None:
    """With the engine first_row later rows and deletes do nothing."""
    path = await create_keyed(context, properties={"table.merge-engine": "first_row"})
    await upsert(context, path, [[1, "first", 1], [1, "second", 2]])
    await upsert(context, path, [[1, "third", 3]])
    await delete(context, path, [[1]])
    assert await lookup(context, path, [1]) == {"id": 1, "name": "first", "amount": 1}
    await upsert(context, path, [[2, "other", 4]])
    assert [row["name"] for _, row in await changes(context, path, 2)] == ["first", "other"]


@case(peer=True)
async def the_newest_version_stays(context: Context) -> None:
    """With the engine versioned a row with a lower version does nothing; null is the lowest."""
    path = await create_keyed(
        context,
        properties={"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "amount"},
    )
    await upsert(context, path, [[1, "five", 5]])
    await upsert(context, path, [[1, "four", 4]])
    assert (await lookup(context, path, [1]))["name"] == "five"
    await upsert(context, path, [[1, "five again", 5]])
    assert (await lookup(context, path, [1]))["name"] == "five again"
    await upsert(context, path, [[1, "null", None]])
    assert (await lookup(context, path, [1]))["name"] == "five again"
    assert [kind for kind, _ in await changes(context, path, 3)] == ["+I", "-U", "+U"]


@case(peer=True)
async def deletes_ignored_or_refused(context: Context) -> None:
    """`table.delete.behavior`."""
    ignoring = await create_keyed(context, name="ignoring", properties={"table.delete.behavior": "ignore"})
    await upsert(context, ignoring, [[1, "a", 1]])
    await delete(context, ignoring, [[1]])
    assert await lookup(context, ignoring, [1]) == {"id": 1, "name": "a", "amount": 1}
    refusing = await create_keyed(context, name="refusing", properties={"table.delete.behavior": "disable"})
    await upsert(context, refusing, [[1, "a", 1]])
    writer = (await context.table(refusing)).new_upsert().create_writer()
    await raises(57, writer.delete([1]).wait())
    assert await lookup(context, refusing, [1]) == {"id": 1, "name": "a", "amount": 1}


@case(peer=True)
async def changes_without_the_row_before(context: Context) -> None:
    """`table.changelog.image` WAL: every upsert is +U, a delete still has its row."""
    path = await create_keyed(context, properties={"table.changelog.image": "wal"})
    await upsert(context, path, [[1, "a", 1]])
    await upsert(context, path, [[1, "b", 2]])
    await delete(context, path, [[1], [2]])
    assert [(kind, row["name"]) for kind, row in await changes(context, path, 3)] == [
        ("+U", "a"),
        ("+U", "b"),
        ("-D", "b"),
    ]
    assert await lookup(context, path, [1]) is None


@case(peer=True)
async def numbered_rows(context: Context) -> None:
    """An auto-increment column is filled on insert and kept on update; writes leave it out."""
    fields = {**COLUMNS, "number": pa.int64()}
    path = await create_keyed(context, fields, auto_increment="number")
    columns = ["id", "name", "amount"]
    await upsert(context, path, [{"id": key, "name": "a", "amount": key} for key in (5, 6, 7)], columns)
    numbers = [(await lookup(context, path, [key]))["number"] for key in (5, 6, 7)]
    assert numbers == [1, 2, 3]
    await upsert(context, path, [{"id": 6, "name": "b", "amount": 0}], columns)
    assert await lookup(context, path, [6]) == {"id": 6, "name": "b", "amount": 0, "number": 2}
    assert (await (await context.admin()).get_table_info(path)).get_schema().get_auto_increment_columns() == ["number"]
    assert fluss.ErrorCode is not None
