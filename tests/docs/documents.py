"""The documents that the client is built to, and how their code is run as written.

They are not part of this repository: they are looked for next to the checkout, in `../shared/seeds`, or in the folder
that the environment variable FLUSS_DOCUMENTS names. Tests that need them are skipped where they are missing.

A block with `await` outside of a function is compiled as it stands, Python can do that. Only the address of the server
in it is replaced. A block with an endless loop is ended from outside, by the object that the test puts into its way.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from tests.support.servers.targets import Target
from tools.waiting import patience

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("FLUSS_DOCUMENTS") or CHECKOUT.parent / "shared" / "seeds")
DOCUMENTED_ADDRESS = "127.0.0.1:9123"
BLOCK_DEADLINE_SECONDS = patience(120.0)


@dataclass(frozen=True)
class Block:
    """A piece of Python in a document, and the heading it stands under."""

    heading: str
    code: str


def document_or_none(number: str) -> str | None:
    """The text of the document whose name starts with `number`."""
    found = sorted(FOLDER.glob(f"{number}_*.txt")) if FOLDER.is_dir() else []
    return found[0].read_text(encoding="utf-8") if found else None


def document(number: str) -> str:
    """The same; skips the test where there is none."""
    text = document_or_none(number)
    if text is None:
        pytest.skip(f"document {number} is not in {FOLDER}: set FLUSS_DOCUMENTS to the folder with the documents")
    return text


def python_blocks(text: str) -> list[Block]:
    """All Python blocks of a Markdown document, in order."""
    blocks, heading = [], ""
    for match in re.finditer(
        r"^#+ (?P<heading>[^\n]+)$|^```python\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        if match["heading"] is not None:
            heading = match["heading"].strip()
        else:
            blocks.append(Block(heading, match["code"]))
    return blocks


class EndlessLoopError(Exception):
    """Ends a loop of a document from outside."""


class Reader:
    """A user who types the blocks of a document one after the other, against a server."""

    def __init__(self, target: Target, **names: Any) -> None:
        self.target = target
        self.names: dict[str, Any] = {"fluss": fluss, "pa": pa, "asyncio": asyncio, **names}
        self.loop = asyncio.new_event_loop()

    def run(self, block: Block) -> None:
        """Run a block as written; names that it binds stay for the next one."""
        code = block.code.replace(DOCUMENTED_ADDRESS, self.target.bootstrap_servers)
        compiled = compile(code, f"<{block.heading}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(compiled, self.names)
        if inspect.iscoroutine(result):
            self.wait(result)

    def run_bounded(self, block: Block, prints: int) -> list[str]:
        """Run a block with endless loops: statement by statement, each loop until it has printed `prints` times.

        Returns what was printed.
        """
        printed: list[str] = []

        def bounded_print(*values: object) -> None:
            printed.append(" ".join(map(str, values)))
            if len(printed) % prints == 0:
                raise EndlessLoopError

        self.names["print"] = bounded_print
        try:
            for statement in ast.parse(block.code).body:
                try:
                    self.run(Block(block.heading, ast.get_source_segment(block.code, statement) or ""))
                except EndlessLoopError:
                    assert isinstance(statement, ast.While)
        finally:
            del self.names["print"]
        return printed

    def wait(self, awaitable: Any) -> Any:
        """Await something in the reader's event loop."""

        async def body() -> Any:
            return await asyncio.wait_for(awaitable, BLOCK_DEADLINE_SECONDS)

        return self.loop.run_until_complete(body())

    def connect(self) -> None:
        """Have `conn` and `admin`, as most blocks take for granted."""
        self.names["conn"] = self.wait(fluss.FlussConnection.create(self.target.config()))
        self.names["admin"] = self.names["conn"].get_admin()

    def drop(self, *paths: fluss.TablePath) -> None:
        """Remove tables that an earlier run of a document left behind."""
        for path in paths:
            self.wait(self.names["admin"].drop_table(path, ignore_if_not_exists=True))

    def close(self) -> None:
        """Close what `connect` opened."""
        if "conn" in self.names:
            self.names["conn"].close()
        self.loop.close()
