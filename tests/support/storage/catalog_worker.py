"""A process that changes a catalog until it is killed, and says before and after each step what it does.

Each step is two lines of JSON on stdout: `["start", step...]` and, once the change is acknowledged, `["done", id]`.
Run: python -m tests.support.storage.catalog_worker FILE SEED      or: ... FILE writer-ids COUNT
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fluss.server.catalog import Catalog, CatalogStore
from tests.support.storage.catalog_files import path_of, plain_table

TABLE_NAMES = [f"t{number}" for number in range(6)]
PARTITION_NAMES = [f"p{number}" for number in range(5)]

Step = list[Any]


def choose(random: Random, catalog: Catalog) -> Step:
    """A step that is possible now."""
    name = random.choice(TABLE_NAMES)
    entry = catalog.table(path_of(name))
    if entry is None:
        return ["create", name]
    kind = random.choice(["drop", "schema", "property", "partition", "partition", "partition"])
    if kind != "partition":
        return [kind, name, *([random.randrange(1000)] if kind == "property" else [])]
    partition = random.choice(PARTITION_NAMES)
    return ["drop partition" if partition in entry.partitions else "create partition", name, partition]


def perform(store: CatalogStore, catalog: Catalog, step: Step) -> int:
    """Do one step; returns the id that it made, or -1."""
    kind, name = step[:2]
    path = path_of(name)
    if kind == "create":
        return store.create_table(path, plain_table(partitioned=True), 1)
    entry = catalog.table(path)
    assert entry is not None
    if kind == "drop":
        store.drop_table(path)
    elif kind == "schema":
        wider = plain_table(partitioned=True, extra_columns=entry.schema_id).schema
        return store.add_schema(path, entry.table_id, replace(entry.descriptor, schema=wider))
    elif kind == "property":
        store.alter_table(path, entry.table_id, replace(entry.descriptor, custom_properties={"n": str(step[2])}), 2)
    elif kind == "create partition":
        return store.create_partitions(path, entry.table_id, [step[2]])[0]
    else:
        store.drop_partitions(path, entry.table_id, [step[2]])
    return -1


def _say(*words: Any) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def main(file: Path, *arguments: str) -> None:
    """Run until killed, or allocate writer ids and end."""
    store = CatalogStore(file)
    if arguments[0] == "writer-ids":
        for _ in range(int(arguments[1])):
            _say("done", store.allocate_writer_ids(10))
        return
    store.create_first_database("fluss", 1)
    catalog, random = Catalog(store), Random(int(arguments[0]))
    while True:
        catalog.refresh()
        step = choose(random, catalog)
        _say("start", *step)
        _say("done", perform(store, catalog, step))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
