"""Random types, schemas and descriptors that are valid by construction."""

from __future__ import annotations

from hypothesis import strategies as st

from fluss.model.descriptor import DatabaseDescriptor, TableDescriptor
from fluss.model.schema import Column, Schema
from fluss.model.types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    BytesType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    MapType,
    RowField,
    RowType,
    SmallIntType,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    TinyIntType,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
text_maps = st.dictionaries(texts, texts, max_size=4)
_precisions = st.integers(0, 9)
_lengths = st.integers(1, 2**31 - 1)


@st.composite
def _decimals(draw: st.DrawFn) -> DecimalType:
    precision = draw(st.integers(1, 38))
    return DecimalType(precision=precision, scale=draw(st.integers(0, precision)))


_plain_types = st.one_of(
    st.sampled_from(
        [
            BooleanType(),
            TinyIntType(),
            SmallIntType(),
            IntType(),
            BigIntType(),
            FloatType(),
            DoubleType(),
            StringType(),
            BytesType(),
            DateType(),
        ]
    ),
    _lengths.map(lambda length: CharType(length=length)),
    _lengths.map(lambda length: BinaryType(length=length)),
    _decimals(),
    _precisions.map(lambda precision: TimeType(precision=precision)),
    _precisions.map(lambda precision: TimestampType(precision=precision)),
    _precisions.map(lambda precision: TimestampLtzType(precision=precision)),
)


def _with_nullability(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.tuples(types, st.booleans()).map(lambda pair: pair[0].copy(pair[1]))


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.lists(
        st.tuples(texts, inner, st.none() | texts), min_size=1, max_size=3, unique_by=lambda field: field[0]
    )
    return _with_nullability(
        st.one_of(
            inner.map(lambda element: ArrayType(element)),
            st.tuples(inner, inner).map(lambda pair: MapType(*pair)),
            fields.map(lambda found: RowType(tuple(RowField(name, kind, text) for name, kind, text in found))),
        )
    )


data_types = st.recursive(_with_nullability(_plain_types), _nested, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Numbered schemas, with or without a primary key."""
    names = draw(st.lists(texts, min_size=1, max_size=6, unique=True))
    key_size = draw(st.integers(0, len(names)))
    primary_key = tuple(names[:key_size])
    columns = []
    for name in names:
        data_type = draw(data_types)
        columns.append(
            Column(name, data_type.not_null() if name in primary_key else data_type, draw(st.none() | texts))
        )
    return Schema(tuple(columns), primary_key).numbered()


@st.composite
def table_descriptors(draw: st.DrawFn) -> TableDescriptor:
    """Descriptors whose keys fit their schema."""
    schema = draw(schemas())
    candidates = list(schema.primary_key or schema.column_names)
    partition_keys = tuple(draw(st.lists(st.sampled_from(candidates), max_size=2, unique=True)))
    rest = [name for name in candidates if name not in partition_keys]
    if schema.primary_key and not rest:
        partition_keys, rest = (), candidates
    bucket_keys = tuple(draw(st.lists(st.sampled_from(rest), max_size=2, unique=True))) if rest else ()
    if schema.primary_key and not bucket_keys:
        bucket_keys = tuple(name for name in schema.primary_key if name not in partition_keys)
    return TableDescriptor(
        schema,
        draw(st.none() | texts),
        partition_keys,
        bucket_keys,
        draw(st.none() | st.integers(-3, 4096)),
        draw(text_maps),
        draw(text_maps),
    )


database_descriptors = st.builds(DatabaseDescriptor, st.none() | texts, text_maps)
