"""The table of the Spark benchmark: ratios to what was measured beside it, and goals. Its run is tested with Spark."""

from __future__ import annotations

from bench.spark_report import markdown


def test_goals_of_rates_and_times() -> None:
    rounds = {
        "read_all": [700.0, 800.0, 900.0],
        "parquet_all": [1000.0],
        "write": [300.0],
        "counting": [500.0],
        "tiny": [130.0],
        "idle": [100.0],
        "one_row": [1000.0],
        "seen": [500.0],
    }
    text = markdown(rounds, "title")
    assert text.startswith("title\n")
    assert "| 800 | native Parquet: 1000 | 0.80 | at least 0.6 of it: reached; at least 750: reached (5.3 times" in text
    assert "| 300 | a writer that only counts: 500 | 0.60 | at least 0.7 of it: missed; at least 350: missed" in text
    assert "| micro-batch of 10 rows | ms | 130 | a Python source without rows: 100 | 1.30 | at most 1.3" in text
    assert "| query of a table with one row | ms | 1000 |  | - | at most 1260: reached (6.3 times Scala) |" in text
    assert "| one row until foreachBatch sees it | ms | 500 |  | - | at most 440: missed (4.4 times Scala) |" in text
    assert "primary-key" not in text, "what was not measured has no line"
