"""Primary-key tables: upserts, deletes and partial updates, and the changes that they leave in the log."""

from __future__ import annotations

import asyncio

from tests.compat.cases.kit import Context, case, fluss, poll_records, raises
from tests.compat.cases.kv_kit import changes, create_keyed, delete, lookup, upsert


@case(peer=True)
async def upsert_update_delete(context: Context) -> None:
    """The newest row of a key is found; after a delete none is; every change is in the log."""
    path = await create_keyed(context)
    await upsert(context, path, [{"id": 1, "name": "a", "amount": 10}, {"id": 2, "name": "b"}])
    assert await lookup(context, path, {"id": 1}) == {"id": 1, "name": "a", "amount": 10}
    assert await lookup(context, path, [2]) == {"id": 2, "name": "b", "amount": None}
    assert await lookup(context, path, (3,)) is None
    await upsert(context, path, [[1, "A", None]])
    assert await lookup(context, path, {"id": 1}) == {"id": 1, "name": "A", "amount": None}
    await delete(context, path, [{"id": 1}, {"id": 7}])
    assert await lookup(context, path, {"id": 1}) is None
    await upsert(context, path, [[1, "again", 1]])
    assert await changes(context, path, 6) == [
        ("+I", {"id": 1, "name": "a", "amount": 10}),
        ("+I", {"id": 2, "name": "b", "amount": None}),
        ("-U", {"id": 1, "name": "a", "amount": 10}),
        ("+U", {"id": 1, "name": "A", "amount": None}),
        ("-D", {"id": 1, "name": "A", "amount": None}),
        ("+I", {"id": 1, "name": "again", "amount": 1}),
    ]


@case(peer=True)
async def one_key_many_times(context: Context) -> None:
    """Writes of one key in one batch keep their order, deletes among them."""
    path = await create_keyed(context)
    writer = (await context.table(path)).new_upsert().create_writer()
    for amount in range(3):
        writer.upsert([1, "x", amount])
    writer.delete([1])
    writer.upsert([1, "y", 9])
    await writer.flush()
    assert await lookup(context, path, [1]) == {"id": 1, "name": "y", "amount": 9}
    kinds = [(kind, row["amount"]) for kind, row in await changes(context, path, 7)]
    assert kinds == [("+I", 0), ("-U", 0), ("+U", 1), ("-U", 1), ("+U", 2), ("-D", 2), ("+I", 9)]


@case(peer=True)
async def a_write_without_effect_takes_one_offset(context: Context) -> None:
    """Deleting what is not there leaves no change, but the log moves; an identical row is a change."""
    path = await create_keyed(context)
    admin = await context.admin()
    await delete(context, path, [[5]])
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.latest()) == {0: 1}
    await upsert(context, path, [[5, "same", 1]])
    await upsert(context, path, [[5, "same", 1]])
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.latest()) == {0: 4}
    scanner = await context.scanner(path)
    offsets = [record.offset for record in await poll_records(scanner, 3)]
    assert offsets == [1, 2, 3]


@case(peer=True)
async def a_reader_goes_over_writes_without_effect(context: Context) -> None:
    """The latest offsets have no row, and a reader that has polled them gets the next row."""
    path = await create_keyed(context)
    await upsert(context, path, [[1, "a", 1]])
    scanner = await context.scanner(path)
    assert [record.offset for record in await poll_records(scanner, 1)] == [0]
    await delete(context, path, [[7]])
    assert list(await scanner.poll(200)) == []
    await delete(context, path, [[8]])
    await upsert(context, path, [[2, "b", 2]])
    assert [record.offset for record in await poll_records(scanner, 1)] == [3]


@case(peer=True)
async def partial_updates(context: Context) -> None:
    """Only the named columns change; the key alone changes nothing, but inserts a row of nulls."""
    path = await create_keyed(context)
    await upsert(context, path, [{"id": 1, "name": "a"}], ["id", "name"])
    await upsert(context, path, [{"id": 1, "amount": 5}], ["id", "amount"])
    assert await lookup(context, path, [1]) == {"id": 1, "name": "a", "amount": 5}
    await upsert(context, path, [{"id": 1, "name": None}], ["name", "id"])
    assert await lookup(context, path, [1]) == {"id": 1, "name": None, "amount": 5}
    await upsert(context, path, [{"id": 1}, {"id": 2}], ["id"])
    assert await lookup(context, path, [1]) == {"id": 1, "name": None, "amount": 5}
    assert await lookup(context, path, [2]) == {"id": 2, "name": None, "amount": None}
    writer = (await context.table(path)).new_upsert().partial_update_by_index([0, 2]).create_writer()
    writer.upsert({"id": 2, "amount": 7})
    await writer.flush()
    assert await lookup(context, path, [2]) == {"id": 2, "name": None, "amount": 7}
    assert [kind for kind, _ in await changes(context, path, 8)] == ["+I", "-U", "+U", "-U", "+U", "+I", "-U", "+U"]


