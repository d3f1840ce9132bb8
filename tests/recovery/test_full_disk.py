"""A disk that is really full: a small file system in memory, filled up to its last byte under a running server.

Writes and new tables are refused with code 70 and a message with the remedy, reads continue, and when there is room
everything continues by itself. Needs the right to mount (Linux, root).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.log_output import REPETITIONS_SHOWN
from fluss.server.storage.directory.disk_reserve import keep_reserves
from tests.support.servers.log_cluster import COLUMNS, arrow_batch, ids_of
from tests.support.tables.log_workload import create_table, leaders, table_json
from tools.servers.messages import table_document
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import wait_until

DISK_BYTES = 32 * 1024 * 1024
FILLER_BYTES = 12 * 1024 * 1024
ROWS_PER_BATCH = 50
ROW_PADDING_BYTES = 4000
MOST_TRIES = 500


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The mount point of an empty file system of `DISK_BYTES`."""
    mount_point = tmp_path / "data"
    mount_point.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("small file systems in memory are mounted on Linux only")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount_point)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip("a small file system cannot be mounted here; root can")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(path: Path, size_bytes: int | None = None) -> None:
    """Fill up `size_bytes` of the disk, or all that is left."""
    with path.open("wb", buffering=0) as file:
        if size_bytes is not None:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            return
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return  # the last page is taken


class CountingWriter:
    """One idempotent writer on one bucket: ascending ids, the next sequence number only after an acknowledgement."""

    def __init__(self, client: WireClient, table_id: int, name: str = "t") -> None:
        self.client, self.table_id = client, table_id
        request = pb.InitWriterRequest()
        request.table_path.add(database_name="fluss", table_name=name)
        self._writer_id = client.call(ApiKey.INIT_WRITER, request).writer_id
        self._sequence = 0

    @property
    def acknowledged(self) -> list[int]:
        return list(range(self._sequence * ROWS_PER_BATCH))

    def write(self) -> None:
        """The next batch, or the refused one again; FlussError when it is refused."""
        first = self._sequence * ROWS_PER_BATCH
        records = arrow_batch(
            range(first, first + ROWS_PER_BATCH),
            padding=ROW_PADDING_BYTES,
            writer_id=self._writer_id,
            batch_sequence=self._sequence,
        )
        answer = self.client.produce(self.table_id, 0, records)
        if answer.HasField("error_code"):
            raise FlussError(answer.error_message, answer.error_code)
        assert answer.base_offset == first
        self._sequence += 1

    def write_until_refused(self) -> FlussError:
        """Fill the disk; the error that ended it."""
        for _ in range(MOST_TRIES):
            try:
                self.write()
            except FlussError as error:
                return error
        raise AssertionError("the disk takes everything")


def read_ids(client: WireClient, table_id: int) -> list[int]:
    """Everything that is readable."""
    found: list[int] = []
    while True:
        answer = client.fetch(table_id, 0, len(found))
        assert not answer.HasField("error_code"), answer.error_message
        more = ids_of(answer.records)
        if not more:
            return found
        found += more


def table_names(address: str) -> set[str]:
    with WireClient.connect(address) as client:
        return set(client.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="fluss")).table_name)


def create_until_refused(address: str) -> tuple[str, FlussError]:
    """Create tables until the catalog has no room either; the name that was refused and why."""
    with WireClient.connect(address) as client:
        for number in range(MOST_TRIES):
            request = pb.CreateTableRequest(table_json=table_json(1), ignore_if_exists=False)
            request.table_path.database_name, request.table_path.table_name = "fluss", f"more_{number}"
            try:
                client.call(ApiKey.CREATE_TABLE, request)
            except FlussError as error:
                return f"more_{number}", error
    raise AssertionError("the catalog takes everything")


def tablet_client(server: ServerProcess, name: str = "t") -> WireClient:
    return WireClient(*leaders(server.address, name)[0])


def create_wire_table(server: ServerProcess, name: str = "t") -> int:
    """A table with the columns of `arrow_batch`."""
    document = table_document(COLUMNS, bucket_count=1, properties={"table.log.arrow.compression.type": "NONE"})
    request = pb.CreateTableRequest(table_json=document, ignore_if_exists=False)
    request.table_path.database_name, request.table_path.table_name = "fluss", name
    with WireClient.connect(server.address) as client:
        client.call(ApiKey.CREATE_TABLE, request)
        return client.metadata(("fluss", name)).table_metadata[0].table_id


def write_again(writer: CountingWriter) -> bool:
    """Whether there is room again."""
    try:
        writer.write()
    except FlussError as error:
        if error.error_code == ErrorCode.DISK_WRITE_LOCKED:
            return False
        raise
    return True


