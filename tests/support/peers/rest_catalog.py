"""An Iceberg REST catalog on loopback: pyiceberg's own models over HTTP in front of its SQL catalog.

It serves what the protocol calls config, namespaces and tables, as far as tables are made, loaded, changed and dropped.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

STATUS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalogServer:
    """Use it as a context manager; `requests` are the lines of all requests so far."""

    def __init__(self, directory: Path) -> None:
        uri = f"sqlite:///{directory / 'rest.sqlite'}?timeout=30"
        self.catalog = SqlCatalog("behind", uri=uri, warehouse=str(directory / "warehouse"))
        self.lock = threading.Lock()
        self.requests: list[str] = []
        outer = self

        class Handler(_Handler):
            owner = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> RestCatalogServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.catalog.close()

    def answer(self, method: str, path: list[str], body: bytes) -> Any:
        """What a request gives: an object for JSON, or None."""
        catalog = self.catalog
        match method, path:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "GET", ["namespaces"]:
                return {"namespaces": catalog.list_namespaces()}
            case "POST", ["namespaces"]:
                request = json.loads(body)
                catalog.create_namespace(tuple(request["namespace"]), request.get("properties", {}))
                return request
            case (("GET" | "HEAD"), ["namespaces", namespace]):
                return {"namespace": [namespace], "properties": catalog.load_namespace_properties(namespace)}
            case "GET", ["namespaces", namespace, "tables"]:
                found = catalog.list_tables(namespace)
                return {"identifiers": [{"namespace": list(each[:-1]), "name": each[-1]} for each in found]}
            case "POST", ["namespaces", namespace, "tables"]:
                wanted = {"location": None, "partition-spec": None, "write-order": None, **json.loads(body)}
                return _loaded(self._create(namespace, CreateTableRequest.model_validate(wanted)))
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", table]):
                return _loaded(catalog.load_table((namespace, table)))
            case "POST", ["namespaces", namespace, "tables", table]:
                commit = CommitTableRequest.model_validate_json(body)
                loaded = catalog.load_table((namespace, table))
                done = catalog.commit_table(loaded, commit.requirements, commit.updates)
                return json.loads(done.model_dump_json(by_alias=True))
            case "DELETE", ["namespaces", namespace, "tables", table]:
                catalog.drop_table((namespace, table))
                return None
        raise NoSuchTableError(f"nothing is served at {method} {'/'.join(path)}")

    def _create(self, namespace: str, request: CreateTableRequest) -> Table:
        return self.catalog.create_table(
            (namespace, request.name),
            request.table_schema,
            request.location,
            request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            request.write_order or UNSORTED_SORT_ORDER,
            request.properties,
        )


class _Handler(BaseHTTPRequestHandler):
    owner: RestCatalogServer

    def handle_any(self) -> None:
        self.owner.requests.append(self.requestline)
        path = self.path.partition("?")[0].strip("/").split("/")[1:]  # behind the version
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            with self.owner.lock:
                status, found = 200, self.owner.answer(self.command, path, body)
        except tuple(STATUS) as error:
            status = STATUS[type(error)]
            found = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
        content = b"" if found is None or self.command == "HEAD" else json.dumps(found).encode()
        self.send_response(204 if status == 200 and not content else status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - names of the base class

    def log_message(self, format: str, *args: Any) -> None:
        """Tests print nothing."""


def _loaded(table: Table) -> Any:
    found = {"metadata-location": table.metadata_location, "metadata": table.metadata}
    answer = TableResponse.model_validate(found)
    return json.loads(answer.model_dump_json(by_alias=True))