@case(peer=True)
async def partial_deletes(context: Context) -> None:
    """A delete through some columns empties them; the row goes when nothing is left."""
    path = await create_keyed(context)
    await upsert(context, path, [[1, "a", 5]])
    await delete(context, path, [[1]], ["id", "name"])
    assert await lookup(context, path, [1]) == {"id": 1, "name": None, "amount": 5}
    await delete(context, path, [[1]], ["id", "amount"])
    assert await lookup(context, path, [1]) is None
    assert [kind for kind, _ in await changes(context, path, 4)] == ["+I", "-U", "+U", "-D"]


@case()
async def refused_by_the_client(context: Context) -> None:
    """Null keys, missing key columns, targets without the key, appends to a table with a key."""
    path = await create_keyed(context)
    table = await context.table(path)
    writer = table.new_upsert().create_writer()

    async def call(function: object, *arguments: object) -> object:
        assert callable(function)
        return function(*arguments)

    await raises(-2, call(writer.upsert, {"name": "no key"}))
    await raises(-2, call(writer.upsert, [None, "a", 1]))
    await raises(-2, call(writer.delete, {}))
    await raises(-2, call(table.new_upsert().partial_update_by_name(["name"]).create_writer))


@case()
async def many_rows_in_many_buckets(context: Context) -> None:
    """20,000 rows written twice over three buckets; every key is found with its last value."""
    path = await create_keyed(context, bucket_count=3)
    for round_number in range(2):
        await upsert(context, path, [[number, f"name {number}", round_number] for number in range(20_000)])
    table = await context.table(path)
    lookupers = [table.new_lookup().create_lookuper() for _ in range(16)]
    wanted = range(0, 20_000, 97)
    found = await asyncio.gather(*(lookupers[key % 16].lookup([key]) for key in wanted))
    assert found == [{"id": key, "name": f"name {key}", "amount": 1} for key in wanted]
    scanner = await context.scanner(path, [0, 1, 2])
    records = await poll_records(scanner, 60_000)
    kinds = [record.change_type.short_string() for record in records]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"+I": 20_000, "-U": 20_000, "+U": 20_000}


@case()
async def two_writers(context: Context) -> None:
    """Two connections write disjoint keys at once."""
    path = await create_keyed(context, bucket_count=2)
    other = await context.connect()

    async def write(connection: object, start: int) -> None:
        table = await connection.get_table(path)  # type: ignore[attr-defined]
        writer = table.new_upsert().create_writer()
        for key in range(start, start + 500):
            writer.upsert([key, str(start), key])
            if key % 100 == 0:
                await writer.flush()
        await writer.flush()

    await asyncio.gather(write(await context.connection(), 0), write(other, 1000))
    for key, name in ((0, "0"), (499, "0"), (1000, "1000"), (1499, "1000")):
        assert await lookup(context, path, [key]) == {"id": key, "name": name, "amount": key}


@case(peer=True)
async def batches_of_the_changelog(context: Context) -> None:
    """The log of a primary-key table as record batches, with projection."""
    path = await create_keyed(context)
    await upsert(context, path, [[1, "a", 1], [2, "b", 2]])
    await delete(context, path, [[2]])
    scanner = await context.scanner(path, project_by_name=["amount", "id"])
    records = await poll_records(scanner, 3)
    assert [record.row for record in records] == [
        {"amount": 1, "id": 1},
        {"amount": 2, "id": 2},
        {"amount": 2, "id": 2},
    ]
    assert [record.change_type for record in records][-1] == fluss.ChangeType.Delete


@case(peer=True)
async def a_column_more(context: Context) -> None:
    """Rows that were written before a column was added have nulls in it; a writer of the older schema goes on."""
    path = await create_keyed(context)
    old_writer = (await context.table(path)).new_upsert().create_writer()
    old_writer.upsert([1, "old", 1])
    old_writer.upsert([2, "old", 2])
    await old_writer.flush()
    await context.ask(f"add_column {context.database} t extra")
    table = await (await context.connect()).get_table(path)
    lookuper = table.new_lookup().create_lookuper()
    assert await lookuper.lookup([1]) == {"id": 1, "name": "old", "amount": 1, "extra": None}
    writer = table.new_upsert().partial_update_by_name(["id", "extra"]).create_writer()
    writer.upsert({"id": 1, "extra": "more"})
    await writer.flush()
    assert await lookuper.lookup([1]) == {"id": 1, "name": "old", "amount": 1, "extra": "more"}
    old_writer.upsert([2, "older", 3])
    await old_writer.flush()
    assert await lookuper.lookup([2]) == {"id": 2, "name": "older", "amount": 3, "extra": None}
