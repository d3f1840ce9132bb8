"""No public name without a test, and the check itself. What tests really run is looked at by `dev.py coverage`."""

from __future__ import annotations

from tests.tidy.repository import ROOT
from tools.public_names import PublicName, Usage, all_names, unexecuted, untouched, usage_of, usages


def names(*members: str, owner: str) -> list[PublicName]:
    return [PublicName(f"fluss.{owner}.{each}", frozenset({each}), frozenset({owner})) for each in members]


def test_every_public_name_is_touched_by_a_test() -> None:
    assert untouched(usages(ROOT / "tests")) == []


def test_the_names_are_those_that_users_write() -> None:
    found = {name.name for name in all_names()}
    assert len(found) > 400
    for wanted in (
        *("fluss.connect", "fluss.FlussTable.new_scan", "fluss.aio.LogScanner.poll", "fluss.spark.tier"),
        *("client option writer.acks", "server option log.flush", "command fluss server", "command fluss admin"),
    ):
        assert wanted in found, wanted
    assert [name for name in found if "._" in name] == ["fluss.__version__"]


def test_a_name_of_several_classes_needs_a_file_that_has_the_class() -> None:
    both = [*names("close", "poll", owner="LogScanner"), *names("close", owner="FlussConnection")]
    only_scanner = usage_of("scanner = LogScanner()\nscanner.close()\nscanner.poll()")
    assert untouched([only_scanner], both) == ["fluss.FlussConnection.close"]
    assert untouched([only_scanner, usage_of("FlussConnection.open(c).close()")], both) == []
    assert untouched([usage_of("anything.poll()")], both) == ["fluss.LogScanner.close", "fluss.FlussConnection.close"]


def test_options_and_commands_are_found_in_texts_and_functions_are_not() -> None:
    option = PublicName("server option log.flush", frozenset({"log.flush"}))
    function = PublicName("fluss.connect", frozenset({"connect"}))
    assert untouched([usage_of("start({'x': 1}, 'log.flush: always')")], [option]) == []
    assert untouched([usage_of("start('log-flush=os')")], [option]) == []
    assert untouched([usage_of("'''connect'''")], [function]) == ["fluss.connect"]
    assert usage_of("f(a=1)") == Usage(frozenset({"f", "a"}), frozenset())


def test_functions_of_which_no_line_ran() -> None:
    def first() -> int:
        return 1

    def second() -> int:
        return 2

    listed = [PublicName(f"fluss.{each.__name__}", frozenset(), code=each.__code__) for each in (first, second)]
    assert unexecuted(lambda file: listed[0].body_lines, listed) == (["fluss.second"], [])
    assert unexecuted(lambda file: (), listed) == ([], ["fluss"])
    assert unexecuted(lambda file: {first.__code__.co_firstlineno}, listed) == ([], ["fluss"]), "only defined"
