"""Settings for all tests: bounded property tests; tests that hang or kill their process do not hold up the others."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.time_limits", "tests.support.dead_workers", "tests.support.apache_fluss"]
pytest_plugins += [
    "tests.support.temporary_files",
    "tests.support.skip_reasons",
    "tests.support.lanes",
    "tests.support.test_times",
]
pytest_plugins += ["tests.support.failure_notes", "tests.support.peer_hiccups"]

# Java machines of tests live for minutes at most: optimising their code takes longer than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

# Deadlines per example measure the machine, not the code. "soak" is for long runs: HYPOTHESIS_PROFILE=soak.
_HEALTH_CHECKS_OFF = (HealthCheck.too_slow, HealthCheck.data_too_large)
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.register_profile("normal", _ALWAYS, max_examples=60)
settings.register_profile("soak", _ALWAYS, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))
