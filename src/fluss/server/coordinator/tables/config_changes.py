"""SET and DELETE of options in ALTER_TABLE and ALTER_DATABASE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

SET, DELETE, APPEND, SUBTRACT = range(4)


def checked_change(change: pb.PbAlterConfig) -> str | None:
    """Return the new value of a change, None for a removal; code -1 for operations other than SET and DELETE."""
    if change.op_type == DELETE:
        return None
    if change.op_type != SET:
        raise FlussError(
            f"change of {change.config_key!r}: operation {change.op_type} is not allowed here; use SET or DELETE",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    if not change.HasField("config_value"):
        raise FlussError(
            f"change of {change.config_key!r}: SET requires a value; use DELETE to remove the key",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    return change.config_value


def apply_changes(texts: Mapping[str, str], changes: Iterable[pb.PbAlterConfig]) -> dict[str, str]:
    """Return the options after the changes; removing an absent key is ignored."""
    out = dict(texts)
    for change in changes:
        value = checked_change(change)
        if value is None:
            out.pop(change.config_key, None)
        else:
            out[change.config_key] = value
    return out
