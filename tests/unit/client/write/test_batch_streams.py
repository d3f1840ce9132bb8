"""What an error in the middle of a stream says about the rows before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from fluss.client.send.acknowledgements import Chunk, WriteResultHandle
from fluss.client.write.batch_streams import write_stream
from fluss.errors import FlussError


class Owner:
    def on_settled(self, chunk: Chunk) -> None: ...

    def check_usable(self) -> None: ...


def settled(error: str | None) -> WriteResultHandle:
    chunk = Chunk(0, Owner())
    chunk.make_ready([])
    chunk.release(FlussError(error) if error else None)
    return chunk


def said(errors: list[str | None]) -> str:
    """The error of a stream whose batches of ten rows end like this, and that cannot be read further."""

    def batches() -> Iterator[Any]:
        for _ in errors:
            yield pa.record_batch({"id": range(10)})
        raise OSError("gone")

    ends = iter(errors)
    with pytest.raises(FlussError) as caught:
        write_stream(cast(Any, batches()), lambda batch, first_row: settled(next(ends)))
    return caught.value.message


def test_every_range_that_failed_is_named() -> None:
    text = said([None, "full", None, "late"])
    assert "the rows 0 to 9 and 20 to 29 were written" in text
    assert "rows 10 to 19 were written partly or not at all: full" in text
    assert "rows 30 to 39 were written partly or not at all: late" in text


def test_nothing_is_claimed_of_rows_that_failed() -> None:
    assert "Nothing of it is known to be written; rows 0 to 9 were written partly or not at all: full" in said(["full"])
    assert said([]).endswith("Nothing of it was written")
