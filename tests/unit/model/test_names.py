"""Which names are allowed."""

from __future__ import annotations

import pytest

from fluss.errors import FlussError
from fluss.model.names import check_database_name, check_partition_value, check_producer_id, check_table_name

GOOD = ["a", "A-1_b", "x" * 200, "_leading", "-", "1"]
BAD = ["", ".", "..", "a.b", "a b", "\u00e4", "a$b", "x" * 201, "a/b", "a\n"]


@pytest.mark.parametrize("name", GOOD)
def test_good_names(name: str) -> None:
    check_database_name(name)
    check_table_name(name)
    check_partition_value("k", name)
    check_producer_id(name)


@pytest.mark.parametrize("name", BAD)
def test_bad_names(name: str) -> None:
    for check, code in (
        (check_database_name, 16),
        (check_table_name, 15),
        (lambda value: check_partition_value("k", value), 43),
        (check_producer_id, 63),
    ):
        with pytest.raises(FlussError) as caught:
            check(name)
        assert caught.value.error_code == code


def test_names_of_the_server() -> None:
    for check, code in ((check_database_name, 16), (check_table_name, 15)):
        with pytest.raises(FlussError, match="'__x'") as caught:
            check("__x")
        assert caught.value.error_code == code
    with pytest.raises(FlussError) as caught:
        check_partition_value("k", "__x")
    assert caught.value.error_code == 43
    check_partition_value("k", "__x", internal_prefix_allowed=True)
    check_producer_id("__x")


def test_the_text_names_the_rule_and_the_allowed_characters() -> None:
    with pytest.raises(FlussError, match="letters, digits, '_' and '-'"):
        check_table_name("a b")
    with pytest.raises(FlussError, match="at most 200 are allowed") as caught:
        check_table_name("y" * 5000)
    assert len(caught.value.message) < 400
