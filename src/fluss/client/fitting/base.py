"""The common part of all fits: rules, errors, and the preparation of Arrow arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.types import DataType

ExtraDigits = Literal["error", "truncate"]


# Extension types whose values are what is stored, a string or 16 bytes. Others are not: a pandas period is not a number
# of months, and numbers that stand for true and false are not numbers.
_NAMES_OF_STORAGE = frozenset({"arrow.json", "arrow.uuid"})
# The metadata key of an extension type. Arrow leaves it there if the type is not registered in this process.
_EXTENSION_NAME = b"ARROW:extension:name"


MAX_SHOWN_CHARACTERS = 120
CONVERT = "convert it first"
"""What to do about a Python value of another kind."""


class UnfitValueError(ValueError):
    """The value does not fit; the message is the reason, without column and type."""

    error_code = ErrorCode.CLIENT_ERROR


class UnfitTypeError(UnfitValueError):
    """No value of this Arrow type fits; this is known before any row is read."""


@dataclass(frozen=True)
class FitRules:
    """The rules besides the type: what to do with digits that the column lacks, and how the table stores rows.

    Rows (None stands for Arrow batches) hold less than Arrow does: a TIME is a number of milliseconds, and CHAR(n) has
    n bytes in an INDEXED row, of which zeros at the end are lost.
    """

    extra_digits: ExtraDigits = "error"
    row_format: RowFormat | None = None
    is_key: bool = False
    cutting_option: str = "on_extra_digits='truncate'"
    """The name of the option that cuts off digits, for messages."""

    @property
    def truncates(self) -> bool:
        """True if digits that the column lacks are cut off."""
        return self.extra_digits == "truncate" and not self.is_key

    @property
    def digits_hint(self) -> str:
        """Advice about digits that the column lacks. Those of keys are never cut off: two rows could become one."""
        if self.is_key:
            return "round it first, because keys are never cut off"
        return f"round it first, or write with {self.cutting_option}"


def checked_extra_digits(wanted: object) -> ExtraDigits:
    """The user's choice for digits that a column lacks, checked."""
    if wanted not in ("error", "truncate"):
        raise FlussError(f"on_extra_digits must be 'error' or 'truncate', got {wanted!r}")
    return "truncate" if wanted == "truncate" else "error"


class Fit(ABC):
    """Checks and converts the values of one type. Immutable, used by any thread."""

    looks_closer = False
    """True if even valid arrays that already have the column's Arrow type must be checked."""

    def __init__(self, data_type: DataType, rules: FitRules) -> None:
        self.data_type = data_type
        self.rules = rules
        self.arrow_type = to_arrow_type(data_type)

    @abstractmethod
    def value(self, value: object) -> object:
        """The form of a Python value (not None) until it is encoded; `UnfitValueError` if it does not fit."""

    def condition(self, name: str) -> str | None:
        """Source of an expression that is true if variable `name` can be stored as it is. None: every value is checked.

        May use `date`, `datetime`, `encodable`, `min_ns` and `max_ns`.
        """
        return None

    def array(self, array: pa.Array) -> pa.Array:
        """A valid Arrow array (see `validate(full=True)`) with the column's Arrow type, not copied if it has it."""
        if array.type == self.arrow_type and not self.looks_closer:
            return array
        given = array.type
        try:
            array = plain(array)
            if pa.types.is_null(array.type):
                return pa.nulls(len(array), self.arrow_type)
            return self._converted(array)
        except pa.ArrowNotImplementedError as error:
            raise UnfitTypeError(f"Arrow cannot convert values of type {given} ({error}): cast them first") from None
        except (pa.ArrowException, OverflowError) as error:
            raise UnfitValueError(self._reason(array.type, error)) from None

    @abstractmethod
    def _converted(self, array: pa.Array) -> pa.Array:
        """The array as the column's type; may raise Arrow's errors, which `_reason` explains."""

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        return str(error)

    def _refuse_type(self, source: pa.DataType) -> pa.Array:
        raise UnfitTypeError(f"values of the Arrow type {source} are not accepted: cast them first")


def plain(array: pa.Array) -> pa.Array:
    """The plain values of an array that is dictionary-encoded, run-length-encoded, or of an extension type."""
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            if array.type.extension_name not in _NAMES_OF_STORAGE:
                text = f"values of the Arrow type {array.type} have another meaning than their storage type"
                raise UnfitTypeError(f"{text}: cast them first")
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = _without_views(array).dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def check_meaning(field: pa.Field) -> None:
    """Raise for a field, or a nested one, of an extension type that this process does not know.

    Its values appear in their storage type; only the metadata of the field shows that they have another meaning.
    """
    name = (field.metadata or {}).get(_EXTENSION_NAME, b"").decode(errors="replace")
    if name and name not in _NAMES_OF_STORAGE:
        text = f"its field has the extension type {shown(name)}, whose values have another meaning than their storage"
        raise UnfitTypeError(f"{text} type: convert them first, or remove the metadata to write the stored values")
    kind = field.type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not isinstance(kind, pa.BaseExtensionType):
        for index in range(kind.num_fields):
            check_meaning(kind.field(index))


def _without_views(array: pa.Array) -> pa.Array:
    """A dictionary whose values Arrow can copy."""
    kind = array.dictionary.type
    if not pa.types.is_string_view(kind) and not pa.types.is_binary_view(kind):
        return array
    values = array.dictionary.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
    return pa.DictionaryArray.from_arrays(array.indices, values)


def shown(value: Any, *, quoted: bool = True) -> str:
    """A value in an error, of bounded length."""
    try:
        text = repr(value) if quoted else str(value)
    except Exception:  # numbers of thousands of digits, classes with a broken __repr__
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def any_true(mask: pa.Array) -> bool:
    """True if a boolean array contains true; nulls do not count."""
    return bool(pc.any(mask).as_py())


def is_floating(arrow_type: pa.DataType) -> bool:
    """True for types of binary floating-point numbers."""
    return bool(pa.types.is_floating(arrow_type))


def widened(array: pa.Array) -> pa.Array:
    """Half floats as floats: few of Arrow's casts support them."""
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
