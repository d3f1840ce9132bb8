"""`fluss tier` as a user runs it: real processes, exit codes, signals, a login."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from fluss.cli.main import main
from tests.support.lake.tiered_tables import LakeTable, person
from tools.servers.logins import TWO_LISTENERS, USERS
from tools.servers.ports import free_ports
from tools.servers.server_process import COMMAND, ServerProcess
from tools.waiting import patience, wait_until

DEADLINE_SECONDS = patience(120.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", bind=None, config=TWO_LISTENERS) as server:
        yield server


@pytest.fixture(scope="module")
def db(server: ServerProcess) -> Iterator[fluss.Database]:
    with fluss.connect(server.addresses["FLUSS"]) as db:
        yield db


def tier(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "tier", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, **environment},
    )


def test_once_with_and_without_login(server: ServerProcess, db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1)
    db.append(table.name, [person(n) for n in range(5)])
    done = tier("--once", "--local", "--bootstrap", server.addresses["FLUSS"])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{table.name}: 5 rows in 1 file (" in done.stderr
    table.check([person(n) for n in range(5)])

    db.append(table.name, [person(5)])
    login = ("--once", "--local", "--quiet", "--bootstrap", server.addresses["CLIENT"], "--username", "admin")
    refused = tier(*login, FLUSS_PASSWORD="wrong")
    assert refused.returncode == 1
    assert refused.stderr.startswith("fluss tier: "), "one line, no traceback"
    done = tier(*login, FLUSS_PASSWORD=USERS["admin"])
    assert (done.returncode, done.stderr) == (0, "")
    table.check([person(n) for n in range(6)])


def test_once_reports_that_there_is_nothing_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        command = ["tier", "--once", "--local", "--bootstrap", cluster.bootstrap_servers]
        assert main(command) == 0
        assert capfd.readouterr().err == (
            "nothing to tier: no table has a lake; set table.datalake.enabled=true to add one\n"
        )
        table = LakeTable(db, bucket_count=1)
        db.append(table.name, [person(0)])
        assert main(command) == 0
        assert f"{table.name}: 1 rows in 1 file (" in capfd.readouterr().err
        assert main(command) == 0
        assert "nothing to tier: the lake has every row of the table with a lake\n" in capfd.readouterr().err
        assert main([*command, "--quiet"]) == 0
        assert "nothing to tier" not in capfd.readouterr().err


def test_once_fails_for_a_remote_segment_that_is_too_short(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = {
        "log.segment.file-size": "8kb",
        "log.retention.check-interval": "50ms",
        "remote.log.task-interval-duration": "50ms",
    }
    people = [person(n) for n in range(1500)]
    with (
        fluss.embedded(tmp_path / "data", config=small) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        table = LakeTable(db, bucket_count=1, properties={"table.log.tiered.local-segments": "1"})
        for start in range(0, len(people), 50):
            db.append(table.name, people[start : start + 50])
        segments, local = tmp_path / "data" / "remote" / "log", tmp_path / "data" / "data" / "fluss"
        wait_until(lambda: len(list(segments.rglob("*.log"))) > 2, "there are remote segments")
        wait_until(lambda: len(list(local.rglob("*.log"))) <= 2, "old segments are in remote storage only")
        path = sorted(segments.rglob("*.log"), key=lambda each: each.name)[1]
        whole = path.read_bytes()
        command = ["tier", "--once", "--local", "--bootstrap", cluster.bootstrap_servers]
        for content in (b"", whole[: len(whole) // 2], whole[:-1]):
            path.write_bytes(content)
            assert main(command) == 1
            assert str(path) in capfd.readouterr().err
        path.write_bytes(whole)
        assert main(command) == 0
        table.check(people)


def test_a_service_ends_with_the_signal(server: ServerProcess, db: fluss.Database, tmp_path: Path) -> None:
    table = LakeTable(db, properties={"table.datalake.freshness": "100 ms"})
    db.append(table.name, [person(n) for n in range(5)])
    arguments = ["--local", "--every", "100ms", "--bootstrap", server.addresses["FLUSS"]]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*COMMAND, "tier", *arguments], stderr=log, text=True)
        try:
            wait_until(lambda: len(table.lake_rows()) == 5, "rows are in the lake")
            db.append(table.name, [person(5)])
            wait_until(lambda: len(table.lake_rows()) == 6, "the next row is, too")
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
    assert "stopping after the running rounds" in (tmp_path / "log").read_text()


def test_a_service_waits_for_its_server_and_a_single_run_does_not() -> None:
    (port,) = free_ports(1)
    nowhere = ("--local", "--bootstrap", f"127.0.0.1:{port}")
    assert tier("--once", *nowhere).returncode == 1
    process = subprocess.Popen([*COMMAND, "tier", *nowhere], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert "trying again" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--every", "7"], "argument --every: .* has no unit"),
        (["--every", "abc"], "argument --every: "),
        (["--every", "0s"], "argument --every: must be greater than zero, got '0s'"),
        (["--heartbeat", "0 ms"], "argument --heartbeat: must be greater than zero, got '0 ms'"),
        (["--cores", "-3"], "argument --cores: "),
        (["--cores", "0"], "argument --cores: must be a whole number of at least 1, got '0'"),
        (["--tables-at-once", "0"], "argument --tables-at-once: must be a whole number of at least 1"),
        (["--local", "--master", "local[1]"], "--master: not allowed with argument --local"),
    ],
)
def test_wrong_flags(capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tier", *flags])
    assert caught.value.code == 2
    assert re.search(words, capsys.readouterr().err)


def test_errors_are_one_line(server: ServerProcess, db: fluss.Database) -> None:
    address = ("--bootstrap", server.addresses["FLUSS"])
    both = tier(*address, "--once", "--every", "1m")
    assert (both.returncode, "not allowed with" in both.stderr) == (2, True)
    unknown = tier(*address, "--once", "--local", "--tables", "fluss.nothing")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    assert "fluss.nothing" in unknown.stderr
    broken = LakeTable(db)
    lake_table = broken.outside()
    lake_table.catalog.drop_table(lake_table.name())
    failed = tier(*address, "--once", "--local", "--tables", broken.name)
    assert failed.returncode == 1
    assert f"{broken.name}: nothing was committed" in failed.stderr
    db.drop_table(broken.name)
