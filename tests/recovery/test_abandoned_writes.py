"""A writer that has given up on a batch continues with the next ones, and acknowledged rows are there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pyarrow as pa
import pytest

import fluss
from fluss.client.net import cluster
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

T = TypeVar("T")

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def freeze(server: ServerProcess) -> psutil.Process:
    """Requests reach the tablet's socket and are not answered."""
    tablet = server.process_of("tablet-0")
    assert tablet is not None
    tablet.suspend()
    return tablet


def repeated(call: Callable[[], T], what: str) -> T:
    """An impatient client may have to retry several times on a busy machine."""

    def answer() -> list[T]:
        with contextlib.suppress(fluss.FlussError):
            return [call()]
        return []

    return wait_until(answer, what)[0]


def connected(config: fluss.Config) -> fluss.Database:
    return repeated(lambda: fluss.connect(config), "there is a connection")


def opened(db: fluss.Database, path: fluss.TablePath) -> fluss.FlussTable:
    return repeated(lambda: asyncio.run(db.connection.get_table(path)), "the table is known")


def write_until_acknowledged(write: Callable[[int], None]) -> None:
    """Write the same row until it is acknowledged, however busy the machine is."""
    repeated(lambda: write(0), "the first row is written")


@pytest.mark.parametrize(
    ("primary_keys", "ending"),
    [
        pytest.param(None, "killed", id="log-killed"),
        pytest.param(["id"], "thawed", id="keys-thawed"),
        pytest.param(None, "thawed", id="log-thawed", marks=pytest.mark.all),
        pytest.param(["id"], "killed", id="keys-killed", marks=pytest.mark.all),
    ],
)
def test_writes_after_one_that_failed_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, primary_keys: list[str] | None, ending: str
) -> None:
    monkeypatch.setattr(cluster, "LEADER_WAIT_SECONDS", 0.5)
    with ServerProcess(tmp_path / "data", tablets=1) as server:
        config = fluss.Config(
            {"bootstrap.servers": server.address, "writer.retries": "1", "request.timeout": "300ms"}  # impatient
        )
        path = fluss.TablePath("fluss", "t")
        with fluss.connect(server.address) as db:
            db.create_table(path, fluss.Schema(SCHEMA, primary_keys=primary_keys), bucket_count=1)
        with connected(config) as db:
            table = opened(db, path)
            writer = table.new_upsert().create_writer() if primary_keys else table.new_append().create_writer()
            write = writer.upsert if primary_keys else writer.append  # type: ignore[union-attr]

            def written(number: int) -> None:
                write({"id": number, "name": f"name {number}"}).wait().result(patience(60))

            write_until_acknowledged(written)
            tablet = freeze(server)
            with pytest.raises(fluss.FlussError):
                written(1)
            if ending == "killed":
                tablet.kill()
                wait_until(lambda: server.process_of("tablet-0") not in (None, tablet), "another tablet runs")
            else:
                tablet.resume()
            acknowledged = [0]
            for number in range(2, 12):
                try:
                    written(number)
                except fluss.FlussError:
                    continue  # said so: the tablet is not back yet, or what became of the row is not known
                acknowledged.append(number)
            write_until_acknowledged(written)
        with fluss.connect(server.address) as db:
            found = sorted(row["id"] for row in db.to_arrow(path).to_pylist())
        assert [number for number in set(found) - {0} if found.count(number) > 1] == []
        assert set(acknowledged) <= set(found)
