"""Programs that end or fork with an open connection, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from tools.waiting import patience

RUN_DEADLINE_SECONDS = patience(120)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with fluss.embedded(tmp_path) as cluster:
        yield cluster.bootstrap_servers


def run(program: str, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_DEADLINE_SECONDS)


OPEN = """
import asyncio, os, sys, fluss
connection = fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": sys.argv[1]}))
admin = connection.get_admin()
"""


def test_a_program_that_forgets_to_close_ends_with_a_warning(address: str) -> None:
    done = run(OPEN + "print('end')", address, "-W", "always")
    assert (done.returncode, done.stdout) == (0, "end\n")
    assert f"ResourceWarning: a connection to {address} was not closed" in done.stderr


def test_a_program_whose_server_is_gone_still_ends(address: str, tmp_path: Path) -> None:
    program = """
import sys, tempfile, fluss
with tempfile.TemporaryDirectory() as directory:
    with fluss.embedded(directory) as cluster:
        connection = fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": cluster.bootstrap_servers}))
print('end')
"""
    done = run(program, address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_crashing_coroutine_ends_the_program(address: str) -> None:
    program = """
import asyncio, sys, fluss
async def main():
    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": sys.argv[1]}))
    raise SystemExit(7)
asyncio.run(main())
"""
    assert run(program, address).returncode == 7


def test_a_forked_child_gets_a_clear_error_and_may_connect_anew(address: str) -> None:
    program = (
        OPEN
        + """
child = os.fork()
if child == 0:
    try:
        asyncio.run(admin.list_databases())
    except fluss.FlussError as error:
        print(error.error_code, 'forked process' in error.message, flush=True)
    connection.close()
    with fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": sys.argv[1]})) as own:
        print(asyncio.run(own.get_admin().list_databases()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(asyncio.run(admin.list_databases()))
connection.close()
"""
    )
    # Newer Pythons warn about any fork of a program with threads; that is what this test is about.
    done = run(program, address, "-W", "ignore::DeprecationWarning")
    assert done.stderr == ""
    assert done.stdout == "-2 True\n['fluss']\n['fluss']\n"


def test_plain_asyncio_does_as_well(address: str) -> None:
    program = (
        "import sys\nsys.modules['uvloop'] = None\n"
        + OPEN
        + """
print(asyncio.run(admin.list_databases()), type(connection._session.io.loop).__module__)
connection.close()
"""
    )
    done = run(program, address)
    assert done.stdout == "['fluss'] asyncio.unix_events\n"
    assert done.stderr == ""
