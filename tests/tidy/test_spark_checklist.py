"""The checklist of the Spark part names tests that exist."""

from __future__ import annotations

import re

from tests.tidy.repository import ROOT

CHECKLIST = ROOT / "docs" / "spark-checklist.md"
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_named_test_exists() -> None:
    named = NAMED_TEST.findall(CHECKLIST.read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = []
    for file, test in sorted(set(named)):
        paths = [ROOT / "tests" / file] if "/" in file else list((ROOT / "tests" / "spark").rglob(file))
        if not any(path.exists() and f"def {test}(" in path.read_text(encoding="utf-8") for path in paths):
            missing.append(f"{file}::{test}")
    assert missing == []
