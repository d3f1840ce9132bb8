"""A snapshot of one bucket with the interface of a scan: its rows in key order, and their log offset.

For servers without SCAN_KV. States: new -> open (the snapshot is leased) -> done or failed. Blocks; one thread uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.state.snapshot_plan import KvSnapshot, SnapshotLease
from fluss.client.state.snapshot_rows import snapshot_batches
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa


class SnapshotScan:
    """Batches have all columns of the table. Always close it: that drops the lease."""

    def __init__(self, session: Session, table: ClientTable, bucket: TableBucket, snapshot: KvSnapshot) -> None:
        self._session = session
        self._table = table
        self._bucket = bucket
        self._snapshot = snapshot
        self._lease = SnapshotLease(session.cluster, {bucket: snapshot})

    def open(self) -> int:
        """Begin; return the log offset of the rows: changes from it on are not in them."""
        self._session.run(self._lease.acquire())
        return self._snapshot.log_offset

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in snapshot_batches(self._session, self._table, self._bucket, self._snapshot.snapshot_id):
            yield batch
            self._session.run(self._lease.renew())

    def close(self) -> None:
        """Let the server drop the lease. May be called twice."""
        if not self._session.is_closed:
            self._session.run(self._lease.drop())
