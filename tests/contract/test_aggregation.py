"""The merge engine `aggregation` on every server: all functions and types, nulls, deletes and partial updates."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

import fluss
from fluss import DataTypes, FlussConnection, FlussError, FlussTable
from tests.contract.test_upsert import WAIT_SECONDS, new_table
from tests.support.tables.kv_reader import look_up, read_changes, replay

UTC = datetime.UTC
DAY = datetime.date(2026, 1, 2)
NOON = datetime.time(12, 0, 0, 500000)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
SECOND = datetime.timedelta(seconds=1)

# As Java's library writes them: {1, 2, 3, 100000}, {2 to 9}, and both.
BITMAPS_32 = (
    "3a300000020000000000020001000000180000001e000000010002000300a086",
    "3a30000001000000000007001000000002000300040005000600070008000900",
    "3b300100010000080001000000010001000800a086",
)
# {2**16, 2**40}, {0, 2**16 + 1, 2**63}, and both.
BITMAPS_64 = (
    "0102000000000000000002000200000000010004000000000000000001010000000000000004000000000001000000000000000000000001000000"
    "fe020000000102010000000000010201000000000002000000000000000000000001000000",
    "0103000000000000000002000000008000000200040000000000000100040000000000000000000000000000000000040000000000000000010200"
    "00000000000004000000800000000000010000000000000001000000fe03000000010201000000000001020100000000000102010000000100"
    "03000000000000000000000002000000",
    "0104000000000000000002000000008000000200010000000100000200020000000001000400000000000000000002000000000000000400000000"
    "0000000001010000000000000004000000000001000000000000000000000004000000800000000000030000000000000001000000fe040000"
    "000102010000000000010202000000000001000102010000000000010201000000000004000000000000000000000003000000",
)

NUMBERS: dict[str, tuple[Any, Any, Any]] = {
    "tinyint": (DataTypes.tinyint(), 100, 27),
    "smallint": (DataTypes.smallint(), -300, 200),
    "int": (DataTypes.int(), 2**31 - 1, 2),
    "bigint": (DataTypes.bigint(), 2**62, 2**62),
    "float": (DataTypes.float(), 0.1, 0.2),
    "double": (DataTypes.double(), 0.1, 0.2),
    "decimal": (DataTypes.decimal(6, 2), Decimal("-1.50"), Decimal("0.33")),
    "large": (DataTypes.decimal(30, 5), Decimal("123456789012345678.00001"), Decimal("-2.5")),
}
ORDERED: dict[str, tuple[Any, Any, Any]] = {
    **NUMBERS,
    "char": (DataTypes.char(3), "abc", "abd"),
    "string": (DataTypes.string(), "z", "é"),
    "date": (DataTypes.date(), DAY, DAY - 1 * datetime.timedelta(days=1)),
    "time": (DataTypes.time(3), NOON, datetime.time(13)),
    "ntz": (DataTypes.timestamp(6), MOMENT, MOMENT - SECOND),
    "ltz": (DataTypes.timestamp_ltz(6), MOMENT.replace(tzinfo=UTC), (MOMENT + SECOND).replace(tzinfo=UTC)),
}
KEPT: dict[str, tuple[Any, Any, Any]] = {
    "bool": (DataTypes.boolean(), True, False),
    "bytes": (DataTypes.bytes(), b"\x00", b"\xff"),
    "text": (DataTypes.string(), "old", "new"),
    "array": (DataTypes.array(DataTypes.int()), [1], [2, None]),
    "row": (DataTypes.row([DataTypes.field("x", DataTypes.int())]), {"x": 1}, {"x": 2}),
}
FLOAT_SUM, FLOAT_PRODUCT = 0.30000001192092896, 0.020000001415610313
SUMS = {
    "tinyint": 127,
    "smallint": -100,
    "int": -(2**31) + 1,
    "bigint": -(2**63),
    "float": FLOAT_SUM,
    "double": 0.1 + 0.2,
    "decimal": Decimal("-1.17"),
    "large": Decimal("123456789012345675.50001"),
}
PRODUCTS = {
    "tinyint": -116,
    "smallint": 5536,
    "int": -2,
    "bigint": 0,
    "float": FLOAT_PRODUCT,
    "double": 0.1 * 0.2,
    "decimal": Decimal("-0.50"),
    "large": Decimal("-308641972530864195.00003"),
}

Columns = dict[str, tuple[Any, Any, Any]]


def create(connection: FlussConnection, name: str, functions: Sequence[tuple[str, Columns]], **more: str) -> FlussTable:
    """A table with a column FUNCTION_COLUMN for each function and each of its columns."""
    builder = fluss.Schema.builder().column("id", DataTypes.int())
    for function, columns in functions:
        for column, (data_type, _, _) in columns.items():
            builder = builder.column(f"{function}_{column}", data_type).with_aggregation(function)
    properties = {"table.merge-engine": "aggregation", **more}
    return new_table(connection, name, builder.primary_key("id").build(), bucket_count=1, properties=properties)


def row(key: int, functions: Sequence[tuple[str, Columns]], which: int | None) -> dict[str, Any]:
    """The first (1) or second (2) values of all columns, or nulls."""
    found: dict[str, Any] = {"id": key}
    for function, columns in functions:
        for column, values in columns.items():
            found[f"{function}_{column}"] = None if which is None else values[which]
    return found


def aggregated(connection: FlussConnection, table: FlussTable, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write rows of key 1 one after the other; what the table has then, without the key."""
    with table.new_upsert().create_writer() as writer:
        for one in rows:
            writer.upsert(one).wait().result(WAIT_SECONDS)
    found = look_up(connection, table.table_path, (1,))
    assert found is not None
    assert replay(read_changes(connection, table.table_path), ["id"])[1,].keys() == found.keys()
    return {name: value for name, value in found.items() if name != "id"}


