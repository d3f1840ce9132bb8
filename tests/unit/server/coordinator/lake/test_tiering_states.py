"""The states of tables with a lake, against a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fluss.errors import FlussError
from fluss.model.paths import TablePath
from fluss.server.coordinator.lake.tiering_states import TieringState, TieringStates
from tests.support.runner.lanes import examples

FRESHNESS_MS = 180_000
TIMEOUT_MS = 120_000


class Clock:
    """A clock in milliseconds that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Tables:
    """The states with a clock, and the epochs that were made durable."""

    def __init__(self, count: int = 1) -> None:
        self.clock = Clock()
        self.durable: dict[int, list[int]] = {}
        self.states = TieringStates(self.clock, TIMEOUT_MS, self._remember)
        for table_id in range(count):
            self.track(table_id)

    def _remember(self, table_id: int, epoch: int) -> None:
        self.durable.setdefault(table_id, []).append(epoch)

    def track(self, table_id: int, epoch: int = 0) -> None:
        path = TablePath("shop", f"t{table_id}")
        self.states.track(table_id, path, FRESHNESS_MS, epoch, self.clock.now_ms)

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.states.update()

    def state(self, table_id: int = 0) -> TieringState:
        return self.states.tables[table_id].state

    def taken(self) -> tuple[int, int] | None:
        table = self.states.take(lambda _: True)
        return None if table is None else (table.table_id, table.epoch)


def refused(code: int, states: TieringStates, call: str, *arguments: object) -> str:
    with pytest.raises(FlussError) as caught:
        getattr(states, call)(*arguments)
    assert caught.value.error_code == code
    return caught.value.message


def test_a_round_from_due_to_due_again() -> None:
    tables = Tables()
    tables.pass_time(FRESHNESS_MS - 1)
    assert tables.taken() is None
    tables.pass_time(1)
    assert tables.state() is TieringState.PENDING
    assert tables.taken() == (0, 1)
    assert tables.durable == {0: [1]}
    assert tables.taken() is None
    tables.pass_time(5_000)
    assert tables.states.finish(0, 1, False, 700, 7)
    table = tables.states.tables[0]
    assert (table.state, table.duration_ms, table.file_size, table.record_count) == (
        TieringState.SCHEDULED,
        5_000,
        700,
        7,
    )
    tables.pass_time(FRESHNESS_MS - 1)
    assert tables.taken() is None
    tables.pass_time(1)
    assert tables.taken() == (0, 2)


def test_tables_are_handed_out_in_the_order_in_which_they_were_due() -> None:
    tables = Tables(0)
    for table_id in (2, 0, 1):
        tables.track(table_id)
        tables.pass_time(1)
    tables.pass_time(FRESHNESS_MS)
    assert [tables.taken() for _ in range(4)] == [(2, 1), (0, 1), (1, 1), None]


def test_a_forced_finish_is_due_at_once_and_behind_the_others() -> None:
    tables = Tables(2)
    tables.pass_time(FRESHNESS_MS)
    assert tables.taken() == (0, 1)
    assert tables.states.finish(0, 1, True)
    assert [tables.taken(), tables.taken()] == [(1, 1), (0, 2)]


def test_a_failure_is_due_at_once_and_counted() -> None:
    tables = Tables()
    tables.pass_time(FRESHNESS_MS)
    tables.taken()
    tables.states.fail(0, 1)
    assert tables.taken() == (0, 2)
    assert tables.states.tables[0].failures == 1


def test_a_silent_service_loses_its_table() -> None:
    tables = Tables()
    tables.pass_time(FRESHNESS_MS)
    assert tables.taken() == (0, 1)
    tables.pass_time(TIMEOUT_MS - 1)
    tables.states.renew(0, 1)
    tables.pass_time(TIMEOUT_MS - 1)
    assert tables.state() is TieringState.TIERING
    tables.pass_time(1)
    assert tables.state() is TieringState.PENDING
    assert tables.states.tables[0].failures == 1
    for call in ("renew", "fail"):
        assert "epoch is 2, not 1" in refused(50, tables.states, call, 0, 1)
    assert "epoch is 2, not 1" in refused(50, tables.states, "finish", 0, 1, False)
    assert tables.taken() == (0, 2)


