"""The README runs as written, from top to bottom, for a user who has only what it says to install.

Only addresses of servers are replaced, and `pip` and the making of the environment (`tests/docs/wheel_environment`).
What stands in a block without a language is what the block before it prints. The program for Spark costs a Java machine
of its own, so in the gate it runs in the shared session (tests/spark/test_documents.py), and here in `--all`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import fluss
from tests.docs.documents import CHECKOUT, DOCUMENTED_ADDRESS
from tests.docs.wheel_environment import WheelEnvironment
from tests.support.servers.targets import Target
from tools.servers.ports import free_ports
from tools.waiting import patience

EXPECTED = "{'name': ['Ada', 'Bob', 'Cy'], 'score': [4.5, 1.5, 9.0]}"
PROGRAM_SECONDS = patience(120)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPARK = "import fluss.spark\n"
MAKING_THE_ENVIRONMENT = ("python3 -m venv .venv", ". .venv/bin/activate")


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block of the page, in order."""
    return FENCED.findall((CHECKOUT / "README.md").read_text(encoding="utf-8"))


class Newcomer:
    """Goes down the page: types the commands, saves and runs the programs."""

    def __init__(self, folder: Path, *, has_time_for_spark: bool) -> None:
        self.has_time_for_spark = has_time_for_spark
        self.environment = WheelEnvironment(folder)
        self.clone = folder / "clone"  # where files are left behind
        self.clone.mkdir()
        self.address = f"127.0.0.1:{free_ports(1)[0]}"

    def goes_down(self) -> Iterator[tuple[str, str]]:
        """What blocks printed, and what the page says that they print."""
        printed = ""
        with ExitStack() as servers:
            for language, text in blocks():
                if language == "python":
                    printed = self._runs(text) if self.has_time_for_spark or SPARK not in text else SPARK
                elif language == "sh":
                    for line in text.splitlines():
                        self._types(line, servers)
                elif printed != SPARK:
                    yield printed.strip(), text.strip()

    def _runs(self, code: str) -> str:
        program = self.clone / "program.py"
        program.write_text(code.replace(DOCUMENTED_ADDRESS, self.address), encoding="utf-8")
        return self._ends(["python", "-W", "error::ResourceWarning", "program.py"])

    def _types(self, line: str, servers: ExitStack) -> None:
        words = shlex.split(line, comments=True)
        if line in MAKING_THE_ENVIRONMENT:
            return
        if words[:2] == ["pip", "install"]:
            self.environment.install(*words[2:])
        elif words[:2] == ["fluss", "server"]:
            assert words.pop() == "&"
            self._starts([*words, "--bind", self.address], servers)
        else:
            assert words[0] == "fluss"
            self._ends([*words, "--bootstrap", self.address])

    def _starts(self, words: list[str], servers: ExitStack) -> None:
        program = self.environment.programs / words[0]
        server = subprocess.Popen(
            [program, *words[1:]], cwd=self.clone, env=self.environment.variables(), stdout=subprocess.PIPE, text=True
        )

        def stop() -> None:
            server.terminate()
            server.communicate(timeout=PROGRAM_SECONDS)

        servers.callback(stop)
        assert server.stdout is not None
        assert server.stdout.readline().startswith(f"fluss server ready: FLUSS://{self.address}")

    def _ends(self, words: list[str]) -> str:
        done = subprocess.run(
            [self.environment.programs / words[0], *words[1:]],
            cwd=self.clone,
            env=self.environment.variables(),
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


def test_the_page_from_top_to_bottom(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path, has_time_for_spark=False)
    for printed, said in newcomer.goes_down():
        assert printed == said
    left = {path.name for path in newcomer.clone.iterdir()} - {"program.py"}
    ignored = (CHECKOUT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in left if f"{name}/" not in ignored] == [], "a clone has no untracked files from this page"


@pytest.mark.all  # two more Java machines
def test_the_page_twice(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path, has_time_for_spark=True)
    assert all(printed == said for printed, said in newcomer.goes_down())
    first, spark, lake = (printed for printed, _ in newcomer.goes_down())
    assert first.count("'ada', 'amount'") == 2, "rows of the first time are there"
    assert "|ada|  5.0|" in spark, "and are not counted again"
    assert lake.splitlines()[-1] == "2002"


def run_program(folder: Path, code: str, *arguments: str) -> str:
    """What a program of `examples` prints."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "error::ResourceWarning", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=PROGRAM_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_whole_program_with_a_server_inside(tmp_path: Path) -> None:
    code = (CHECKOUT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert run_program(tmp_path, code) == EXPECTED
    assert (tmp_path / "my-data").is_dir()
    again = run_program(tmp_path, code)
    assert again.count("Ada") == 2, "rows of the first run are there after the restart"


@pytest.mark.parametrize("name", ["quickstart.py", "with_pyfluss.py"])
def test_the_programs_on_any_server(target: Target, tmp_path: Path, name: str) -> None:
    with fluss.connect(target.bootstrap_servers) as database:
        database.drop_table("players", ignore_if_not_exists=True)
    code = (CHECKOUT / "examples" / name).read_text(encoding="utf-8")
    if name == "with_pyfluss.py":
        changed = code.replace("import fluss\n", "import fluss.aio as fluss\n")
        assert changed != code
        code = changed
    assert run_program(tmp_path, code, target.bootstrap_servers) == EXPECTED