def test_sums_and_products(connection: FlussConnection, table_name: str) -> None:
    functions = [("sum", NUMBERS), ("product", NUMBERS)]
    table = create(connection, table_name, functions)
    expected = {f"sum_{name}": value for name, value in SUMS.items()}
    expected |= {f"product_{name}": value for name, value in PRODUCTS.items()}
    rows = [row(1, functions, which) for which in (1, 2, None)]
    assert aggregated(connection, table, rows) == expected


def test_largest_and_smallest(connection: FlussConnection, table_name: str) -> None:
    functions = [("max", ORDERED), ("min", ORDERED)]
    table = create(connection, table_name, functions)
    expected: dict[str, Any] = {}
    for name, (_, one, other) in ORDERED.items():
        expected |= {f"max_{name}": max(one, other), f"min_{name}": min(one, other)}
    expected |= {"max_float": 0.20000000298023224, "min_float": 0.10000000149011612}  # in single precision
    rows = [row(1, functions, which) for which in (1, 2, None)]
    assert aggregated(connection, table, rows) == expected


def test_decimals_that_do_not_fit_become_null(connection: FlussConnection, table_name: str) -> None:
    """Sums of at most 18 digits are left out: Apache Fluss 0.9.1 refuses such a write with code -1."""
    small = {"small": (DataTypes.decimal(4, 2), Decimal("99.00"), Decimal("9.99"))}
    large = {"large": (DataTypes.decimal(20, 2), Decimal("999999999999999999.00"), Decimal("1.00"))}
    functions = [("product", small), ("sum", large)]
    table = create(connection, table_name, functions)
    rows = [row(1, functions, which) for which in (1, 2)]
    assert aggregated(connection, table, rows) == {"product_small": None, "sum_large": None}


def test_not_a_number_is_the_largest_and_minus_zero_smaller_than_zero(
    connection: FlussConnection, table_name: str
) -> None:
    columns = {"nan": (DataTypes.double(), 1.0, math.nan), "zero": (DataTypes.float(), 0.0, -0.0)}
    functions = [("max", columns), ("min", columns)]
    table = create(connection, table_name, functions)
    for first, second in ((1, 2), (2, 1)):
        with table.new_upsert().create_writer() as writer:
            writer.upsert(row(first, functions, first)).wait().result(WAIT_SECONDS)
            writer.upsert(row(first, functions, second)).wait().result(WAIT_SECONDS)
        found = look_up(connection, table.table_path, (first,))
        assert found is not None
        assert [str(found[name]) for name in ("max_nan", "min_nan", "max_zero", "min_zero")] == [
            "nan", "1.0", "0.0", "-0.0"
        ]  # fmt: skip


def test_first_and_last_values(connection: FlussConnection, table_name: str) -> None:
    functions = [
        (name, KEPT) for name in ("first_value", "first_value_ignore_nulls", "last_value", "last_value_ignore_nulls")
    ]
    table = create(connection, table_name, functions)
    found = aggregated(connection, table, [row(1, functions, 1), row(1, functions, 2), row(1, functions, None)])
    expected = {f"{function}_{name}": KEPT[name][1] for function, columns in functions[:2] for name in columns}
    expected |= {f"last_value_{name}": None for name in KEPT}
    expected |= {f"last_value_ignore_nulls_{name}": KEPT[name][2] for name in KEPT}
    assert found == expected
    with table.new_upsert().create_writer() as writer:
        writer.upsert(row(2, functions, None))
        writer.upsert(row(2, functions, 2))
    assert look_up(connection, table.table_path, (2,)) == row(2, functions, 2)  # all take a value after null


def test_texts_and_flags(connection: FlussConnection, table_name: str) -> None:
    builder = fluss.Schema.builder().column("id", DataTypes.int())
    builder = builder.column("plain", DataTypes.string()).with_aggregation("listagg")
    builder = builder.column("parted", DataTypes.string()).with_aggregation("string_agg", delimiter=" | ")
    builder = builder.column("all", DataTypes.boolean()).with_aggregation("bool_and")
    builder = builder.column("any", DataTypes.boolean()).with_aggregation("BOOL-OR")
    builder = builder.column("rest", DataTypes.int())  # without a function: the last value that is not null
    properties = {"table.merge-engine": "aggregation"}
    schema = builder.primary_key("id").build()
    table = new_table(connection, table_name, schema, bucket_count=1, properties=properties)
    rows = [(1, "a", "x", True, False, 1), (1, None, None, None, None, None), (1, "", "yy", False, True, 2)]
    found = aggregated(connection, table, [dict(zip(schema.column_names, values, strict=True)) for values in rows])
    assert found == {"plain": "a,", "parted": "x | yy", "all": False, "any": True, "rest": 2}


