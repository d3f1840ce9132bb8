"""Finds the value of an Arrow batch that its column cannot hold: an invalid time, invalid UTF-8, too many digits.

Arrow's `validate(full=True)`, which readers use too, decides. It does not report the row, so the row is found by
bisection, which costs time only for batches that are refused.
"""

from __future__ import annotations

import pyarrow as pa

from fluss.codec.batches.log_batch import CorruptBatch


def check_values(rows: pa.RecordBatch) -> None:
    """Raise CorruptBatch with column and row of the first bad value."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise CorruptBatch(_located(rows, str(problem))) from None


def _located(rows: pa.RecordBatch, problem: str) -> str:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        found = _problem(column)
        if found is None:
            continue
        if _problem(column.slice(0, 0)) is not None:  # nested values are validated as a whole: the row is unknown
            return f"column {field.name!r}: {found}"
        good, bad = 0, len(column)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if _problem(column.slice(0, middle)) is None else (good, middle)
        return f"column {field.name!r}, row {bad - 1}: {_problem(column.slice(bad - 1, 1)) or found}"
    return problem


def _problem(column: pa.Array) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as problem:
        return str(problem)
    return None