def test_writes_stop_reads_continue_and_writes_resume(disk: Path) -> None:
    fill(disk / "filler", FILLER_BYTES)
    with ServerProcess(disk) as server:
        table_id = create_wire_table(server)
        with tablet_client(server) as client:
            writer = CountingWriter(client, table_id)
            error = writer.write_until_refused()
            assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
            assert "no space left" in error.message
            assert "bytes are free" in error.message
            assert read_ids(client, table_id) == writer.acknowledged
            assert len(writer.acknowledged) > ROWS_PER_BATCH
            again = writer.write_until_refused()
            assert again.error_code == ErrorCode.DISK_WRITE_LOCKED
            (disk / "filler").unlink()
            for _ in range(5):
                writer.write()
            assert read_ids(client, table_id) == writer.acknowledged
        server.kill()
        server.start()
        with tablet_client(server) as client:
            assert read_ids(client, table_id) == writer.acknowledged
            writer.client = client
            writer.write()
        assert server.stop() == 0
        server.start()
        with tablet_client(server) as client:
            assert read_ids(client, table_id) == writer.acknowledged
        said = [line for line in server.log_text().splitlines() if "no space left" in line]
        assert 1 <= len(said) <= REPETITIONS_SHOWN + 1
        assert "Traceback" not in server.log_text()


def test_a_table_that_does_not_fit_is_refused_and_leaves_nothing(disk: Path) -> None:
    with ServerProcess(disk) as server:
        create_wire_table(server)
        fill(disk / "filler")
        name, error = create_until_refused(server.address)
        assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
        assert "space" in error.message
        assert f"for table 'fluss.{name}'" in server.log_text()
        assert name not in table_names(server.address)
        assert "t" in table_names(server.address)
        (disk / "filler").unlink()
        create_table(server.address, name, 1)
        assert name in table_names(server.address)
        assert "Traceback" not in server.log_text()


def test_processes_that_die_on_a_full_disk_come_back_and_serve_readers(disk: Path) -> None:
    fill(disk / "filler", FILLER_BYTES)
    with ServerProcess(disk) as server:
        table_id = create_wire_table(server)
        with tablet_client(server) as client:
            writer = CountingWriter(client, table_id)
            writer.write_until_refused()
        fill(disk / "rest")
        for role in ("coordinator", "tablet-0"):
            server.kill_role(role)
            with tablet_client(server) as client:
                assert read_ids(client, table_id) == writer.acknowledged
        server.kill()
        server.start()
        assert table_names(server.address) == {"t"}
        with tablet_client(server) as client:
            assert read_ids(client, table_id) == writer.acknowledged
            writer.client = client
            assert writer.write_until_refused().error_code == ErrorCode.DISK_WRITE_LOCKED
            _, error = create_until_refused(server.address)
            assert error.error_code == ErrorCode.DISK_WRITE_LOCKED
            (disk / "filler").unlink()
            writer.write()
            assert read_ids(client, table_id) == writer.acknowledged
        create_table(server.address, "later", 1)
        assert "Traceback" not in server.log_text()


def test_dropping_a_table_makes_room(disk: Path) -> None:
    """The last of the disk is kept for metadata, so that the way out is open."""
    with ServerProcess(disk) as server:
        kept, dropped = create_wire_table(server), create_wire_table(server, "dropped")
        with tablet_client(server) as client, tablet_client(server, "dropped") as other_client:
            writer, other = CountingWriter(client, kept), CountingWriter(other_client, dropped, "dropped")
            writer.write()
            other.write_until_refused()
            assert writer.write_until_refused().error_code == ErrorCode.DISK_WRITE_LOCKED
            with WireClient.connect(server.address) as coordinator:
                request = pb.DropTableRequest(ignore_if_not_exists=False)
                request.table_path.database_name, request.table_path.table_name = "fluss", "dropped"
                coordinator.call(ApiKey.DROP_TABLE, request)
            wait_until(lambda: write_again(writer), "the files of the dropped table are gone")
            assert read_ids(client, kept) == writer.acknowledged


def test_a_shorter_time_to_live_makes_room(disk: Path) -> None:
    config = {"log.segment.file-size": "1mb", "log.retention.check-interval": "50 ms"}
    with ServerProcess(disk, config=config) as server:
        table_id = create_wire_table(server)
        with tablet_client(server) as client:
            writer = CountingWriter(client, table_id)
            writer.write_until_refused()
            with WireClient.connect(server.address) as coordinator:
                request = pb.AlterTableRequest(ignore_if_not_exists=False)
                request.table_path.database_name, request.table_path.table_name = "fluss", "t"
                request.config_changes.add(config_key="table.log.ttl", config_value="1 ms", op_type=0)
                coordinator.call(ApiKey.ALTER_TABLE, request)
            wait_until(lambda: write_again(writer), "expired segments are gone")


@pytest.mark.all
def test_a_disk_that_fills_up_is_logged_at_each_level(disk: Path) -> None:
    """The coordinator checks every ten seconds."""
    keep_reserves(disk)
    with ServerProcess(disk) as server:

        def said() -> list[int]:
            lines = [line for line in server.log_text().splitlines() if "WARNING" in line]
            return [int(each) for each in re.findall(rf"the disk of {disk} is (\d+) % full", "\n".join(lines))]

        for number, percent in enumerate((80, 90, 95)):
            status = os.statvfs(disk)
            used = (status.f_blocks - status.f_bavail) * status.f_frsize
            fill(disk / f"filler-{percent}", (percent + 2) * DISK_BYTES // 100 - used)
            wait_until(partial(has_length, said, number + 1), "it is said")
            assert percent <= said()[-1] < percent + 5
        for path in disk.glob("filler-*"):
            path.unlink()
        wait_until(lambda: "there is enough space again" in server.log_text(), "that there is room is said, too")
        assert len(said()) == 3


def has_length(found: Callable[[], list[int]], count: int) -> bool:
    return len(found()) == count
