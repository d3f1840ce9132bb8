"""Settings for all tests: bounded property tests; tests that hang or kill their process do not hold up the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fluss.client.admin_calls import AdminCalls
from fluss.client.descriptors import TableDescriptor
from fluss.model.paths import TableBucket, TablePath

pytest_plugins = ["tests.support.time_limits", "tests.support.dead_workers", "tests.support.apache_fluss"]
pytest_plugins += ["tests.support.skip_reasons", "tests.support.temporary_files"]

# Java machines of tests live for minutes at most: optimising their code takes longer than it saves.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

# Deadlines per example measure the machine, not the code. "soak" is for long runs: HYPOTHESIS_PROFILE=soak.
_HEALTH_CHECKS_OFF = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("normal", max_examples=60, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_HEALTH_CHECKS_OFF)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "normal"))


# Apache Fluss elects leaders and spreads new schemas after it has answered, and on a busy machine sometimes never does.
# A tablet server that was restarted may refuse what is allowed, for a moment.
# Such a test runs again on a fresh table; every other failure on the peer counts at once, and on our server all do.
PEER_HICCUPS = [
    "no leader at the moment",
    "No leader found",
    "Invalid schema id",
    "No permission to READ table",
    "PeerLostError",
    "Apache Fluss is not ready",
]
MAX_RERUNS_ON_PEER = 2


SPARK_TESTS = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark first, and tests on the peer may run again after its hiccups.

    Java calls back into Python through a server of py4j that uses `select`, and that knows no descriptors above 1023.
    Later in a run a process has more: tests that play power cuts abandon their open files by the thousand.
    """
    items.sort(key=lambda item: SPARK_TESTS not in item.path.parents)  # stable: all else stays in order
    for item in items:
        if _is_on_peer(item):
            item.add_marker(pytest.mark.flaky(reruns=MAX_RERUNS_ON_PEER, only_rerun=PEER_HICCUPS))


def _is_on_peer(item: pytest.Item) -> bool:
    return "[apache" in item.nodeid or "-apache" in item.nodeid


@pytest.fixture(autouse=True)
def _led_tables_on_the_peer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that Apache Fluss never gives a leader is noticed when it is made, as one of its hiccups.

    Writers would wait for the leader without end, as they should.
    """
    if not _is_on_peer(request.node):
        return
    create_table = AdminCalls.create_table

    async def create_led_table(self: AdminCalls, path: TablePath, descriptor: TableDescriptor, ignore: bool) -> None:
        await create_table(self, path, descriptor, ignore)
        table = await self._cluster.table(path)
        if not table.is_partitioned:
            for number in range(table.bucket_count):
                await self._cluster.leader(TableBucket(table.table_id, None, number), path)

    monkeypatch.setattr(AdminCalls, "create_table", create_led_table)