def test_requests_that_do_not_match_the_state() -> None:
    tables = Tables()
    refused(7, tables.states, "renew", 9, 0)
    tables.pass_time(FRESHNESS_MS)
    tables.taken()
    assert tables.states.finish(0, 1, False)
    refused(-1, tables.states, "renew", 0, 1)
    assert not tables.states.finish(0, 1, False), "the answer to the first report was lost"
    tables.states.fail(0, 1)
    assert (tables.state(), tables.states.tables[0].failures) == (TieringState.SCHEDULED, 0)


def test_epochs_continue_from_the_stored_one() -> None:
    tables = Tables(0)
    tables.track(0, epoch=41)
    tables.pass_time(FRESHNESS_MS)
    assert tables.taken() == (0, 42)


def test_an_epoch_that_could_not_be_made_durable_is_not_handed_out() -> None:
    def full_disk(table_id: int, epoch: int) -> None:
        raise FlussError("no room", 70)

    clock = Clock()
    states = TieringStates(clock, TIMEOUT_MS, full_disk)
    states.track(0, TablePath("shop", "t"), FRESHNESS_MS, 0, clock.now_ms - FRESHNESS_MS)
    states.update()
    refused(70, states, "take", lambda _: True)
    assert states.tables[0].state is TieringState.PENDING


def test_a_table_can_be_made_due_before_its_time() -> None:
    tables = Tables()
    tables.states.make_due(0)
    tables.states.make_due(0)
    tables.states.make_due(9)
    assert tables.taken() == (0, 1)
    tables.states.make_due(0)
    assert tables.state() is TieringState.TIERING
    tables.states.finish(0, 1, False)
    assert tables.taken() == (0, 2), "what became due during the round was perhaps not part of it"
    tables.states.finish(0, 2, False)
    assert tables.taken() is None


def test_a_removed_table_leaves_the_line() -> None:
    tables = Tables()
    tables.pass_time(FRESHNESS_MS)
    tables.states.forget(0)
    tables.states.forget(0)
    assert tables.taken() is None


def test_a_shorter_freshness_counts_from_the_last_round() -> None:
    tables = Tables()
    tables.pass_time(1_000)
    tables.states.tables[0].freshness_ms = 500
    tables.states.update()
    assert tables.taken() == (0, 1)


class Services(RuleBasedStateMachine):
    """Several services that keep their tables, even if these were reassigned meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(3)
        self.given: list[tuple[int, int]] = []

    @rule(milliseconds=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, FRESHNESS_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.tables.pass_time(milliseconds)

    @rule()
    def take(self) -> None:
        taken = self.tables.taken()
        if taken is not None:
            assert taken not in self.given, "an epoch was handed out twice"
            self.given.append(taken)

    @rule(table_id=st.integers(0, 2))
    def make_due(self, table_id: int) -> None:
        self.tables.states.make_due(table_id)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), call=st.sampled_from(["renew", "finish", "forced", "fail"]))
    def report(self, data: st.DataObject, call: str) -> None:
        table_id, epoch = data.draw(st.sampled_from(self.given))
        before = self.tables.states.tables[table_id]
        is_current = before.epoch == epoch
        was_tiering = before.state is TieringState.TIERING
        code = None
        try:
            if call in ("finish", "forced"):
                self.tables.states.finish(table_id, epoch, call == "forced")
            else:
                getattr(self.tables.states, call)(table_id, epoch)
        except FlussError as error:
            code = error.error_code
        if not is_current:
            assert code == 50
        else:
            assert code == (-1 if call == "renew" and not was_tiering else None)

    @rule(table_id=st.integers(0, 2))
    def restart_of_a_table(self, table_id: int) -> None:
        self.tables.states.forget(table_id)
        self.tables.track(table_id, max(self.tables.durable.get(table_id, [0])))

    @invariant()
    def epochs_grow_and_the_line_is_the_pending_tables(self) -> None:
        for epochs in self.tables.durable.values():
            assert epochs == sorted(set(epochs))
        pending = {t.table_id for t in self.tables.states.tables.values() if t.state is TieringState.PENDING}
        assert set(self.tables.states._line) == pending


TestServices = Services.TestCase
TestServices.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
