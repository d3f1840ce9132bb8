"""Checks that a schema that the user gave with `.schema(...)` fits the table and the option `columns`."""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql.types import StructType

from fluss.client.engine.admin import TableInfo
from fluss.errors import FlussError
from fluss.spark.convert.column_names import chosen_columns
from fluss.spark.convert.types import source_schema
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.output_batches import METADATA_COLUMNS


def check_schema(info: TableInfo, options: FlussOptions, schema: StructType) -> None:
    """Raise `FlussError` unless the schema only leaves out columns or changes their order.

    `schema` has the columns that the query needs. The whole declared schema is checked, so that a wrong column is the
    same error in every query, even in one that only counts.
    """
    if options.mode == "state" and not info.has_primary_key():
        raise FlussError(f"table {info.table_path} has no primary key, which mode=state needs: leave the mode out")
    known = {field.name: field for field in source_schema(info, replace(options, columns=None)).fields}
    if options.declared_schema is not None:
        schema = StructType.fromJson(json.loads(options.declared_schema))
    for field in schema.fields:
        if field.name not in known:
            hint = " (add mode=changelog to see it)" if field.name in METADATA_COLUMNS else ""
            raise FlussError(
                f"unknown column {field.name!r} in table {info.table_path}{hint}; its columns are {', '.join(known)}"
            )
        wanted, is_ = field.dataType.simpleString(), known[field.name].dataType.simpleString()
        if wanted != is_:
            raise FlussError(
                f"column {field.name!r} of {info.table_path} is {is_}, not {wanted}: leave out the schema, or give "
                "this type and cast in the query"
            )
    if options.columns is None:
        return
    own = chosen_columns(options.columns, known, f"table {info.table_path}")
    if others := [field.name for field in schema.fields if field.name not in own]:
        raise FlussError(
            f"the schema has {', '.join(others)}, which the option columns ({', '.join(own)}) leaves out: "
            "give only the schema or only the option"
        )
