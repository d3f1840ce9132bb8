"""The RocksDB that comes with Apache Fluss 0.9.1 opens our snapshots: so can its clients."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.snapshot_files import SNAPSHOTS_ON, copy_files, registered
from tools.peers.apache_fluss import library
from tools.peers.cache import PeerMissingError
from tools.waiting import patience

pytestmark = pytest.mark.all

JAVA_DEADLINE_SECONDS = patience(120.0)
PROGRAM = """
import java.util.HexFormat;
import org.rocksdb.*;

public class ReadSnapshot {
    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        try (Options options = new Options().setParanoidChecks(true);
                RocksDB database = RocksDB.openReadOnly(options, arguments[0]);
                RocksIterator rows = database.newIterator()) {
            for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                HexFormat hex = HexFormat.of();
                System.out.println(hex.formatHex(rows.key()) + " " + hex.formatHex(rows.value()));
            }
            rows.status();
        }
    }
}
"""


def _read_with_java(directory: Path, source: Path) -> dict[bytes, bytes]:
    try:
        jars = library()
    except PeerMissingError as error:
        pytest.skip(str(error))
    if "jdk.compiler" not in subprocess.run(["java", "--list-modules"], capture_output=True, text=True).stdout:
        pytest.skip("the `java` on the path cannot run a source file: it comes without the compiler")
    source.write_text(PROGRAM)
    command = ["java", "-cp", f"{jars}/*", str(source), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    return {bytes.fromhex(key): bytes.fromhex(value) for key, value in lines}


def test_a_snapshot_of_several_files(tmp_path: Path) -> None:
    async def main() -> dict[bytes, bytes]:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON) as tablet:
            table = KvTable.create(tablet)
            for number in range(6):  # so often that files are compacted as well
                await table.upsert(*[(key, f"text {number}" * 5, number) for key in range(number, 500)])
                await tablet.service.snapshots.round(at_once=True)
            await asyncio.to_thread(copy_files, registered(tablet, table)[0], tmp_path / "copy")
            return dict(table.kv.store.scan())

    expected = asyncio.run(main())
    assert _read_with_java(tmp_path / "copy", tmp_path / "ReadSnapshot.java") == expected
