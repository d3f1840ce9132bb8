"""Options that have no effect on a read or write are refused there, unless they are defaults for many."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from fluss import FlussError
from fluss.spark.options.applicability import OPTIONS, Direction, check_direction
from fluss.spark.options.parsing import parse_options
from fluss.spark.options.session_options import DEFAULTS_OPTION, SESSION_OPTIONS_VARIABLE, over_defaults
from fluss.spark.source import FlussDataSource

NEEDED = {"bootstrap.servers": "localhost:9123", "table": "shop.orders"}
SCHEMA = StructType([StructField("id", LongType())])


@pytest.mark.parametrize(
    ("direction", "refused"),
    [
        ("batch reads", {"maxRowsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "cursor", "checkpointLocation",
                         "queryName", "rowKindColumn", "delivery", "transaction", "transactionBatch",
                         "onExtraDigits", "on_extra_digits"}),
        ("streaming reads", {"limit", "end", "scan.incremental.start.timestamp", "scan.incremental.end.timestamp",
                             "scan.maxBytesPerPartition", "read.optimized", "read_optimized", "snapshot_id", "as_of",
                             "checkpointLocation", "queryName", "rowKindColumn", "delivery", "transaction",
                             "transactionBatch", "onExtraDigits", "on_extra_digits"}),
        ("batch writes", {"onBadBatch", "on_bad_batch", "limit",
                          "mode", "timeZone", "start", "starting", "end", "scan.startup.mode",
                          "scan.startup.timestamp", "scan.incremental.start.timestamp",
                          "scan.incremental.end.timestamp", "scan.maxRecordsPerPartition", "scan.maxBytesPerPartition",
                          "read.optimized", "read_optimized", "union", "snapshot_id", "as_of", "maxRowsPerTrigger",
                          "maxBytesPerTrigger", "failOnDataLoss", "cursor", "checkpointLocation", "queryName"}),
        ("streaming writes", {"onBadBatch", "on_bad_batch", "limit",
                              "mode", "timeZone", "start", "starting", "end", "scan.startup.mode",
                              "scan.startup.timestamp", "scan.incremental.start.timestamp",
                              "scan.incremental.end.timestamp", "scan.maxRecordsPerPartition",
                              "scan.maxBytesPerPartition", "read.optimized", "read_optimized", "union", "snapshot_id",
                              "as_of", "maxRowsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "cursor",
                              "transaction", "transactionBatch"}),
    ],
)  # fmt: skip
def test_the_options_that_each_direction_refuses(direction: Direction, refused: set[str]) -> None:
    for name in OPTIONS:
        if name not in refused:
            check_direction({name.lower()}, direction)
            continue
        with pytest.raises(FlussError, match=f"option {name} is for .* and has no effect on {direction}"):
            check_direction({name.lower()}, direction)


def test_the_source_knows_its_direction() -> None:
    def source(**options: str) -> FlussDataSource:
        return FlussDataSource({**NEEDED, **options})

    with pytest.raises(FlussError, match="option maxRowsPerTrigger is for streaming reads"):
        source(maxrowspertrigger="1").reader(SCHEMA)
    with pytest.raises(FlussError, match="option rowKindColumn is for batch writes and streaming writes"):
        source(rowkindcolumn="op").streamReader(SCHEMA)
    with pytest.raises(FlussError, match="option limit is for batch reads"):
        source(limit="1").writer(SCHEMA, overwrite=False)
    with pytest.raises(FlussError, match="option transaction is for batch writes"):
        source(transaction="nightly", transactionbatch="1").streamWriter(SCHEMA, overwrite=False)


def test_defaults_for_many_may_apply_to_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"limit": "5", "failondataloss": "false"}
    assert parse_options(over_defaults(defaults, NEEDED), "batch writes").limit == 5
    with pytest.raises(FlussError, match="option limit is for batch reads"):
        parse_options(over_defaults(defaults, {**NEEDED, "limit": "5"}), "batch writes")
    monkeypatch.setenv(SESSION_OPTIONS_VARIABLE, '{"maxrowspertrigger": "3"}')
    assert parse_options(NEEDED, "batch reads").stream.max_rows_per_trigger == 3
    with pytest.raises(FlussError, match="option maxRowsPerTrigger is for streaming reads"):
        parse_options({**NEEDED, "maxRowsPerTrigger": "3"}, "batch reads")


def test_notes_about_defaults_add_up() -> None:
    once = over_defaults({"limit": "5"}, NEEDED)
    twice = over_defaults({"end": "open", "limit": "7"}, once)
    assert twice == {**NEEDED, "limit": "5", "end": "open", DEFAULTS_OPTION: "limit,end"}
