"""Checksums inside of JSON documents: a flipped bit in a number or a name is still JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fluss.codec.crc import crc32c_of_pieces

CHECKSUM_KEY = "checksum"


def json_checksum(node: Mapping[str, Any]) -> int:
    """CRC-32C of everything in the document but the checksum itself, however it is written."""
    content = {name: value for name, value in node.items() if name != CHECKSUM_KEY}
    return crc32c_of_pieces([json.dumps(content, sort_keys=True).encode()])


def check_json(node: Mapping[str, Any]) -> None:
    """ValueError if the document is not the one its checksum is of. Earlier versions wrote none."""
    if CHECKSUM_KEY in node and node[CHECKSUM_KEY] != json_checksum(node):
        raise ValueError("its checksum is wrong")
