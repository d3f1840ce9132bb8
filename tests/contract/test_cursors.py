"""Named cursors: the same on every server, although none has a call for them."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import fluss
from fluss import Acl, ErrorCode, FlussConnection, FlussError, TableBucket
from fluss.api.cursors import Cursor
from tests.support.servers.restartable import RestartableServer
from tools.waiting import eventually

SCHEMA = fluss.Schema(pa.schema([("id", pa.int32()), ("day", pa.string())]))


def test_a_cursor_from_its_first_move_to_its_end(connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        admin = connection.get_admin()
        path = f"fluss.{table_name}"
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=2))
        table_id = (await admin.get_table_info(path)).table_id
        assert await admin.get_cursor(path, "mailer") is None
        await admin.drop_cursor(path, "mailer")
        for place in ({0: 5, 1: 0}, {0: 7, 1: 3}, {0: 7, 1: 4}, {0: 2, 1: 2}):
            await asyncio.sleep(0.002)  # moves are told apart by the time of the server
            offsets = {TableBucket(table_id, bucket): offset for bucket, offset in place.items()}
            await admin.move_cursor(path, "mailer", offsets)
            assert await admin.get_cursor(path, "mailer") == offsets
        assert await admin.get_cursor(path, "other") is None
        await admin.drop_cursor(path, "mailer")
        assert await admin.get_cursor(path, "mailer") is None
        await admin.move_cursor(path, "a-Name_1", {TableBucket(table_id, 0): 2**40})
        await admin.drop_table(path)
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=2))
        assert await admin.get_cursor(path, "a-Name_1") is None, "it is of the table that was dropped"

    asyncio.run(body())


def test_partitions(connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        admin = connection.get_admin()
        path = f"fluss.{table_name}"
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA, partition_keys=["day"], bucket_count=1))
        for day in ("a", "b"):
            await admin.create_partition(path, {"day": day})
        table_id = (await admin.get_table_info(path)).table_id
        partitions = [info.partition_id for info in await admin.list_partition_infos(path)]
        offsets = {TableBucket.with_partition(table_id, each, 0): each + 10 for each in partitions}
        await admin.move_cursor(path, "mailer", offsets)
        assert await admin.get_cursor(path, "mailer") == offsets

    asyncio.run(body())


def test_a_program_that_dies_in_the_middle_of_a_move(connection: FlussConnection, table_name: str) -> None:
    admin = connection.get_admin()
    path = f"fluss.{table_name}"
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1)))
    table_id = asyncio.run(admin.get_table_info(path)).table_id
    bucket, session = TableBucket(table_id, 0), connection._session
    for offset in range(1, 6):
        dying = Cursor(session.cluster, table_id, "mailer")
        session.run(dying.move({bucket: offset}))
        number = dying._older
        assert number is not None
        session.run(dying._delete(number))  # and then it dies
        assert asyncio.run(admin.get_cursor(path, "mailer")) == {bucket: offset}


def test_two_that_move_one_cursor_are_told(connection: FlussConnection, table_name: str) -> None:
    admin = connection.get_admin()
    path = f"fluss.{table_name}"
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1)))
    table_id = asyncio.run(admin.get_table_info(path)).table_id
    session, place = connection._session, {TableBucket(table_id, 0): 1}
    one, other = (Cursor(session.cluster, table_id, "mailer") for _ in range(2))

    async def nothing(number: int) -> None:
        """The other one has deleted it, and written it again."""

    session.run(one.move(place))
    session.run(one.move(place))
    session.run(other.load())
    other._delete = nothing  # type: ignore[method-assign]
    with pytest.raises(FlussError, match="'mailer' was moved by another program at the same time") as told:
        session.run(other.move(place))
    assert told.value.error_code == ErrorCode.INVALID_PRODUCER_ID_EXCEPTION, "a conflict, no mistake of the caller"
    session.run(Cursor(session.cluster, table_id, "mailer").move({TableBucket(table_id, 0): 9}))


def test_many_that_move_one_cursor_at_once(connection: FlussConnection, table_name: str) -> None:
    """Each is done or is told of the conflict; the cursor is where one of them put it."""

    async def body() -> None:
        admin = connection.get_admin()
        path = f"fluss.{table_name}"
        await admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1))
        bucket = TableBucket((await admin.get_table_info(path)).table_id, 0)
        for first in range(10, 170, 8):
            moves = [admin.move_cursor(path, "mailer", {bucket: first + number}) for number in range(8)]
            outcomes = await asyncio.gather(*moves, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    assert isinstance(outcome, FlussError)
                    assert outcome.error_code == ErrorCode.INVALID_PRODUCER_ID_EXCEPTION, outcome.message
            assert None in outcomes
        found = await admin.get_cursor(path, "mailer")
        assert found is not None
        assert 10 <= found[bucket] < 170

    asyncio.run(body())


def test_wrong_names_and_offsets(connection: FlussConnection, table_name: str) -> None:
    admin = connection.get_admin()
    path = f"fluss.{table_name}"
    asyncio.run(admin.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1)))
    bucket = TableBucket(asyncio.run(admin.get_table_info(path)).table_id, 0)
    for name, offsets, reason in (
        ("", {bucket: 1}, "it is empty"),
        ("a b", {bucket: 1}, "characters other than"),
        ("x" * 161, {bucket: 1}, "at most 160 characters"),
        (7, {bucket: 1}, "must be a string"),
        ("ok", {0: 1}, "must be TableBuckets of table id"),
        ("ok", {TableBucket(bucket.table_id + 1, 0): 1}, "must be TableBuckets of table id"),
        ("ok", {bucket: -1}, "must be an int >= 0"),
    ):
        with pytest.raises(FlussError, match=reason):
            asyncio.run(admin.move_cursor(path, name, offsets))  # type: ignore[arg-type]
    with pytest.raises(FlussError) as caught:
        asyncio.run(admin.get_cursor("fluss.nothing", "ok"))
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST


def test_moving_needs_permission_to_write(server: RestartableServer, table_name: str) -> None:
    path, resource = f"fluss.{table_name}", f"cluster.fluss.{table_name}"

    async def body(root: fluss.FlussAdmin, alice: fluss.FlussAdmin) -> None:
        await root.create_table(path, fluss.TableDescriptor(SCHEMA, bucket_count=1))
        place = {TableBucket((await root.get_table_info(path)).table_id, 0): 4}
        await root.move_cursor(path, "mailer", place)
        await root.create_acls(Acl("User:alice", "read", resource))

        async def is_seen() -> bool:
            try:
                return await alice.get_cursor(path, "mailer") == place
            except FlussError as error:
                if error.error_code != ErrorCode.AUTHORIZATION_EXCEPTION:
                    raise
                return False

        await eventually(is_seen, "alice may read")
        with pytest.raises(FlussError) as caught:
            await alice.move_cursor(path, "mailer", place)
        assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION
        assert await alice.get_cursor(path, "mailer") == place

    server.comes_back()
    with (
        FlussConnection.open(server.config()) as connection,
        FlussConnection.open(server.target.sasl_config("alice")) as of_alice,
    ):
        asyncio.run(body(connection.get_admin(), of_alice.get_admin()))
