"""Checksums inside JSON documents, because a document with a flipped bit may still be valid JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fluss.codec.crc import crc32c_of_pieces

CHECKSUM_KEY = "checksum"


def json_checksum(node: Mapping[str, object]) -> int:
    """CRC-32C of the document's content without the checksum itself, independent of formatting and key order."""
    content = {name: value for name, value in node.items() if name != CHECKSUM_KEY}
    return crc32c_of_pieces([json.dumps(content, sort_keys=True).encode()])


def check_json(node: Mapping[str, object]) -> None:
    """Raise ValueError if the document does not match its checksum. Earlier versions wrote no checksum."""
    if CHECKSUM_KEY in node and node[CHECKSUM_KEY] != json_checksum(node):
        raise ValueError("its checksum does not match its content")
