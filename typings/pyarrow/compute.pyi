"""Functions on arrays. The class of the result follows from the first argument that is more than one value."""

from collections.abc import Sequence
from typing import Any, Protocol, overload

from . import Array, BooleanArray, ChunkedArray, DataType, RecordBatch, Scalar, StructArray, StructScalar, Table

class Expression:
    def __and__(self, other: object) -> Expression: ...
    def __or__(self, other: object) -> Expression: ...
    def __invert__(self) -> Expression: ...
    def isin(self, values: object) -> Expression: ...
    def is_null(self, nan_is_null: bool = ...) -> Expression: ...
    def is_valid(self) -> Expression: ...
    def cast(self, type: DataType | None = ..., safe: bool | None = ...) -> Expression: ...

class JoinOptions:
    def __init__(self, null_handling: str = ..., null_replacement: str = ...) -> None: ...

class _Unary(Protocol):
    @overload
    def __call__(self, x: Array, /, *more: object, **options: object) -> Array: ...
    @overload
    def __call__(self, x: ChunkedArray, /, *more: object, **options: object) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Scalar, /, *more: object, **options: object) -> Scalar: ...

class _UnaryPredicate(Protocol):
    @overload
    def __call__(self, x: Array, /, *more: object, **options: object) -> BooleanArray: ...
    @overload
    def __call__(self, x: ChunkedArray, /, *more: object, **options: object) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Scalar, /, *more: object, **options: object) -> Scalar: ...

class _Binary(Protocol):
    @overload
    def __call__(self, x: Array, y: object, /, **options: object) -> Array: ...
    @overload
    def __call__(self, x: ChunkedArray, y: object, /, **options: object) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Scalar | float, y: Array, /, **options: object) -> Array: ...
    @overload
    def __call__(self, x: Scalar, y: Scalar | float, /, **options: object) -> Scalar: ...

class _BinaryPredicate(Protocol):
    @overload
    def __call__(self, x: Array, y: object, /, **options: object) -> BooleanArray: ...
    @overload
    def __call__(self, x: ChunkedArray, y: object, /, **options: object) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Scalar | float, y: Array, /, **options: object) -> BooleanArray: ...
    @overload
    def __call__(self, x: Scalar, y: Scalar | float, /, **options: object) -> Scalar: ...

class _Aggregate(Protocol):
    def __call__(self, x: Array | ChunkedArray, /, **options: object) -> Scalar: ...

abs: _Unary
binary_length: _Unary
binary_slice: _Unary
ceil: _Unary
floor: _Unary
list_flatten: _Unary
list_value_length: _Unary
negate: _Unary
round: _Unary
run_end_decode: _Unary
trunc: _Unary
utf8_length: _Unary
utf8_slice_codeunits: _Unary

invert: _UnaryPredicate
is_finite: _UnaryPredicate
is_inf: _UnaryPredicate
is_nan: _UnaryPredicate
is_null: _UnaryPredicate
is_valid: _UnaryPredicate
is_in: _UnaryPredicate
match_substring: _UnaryPredicate
starts_with: _UnaryPredicate
ends_with: _UnaryPredicate
string_is_ascii: _UnaryPredicate

add: _Binary
add_checked: _Binary
divide: _Binary
fill_null: _Binary
multiply: _Binary
multiply_checked: _Binary
subtract: _Binary
subtract_checked: _Binary

and_: _BinaryPredicate
and_kleene: _BinaryPredicate
and_not: _BinaryPredicate
equal: _BinaryPredicate
greater: _BinaryPredicate
greater_equal: _BinaryPredicate
less: _BinaryPredicate
less_equal: _BinaryPredicate
not_equal: _BinaryPredicate
or_: _BinaryPredicate
or_kleene: _BinaryPredicate
xor: _BinaryPredicate

all: _Aggregate
any: _Aggregate
count: _Aggregate
count_distinct: _Aggregate
max: _Aggregate
mean: _Aggregate
min: _Aggregate
sum: _Aggregate

def array_sort_indices(array: Array | ChunkedArray, /, order: str = ..., **options: object) -> Array: ...
def binary_join_element_wise(*strings: Array | Scalar | str, options: JoinOptions | None = ...) -> Array: ...
def coalesce(first: Array, /, *values: object) -> Array: ...
def field(*name: str | int) -> Expression: ...
def if_else(condition: Array | Scalar, left: object, right: object, /) -> Array: ...
def index_in(values: Array, value_set: object, **options: object) -> Array: ...
def indices_nonzero(values: Array | ChunkedArray) -> Array: ...
def make_struct(*columns: object, field_names: Sequence[str] = ..., **options: object) -> StructArray: ...
def min_max(array: Array | ChunkedArray, /, **options: object) -> StructScalar: ...
def sort_indices(
    input: Array | ChunkedArray | RecordBatch | Table, sort_keys: object = ..., **options: object
) -> Array: ...
@overload
def take(data: Array, indices: object, *, boundscheck: bool = ...) -> Array: ...
@overload
def take(data: ChunkedArray, indices: object, *, boundscheck: bool = ...) -> ChunkedArray: ...
def unique(array: Array | ChunkedArray, /) -> Array: ...
def call_function(name: str, args: Sequence[object], options: object = ...) -> Any: ...
def __getattr__(name: str) -> Any: ...
