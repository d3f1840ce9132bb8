"""Which batches a fetch with a filter can leave out, judged by their statistics alone.

Only whole batches are dropped, and only if none of their rows can satisfy the predicate; in doubt a batch is kept.
Text is compared by its UTF-8 bytes, which is also the order of the bounds. (Java compares
UTF-16 units for STARTS WITH and so may drop a batch with matching rows outside the basic plane; we keep it.)
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from fluss.codec.batches.log_batch import BatchHeader
from fluss.codec.batches.statistics import BatchStatistics, decode_statistics
from fluss.codec.buffers import ReadableBuffer
from fluss.codec.filters.predicate import (
    BoundCompound,
    BoundLeaf,
    BoundPredicate,
    CompoundFunction,
    LeafFunction,
    Predicate,
    bind,
)
from fluss.model.schema import Schema


def may_contain(predicate: BoundPredicate, statistics: BatchStatistics, row_count: int) -> bool:
    """False when no row of the batch can satisfy the predicate. KeyError or ValueError if it cannot be decided."""
    if isinstance(predicate, BoundCompound):
        judge = all if predicate.function is CompoundFunction.AND else any
        return judge(may_contain(child, statistics, row_count) for child in predicate.children)
    return _leaf_may_match(predicate, statistics, row_count)


def _leaf_may_match(leaf: BoundLeaf, statistics: BatchStatistics, row_count: int) -> bool:
    null_count = statistics.null_count(leaf.position)
    low, high = statistics.bounds(leaf.position)
    only_nulls = null_count == row_count
    if not only_nulls and (low is None or high is None):
        return True
    function = leaf.function
    if function is LeafFunction.IS_NULL:
        return null_count > 0
    if function is LeafFunction.IS_NOT_NULL:
        return null_count < row_count
    if only_nulls:
        return False
    low_key, high_key = leaf.order(low), leaf.order(high)
    if function is LeafFunction.IN:
        first = bisect_left(leaf.keys, low_key)
        return first < len(leaf.keys) and bool(leaf.keys[first] <= high_key)
    if leaf.has_null_literal:
        return False
    if function is LeafFunction.NOT_IN:
        return not (low_key == high_key and _holds(leaf.keys, low_key))
    return _comparison_may_match(function, leaf.keys[0], low_key, high_key)


def _comparison_may_match(function: LeafFunction, literal: Any, low: Any, high: Any) -> bool:
    if function is LeafFunction.EQUAL:
        return bool(low <= literal <= high)
    if function is LeafFunction.NOT_EQUAL:
        return not low == literal == high
    if function is LeafFunction.LESS_THAN:
        return bool(low < literal)
    if function is LeafFunction.LESS_OR_EQUAL:
        return bool(low <= literal)
    if function is LeafFunction.GREATER_THAN:
        return bool(high > literal)
    if function is LeafFunction.GREATER_OR_EQUAL:
        return bool(high >= literal)
    if function is LeafFunction.STARTS_WITH:
        return bool((low.startswith(literal) or low <= literal) and (high.startswith(literal) or high >= literal))
    return True  # bounds tell nothing about the middle or the end of a string


def _holds(sorted_keys: tuple[Any, ...], key: Any) -> bool:
    index = bisect_left(sorted_keys, key)
    return index < len(sorted_keys) and sorted_keys[index] == key


class BatchFilter:
    """The filter of one fetch: decides batch by batch, whatever schema each was written with.

    Belongs to one request and one thread. It caches one binding per schema id of the table.
    """

    def __init__(self, predicate: Predicate, filter_schema: Schema) -> None:
        self._predicate = predicate
        self._filter_schema = filter_schema
        self._bound: dict[int, BoundPredicate | None] = {}

    def keeps(self, buffer: ReadableBuffer, position: int, header: BatchHeader, batch_schema: Schema) -> bool:
        """True unless the batch certainly has no matching row. `batch_schema` is that of `header.schema_id`."""
        if not header.statistics_length:
            return True
        if header.schema_id not in self._bound:
            self._bound[header.schema_id] = bind(self._predicate, self._filter_schema, batch_schema)
        bound = self._bound[header.schema_id]
        if bound is None:
            return True
        statistics = decode_statistics(buffer, position, header, batch_schema.data_types)
        if statistics is None:
            return True
        try:
            return may_contain(bound, statistics, header.record_count)
        except (KeyError, ValueError):
            return True  # no statistics for a column, or rows that cannot be read
