"""The catalog between processes: kill -9 in the middle of changes, readers that follow a writer, ids for all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from fluss.server.catalog import Catalog, CatalogStore
from tests.support.storage.catalog_files import check_consistent, path_of
from tests.support.storage.catalog_worker import Step
from tools.waiting import patience

ROUNDS = 12
STEPS_PER_ROUND_LIMIT = 60
REPOSITORY = Path(__file__).parents[4]

# What the acknowledged steps have created: table -> (id, schema id, property, partition name -> id).
Model = dict[str, dict[str, Any]]


@contextmanager
def _worker(file: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.storage.catalog_worker", str(file), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _apply(model: Model, step: Step, made_id: int) -> None:
    kind, name = step[:2]
    if kind == "create":
        model[name] = {"id": made_id, "schema": 1, "n": None, "partitions": {}}
    elif kind == "drop":
        del model[name]
    elif kind == "schema":
        model[name]["schema"] = made_id
    elif kind == "property":
        model[name]["n"] = str(step[2])
    elif kind == "create partition":
        model[name]["partitions"][step[2]] = made_id
    else:
        del model[name]["partitions"][step[2]]


def _model_of(catalog: Catalog) -> Model:
    return {
        entry.path.table_name: {
            "id": entry.table_id,
            "schema": entry.schema_id,
            "n": entry.descriptor.custom_properties.get("n"),
            "partitions": {name: partition.partition_id for name, partition in entry.partitions.items()},
        }
        for entry in catalog.tables()
    }


def _check_last_step(found: Model, model: Model, step: Step) -> None:
    """Check that the step under way at the kill was done completely or not at all."""
    kind, name = step[:2]
    made_id = -1
    if name in found:
        made_id = found[name]["id"]
        if kind == "schema":
            made_id = found[name]["schema"]
        elif kind == "create partition":
            made_id = found[name]["partitions"].get(step[2], -1)
    after = json.loads(json.dumps(model))
    _apply(after, step, made_id)
    assert found in (model, after), f"half of {step} was applied"


def test_killed_in_the_middle_of_changes(tmp_path: Path) -> None:
    file, random, model = tmp_path / "catalog.sqlite", Random(20), Model()
    highest_table_id = -1
    for round_number in range(ROUNDS):
        wanted, done, pending = random.randrange(1, STEPS_PER_ROUND_LIMIT), 0, None
        with _worker(file, str(round_number)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.endswith(b"\n"):
                    break  # cut off by the kill
                word, *rest = json.loads(line)
                if word == "start":
                    pending = rest
                    continue
                assert pending is not None
                if pending[0] == "create":
                    assert rest[0] > highest_table_id, "a table id was used twice"
                    highest_table_id = rest[0]
                _apply(model, pending, rest[0])
                pending, done = None, done + 1
                if done == wanted:
                    process.kill()  # what it did meanwhile is still in the pipe, and is read later
        catalog = check_consistent(file)
        found = _model_of(catalog)
        if pending is not None:
            _check_last_step(found, model, pending)
            highest_table_id = max([highest_table_id, *(table["id"] for table in found.values())])
            model = found
        assert found == model
        catalog.store.close()


def test_a_reader_sees_every_acknowledged_change_at_once(tmp_path: Path) -> None:
    file, model, pending, done = tmp_path / "catalog.sqlite", Model(), None, 0
    catalog = Catalog(CatalogStore(file))
    with _worker(file, "7") as process:
        assert process.stdout is not None
        for line in process.stdout:
            word, *rest = json.loads(line)
            if word == "start":
                pending = rest
                continue
            assert pending is not None
            _apply(model, pending, rest[0])
            done += 1
            # The writer has continued, so the view may be newer, but the ids it reported exist or were dropped.
            catalog.refresh()
            entry = catalog.table(path_of(pending[1]))
            if pending[0] == "create" and entry is not None:
                assert entry.table_id >= rest[0]
            if done == 150:
                break
    with _worker(file, "writer-ids", "1") as process:
        assert process.wait(timeout=patience(120)) == 0
    catalog.refresh()
    full = Catalog(CatalogStore(file))
    assert _model_of(catalog) == _model_of(full)
    assert catalog.change == full.change
    full.store.close()
    catalog.store.close()


def test_three_processes_get_distinct_writer_ids(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    with (
        _worker(file, "writer-ids", "40") as one,
        _worker(file, "writer-ids", "40") as two,
        _worker(file, "writer-ids", "40") as three,
    ):
        outputs = [process.communicate(timeout=patience(120))[0] for process in (one, two, three)]
        firsts = [json.loads(line)[1] for output in outputs for line in output.splitlines()]
        assert sorted(firsts) == list(range(0, 1200, 10))
