"""The benchmark beside Kafka and Redis works; its figures are not judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import peer_servers
from bench.__main__ import main
from bench.peer_servers import KAFKA, REDIS
from bench.peers import ROWS, figures_of, markdown
from tools.peers.cache import PeerMissingError

SMALL = ["--rounds", "1", "--rows", "2000", "--ready-rows", "2000", "--lone-rows", "2", "--lookups", "5"]
SMALL += ["--seconds", "0", "--warm-megabytes", "1"]


def test_rates_and_times_become_times_better() -> None:
    noted = {
        ("fluss", "append_rows_synced"): [100.0, 300.0, 200.0],
        (KAFKA, "append_rows_synced"): [50.0, 100.0, 150.0],
        ("fluss", "lookup"): [0.4],
        (REDIS, "lookup"): [0.1],
    }
    append, lookup = figures_of(noted)
    assert (append.value, append.peers, append.ratio) == (200.0, {KAFKA: 100.0}, 2.0)
    assert (lookup.value, lookup.peers, lookup.ratio) == (0.4, {REDIS: 0.1}, 0.25)
    text = markdown([append, lookup], "title")
    assert "| append rows of 5 columns one by one, both sync first | k rows/s | 200 | Kafka | 100 | 2 |" in text


@pytest.mark.all
@pytest.mark.parametrize("peer", [KAFKA, REDIS])
def test_a_small_run_beside(peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        peer_servers.client_python()
        peer_servers.kafka_library() if peer == KAFKA else peer_servers.redis_command()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    main(["--peers", *SMALL, "--only", peer, "--directory", str(tmp_path)])
    text = capsys.readouterr().out
    for row in ROWS:
        assert (f"| {row.title} |" in text) == (row.peer == peer)
    assert not list(tmp_path.iterdir()), "servers are gone, and their data"


def test_a_peer_that_cannot_be_had_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSS_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"no peer is available\. Kafka was left out: .*no `java` on the path\. Redis"):
        main(["--peers", *SMALL, "--directory", str(tmp_path)])
