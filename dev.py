#!/usr/bin/env python3
"""Everything a developer runs, with nothing but Python 3.10: `python3 dev.py COMMAND`.

    test     set up .venv, then ruff, mypy and pytest: the gate; with --fast what one runs while working, with --all
             everything there is; --times prints where the time went; other arguments go to pytest
    demo     set up .venv, then the whole system at work: server, client, Spark, a picture; Ctrl-C ends it
    clients  set up .venv, start a server, drive it with our client, restart it, drive it with pyfluss
    format   let ruff format and repair what it can
    bench    measure against Apache Fluss where Java and Maven are there: the server, with --client the
             client and pyfluss on both servers, with --spark Spark with our tables and with Parquet,
             with --lake tiering and union reads, with --memory the memory of server and client,
             with --amplification what small requests cost others, with --peers Kafka and Redis;
             with --plot the picture of the README from figures that were recorded
    soak     kill, fuzz and property tests with many more rounds, and the benchmarks once with few rows; takes an
             hour or more
    spark42  set up .venv-spark42, the same with the oldest Spark that we support, and run tests of Spark there;
             further arguments go to pytest
    fresh    the commands of the README in clean roots of three Debian releases; as root on Debian
    coverage run tests and print what they reach, by package, and which public names none touches
    series   the gate again and again in clean clones, also on a busy machine, and a table of what failed
    lock     resolve requirements.lock anew
    setup    only set up .venv

The environment is made from requirements.lock with checked hashes, once, and again when the lock file, the project
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
        become,
        run,
        set_up,
        with_spark42,
    )
except KeyboardInterrupt:  # as quietly as later
    sys.exit(130)

SOAK_SETTINGS = {"FLUSS_KILL_ROUNDS": "500", "FLUSS_FUZZ_FRAMES": "1000000", "HYPOTHESIS_PROFILE": "soak"}
SOAK_SETTINGS["FLUSS_TEST_LIMIT_SECONDS"] = "7200"
SOAKED_FOLDERS = ["tests/recovery", "tests/history", "tests/fuzz", "tests/unit/codec"]
SOAKED_FOLDERS += ["tests/spark/test_kill_rounds.py", "tests/spark/test_tier_kill.py"]
SOAKED_FOLDERS += ["tests/bench", "tests/spark/test_bench.py"]
# What leans on Spark's inside most: our Java classes, planning, state between micro-batches, types, Connect.
SPARK42_NAMES = ["session", "catalog", "catalog_partitions", "own_scans", "count", "batch_read", "batch_read_log"]
SPARK42_NAMES += ["attach", "connect", "batch_write", "stream_read", "stream_reader", "stream_write"]
SPARK42_NAMES += ["stream_write_staged", "types", "ddl", "lake_spark", "java_paths", "stored_batches"]
SPARK42_NAMES += ["state_pieces", "stream_cursor", "lookup_join"]
SPARK42_TESTS = [f"tests/spark/test_{name}.py" for name in SPARK42_NAMES]
SPARK42_TESTS += ["tests/unit/spark/java/test_java_sources.py"]


def test(arguments: list[str]) -> int:
    """A lane of the tests; see tools/testing.py."""
    return tools.testing.main(
        arguments, more=lambda: spark42([*SPARK42_TESTS, "-k", "not apache", *tools.testing.IN_PROCESSES])
    )


def format_code(arguments: list[str]) -> int:
    """Repair style in place."""
    folders = tools.testing.CHECKED_FOLDERS
    return run(BIN / "ruff", "check", "--quiet", "--fix", *folders) or run(BIN / "ruff", "format", *folders)


def demo(arguments: list[str]) -> int:
    """Sensors into a log table, Spark into a primary-key table, lookups, a picture; see tools/demo.py."""
    return become(PYTHON, "-m", "tools.demo", *arguments)


def clients(arguments: list[str]) -> int:
    """A server, two clients, restarts: everything in a temporary directory."""
    return run(PYTHON, "-m", "examples.run_quickstart", *arguments)


def bench(arguments: list[str]) -> int:
    """The comparison with Apache Fluss."""
    return run(PYTHON, "-m", "bench", *arguments)


def soak(arguments: list[str]) -> int:
    """The tests that end when they have done enough rounds, with many rounds, and tests of the benchmarks."""
    os.environ.update(SOAK_SETTINGS)
    return run(PYTHON, "-m", "pytest", "-m", "", *(arguments or SOAKED_FOLDERS))


def spark42(arguments: list[str]) -> int:
    """Tests of Spark on the oldest version that we support."""
    set_up(SPARK42_ENVIRONMENT, with_spark42(LOCK.read_text(encoding="utf-8")))
    return run(SPARK42_ENVIRONMENT / PROGRAMS / "python", "-m", "pytest", *(arguments or SPARK42_TESTS))


def fresh(arguments: list[str]) -> int:
    """Both commands of the README in clean roots of Debian; see tools/fresh.py."""
    return run(sys.executable, "-m", "tools.fresh", *arguments)


def coverage(arguments: list[str]) -> int:
    """What the tests reach; see tools/coverage_report.py."""
    return run(PYTHON, "-m", "tools.coverage_report", *arguments)


def series(arguments: list[str]) -> int:
    """The gate again and again; see tools/series.py."""
    return run(sys.executable, "-m", "tools.series", *arguments)


def lock(arguments: list[str]) -> int:
    """Newest versions within the ranges of pyproject.toml, for all systems and Python versions, with hashes."""
    options = ["--quiet", "--universal", "--python-version", "3.10", "--generate-hashes", "--upgrade", "--extra", "dev"]
    plain = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    return run(BIN / "uv", "pip", "compile", *options, *plain, "pyproject.toml", "-o", LOCK, *arguments)


def setup_only(arguments: list[str]) -> int:
    """The environment is there already when a command runs."""
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
    if sys.version_info < (3, 10):  # noqa: UP036 - this script is what people start with whatever Python they have
        raise SystemExit(f"dev.py: Python 3.10 or newer is needed, this is {sys.version.split()[0]}")
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
