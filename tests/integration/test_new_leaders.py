"""A server that everybody takes for the leader before it knows of it: calls wait for it, within the time of a request.

Apache Fluss is like that for a moment after a table was made. Here the answers of our server are changed on their way.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fluss
from fluss import ErrorCode, FlussError
from fluss.client.net.rpc import RpcConnection
from fluss.protocol.api_keys import ApiKey
from tests.support.tables.scan_tables import ScanTable, rows_of

# Longer than a fixed number of attempts in quick succession would take.
UNAWARE_CALLS = 6
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with fluss.embedded(tmp_path) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def table(address: str) -> Iterator[ScanTable]:
    with fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": address})) as connection:
        made = ScanTable(connection, "t", bucket_count=2, bucket_keys=["id"])
        made.write(rows_of(range(20)))
        yield made


def refuse(answer: Any) -> Any:
    """The answer of a server that does not lead."""
    for entry in getattr(answer, "buckets_resp", ()):
        entry.ClearField("offset")
        entry.error_code = NOT_LEADER
    if hasattr(answer, "records"):
        answer.error_code = NOT_LEADER
    return answer


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Leaders do not know at first that they lead; the calls that were refused."""
    refused: list[int] = []
    call = RpcConnection.call

    def call_unaware(self: RpcConnection, api_key: int, *arguments: Any, **more: Any) -> Any:
        answering = call(self, api_key, *arguments, **more)
        if api_key not in (ApiKey.LIST_OFFSETS, ApiKey.LIMIT_SCAN):
            return answering
        if len(refused) == UNAWARE_CALLS:
            return answering
        refused.append(api_key)

        async def refusing() -> Any:
            return refuse(await answering)

        return asyncio.ensure_future(refusing())

    monkeypatch.setattr(RpcConnection, "call", call_unaware)
    return refused


def test_offsets_are_waited_for(table: ScanTable, unaware: list[int]) -> None:
    ends = asyncio.run(_ends(table))
    assert sum(ends.values()) == 20
    assert len(unaware) == UNAWARE_CALLS


def test_a_bounded_read_is_waited_for(table: ScanTable, unaware: list[int]) -> None:
    assert sorted(table.read().column("id").to_pylist()) == list(range(20))
    assert len(unaware) == UNAWARE_CALLS


def test_a_limited_scan_is_waited_for(table: ScanTable, unaware: list[int]) -> None:
    limited = table.table.new_scan().limit(5)
    found = [limited.create_bucket_batch_scanner(table.bucket(number)).to_arrow().num_rows for number in range(2)]
    assert found == [5, 5]
    assert len(unaware) == UNAWARE_CALLS


def test_the_wait_ends_with_the_time_of_a_request(
    address: str, table: ScanTable, unaware: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # They never learn it: how many calls fit into the time depends on the machine.
    monkeypatch.setattr(sys.modules[__name__], "UNAWARE_CALLS", math.inf)
    config = fluss.Config({"bootstrap.servers": address, "request-timeout": "1000"})
    with fluss.FlussConnection.open(config) as connection:
        table.admin = connection.get_admin()
        with pytest.raises(FlussError) as caught:
            asyncio.run(_ends(table))
    assert caught.value.error_code == NOT_LEADER
    assert unaware


async def _ends(table: ScanTable) -> dict[int, int]:
    return await table.admin.list_offsets(table.path, [0, 1], fluss.OffsetSpec.latest())
