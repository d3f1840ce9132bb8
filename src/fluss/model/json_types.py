"""The type of JSON documents: their members have any type until the code that reads them has checked it."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
