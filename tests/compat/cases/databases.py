"""Databases: what an admin can do with them, and each error code."""

from __future__ import annotations

import time

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises


@case(peer=True)
async def life_of_a_database(context: Context) -> None:
    """Create with comment and properties, read them back, list, drop."""
    admin = (await context.connection()).get_admin()
    name = context.database
    assert await admin.database_exists(name) is False
    before = int(time.time() * 1000)
    descriptor = fluss.DatabaseDescriptor(comment="staging", custom_properties={"team": "ingest", "tier": "1"})
    await admin.create_database(name, descriptor)
    assert await admin.database_exists(name) is True
    assert name in await admin.list_databases()
    assert await admin.list_tables(name) == []
    info = await admin.get_database_info(name)
    assert info.database_name == name
    assert info.get_database_descriptor().comment == "staging"
    assert info.get_database_descriptor().get_custom_properties() == {"team": "ingest", "tier": "1"}
    assert before - 1000 <= info.created_time <= int(time.time() * 1000) + 1000
    assert info.created_time == info.modified_time
    await admin.drop_database(name, cascade=True)
    assert await admin.database_exists(name) is False
    assert name not in await admin.list_databases()


@case()
async def database_without_descriptor(context: Context) -> None:
    """No descriptor means no comment and no properties."""
    admin = await context.admin()
    descriptor = (await admin.get_database_info(context.database)).get_database_descriptor()
    assert descriptor.comment is None
    assert descriptor.get_custom_properties() == {}


@case()
async def the_default_database(context: Context) -> None:
    """A fresh server has the database `fluss`."""
    admin = (await context.connection()).get_admin()
    assert await admin.database_exists("fluss")
    assert "fluss" in await admin.list_databases()


@case(peer=True)
async def database_exists_already(context: Context) -> None:
    """Code 6, unless the caller wants it ignored."""
    admin = await context.admin()
    await raises(6, admin.create_database(context.database), context.database)
    await admin.create_database(context.database, ignore_if_exists=True)


@case()
async def database_does_not_exist(context: Context) -> None:
    """Code 4 from every call that needs one."""
    admin = (await context.connection()).get_admin()
    name = context.database
    await raises(4, admin.get_database_info(name), name, "exist")
    await raises(4, admin.drop_database(name), name, "exist")
    await raises(4, admin.list_tables(name), name, "exist")
    await admin.drop_database(name, ignore_if_not_exists=True)


@case()
async def database_not_empty(context: Context) -> None:
    """Code 5 without cascade; cascade takes the tables along."""
    admin = await context.admin()
    path = await context.create({"a": pa.int32()})
    await raises(5, admin.drop_database(context.database, cascade=False), context.database)
    assert await admin.table_exists(path)
    await admin.drop_database(context.database, cascade=True)
    assert not await admin.table_exists(path)
    await admin.create_database(context.database)
    assert await admin.list_tables(context.database) == []


@case()
async def database_names(context: Context) -> None:
    """Code 16 for names that break the rules, with the name in the text."""
    admin = (await context.connection()).get_admin()
    for name in ("bad name!", "a.b", "ä", "__internal", ".", "..", "x" * 201):
        await raises(16, admin.create_database(name), name[:100])
    await raises(16, admin.create_database(""), "empty")
    longest = "x" * (200 - len(context.database)) + context.database
    await admin.create_database(longest)
    await admin.drop_database(longest)
