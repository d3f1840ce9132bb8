"""Aggregation functions of columns: names, accepted types, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss.model.types import DataType

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_NUMBERS = _INTEGERS | {"FLOAT", "DOUBLE", "DECIMAL"}
_TEXTS = frozenset({"CHAR", "STRING"})
_TIMES = frozenset({"DATE", "TIME_WITHOUT_TIME_ZONE", "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"})

DELIMITER_PARAMETER = "delimiter"

# Function name -> accepted type roots; None means every type.
AGGREGATION_FUNCTIONS: Mapping[str, frozenset[str] | None] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "max": _NUMBERS | _TEXTS | _TIMES,
    "min": _NUMBERS | _TEXTS | _TIMES,
    "last_value": None,
    "last_value_ignore_nulls": None,
    "first_value": None,
    "first_value_ignore_nulls": None,
    "listagg": _TEXTS,
    "string_agg": _TEXTS,
    "bool_and": frozenset({"BOOLEAN"}),
    "bool_or": frozenset({"BOOLEAN"}),
    "rbm32": frozenset({"BYTES"}),
    "rbm64": frozenset({"BYTES"}),
}

_WITH_DELIMITER = frozenset({"listagg", "string_agg"})


def normalized_function(node: object) -> dict[str, object] | None:
    """The form in which an `agg_function` JSON object is stored; None for an unknown function, which readers ignore."""
    if not isinstance(node, Mapping) or not isinstance(node.get("type"), str):
        return None
    name = node["type"].lower().replace("-", "_")
    if name not in AGGREGATION_FUNCTIONS:
        return None
    out: JsonObject = {"type": name}
    parameters = node.get("parameters")
    if isinstance(parameters, Mapping) and parameters:
        out["parameters"] = {str(key): str(value) for key, value in parameters.items()}
    return out


def broken_function_rule(function: Mapping[str, Any], data_type: DataType) -> str | None:
    """The reason why a normalized function cannot be used on a column of `data_type`, or None if it can."""
    name = function["type"]
    roots = AGGREGATION_FUNCTIONS[name]
    if roots is not None and data_type.root not in roots:
        return f"function {name} does not accept type {data_type}; it accepts {', '.join(sorted(roots))}"
    for key, value in function.get("parameters", {}).items():
        if name not in _WITH_DELIMITER or key != DELIMITER_PARAMETER:
            return f"function {name} has no parameter {key!r}; remove it"
        if not value:
            return f"parameter {DELIMITER_PARAMETER!r} of function {name} must not be empty"
    return None
