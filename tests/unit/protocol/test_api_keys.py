"""The table of API keys, and the generated messages, against the published protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import APIS, PUBLISHED_KEYS, ApiKey, Role
from tools.generate_protocol import KV_RANGE_PROTO_FILE, PROTO_FILE, STAGED_PROTO_FILE, compiled_descriptor

MESSAGE_COUNT = 209
FIELD_COUNT = 560


def test_every_key_has_an_entry_in_order() -> None:
    assert list(PUBLISHED_KEYS) == list(range(1000, 1065))
    assert [int(key) for key in APIS] == [*range(1000, 1065), *range(9001, 9009)]
    assert set(APIS) == set(ApiKey)


def test_only_three_apis_have_more_than_version_0() -> None:
    newer = {key.name: (api.min_version, api.max_version) for key, api in APIS.items() if api.max_version}
    assert newer == {"PUT_KV": (0, 2), "LOOKUP": (0, 1), "PREFIX_LOOKUP": (0, 1)}


def test_message_names_follow_the_api_names() -> None:
    exceptions = {"GetMetadata": "Metadata", "GetFilesystemSecurityToken": "GetFileSystemSecurityToken"}
    for key, api in APIS.items():
        name = "".join(word.capitalize() for word in key.name.split("_"))
        name = exceptions.get(name, name)
        assert api.request.DESCRIPTOR.name == f"{name}Request"
        assert api.response.DESCRIPTOR.name == f"{name}Response"


def test_roles() -> None:
    assert APIS[ApiKey.PRODUCE_LOG].roles == Role.TABLET
    assert APIS[ApiKey.CREATE_TABLE].roles == Role.COORDINATOR
    assert APIS[ApiKey.GET_METADATA].roles == Role.TABLET | Role.COORDINATOR
    assert not APIS[ApiKey.ADJUST_ISR].public
    assert sum(APIS[key].public for key in PUBLISHED_KEYS) == 52


MODULES = [(pb, PROTO_FILE), (staged_pb, STAGED_PROTO_FILE), (range_pb, KV_RANGE_PROTO_FILE)]


@pytest.mark.parametrize(("module", "proto_file"), MODULES)
def test_the_generated_module_is_in_step_with_the_proto_file(module: Any, proto_file: Path) -> None:
    compiled = FileDescriptorSet.FromString(compiled_descriptor(proto_file)).file[0]
    for message in compiled.message_type:
        for field in message.field:
            field.ClearField("json_name")  # derived from the name; the generated module leaves it out
    generated = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    assert generated == compiled, "run python -m tools.generate_protocol"


@pytest.mark.parametrize(("module", "proto_file"), MODULES)
def test_the_stub_is_in_step_with_the_proto_file(module: Any, proto_file: Path) -> None:
    stub = proto_file.with_name(f"{proto_file.stem}_pb2.pyi").read_text()
    classes = re.findall(r"^class (\w+)\(_message.Message\):\n    __slots__ = \((.*)\)$", stub, re.MULTILINE)
    listed = {name: re.findall(r"\w+", slots) for name, slots in classes}
    messages = module.DESCRIPTOR.message_types_by_name
    assert listed == {name: [field.name for field in message.fields] for name, message in messages.items()}


def test_the_messages_have_the_published_shape() -> None:
    messages = pb.DESCRIPTOR.message_types_by_name.values()
    fields = [field for message in messages for field in message.fields]
    assert (len(messages), len(fields)) == (MESSAGE_COUNT, FIELD_COUNT)
    numbers = [
        field
        for field in fields
        if field.is_repeated and field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
    ]
    assert [field.name for field in numbers if not field.is_packed] == ["force_finished_tables"]


def test_messages_with_gaps_in_their_numbers() -> None:
    def numbers(name: str) -> list[int]:
        return [field.number for field in pb.DESCRIPTOR.message_types_by_name[name].fields]

    assert numbers("GetDatabaseInfoResponse") == [3, 4, 5]
    assert numbers("LimitScanRequest") == [2, 3, 4, 5]
    assert numbers("PbLakeTableOffsetForBucket") == [1, 2, 4, 6]
    assert numbers("PbBucketOffset") == [1, 2, 4]
