"""What reads are asked for, and what they hand out."""

from __future__ import annotations

from fluss.client.decode.bad_batches import warn_of
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.materialize import valid_mask
from fluss.client.decode.scan_plan import Everything, ScanPlan
from fluss.client.decode.stored_batch import StoredBatch
from fluss.client.filter.filters import RowFilter
from fluss.client.scan.log_range import LogRange
from fluss.client.state.bucket_state import BucketState
from fluss.client.state.row_selection import Selection

__all__ = [
    "BucketState",
    "Everything",
    "LogRange",
    "LogRows",
    "RowFilter",
    "ScanPlan",
    "Selection",
    "StoredBatch",
    "valid_mask",
    "warn_of",
]
