"""Reading log tables: scanners, their results, filters."""

from fluss.client.scanner.aio_scanner import AioBatchScanner, AioLogScanner
from fluss.client.scanner.bad_batches import BadBatch
from fluss.client.scanner.limit_scan import BatchScanner
from fluss.client.scanner.log_scanner import LogScanner
from fluss.client.scanner.materialize import ScanRecord
from fluss.client.scanner.predicates import ColumnRef, Predicate, col
from fluss.client.scanner.records import RecordBatch, ScanRecords

__all__ = [
    "AioBatchScanner",
    "AioLogScanner",
    "BadBatch",
    "BatchScanner",
    "ColumnRef",
    "LogScanner",
    "Predicate",
    "RecordBatch",
    "ScanRecord",
    "ScanRecords",
    "col",
]
