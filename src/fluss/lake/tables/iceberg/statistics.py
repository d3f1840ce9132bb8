"""The statistics in the footer of a data file, in the form of a manifest entry: counts, sizes and bounds of columns.

pyiceberg computes them, except for bounds of dates and times: it converts those to Python's own types, which only have
the years 1 to 9999. The bounds here are the numbers in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DateType, TimestampType, TimestamptzType, TimeType

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TIMES = (DateType, TimeType, TimestampType, TimestamptzType)
_COUNTS_ONLY = MetricsMode(MetricModeTypes.COUNTS)
_WITHOUT_BOUNDS = (MetricsMode(MetricModeTypes.NONE), _COUNTS_ONLY)


def file_statistics(footer: pq.FileMetaData, table: TableMetadata) -> dict[str, object]:
    """The statistics of a Parquet file, as arguments of `DataFile`."""
    schema = table.schema()
    columns = parquet_path_to_id_mapping(schema)
    plan = compute_statistics_plan(schema, table.properties)
    times = {
        field_id: each
        for field_id, each in plan.items()
        if isinstance(each.iceberg_type, _TIMES) and each.mode not in _WITHOUT_BOUNDS
    }
    counted = {**plan, **{field_id: replace(each, mode=_COUNTS_ONLY) for field_id, each in times.items()}}
    statistics = data_file_statistics_from_parquet_metadata(footer, counted, columns)
    statistics.column_aggregates.update(_time_bounds(footer, times, columns))
    return statistics.to_serialized_dict()


def _time_bounds(
    footer: pq.FileMetaData, times: Mapping[int, StatisticsCollector], columns: Mapping[str, int]
) -> dict[int, StatsAggregator]:
    """The bounds of columns that have statistics in every row group."""
    found: dict[int, StatsAggregator] = {}
    unknown: set[int] = set()
    for group in range(footer.num_row_groups):
        for position in range(footer.num_columns):
            column = footer.row_group(group).column(position)
            field_id = columns[column.path_in_schema]
            if field_id not in times:
                continue
            if not column.is_stats_set:
                unknown.add(field_id)
                continue
            facts = column.statistics
            bounds = found.setdefault(field_id, StatsAggregator(times[field_id].iceberg_type, facts.physical_type))
            bounds.update_min(facts.min_raw)
            bounds.update_max(facts.max_raw)
    return {field_id: bounds for field_id, bounds in found.items() if field_id not in unknown}
