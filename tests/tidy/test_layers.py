"""Who may import whom. Decided by reading import statements, also those inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tidy.repository import PACKAGE, files, name, nodes

# Layer -> layers that it may import besides itself. `fluss.errors`, `lazy_imports` and `version` are open to all.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "lazy_imports": frozenset(),
    "version": frozenset(),
    "config": frozenset({"model"}),
    "model": frozenset(),
    "codec": frozenset({"model"}),
    "protocol": frozenset({"model"}),
    "client": frozenset({"model", "codec", "protocol", "config", "lake.tables"}),
    # The coordinator makes and changes lake tables, so it knows what they look like; it tiers nothing.
    "server": frozenset({"model", "codec", "protocol", "lake.tables"}),
    "lake.tables": frozenset({"model", "codec"}),
    "lake": frozenset({"lake.tables", "__init__", "client", "codec", "config", "model"}),
    "spark": frozenset({"__init__", "client", "codec", "config", "lake", "lake.tables", "model", "protocol"}),
    "cli": frozenset({"__init__", "client", "config", "lake", "lake.tables", "model", "server", "spark"}),
    "__init__": frozenset({"server", "client", "config"}),
    "aio": frozenset({"__init__", "client", "config", "model"}),
}

# Codecs and protocol are pure: bytes in, values out.
IMPURE_MODULES = frozenset(
    {"asyncio", "os", "pathlib", "random", "selectors", "socket", "subprocess", "threading", "time"}
)
PURE_LAYERS = ("model", "codec", "protocol")

MODULES = [path for path in files(".py") if PACKAGE in path.parents]


# A part of a layer with rules of its own: who imports the part need not be allowed the layer.
PARTS = frozenset({"lake.tables"})


def layer_of(path: Path) -> str:
    return layer_of_parts(path.relative_to(PACKAGE).with_suffix("").parts)


def layer_of_parts(parts: Sequence[str]) -> str:
    part = ".".join(parts[:2])
    return part if part in PARTS else parts[0]


def imported_modules(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno} imports relatively"
            yield node.module or ""
            if node.module == "fluss":
                yield from (f"fluss.{alias.name}" for alias in node.names)


def test_modules_import_only_layers_below_their_own() -> None:
    offences = []
    for path in MODULES:
        layer = layer_of(path)
        assert layer in ALLOWED, f"layer {layer} is not in the table of this test"
        allowed = {layer, "errors", "lazy_imports", "version", *ALLOWED[layer]}
        for module in imported_modules(path):
            parts = module.split(".")
            target = layer_of_parts(parts[1:]) if len(parts) > 1 else "__init__"
            if parts[0] == "fluss" and target not in allowed:
                offences.append(f"{name(path)} imports {module}")
    assert offences == []


def test_pure_layers_have_no_sockets_files_or_clocks() -> None:
    offences = []
    for path in MODULES:
        impure = {module.split(".")[0] for module in imported_modules(path)} & IMPURE_MODULES
        if layer_of(path) in PURE_LAYERS and impure:
            offences.append(f"{name(path)} imports {sorted(impure)}")
    assert offences == []


def test_the_server_and_the_client_do_not_know_each_other() -> None:
    assert "client" not in ALLOWED["server"]
    assert "server" not in ALLOWED["client"]
