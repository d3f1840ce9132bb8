"""CHAR, STRING, BINARY and BYTES."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.base import CONVERT, Fit, FitRules, UnfitValueError, any_true
from fluss.codec.rows.columns import RowFormat
from fluss.model.types import BinaryType, CharType, DataType

# Longer strings and bytes leave the fast path, so that their size is counted.
LONG_VALUE_BYTES = 1024


def is_encodable(text: str) -> bool:
    """True if a string can be encoded as UTF-8; lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TextFit(Fit):
    """Strings that can be encoded as UTF-8. For Arrow's strings this is part of their validity."""

    def value(self, value: object) -> str:
        if not isinstance(value, str):
            raise UnfitValueError(f"it is not a str: {CONVERT}")
        if not value.isascii() and not is_encodable(value):
            raise UnfitValueError("it has a lone surrogate, which UTF-8 cannot encode: remove it first")
        return value if type(value) is str else str.__str__(value)

    def condition(self, name: str) -> str | None:
        return f"type({name}) is str and len({name}) <= {LONG_VALUE_BYTES} and ({name}.isascii() or encodable({name}))"

    def _converted(self, array: pa.Array) -> pa.Array:
        source = array.type
        if pa.types.is_string(source):
            return array
        if pa.types.is_large_string(source) or pa.types.is_string_view(source):
            return array.cast(pa.string())
        return self._refuse_type(source)


class CharFit(TextFit):
    """Up to n code points. Nothing is padded; an INDEXED row has n bytes, and zeros at the end are lost."""

    looks_closer = True

    def __init__(self, data_type: CharType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._length = data_type.length
        self._is_padded = rules.row_format is RowFormat.INDEXED

    def value(self, value: object) -> str:
        text = super().value(value)
        if len(text) > self._length:
            raise UnfitValueError(
                f"it has {len(text)} characters, but the column holds at most {self._length}: shorten it"
            )
        if self._is_padded and len(text.encode()) > self._length:
            raise UnfitValueError(f"it has {len(text.encode())} bytes, {self._in_row()}")
        if self._is_padded and text.endswith("\0"):
            raise UnfitValueError(_ENDS_IN_ZERO)
        return text

    def condition(self, name: str) -> str | None:
        if self._is_padded:
            return None
        known = f"({name}.isascii() or encodable({name}))"
        return f"type({name}) is str and len({name}) <= {min(self._length, LONG_VALUE_BYTES)} and {known}"

    def _converted(self, array: pa.Array) -> pa.Array:
        texts = super()._converted(array)
        if any_true(pc.greater(pc.utf8_length(texts), self._length)):
            raise UnfitValueError(f"it has more characters than the column holds ({self._length}): shorten it")
        if self._is_padded and any_true(pc.greater(pc.binary_length(texts), self._length)):
            raise UnfitValueError(f"it has more bytes than {self._length}, {self._in_row()}")
        if self._is_padded and any_true(pc.ends_with(texts, "\0")):
            raise UnfitValueError(_ENDS_IN_ZERO)
        return texts

    def _in_row(self) -> str:
        return f"and an INDEXED row has room for {self._length}: make the column STRING"


_ENDS_IN_ZERO = "it ends in a zero, which INDEXED rows use as padding: make the column STRING"


def _binary(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    source = array.type
    known = (
        pa.types.is_binary(source)
        or pa.types.is_large_binary(source)
        or pa.types.is_binary_view(source)
        or pa.types.is_fixed_size_binary(source)
    ) and not pa.types.is_decimal(source)
    return array.cast(target) if known else None


class BytesFit(Fit):
    """Any bytes."""

    def value(self, value: object) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise UnfitValueError(f"it is not bytes: {CONVERT}")
        return value if type(value) is bytes else bytes(value)

    def condition(self, name: str) -> str | None:
        return f"type({name}) is bytes and len({name}) <= {LONG_VALUE_BYTES}"

    def _converted(self, array: pa.Array) -> pa.Array:
        result = _binary(array, self.arrow_type)
        return self._refuse_type(array.type) if result is None else result


class BinaryFit(BytesFit):
    """Exactly n bytes."""

    def __init__(self, data_type: BinaryType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._length = data_type.length

    def value(self, value: object) -> bytes:
        content = super().value(value)
        if len(content) != self._length:
            raise UnfitValueError(f"it has {len(content)} bytes, {self._exactly()}")
        return content

    def _exactly(self) -> str:
        return f"not exactly {self._length}: change its length first, or make the column BYTES"

    def condition(self, name: str) -> str | None:
        fits = self._length <= LONG_VALUE_BYTES
        return f"type({name}) is bytes and len({name}) == {self._length}" if fits else None

    def _converted(self, array: pa.Array) -> pa.Array:
        result = _binary(array, pa.binary())
        if result is None:
            return self._refuse_type(array.type)
        if any_true(pc.not_equal(pc.binary_length(result), self._length)):
            raise UnfitValueError(f"it has more or fewer bytes, {self._exactly()}")
        return result.cast(self.arrow_type)


def text_fit(data_type: DataType, rules: FitRules) -> Fit:
    """The fit of one of these types."""
    if isinstance(data_type, CharType):
        return CharFit(data_type, rules)
    if isinstance(data_type, BinaryType):
        return BinaryFit(data_type, rules)
    return TextFit(data_type, rules) if data_type.root == "STRING" else BytesFit(data_type, rules)
