"""The code of the README runs as written; only addresses of servers are replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fluss
from tests.docs.documents import CHECKOUT, DOCUMENTED_ADDRESS, Block, python_blocks
from tests.support.server_process import ServerProcess, run_command
from tests.support.targets import Target
from tests.support.waiting import patience

EXPECTED = "{'name': ['Ada', 'Bob', 'Cy'], 'score': [4.5, 1.5, 9.0]}"
PROGRAM_SECONDS = patience(120)


def blocks_under(heading: str) -> list[Block]:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    return [block for block in python_blocks(readme) if block.heading == heading]


def run_program(folder: Path, code: str, *arguments: str) -> str:
    """What a program prints that a user has saved in a file."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "error::ResourceWarning", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=PROGRAM_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def drop(target: Target, table: str) -> None:
    with fluss.connect(target.bootstrap_servers) as database:
        database.drop_table(table, ignore_if_not_exists=True)


def test_the_twenty_lines(target: Target, tmp_path: Path) -> None:
    drop(target, "players")
    lines = blocks_under("Twenty lines")[0].code
    imports = "import asyncio\nimport sys\nimport pyarrow as pa\nimport fluss\n"
    printed = run_program(tmp_path, f"{imports}{lines}\nasyncio.run(main(sys.argv[1]))\n", target.bootstrap_servers)
    assert printed == EXPECTED


def test_the_whole_program_with_a_server_inside(tmp_path: Path) -> None:
    code = (CHECKOUT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert run_program(tmp_path, code) == EXPECTED
    assert (tmp_path / "my-data").is_dir()
    again = run_program(tmp_path, code)
    assert again.count("Ada") == 2, "rows of the first run are there after the restart"


def test_the_script_without_event_loop(target: Target, tmp_path: Path) -> None:
    drop(target, "events")
    code = blocks_under("Twenty lines")[1].code.replace(DOCUMENTED_ADDRESS, target.bootstrap_servers)
    assert run_program(tmp_path, code) == "[{'id': 2, 'name': 'Bob'}]"


def test_the_program_for_pyfluss_with_its_import_changed(target: Target, tmp_path: Path) -> None:
    drop(target, "players")
    code = (CHECKOUT / "examples" / "with_pyfluss.py").read_text(encoding="utf-8")
    changed = code.replace("import fluss\n", "import fluss.aio as fluss\n")
    assert changed != code
    assert run_program(tmp_path, changed, target.bootstrap_servers) == EXPECTED


def test_the_lakehouse(tmp_path: Path) -> None:
    first, second = blocks_under("Lakehouse")
    with ServerProcess(tmp_path / "my-data") as server:
        run_program(tmp_path, first.code.replace(DOCUMENTED_ADDRESS, server.address))
        tiered = run_command(["tier", "--bootstrap", server.address, "--once", "--local"], PROGRAM_SECONDS)
        assert tiered.returncode == 0, tiered.stderr
        printed = run_program(tmp_path, second.code.replace(DOCUMENTED_ADDRESS, server.address))
    assert printed.splitlines() == ["[('ada', 62375.0), ('bob', 62500.0)]", "1001"]


def test_changing_the_address() -> None:
    (block,) = blocks_under("From this server to a cluster")
    names: dict[str, fluss.Config] = {"fluss": fluss}  # type: ignore[dict-item]
    exec(block.code, names)
    assert names["config"].bootstrap_servers == "fluss-1:9123,fluss-2:9123"


def test_the_server_in_a_program(tmp_path: Path) -> None:
    (block,) = blocks_under("The server")
    assert run_program(tmp_path, block.code).startswith("127.0.0.1:")
