"""The parts of a pipeline are killed repeatedly: no row is lost or duplicated.

In every round both sinks must first make progress; then, at a random moment, one of these dies by `kill -9`: the whole
Spark program, which is started again on its checkpoints; a Python worker of its executor; the whole server, a tablet or
the coordinator, which come back. After four rounds, one of each kind, both sinks are compared with the written rows, by
count and by checksum.

The seed of a run reproduces kinds and moments.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.support.runner.lanes import rounds, seed
from tests.support.spark.killed_pipeline import KEY_SINK, LOG_SINK, Pipeline, checksum, running_pipeline

KINDS = ("driver", "worker", "server", "part of the server")
WANTED_ROUNDS = rounds(gate=len(KINDS), all_lanes=20, share_of_soak=0.2)
TURNS = range(-(-WANTED_ROUNDS // len(KINDS)))
PREPARED_ROUNDS = 3
LONGEST_PAUSE_SECONDS = 0.6


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with running_pipeline(tmp_path_factory.mktemp("killed"), seed()) as pipeline:
        yield pipeline


def kinds_of(turn: int) -> list[str]:
    """The kinds of deaths of a turn, in order."""
    return random.Random(f"{seed()} {turn}").sample(KINDS, len(KINDS))


@pytest.mark.parametrize("number", range(len(KINDS)))
@pytest.mark.parametrize("turn", TURNS)
def test_a_death_loses_no_progress(pipeline: Pipeline, turn: int, number: int) -> None:
    """One test each: together they may exceed the limit of one test on a busy machine."""
    kinds, rng = kinds_of(turn), random.Random(f"{seed()} {turn} {number}")
    pipeline.spark.wait_for_progress()
    if "driver" in kinds[number : number + PREPARED_ROUNDS]:
        pipeline.spark.prepare()
    time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))  # at any moment of a batch, of a commit or between them
    pipeline.strike(kinds[number], rng)
    print(f"death {number + 1}: {kinds[number]}; {len(pipeline.writer.rows)} rows so far")
    if number == len(KINDS) - 1:
        check_sinks(pipeline)


def check_sinks(pipeline: Pipeline) -> None:
    """Check that no row is lost or duplicated."""
    pipeline.spark.wait_for_progress()
    with pipeline.writer.paused() as rows:
        pipeline.spark.wait_for_rows(len(rows))
        wanted = [(number, text.upper(), number % 7) for number, text in rows]
        for table in (LOG_SINK, KEY_SINK):
            found = [tuple(row.values()) for row in pipeline.db.to_arrow(table).to_pylist()]
            assert len(found) == len(wanted), f"{table}: {len(found)} rows, {len({row[0] for row in found})} ids"
            assert checksum(found) == checksum(wanted), table
