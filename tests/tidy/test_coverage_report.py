"""The report of coverage: packages added up, and a real run whose server is a process of its own."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from tools.coverage_report import by_package, main, settings, table
from tools.public_names import SOURCE


def summary(lines: int, run: int, branches: int, taken: int) -> dict[str, int]:
    return {"num_statements": lines, "covered_lines": run, "num_branches": branches, "covered_branches": taken}


def test_files_are_added_up_by_package() -> None:
    files = {
        str(SOURCE / "config.py"): summary(10, 5, 0, 0),
        str(SOURCE / "server" / "supervisor.py"): summary(100, 80, 20, 10),
        str(SOURCE / "server" / "storage" / "files.py"): summary(100, 100, 20, 20),
    }
    text = table(by_package(files)).splitlines()
    assert text[2:] == [
        "| fluss | 10 | 50.0 % | 0 | - |",
        "| fluss.server | 200 | 90.0 % | 40 | 75.0 % |",
        "| all | 210 | 88.1 % | 40 | 75.0 % |",
    ]


def test_every_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(settings(tmp_path))
    assert parser["run"]["parallel"] == parser["run"]["branch"] == "true"
    assert parser["run"]["data_file"].startswith(str(tmp_path))
    assert parser["run"]["patch"].split() == ["_exit", "subprocess"]


@pytest.mark.soak
def test_a_run_sees_what_server_processes_do(capfd: pytest.CaptureFixture[str]) -> None:
    main(["tests/process/test_server.py", "-k", "ready"])
    shown = capfd.readouterr().out
    (line,) = [line for line in shown.splitlines() if line.startswith("| fluss.server |")]
    assert float(line.split("|")[3].strip().rstrip(" %")) > 25, "roles run in processes that are forked"
