"""Opening remote segments by the path that a server names.

Local paths (`/dir`, `file:///dir` or `file:/dir`) are mapped into memory. All others are opened with
`pyarrow.fs`; for object stores the cluster provides credentials (GET_FILESYSTEM_SECURITY_TOKEN), which are requested
again after four fifths of their lifetime.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

TOKEN_LIFE_FRACTION_USED = 0.8
TOKEN_SECONDS_WITHOUT_EXPIRY = 7 * 24 * 3600.0

_S3_SCHEMES = frozenset(("s3", "s3a", "s3n", "oss"))


def local_path(path: str) -> str | None:
    """The path of a local file, None for any other path."""
    if path.startswith("file:"):
        return urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    return path if "://" not in path else None


def segment_path(tablet_dir: str, segment_id: str, start_offset: int) -> str:
    """The log file of a segment."""
    return f"{tablet_dir.rstrip('/')}/{segment_id}/{start_offset:020d}.log"


def map_file(path: str) -> memoryview:
    """Map a local file into memory; it remains readable after it was deleted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if os.fstat(descriptor).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Token:
    """Credentials and settings of a file system, provided by the cluster."""

    credentials: JsonObject = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    renew_at: float = 0.0

    def setting(self, *names: str) -> str | None:
        """The first of these settings that exists, with any prefix (`fs.s3a.endpoint`, `endpoint`)."""
        for name in names:
            for key, value in self.settings.items():
                if key == name or key.endswith(f".{name}"):
                    return value
        return None


def read_token(answer: pb.GetFileSystemSecurityTokenResponse, now: float) -> Token:
    """The token in an answer; `now` is in seconds since 1970."""
    credentials: JsonObject = {}
    if answer.token:
        try:
            credentials = json.loads(answer.token)
        except ValueError:
            raise FlussError(
                "the cluster's file system token is not JSON", ErrorCode.SECURITY_TOKEN_EXCEPTION
            ) from None
    life = TOKEN_SECONDS_WITHOUT_EXPIRY
    if answer.HasField("expiration_time"):
        life = max(answer.expiration_time / 1000 - now, 0.0) * TOKEN_LIFE_FRACTION_USED
    return Token(credentials, {entry.key: entry.value for entry in answer.addition_info}, now + life)


def object_store(path: str, token: Token) -> tuple[Any, str]:
    """The file system of a path, and the path within it."""
    scheme, _, rest = path.partition("://")
    if scheme not in _S3_SCHEMES:
        try:
            filesystem, inner = fs.FileSystem.from_uri(path)
        except (ValueError, pa.ArrowException) as error:
            raise FlussError(
                f"this client cannot read remote log segments of {scheme}://; it can read local paths, "
                f"{', '.join(f'{known}://' for known in sorted(_S3_SCHEMES))} and what pyarrow.fs supports: {error}",
                ErrorCode.STORAGE_EXCEPTION,
            ) from None
        return filesystem, inner
    options: dict[str, Any] = {}
    if token.credentials.get("access_key_id"):
        options["access_key"] = token.credentials["access_key_id"]
        options["secret_key"] = token.credentials.get("access_key_secret")
        if token.credentials.get("security_token"):
            options["session_token"] = token.credentials["security_token"]
    endpoint = token.setting("endpoint")
    if endpoint:
        plain_scheme, separator, host = endpoint.partition("://")
        options["endpoint_override"] = host if separator else endpoint
        if separator:
            options["scheme"] = plain_scheme
    region = token.setting("endpoint.region", "region")
    if region:
        options["region"] = region
    return fs.S3FileSystem(**options), rest


class FileSystems:
    """Open files by path. `open` runs on a download thread, `token` on the I/O thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._token: Token | None = None
        self._asking = asyncio.Lock()

    async def token(self) -> Token:
        """Credentials that are still valid."""
        async with self._asking:  # several segments are opened at a time
            now = time.time()
            if self._token is None or now >= self._token.renew_at:
                request = pb.GetFileSystemSecurityTokenRequest()
                answer = await self._cluster.call_tablet(ApiKey.GET_FILESYSTEM_SECURITY_TOKEN, request)
                self._token = read_token(answer, now)
            return self._token

    @staticmethod
    def open(path: str, token: Token) -> Any:
        """A file with `size()` and `read_at(count, position)`."""
        filesystem, inner = object_store(path, token)
        return filesystem.open_input_file(inner)
