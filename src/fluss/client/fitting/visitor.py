"""The fit of a data type."""

from __future__ import annotations

from fluss.client.fitting.base import Fit, FitRules
from fluss.client.fitting.nested import ArrayFit, MapFit, RowFit
from fluss.client.fitting.numbers import INTEGER_BITS, BooleanFit, DecimalFit, FloatFit, IntegerFit
from fluss.client.fitting.strings import text_fit
from fluss.client.fitting.times import time_fit
from fluss.model.types import ArrayType, DataType, DecimalType, MapType, RowType

_PLAIN_RULES = FitRules()


def fit_of(data_type: DataType, rules: FitRules = _PLAIN_RULES) -> Fit:
    """The fit of a type.

    >>> import decimal
    >>> fit_of(DecimalType(10, 2)).value(5)
    Decimal('5.00')
    >>> fit_of(DecimalType(10, 2)).value(decimal.Decimal("1.999"))
    Traceback (most recent call last):
    fluss.client.fitting.base.UnfitValueError: it has more than 2 digits after the point: ...
    """
    root = data_type.root
    if root in INTEGER_BITS:
        return IntegerFit(data_type, rules)
    if root == "BOOLEAN":
        return BooleanFit(data_type, rules)
    if root in ("FLOAT", "DOUBLE"):
        return FloatFit(data_type, rules)
    if isinstance(data_type, DecimalType):
        return DecimalFit(data_type, rules)
    if root in ("CHAR", "STRING", "BINARY", "BYTES"):
        return text_fit(data_type, rules)
    if isinstance(data_type, ArrayType):
        return ArrayFit(data_type, rules, fit_of)
    if isinstance(data_type, MapType):
        return MapFit(data_type, rules, fit_of)
    if isinstance(data_type, RowType):
        return RowFit(data_type, rules, fit_of)
    return time_fit(data_type, rules)
