"""Reads the YAML file of a server's options as strings. An option that is given twice is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss.errors import ErrorCode, FlussError

if TYPE_CHECKING:
    import yaml

# A larger file is no configuration file; reading it would waste memory.
CONFIG_FILE_LIMIT_BYTES = 1024 * 1024


def read_config_file(path: Path) -> dict[str, str]:
    """Return the options of a YAML file as strings. Nested maps become dotted names, lists comma-separated strings."""
    import yaml  # only servers with a configuration file need it

    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise _invalid(f"cannot read configuration file {path}: {error.strerror or error}") from error
    if len(content) > CONFIG_FILE_LIMIT_BYTES:
        raise _invalid(f"configuration file {path} is larger than the limit of {CONFIG_FILE_LIMIT_BYTES} bytes")
    try:
        # The base loader keeps every scalar as a string; each option parses its own value.
        node = yaml.compose(content, Loader=yaml.BaseLoader)
        _check_names_once(path, node)
        document = yaml.load(content, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not text"
        raise _invalid(f"configuration file {path} is not valid YAML{where}: {problem}") from error
    if document in (None, ""):
        return {}
    if not isinstance(document, dict):
        raise _invalid(f"configuration file {path} must consist of lines like 'option: value'")
    return _flatten(document, "")


def _check_names_once(path: Path, document: yaml.Node | None) -> None:
    """Refuse an option that is given twice; YAML would silently use the last value."""
    lines: dict[str, int] = {}
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        prefix, node = waiting.pop(0)
        if getattr(node, "id", None) != "mapping":
            continue
        for key, value in node.value:
            name, line = f"{prefix}{key.value}".strip(), key.start_mark.line + 1
            if value.id == "mapping":
                waiting.append((f"{name}.", value))
            elif name in lines:
                first, second = sorted((lines[name], line))
                raise _invalid(
                    f"configuration file {path} sets option {name!r} twice, in lines {first} and {second}; keep one"
                )
            else:
                lines[name] = line


def _flatten(document: Mapping[object, object], prefix: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in document.items():
        name = f"{prefix}{key}".strip()
        if isinstance(value, dict):
            values.update(_flatten(value, f"{name}."))
        elif isinstance(value, list):
            values[name] = ",".join(str(item) for item in value)
        elif str(value).strip():
            values[name] = str(value).strip()
    return values


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)
