"""Paths of remote segments, tokens, and the reactions to errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from fluss.client.net.remote_files import Token, local_path, map_file, object_store, read_token, segment_path
from fluss.client.scan.fetch_rules import (
    LAST_PAUSE_SECONDS,
    Reaction,
    bucket_reaction,
    next_pause_seconds,
    request_reaction,
)
from fluss.errors import FlussError
from fluss.protocol import fluss_api_pb2 as pb


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/data/a b", "/data/a b"),
        ("file:///data/x", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/a%20b", "/data/a b"),
        ("s3://bucket/x", None),
        ("oss://bucket/x", None),
        ("hdfs://host:1/x", None),
    ],
)
def test_local_paths(path: str, local: str | None) -> None:
    assert local_path(path) == local


def test_segment_paths() -> None:
    assert segment_path("/dir/", "uuid", 42) == "/dir/uuid/00000000000000000042.log"


def test_files_are_mapped(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"")
    assert bytes(map_file(str(file))) == b""
    file.write_bytes(b"abc")
    mapped = map_file(str(file))
    file.unlink()
    assert bytes(mapped) == b"abc"
    with pytest.raises(FileNotFoundError):
        map_file(str(file))


def test_tokens() -> None:
    answer = pb.GetFileSystemSecurityTokenResponse(
        schema="s3", token=b'{"access_key_id": "a"}', expiration_time=200_000
    )
    answer.addition_info.add(key="fs.s3a.endpoint", value="http://127.0.0.1:9000")
    token = read_token(answer, 100.0)
    assert (token.credentials, token.renew_at) == ({"access_key_id": "a"}, 180.0)
    assert token.setting("endpoint") == "http://127.0.0.1:9000"
    assert token.setting("region") is None
    assert read_token(pb.GetFileSystemSecurityTokenResponse(schema="file", token=b""), 0.0).credentials == {}
    with pytest.raises(FlussError, match="JSON"):
        read_token(pb.GetFileSystemSecurityTokenResponse(schema="s3", token=b"{"), 0.0)


def test_object_stores_get_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(fs, "S3FileSystem", lambda **options: given.append(options))
    token = Token(
        {"access_key_id": "id", "access_key_secret": "secret", "security_token": "session"},
        {"fs.s3a.endpoint": "http://localhost:9000", "fs.s3a.endpoint.region": "eu"},
    )
    assert object_store("s3a://bucket/dir/file", token)[1] == "bucket/dir/file"
    assert object_store("oss://bucket/file", Token())[1] == "bucket/file"
    assert given == [
        {
            "access_key": "id",
            "secret_key": "secret",
            "session_token": "session",
            "endpoint_override": "localhost:9000",
            "scheme": "http",
            "region": "eu",
        },
        {},
    ]
    monkeypatch.undo()
    assert isinstance(object_store("file:///x", Token())[0], fs.LocalFileSystem)


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (12, Reaction.MOVED),
        (21, Reaction.MOVED),
        (24, Reaction.MOVED),
        (44, Reaction.MOVED),
        (10, Reaction.RETRY),
        (11, Reaction.RETRY),
        (26, Reaction.RETRY),
        (-1, Reaction.RETRY),
        (34, Reaction.WHOLE_ROWS),
        (19, Reaction.RAISE),
        (3, Reaction.RAISE),
        (48, Reaction.RAISE),
        (999, Reaction.RAISE),
    ],
)
def test_errors_of_buckets(code: int, reaction: Reaction) -> None:
    assert bucket_reaction(code, projected=True) is reaction
    if code == 34:
        assert bucket_reaction(code, projected=False) is Reaction.RAISE


@pytest.mark.parametrize(
    ("code", "reaction"),
    [(1, Reaction.MOVED), (25, Reaction.MOVED), (-1, Reaction.MOVED), (26, Reaction.RETRY), (7, Reaction.RAISE)],
)
def test_errors_of_requests(code: int, reaction: Reaction) -> None:
    assert request_reaction(code) is reaction


def test_pauses_grow_to_a_limit() -> None:
    pause = 0.0
    for _ in range(20):
        longer = next_pause_seconds(pause)
        assert longer > pause or pause == LAST_PAUSE_SECONDS
        pause = longer
    assert pause == LAST_PAUSE_SECONDS
