"""Random puts, deletes, partial updates, restarts and crashes against a dict.

A crash is a copy of the files as they are at that moment, opened by another tablet: what was not in a file is gone.
Limits are tiny, so that rows move between buffers and files all the time.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fluss.server.storage.kv import limits, replay
from tests.support.harness.kv_tablet import KvTable, replayed
from tests.support.harness.tablet import TabletHarness
from tests.support.runner.lanes import examples

IDS = st.integers(0, 12)
TEXTS = st.none() | st.text("ab\x00ä", max_size=5)
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)
RECORDS = st.lists(st.tuples(st.sampled_from(["put", "put", "delete"]), st.tuples(IDS, TEXTS, NUMBERS)), max_size=8)
TARGETS = st.sampled_from([(), (0, 1), (0, 2), (0,), (0, 1, 2)])
Rows = dict[int, tuple[Any, ...]]


def apply(rows: Rows, what: str, row: tuple[Any, ...], targets: tuple[int, ...]) -> None:
    """Apply one record to the model, by the rules of the changelog."""
    old = rows.get(row[0])
    partial = 0 < len(targets) < 3
    if what == "put":
        if partial:
            base = old or (row[0], None, None)
            row = tuple(row[position] if position in targets else base[position] for position in range(3))
        rows[row[0]] = row
    elif old is not None:
        kept = [old[position] for position in range(3) if partial and position not in targets]
        if any(value is not None for value in kept):
            rows[row[0]] = tuple(
                None if position in targets and position else value for position, value in enumerate(old)
            )
        else:
            del rows[row[0]]


def _copy_as_it_is(source: Path, target: Path) -> None:
    """RocksDB may remove files meanwhile; then the copy is a store that lacks files, which has to be rebuilt."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:
        gone = [path for path, _, _ in error.args[0] if not Path(path).exists()]
        if len(gone) < len(error.args[0]):
            raise


class KvModel(RuleBasedStateMachine):
    """One table and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows = {}
        self.scratch = Path(tempfile.mkdtemp())
        self.generation = 0
        self.loop = asyncio.new_event_loop()
        self.patches = [
            mock.patch.object(limits, "FLUSH_AFTER_BATCHES", 3),
            mock.patch.object(limits, "WRITE_CHUNK_ROWS", 2),
            mock.patch.object(replay, "REPLAY_GROUP_ROWS", 4),
        ]
        for patch in self.patches:
            patch.start()

    @initialize(image=st.sampled_from(["FULL", "WAL"]), log_format=st.sampled_from(["ARROW", "COMPACTED"]))
    def create(self, image: str, log_format: str) -> None:
        self._open(self.scratch / "0")
        properties = {"table.changelog.image": image, "table.log.format": log_format}
        self.table = KvTable.create(self.tablet, properties=properties)
        self.run(self.table.upsert())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _open(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.tablet = TabletHarness(directory, log_segment_file_size=600)
        self.run(self.tablet.__aenter__())

    def _reopen(self, directory: Path) -> None:
        self._open(directory)
        self.table = KvTable(self.tablet, self.table.table_id)
        self.run(self.table.upsert())  # opens the bucket

    @rule(records=RECORDS, written=TARGETS)
    def put(self, records: list[Any], written: tuple[int, ...]) -> None:
        answer = self.run(self.table.put(*records, targets=written))
        assert not answer.HasField("error_code"), answer
        for what, row in records:
            apply(self.rows, what, row, written)

    @rule(batches=st.lists(RECORDS, min_size=2, max_size=5))
    def put_together(self, batches: list[Any]) -> None:
        async def send_all() -> None:
            for answer in [self.table.send(self.table.batch(records)) for records in batches]:
                assert not (await answer).buckets_resp[0].HasField("error_code")

        self.run(send_all())
        for records in batches:
            for what, row in records:
                apply(self.rows, what, row, ())

    @rule()
    def restart(self) -> None:
        self.run(self.tablet.__aexit__())
        self._reopen(self.tablet.directory)

    @rule()
    def crash(self) -> None:
        self.generation += 1
        copy = self.scratch / str(self.generation)
        _copy_as_it_is(self.tablet.directory, copy)
        self.run(self.tablet.__aexit__())
        self._reopen(copy)

    @rule()
    def lose_the_store(self) -> None:
        self.run(self.tablet.__aexit__())
        for current in self.tablet.directory.glob("data/*/*/kv-0/db/CURRENT"):
            current.write_bytes(b"damaged")
        self._reopen(self.tablet.directory)

    @invariant()
    def the_table_is_the_model(self) -> None:
        if hasattr(self, "table"):
            assert sorted(self.table.rows()) == sorted(self.rows.values())

    @invariant()
    def the_changelog_leads_to_the_table(self) -> None:
        if hasattr(self, "table") and self.table.rules.has_full_image:
            assert replayed(self.run(self.table.changelog()), self.table.key) == self.table.state()
            assert self.table.kv.row_count == len(self.rows)

    def teardown(self) -> None:
        if hasattr(self, "tablet"):
            self.run(self.tablet.__aexit__())
        self.loop.close()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.scratch)


KvModel.TestCase.settings = settings(
    max_examples=examples(12), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKvModel = KvModel.TestCase
