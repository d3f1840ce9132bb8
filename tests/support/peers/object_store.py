"""An object store that speaks as much of S3 as pyarrow's file system needs: objects in memory, signatures unchecked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape


class ObjectStore:
    """A running store; `objects` maps `bucket/key` to content. Use it as a context manager."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.is_down = False
        store = self

        class Handler(_Handler):
            objects = store

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The address for `s3.endpoint`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ObjectStore

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests read their own output."""

    def _begin(self) -> tuple[str, dict[str, list[str]], bytes]:
        parts = urlsplit(self.path)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._read_chunks()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" in (self.headers.get("Content-Encoding") or ""):
            body = _unchunked(body)
        return unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True), body

    def _read_chunks(self) -> bytes:
        out = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailing headers
        return bytes(out)

    def _answer(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        if self.objects.is_down:
            status, body = 403, _error("AccessDenied")
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        name, _, _ = self._begin()
        found = self.objects.objects.get(name)
        if found is not None:
            self._answer(200, Content_Length=str(len(found)), ETag='"e"')
        else:
            self._answer(200 if "/" not in name.rstrip("/") else 404)

    def do_GET(self) -> None:
        name, query, _ = self._begin()
        if "list-type" in query:
            self._list(name.rstrip("/"), query)
            return
        found = self.objects.objects.get(name)
        if found is None:
            self._answer(404, _error("NoSuchKey"))
            return
        wanted = (self.headers.get("Range") or "").removeprefix("bytes=").partition("-")
        if wanted[0]:
            start, stop = int(wanted[0]), int(wanted[2] or len(found) - 1) + 1
            found = found[start:stop]
        self._answer(206 if wanted[0] else 200, found, ETag='"e"')

    def do_PUT(self) -> None:
        name, query, body = self._begin()
        if not self.objects.is_down:
            if "partNumber" in query:
                self.objects.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            else:
                self.objects.objects[name] = body
        self._answer(200, ETag='"e"')

    def do_POST(self) -> None:
        name, query, body = self._begin()
        if "uploads" in query:
            self.objects.parts[name] = {}
            bucket, _, key = name.partition("/")
            fields = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{escape(name)}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{fields}</InitiateMultipartUploadResult>")
        elif "uploadId" in query:
            parts = self.objects.parts.pop(query["uploadId"][0])
            self.objects.objects[name] = b"".join(parts[number] for number in sorted(parts))
            self._answer(200, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        else:
            for element in ElementTree.fromstring(body).iter():
                if element.tag.rpartition("}")[2] == "Key":
                    self.objects.objects.pop(f"{name.rstrip('/')}/{element.text}", None)
            self._answer(200, "<DeleteResult></DeleteResult>")

    def do_DELETE(self) -> None:
        name, _, _ = self._begin()
        if not self.objects.is_down:
            self.objects.objects.pop(name, None)
        self._answer(204)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        keys = sorted(name.partition("/")[2] for name in self.objects.objects if name.startswith(f"{bucket}/{prefix}"))
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects.objects[f'{bucket}/{key}'])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        self._answer(
            200,
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(keys)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{items}</ListBucketResult>",
            Content_Type="application/xml",
        )


def _error(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"


def _unchunked(body: bytes) -> bytes:
    """The content of a body in the signed chunks of S3: size in hex, options, line end, bytes, line end."""
    out = bytearray()
    position = 0
    while position < len(body):
        line_end = body.index(b"\r\n", position)
        size = int(body[position:line_end].split(b";")[0], 16)
        if size == 0:
            break
        out += body[line_end + 2 : line_end + 2 + size]
        position = line_end + 2 + size + 2
    return bytes(out)