def test_roaring_bitmaps(connection: FlussConnection, table_name: str) -> None:
    columns = {bits: [bytes.fromhex(text) for text in texts] for bits, texts in ((32, BITMAPS_32), (64, BITMAPS_64))}
    functions = [(f"rbm{bits}", {"v": (DataTypes.bytes(), values[0], values[1])}) for bits, values in columns.items()]
    table = create(connection, table_name, functions)
    found = aggregated(connection, table, [row(1, functions, 1), row(1, functions, None), row(1, functions, 2)])
    assert found == {"rbm32_v": columns[32][2], "rbm64_v": columns[64][2]}
    with table.new_upsert().create_writer() as writer:
        writer.upsert({"id": 3, "rbm32_v": b"no bitmap"}).wait().result(
            WAIT_SECONDS
        )  # the first row is not looked into
        with pytest.raises(FlussError) as caught:
            writer.upsert({"id": 3, "rbm32_v": columns[32][0]}).wait().result(WAIT_SECONDS)
        assert caught.value.error_code == fluss.ErrorCode.UNKNOWN_SERVER_ERROR
        writer.upsert({"id": 4, "rbm32_v": columns[32][0]}).wait().result(WAIT_SECONDS)


def test_deletes(connection: FlussConnection, table_name: str) -> None:
    columns = {"n": (DataTypes.bigint(), 1, 2)}
    for behavior, left in (("ignore", 3), ("allow", 2)):
        name = f"{table_name}_{behavior}"
        table = create(connection, name, [("sum", columns)], **{"table.delete.behavior": behavior})
        with table.new_upsert().create_writer() as writer:
            writer.upsert((1, 1))
            writer.delete((1,))
            writer.upsert((1, 2))
        assert look_up(connection, table.table_path, (1,)) == {"id": 1, "sum_n": left}
        kinds = [change.kind for change in read_changes(connection, table.table_path)]
        assert kinds == (["+I", "-U", "+U"] if behavior == "ignore" else ["+I", "-D", "+I"])
    assert look_up(connection, create(connection, table_name, [("sum", columns)]).table_path, (1,)) is None


def test_partial_updates(connection: FlussConnection, table_name: str) -> None:
    columns = {"a": (DataTypes.bigint(), 0, 0), "b": (DataTypes.bigint(), 0, 0)}
    table = create(connection, table_name, [("sum", columns)], **{"table.delete.behavior": "allow"})
    only_a = table.new_upsert().partial_update_by_name(["id", "sum_a"]).create_writer()
    only_b = table.new_upsert(columns=["id", "sum_b"])

    def put(writer: Any, *rows: Any) -> None:
        for one in rows:
            writer.upsert(one).wait().result(WAIT_SECONDS)

    put(only_a, (1, 5), (1, 6))
    put(only_b, (1, 7), (1, None), (1, 8))
    assert look_up(connection, table.table_path, (1,)) == {"id": 1, "sum_a": 11, "sum_b": 15}
    only_a.delete((1,)).wait().result(WAIT_SECONDS)
    assert look_up(connection, table.table_path, (1,)) == {"id": 1, "sum_a": None, "sum_b": 15}
    put(only_a, (1, 3))
    only_b.delete((1,)).wait().result(WAIT_SECONDS)
    only_a.delete((1,)).wait().result(WAIT_SECONDS)
    assert look_up(connection, table.table_path, (1,)) is None
    assert replay(read_changes(connection, table.table_path), ["id"]) == {}


def test_functions_are_checked_and_described(connection: FlussConnection, table_name: str) -> None:
    builder = fluss.Schema.builder().column("id", DataTypes.int())
    with pytest.raises(FlussError, match="unknown aggregation function 'average'"):
        builder.with_aggregation("average")
    builder.column("name", DataTypes.string())
    with pytest.raises(FlussError, match="'name': function sum does not accept type STRING"):
        builder.with_aggregation("sum")
    with pytest.raises(FlussError, match="must not be empty"):
        builder.with_aggregation("listagg", delimiter="")
    with pytest.raises(FlussError, match="has no parameter 'limit'"):
        builder.with_aggregation("max", limit="3")
    schema = builder.with_aggregation("listagg", delimiter=";").primary_key("id").build()
    table = new_table(connection, table_name, schema, bucket_count=1, properties={"table.merge-engine": "aggregation"})
    described = asyncio.run(connection.get_admin().get_table_info(table.table_path)).get_schema()
    assert described.columns[1].agg_function == {"type": "listagg", "parameters": {"delimiter": ";"}}
