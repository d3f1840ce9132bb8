#!/usr/bin/env python3
"""The commands for developers, which need nothing but Python 3.11: `python3 dev.py COMMAND`.

    test     set up .venv, then ruff, mypy and pytest: the gate; with --fast the lane to use while working, with --all
             every test; --times prints where the time went; other arguments go to pytest
    demo     set up .venv, then show the whole system: server, client, Spark, a picture; Ctrl-C ends it
    clients  set up .venv, start a server, drive it with our client, restart it, drive it with pyfluss
    format   let ruff format the code and fix what it can
    bench    measure against Apache Fluss if Java and Maven are installed: the server, with --client the
             client and pyfluss on both servers, with --spark Spark with our tables and with Parquet,
             with --lake tiering and union reads, with --memory the memory of server and client,
             with --amplification what small requests cost other clients, with --peers Kafka and Redis;
             with --plot draw the picture of the README from recorded figures
    soak     kill, fuzz and property tests with many more rounds, and the benchmarks once with few rows; takes an
             hour or more
    spark42  set up .venv-spark42 with the oldest Spark that we support, and run the tests of Spark there;
             further arguments go to pytest
    fresh    the commands of the README in clean roots of three Debian releases; as root on Debian
    coverage run tests and print their coverage by package, and the public names that no test uses
    series   run the gate repeatedly in clean clones, also on a busy machine, and print a table of failures
    lock     resolve requirements.lock and requirements-spark42.lock again, to the newest versions
    setup    only set up .venv

The environment is created from requirements.lock with checked hashes, once, and again when the lock file, the project
file or the interpreter changes.
"""

from __future__ import annotations

import os
import sys

try:
    import tools.testing
    from tools.environment import (
        BIN,
        ENVIRONMENT,
        LOCK,
        PROGRAMS,
        PYTHON,
        SPARK42_ENVIRONMENT,
        SPARK42_LOCK,
        become,
        run,
        set_up,
        with_spark42,
    )
except KeyboardInterrupt:  # exit as quietly as later
    sys.exit(130)

SOAK_SETTINGS = {"FLUSS_KILL_ROUNDS": "500", "FLUSS_FUZZ_FRAMES": "1000000", "HYPOTHESIS_PROFILE": "soak"}
SOAK_SETTINGS["FLUSS_TEST_LIMIT_SECONDS"] = "7200"
SOAKED_FOLDERS = ["tests/recovery", "tests/history", "tests/fuzz", "tests/unit/codec"]
SOAKED_FOLDERS += ["tests/spark/stream/test_kill_rounds.py", "tests/spark/lake/test_tier_kill.py"]
SOAKED_FOLDERS += ["tests/bench", "tests/spark/test_bench.py", "tests/tidy/test_coverage_report.py"]
SOAKED_FOLDERS += ["tests/contract/test_values_differential.py", "tests/spark/convert/test_values.py"]
# Tests of the parts that depend most on Spark's internals: Java classes, planning, state of streams, types, Connect.
SPARK42_NAMES = {
    "sessions": ["session", "connect"],
    "sql": ["catalog", "catalog_partitions", "attach", "ddl", "lookup_join"],
    "read": ["own_scans", "count", "batch_read", "batch_read_log", "state_pieces"],
    "write": ["batch_write"],
    "stream": ["stream_read", "stream_reader", "stream_write", "stream_write_staged", "stream_cursor"],
    "convert": ["types"],
    "java": ["java_paths", "stored_batches"],
    "lake": ["lake_spark"],
}
SPARK42_TESTS = [f"tests/spark/{room}/test_{name}.py" for room, names in SPARK42_NAMES.items() for name in names]
SPARK42_TESTS += ["tests/unit/spark/java/test_java_sources.py"]


def test(arguments: list[str]) -> int:
    """Run a lane of the tests; see tools/testing.py."""
    return tools.testing.main(
        arguments, more=lambda: spark42([*SPARK42_TESTS, "-k", "not apache", *tools.testing.IN_PROCESSES])
    )


def format_code(arguments: list[str]) -> int:
    """Format the code with ruff, and apply its fixes."""
    folders = tools.testing.CHECKED_FOLDERS
    return run(BIN / "ruff", "check", "--quiet", "--fix", *folders) or run(BIN / "ruff", "format", *folders)


def demo(arguments: list[str]) -> int:
    """Run sensors, Spark and lookups, and draw a picture; see tools/demo.py."""
    return become(PYTHON, "-m", "tools.demo", *arguments)


def clients(arguments: list[str]) -> int:
    """Run a server, two clients and restarts in a temporary directory."""
    return run(PYTHON, "-m", "examples.run_quickstart", *arguments)


def bench(arguments: list[str]) -> int:
    """Run the benchmarks that the arguments choose; see bench."""
    return run(PYTHON, "-m", "bench", *arguments)


def soak(arguments: list[str]) -> int:
    """Run the repeated tests (kills, fuzz, properties) with many more rounds, and the tests of the benchmarks."""
    os.environ.update(SOAK_SETTINGS)
    return run(PYTHON, "-m", "pytest", "-m", "", *(arguments or SOAKED_FOLDERS))


def spark42(arguments: list[str]) -> int:
    """Run tests of Spark on the oldest version that we support."""
    set_up(SPARK42_ENVIRONMENT, with_spark42(LOCK.read_text(encoding="utf-8")))
    return run(SPARK42_ENVIRONMENT / PROGRAMS / "python", "-m", "pytest", *(arguments or SPARK42_TESTS))


def fresh(arguments: list[str]) -> int:
    """Run the commands of the README in clean roots of Debian; see tools/fresh.py."""
    return run(sys.executable, "-m", "tools.fresh", *arguments)


def coverage(arguments: list[str]) -> int:
    """Print the coverage of the tests; see tools/coverage_report.py."""
    return run(PYTHON, "-m", "tools.coverage_report", *arguments)


def series(arguments: list[str]) -> int:
    """Run the gate repeatedly; see tools/series.py."""
    return run(sys.executable, "-m", "tools.series", *arguments)


def lock(arguments: list[str]) -> int:
    """Lock the newest versions in the ranges of pyproject.toml, for all systems and Python versions, with hashes."""
    options = ["--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--upgrade"]
    options += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    compiled = run(BIN / "uv", "pip", "compile", *options, "--extra", "dev", "pyproject.toml", "-o", LOCK, *arguments)
    oldest = SPARK42_LOCK.with_suffix(".in")
    return compiled or run(BIN / "uv", "pip", "compile", *options, "--no-deps", oldest, "-o", SPARK42_LOCK, *arguments)


def setup_only(arguments: list[str]) -> int:
    """Print that the environment is ready; `main` sets it up before every command."""
    print(f"dev.py: {PYTHON} is ready")
    return 0


COMMANDS = {
    "test": test,
    "demo": demo,
    "clients": clients,
    "format": format_code,
    "bench": bench,
    "soak": soak,
    "spark42": spark42,
    "fresh": fresh,
    "coverage": coverage,
    "series": series,
    "lock": lock,
    "setup": setup_only,
}


def main(arguments: list[str]) -> int:
    """Set up, then run the command."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this script is what people start with whatever Python they have
        raise SystemExit(f"dev.py: Python 3.11 or newer is needed, got {sys.version.split()[0]}")
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    set_up(ENVIRONMENT, LOCK.read_text(encoding="utf-8"))
    return COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
