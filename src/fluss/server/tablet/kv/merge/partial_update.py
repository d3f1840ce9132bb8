"""Partial updates and partial deletes.

A request names the columns that it writes; the others keep their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.kv.merge.put_batch import Row


def checked_targets(rules: KvRules, target_columns: Sequence[int]) -> frozenset[int] | None:
    """The positions of the columns to write, or None for all of them; FlussError 35 if they are invalid."""
    entry, columns = rules.entry, rules.entry.schema.columns
    targets = frozenset(target_columns)
    numbered = rules.auto_increment_position
    if numbered is not None and (not targets or numbered in targets):
        name = columns[numbered].name
        raise _invalid(
            f"a write to {entry.path} must name its target columns, without the auto-increment column {name}"
        )
    if not targets:
        return None
    unknown = sorted(position for position in targets if not 0 <= position < len(columns))
    if unknown:
        raise _invalid(f"unknown target column {unknown[0]} of {entry.path}, which has columns 0 to {len(columns) - 1}")
    if len(targets) == len(columns):
        return None
    missing = [columns[position].name for position in sorted(rules.key_positions - targets)]
    if missing:
        raise _invalid(f"a partial update of {entry.path} must have all key columns; missing: {', '.join(missing)}")
    for position, column in enumerate(columns):
        if position not in rules.key_positions and not column.data_type.nullable:
            raise _invalid(
                f"{entry.path} does not support partial updates, because column {column.name} is not nullable; write "
                "whole rows"
            )
    return targets


def _invalid(text: str) -> FlussError:
    return FlussError(text, ErrorCode.INVALID_TARGET_COLUMN)


class PartialUpdateMerger:
    """Merges partial updates: the target columns are written, the others keep their values."""

    def __init__(self, rules: KvRules, targets: frozenset[int]) -> None:
        width = len(rules.entry.schema.columns)
        self.written = [position in targets for position in range(width)]
        self._cleared = sorted(targets - rules.key_positions)
        self.writes_only_keys = not self._cleared
        self._kept = [position for position in range(width) if position not in targets]

    def insert(self, new: Row) -> Row:
        return [value if written else None for value, written in zip(new, self.written, strict=True)]

    def update(self, old: Row, new: Row) -> Row:
        if self.writes_only_keys:
            return old  # Only the key is a target: nothing to write.
        return [b if written else a for a, b, written in zip(old, new, self.written, strict=True)]

    def delete(self, old: Row) -> Row | None:
        """Set the target columns to null; the row is removed if all its other columns are null."""
        if all(old[position] is None for position in self._kept):
            return None
        row = list(old)
        for position in self._cleared:
            row[position] = None
        return row
