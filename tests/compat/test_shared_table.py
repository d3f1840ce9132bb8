"""A primary-key table that pyfluss and this client write and look up by turns, with the option `bucket.hash`."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tools.peers.cache import PeerMissingError
from tools.peers.pyfluss_environment import pyfluss_python
from tools.waiting import patience

PATH = fluss.TablePath("fluss", "shared")
# With tail bytes below and above 0x80, which pyfluss hashes like Java and not.
NUMBERS = [0, 1, 127, 128, 300, 1000, 65_535, -1, -128, *range(200, 230)]
DEADLINE_SECONDS = patience(60.0)

WRITE_AND_LOOK_UP = """
import asyncio, os, sys, fluss

async def main(address, numbers):
    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
    table = await connection.get_table(fluss.TablePath("fluss", "shared"))
    writer = table.new_upsert().create_writer()
    for number in numbers:
        writer.upsert({"id": number, "name": "of pyfluss"})
    await writer.flush()
    lookuper = table.new_lookup().create_lookuper()
    rows = await asyncio.gather(*[lookuper.lookup({"id": number + 1_000_000}) for number in numbers])
    assert all(row is not None and row["name"] == "of flusspy" for row in rows), rows
    connection.close()
    os._exit(0)  # the orderly way may abort inside pyfluss

asyncio.run(main(sys.argv[1], [int(text) for text in sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """Fetching may take minutes on a fresh checkout: here and not in the test, whose time is limited."""
    try:
        return pyfluss_python()
    except PeerMissingError as missing:
        pytest.skip(str(missing))


def test_both_find_what_the_other_has_written(python: Path, tmp_path: Path) -> None:
    async def body(address: str) -> None:
        config = fluss.Config({"bootstrap.servers": address, "bucket.hash": "pyfluss"})
        async with await fluss.FlussConnection.create(config) as connection:
            schema = fluss.Schema(pa.schema([("id", pa.int32()), ("name", pa.string())]), ["id"])
            await connection.get_admin().create_table(PATH, fluss.TableDescriptor(schema, bucket_count=7))
            table = await connection.get_table(PATH)
            others = [number + 1_000_000 for number in NUMBERS]
            writer = table.new_upsert().create_writer()
            for number in others[:5]:
                writer.upsert({"id": number, "name": "of flusspy"})  # few are hashed one by one
            await writer.flush()
            many = pa.table({"id": pa.array(others[5:], pa.int32()), "name": ["of flusspy"] * len(others[5:])})
            writer.upsert_arrow(many)
            await writer.flush()
            command = [str(python), "-c", WRITE_AND_LOOK_UP, address, *map(str, NUMBERS)]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr
            lookuper = table.new_lookup().create_lookuper()
            expected = [{"id": number, "name": "of pyfluss"} for number in NUMBERS]
            assert [await lookuper.lookup(number) for number in NUMBERS] == expected
            assert await lookuper.lookup_many(NUMBERS) == expected

    with fluss.embedded(tmp_path / "data") as cluster:
        asyncio.run(body(cluster.bootstrap_servers))
