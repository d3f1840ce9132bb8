"""Writes golden data with left-out offsets: `python -m tests.golden.write_gaps NAME`, see `write` for the rest.

A server with `log.flush` = `os` is killed, and its logs lose what a machine without power would lose. The next start
leaves the offsets out that readers had seen: the log has a batch without rows there (a filler), the note of the bucket
the range. More rows come, and it is killed again with the note as it was, so that a process that opens the data, on
another machine, leaves offsets out a second time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fluss
from fluss.codec.batches.log_batch import iter_batches
from fluss.codec.batches.log_scan import is_filler
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.reserved_offsets import load_reserved, write_reserved
from tests.golden.archives import pack, place_of
from tests.golden.contents import DATABASE, read_ends, read_records, read_rows
from tests.golden.tables import PLAIN, Golden, texts
from tools.servers.server_process import ServerProcess

CONFIG = {"log.flush": "os", "remote.log.task-interval-duration": "0s", "kv.snapshot.interval": "0s"}
TABLES: dict[str, dict[str, Any]] = {"log_gap": {}, "kv_gap": {"primary_keys": ["id"]}}
SURVIVORS, SHOWN, WRITTEN = 10, 30, 50


def write(golden: Golden, start: int, stop: int) -> None:
    golden.append("log_gap", texts(start, stop))
    golden.upsert("kv_gap", texts(start, stop))


def logs(data: Path) -> list[Path]:
    found = sorted((data / "data" / DATABASE).glob("*/log-0"))
    assert len(found) == len(TABLES)
    return found


def lose_power(log: Path) -> None:
    """Only the first batch is on disk, and the next boot is another one."""
    (segment,) = log.glob("*.log")
    content = segment.read_bytes()
    (_, first), *others = iter_batches(content)
    assert others
    segment.write_bytes(content[: first.size])
    (log / "bucket.synced").unlink(missing_ok=True)
    given = load_reserved(FileSystem(), str(log))
    assert given is not None
    write_reserved(FileSystem(), str(log), given._replace(boot_id="the boot before"))


def count_fillers(log: Path) -> int:
    """How many batches without rows take offsets in a log."""
    return sum(is_filler(header) for path in log.glob("*.log") for _, header in iter_batches(path.read_bytes()))


def run(data: Path) -> dict[str, Any]:
    server = ServerProcess(data, tablets=1, config=CONFIG)
    try:
        with fluss.connect(server.address) as db:
            golden = Golden(db)
            db.create_database(DATABASE)
            for name, options in TABLES.items():
                golden.create(name, PLAIN, **options)
            write(golden, 0, SURVIVORS)
            write(golden, SURVIVORS, SHOWN)
            server.kill()
            for log in logs(data):
                lose_power(log)
            server.start()
            write(golden, SHOWN, WRITTEN)
            tables = {
                name: {
                    "rows": read_rows(db, name),
                    "records": read_records(db, name),
                    "ends": read_ends(db, name),
                    "primary_keys": options.get("primary_keys", []),
                }
                for name, options in TABLES.items()
            }
    finally:
        server.kill()
    reserved = {}
    for log in logs(data):
        given = load_reserved(FileSystem(), str(log))
        assert given is not None
        assert given.lost, "the range is noted"
        assert count_fillers(log) == 1
        assert given.reserved_until
        reserved[log.parent.name.rpartition("-")[0]] = given.reserved_until
        # So that a test on this machine, before it is restarted, sees what all later ones see.
        write_reserved(FileSystem(), str(log), given._replace(boot_id="the boot of the writer"))
    return {"tables": tables, "reserved": reserved}


def main(name: str) -> None:
    with place_of(name) as root:
        expected = run(root / "data")
        for log in root.glob("*.log"):
            log.unlink()
        pack(name, root, expected)
        print(json.dumps({table: len(each["rows"]) for table, each in expected["tables"].items()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
