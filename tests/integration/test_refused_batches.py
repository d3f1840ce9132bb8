"""A batch whose bytes are bad fails alone: what comes after it is written, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.client.write import kv_encoding
from fluss.codec.rows import columns
from fluss.errors import ErrorCode, FlussError

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
BAD_NAME = "damaged"
BAD_BYTES = b"\xff" * len(BAD_NAME)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fluss.Database]:
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        yield db


@pytest.fixture
def _damaged_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with the bad name leave with bytes in it that are no text, as another client might send them."""
    encode = columns.encode_rows

    def encode_badly(*arguments: Any) -> Any:
        rows = encode(*arguments).to_pylist()
        return pa.array([row.replace(BAD_NAME.encode(), BAD_BYTES) for row in rows], pa.binary())

    monkeypatch.setattr(kv_encoding, "encode_rows", encode_badly)


@pytest.mark.usefixtures("_damaged_rows")
def test_an_upsert_that_the_server_cannot_read_ends_and_others_go_on(db: fluss.Database) -> None:
    db.create_table("t", SCHEMA, primary_keys=["id"])
    with pytest.raises(FlussError) as refused:
        db.upsert("t", [(1, BAD_NAME)])
    assert refused.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    db.upsert("t", [(2, "good")])
    assert db.to_arrow("t").to_pylist() == [{"id": 2, "name": "good"}]


@pytest.mark.usefixtures("_damaged_rows")
def test_closing_returns_and_tells_of_it(tmp_path: Path) -> None:
    with fluss.embedded(tmp_path / "data") as cluster:
        with fluss.connect(cluster.bootstrap_servers) as db:
            db.create_table("t", SCHEMA, primary_keys=["id"])
        connection = fluss.connect(cluster.bootstrap_servers)
        opened = connection._open("t")
        writer = opened.new_upsert().create_writer()
        writer.upsert((1, BAD_NAME))
        with pytest.raises(FlussError) as told:
            connection.close()
        assert told.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
