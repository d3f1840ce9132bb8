"""Settings for all tests: bounded property tests; tests that hang or kill their process do not hold up the others."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.support.runner.time_limits",
    "tests.support.runner.dead_workers",
    "tests.support.runner.apache_health",
]
pytest_plugins += [
    "tests.support.runner.temporary_files",
    "tests.support.runner.skip_reasons",
    "tests.support.runner.lanes",
    "tests.support.runner.durations",
    "tests.support.runner.closing_lines",
]
pytest_plugins += [
    "tests.support.runner.failure_notes",
    "tests.support.runner.peer_hiccups",
    "tests.support.runner.spark_class_archive",
]

# Java machines of tests live for minutes at most: optimising their code takes longer than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")


def pytest_configure(config: pytest.Config) -> None:
    """How properties are tried. Deadlines per example measure the machine, not the code."""
    from tests.support.runner.lanes import examples  # a plug-in, which pytest wants to import first

    health_checks_off = (HealthCheck.too_slow, HealthCheck.data_too_large)
    always = settings(deadline=None, print_blob=True, suppress_health_check=health_checks_off)
    settings.register_profile("normal", always, max_examples=examples(60))
    settings.register_profile("soak", always, max_examples=5000)  # for long runs: HYPOTHESIS_PROFILE=soak
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))
