"""The files of our stores are files for the RocksDB inside Apache Fluss: who moves there can take snapshots along."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import Applied, KvStore
from tools.peers.apache_fluss import library
from tools.peers.cache import PeerMissingError
from tools.waiting import patience

pytestmark = pytest.mark.all

ROWS = 5_000
READER = """
import org.rocksdb.*;

public class ReadStore {
    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        try (Options options = new Options(); RocksDB store = RocksDB.openReadOnly(options, arguments[0])) {
            for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
                byte[] found = store.get(String.format("key %06d", i).getBytes());
                String text = found == null ? "missing" : new String(found);
                if (!text.equals("value " + i)) {
                    throw new IllegalStateException("row " + i + " is " + text);
                }
            }
        }
        System.out.println("all rows are there");
    }
}
"""


def test_the_rocksdb_of_apache_fluss_reads_them(tmp_path: Path) -> None:
    try:
        jars = library()
    except PeerMissingError as error:
        pytest.skip(str(error))
    store = KvStore.open(tmp_path / "db", KvResources())
    store.write({b"key %06d" % i: b"value %d" % i for i in range(ROWS)}, Applied(ROWS, ROWS, 0, ROWS))
    store.flush(wait=True)
    store.close()
    source = tmp_path / "ReadStore.java"
    source.write_text(READER)
    command = ["java", "-cp", f"{jars}/*", str(source), str(tmp_path / "db"), str(ROWS)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    if "jdk.compiler" in answer.stderr:
        pytest.skip("the Java here cannot run a source file: a JDK is needed, not a runtime alone")
    assert answer.stdout.strip() == "all rows are there", answer.stderr
