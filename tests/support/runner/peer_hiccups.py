"""A pytest plug-in: tests on Apache Fluss run again after a hiccup of the peer, and only then.

The closing line of the run counts them. On our own server nothing is ever tried again.
"""

from __future__ import annotations

import pytest

from fluss.client.calls.admin import AdminCalls
from fluss.model.paths import TableBucket, TablePath
from fluss.values.descriptors import TableDescriptor
from tests.support.runner.lanes import is_on_apache

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the peer may run again after its hiccups; how many did is in the closing line."""
    for item in items:
        if is_on_apache(item.nodeid):
            item.add_marker(pytest.mark.flaky(reruns=MAX_RERUNS_ON_PEER, only_rerun=PEER_HICCUPS))


@pytest.fixture(autouse=True)
def _led_tables_on_the_peer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that Apache Fluss never gives a leader is noticed when it is made, as one of its hiccups.

    Writers would wait for the leader without end, as they should.
    """
    if not is_on_apache(request.node.nodeid):
        return
    create_table = AdminCalls.create_table

    async def create_led_table(self: AdminCalls, path: TablePath, descriptor: TableDescriptor, ignore: bool) -> None:
        await create_table(self, path, descriptor, ignore)
        table = await self._cluster.table(path)
        if not table.is_partitioned:
            for number in range(table.bucket_count):
                await self._cluster.leader(TableBucket(table.table_id, None, number), path)

    monkeypatch.setattr(AdminCalls, "create_table", create_led_table)
