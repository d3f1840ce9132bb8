"""The manifest and the record: their JSON, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fluss.errors import FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.server.tablet.remote.manifest import (
    RemoteManifest,
    RemoteRecord,
    RemoteSegment,
    manifest_from_json,
    manifest_object,
    manifest_to_json,
    record_from_json,
    record_to_json,
    segment_object,
)
from fluss.server.tablet.remote.segment_selection import first_segment_with_timestamp, segments_from

# The text that the specification gives for a manifest, with its second segment written out.
REFERENCE = (
    b'{"version":1,"database":"db","table":"mytable","table_id":1001,"bucket_id":1,"remote_log_segments":'
    b'[{"segment_id":"a4421366-4a1d-4c3b-a0f8-0be2e77b1368","start_offset":0,"end_offset":9,'
    b'"max_timestamp":1722225103853,"size_in_bytes":2850},'
    b'{"segment_id":"b4421366-4a1d-4c3b-a0f8-0be2e77b1368","start_offset":9,"end_offset":20,'
    b'"max_timestamp":1722225103999,"size_in_bytes":2851}]}'
)


def test_manifest_has_the_documented_bytes() -> None:
    manifest = manifest_from_json(REFERENCE)
    assert manifest.bucket == TableBucket(1001, None, 1)
    assert manifest.start_offset == 0
    assert manifest.end_offset == 20
    assert manifest_to_json(manifest) == REFERENCE


def test_partitioned_manifest_and_expired_segments() -> None:
    manifest = RemoteManifest(TablePath("db", "t"), TableBucket(1, 7, 0), "2024$eu")
    manifest = manifest.with_segment(RemoteSegment("a", 0, 5, 1, 10)).with_segment(RemoteSegment("b", 5, 9, 2, 10))
    left = manifest.without(2)
    document = json.loads(manifest_to_json(left))
    assert document["partition_name"] == "2024$eu"
    assert document["partition_id"] == 7
    assert document["highest_copied_end_offset"] == 9
    assert left.end_offset == 9
    assert left.start_offset is None
    assert manifest_from_json(manifest_to_json(left)) == left
    assert "highest_copied_end_offset" not in json.loads(manifest_to_json(manifest))


def test_a_gap_is_refused() -> None:
    manifest = manifest_from_json(REFERENCE)
    with pytest.raises(ValueError, match="must start at offset"):
        manifest.with_segment(RemoteSegment("x", 21, 22, 0, 1))
    assert manifest.without(2).with_segment(RemoteSegment("x", 21, 22, 0, 1)).start_offset == 21
    with pytest.raises(ValueError, match="lacks a segment"):
        manifest_from_json(REFERENCE.replace(b'"start_offset":9', b'"start_offset":10'))


@pytest.mark.parametrize("document", [b"{}", b"[]", b"3", b'{"version":0}', b"not json", REFERENCE[:-5]])
def test_invalid_documents_are_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        manifest_from_json(document)
    with pytest.raises(ValueError, match=r".+"):
        record_from_json(document)


def test_record_round_trip() -> None:
    manifest = manifest_from_json(REFERENCE)
    record = RemoteRecord("/r/log/db/mytable-1001/1", manifest, "m1", manifest.segments[:1], ("m0",))
    assert record_from_json(record_to_json(record)) == record
    assert record.has_garbage
    assert not replace(record, garbage_segments=(), garbage_manifests=()).has_garbage


def test_every_changed_character_of_a_record_is_detected() -> None:
    """With another id or number the record is still valid JSON, and would send readers to missing files."""
    manifest = manifest_from_json(REFERENCE)
    record = RemoteRecord("/r/log/db/mytable-1001/1", manifest, "m1", manifest.segments[:1], ("m0",))
    document = record_to_json(record)
    without = {name: value for name, value in json.loads(document).items() if name != "checksum"}
    assert record_from_json(json.dumps(without).encode()) == record, "as earlier versions wrote it"
    for position in range(len(document)):
        changed = document[:position] + bytes([document[position] ^ 1]) + document[position + 1 :]
        try:
            found = record_from_json(changed)
        except (ValueError, FlussError):
            continue
        assert found == record, changed


def test_object_names_are_those_that_clients_build() -> None:
    segment = manifest_from_json(REFERENCE).segments[1]
    assert segment_object("/r", segment) == "/r/b4421366-4a1d-4c3b-a0f8-0be2e77b1368/00000000000000000009.log"
    assert manifest_object("/r", "m") == "/r/metadata/m.manifest"


def test_segments_for_an_offset() -> None:
    manifest = manifest_from_json(REFERENCE)
    assert segments_from(manifest, 0) == manifest.segments
    assert segments_from(manifest, 8) == manifest.segments
    assert segments_from(manifest, 9) == manifest.segments[1:]
    assert segments_from(manifest, 20) == ()
    assert segments_from(manifest, -1) == ()
    assert segments_from(manifest.without(1), 3) == ()


def test_segment_for_a_timestamp() -> None:
    manifest = manifest_from_json(REFERENCE)
    assert first_segment_with_timestamp(manifest, 1722225103853, 20) == manifest.segments[0]
    assert first_segment_with_timestamp(manifest, 1722225103854, 20) == manifest.segments[1]
    assert first_segment_with_timestamp(manifest, 1722225103854, 9) is None
    assert first_segment_with_timestamp(manifest, 1722225104000, 20) is None
