"""Who may import whom. Decided by reading import statements, also those inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.tidy.repository import PACKAGE, files, name, nodes

# Layer -> layers that it may import besides itself. `fluss.errors`, `generated_code`, `lazy_imports` and `version`
# are open to all.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "generated_code": frozenset(),
    "lazy_imports": frozenset(),
    "version": frozenset(),
    "config": frozenset({"model"}),
    "model": frozenset(),
    "codec": frozenset({"model"}),
    "protocol": frozenset({"model"}),
    "values": frozenset({"model", "codec", "protocol"}),
    # Sockets, requests, batches. It knows nothing of lakes.
    "client": frozenset({"model", "codec", "protocol", "config", "values"}),
    # The wall: layers other than `api` reach the client through it.
    "client.engine": frozenset({"client", "model", "codec", "config", "values"}),
    # The coordinator makes and changes lake tables, so it knows what they look like; it tiers nothing.
    "server": frozenset({"model", "codec", "protocol", "lake.tables"}),
    "lake.tables": frozenset({"model", "codec"}),
    "lake.reading": frozenset({"lake.tables", "client.engine", "values", "codec", "model"}),
    # What programs get: the client and reads of lakes, composed.
    "api": frozenset({"client", "client.engine", "values", "lake.reading", "config", "codec", "model", "protocol"}),
    "lake": frozenset({"lake.tables", "lake.reading", "api", "client.engine", "values", "model", "protocol"}),
    "spark": frozenset(
        {"__init__", "api", "client.engine", "values", "codec", "config", "lake", "lake.reading", "lake.tables"}
        | {"model", "protocol"}
    ),
    "cli": frozenset({"__init__", "api", "values", "config", "lake", "lake.tables", "model", "server", "spark"}),
    "__init__": frozenset({"api", "client", "values", "server", "config"}),
    "aio": frozenset({"__init__", "api", "client", "values", "config", "model"}),
}

# Codecs and protocol are pure: bytes in, values out.
IMPURE_MODULES = frozenset(
    {"asyncio", "os", "pathlib", "random", "selectors", "socket", "subprocess", "threading", "time"}
)
PURE_LAYERS = ("model", "codec", "protocol")

MODULES = [path for path in files(".py") if PACKAGE in path.parents]

# A part of a layer with rules of its own: who imports the part need not be allowed the layer.
PARTS = frozenset({"client.engine", "lake.tables", "lake.reading"})
# Places of modules that documents had called public: they warn, and import what has moved above them.
OLD_PLACES = frozenset({PACKAGE / "client" / "staged.py", PACKAGE / "client" / "lake_calls.py"})
# A folder with more modules than this has two subjects. Those that are larger are one, and were so from the start.
MODULES_PER_FOLDER = 15
LARGE_FOLDERS = {
    "lake/tables/iceberg": 20,
    "server/catalog": 17,
    "server/storage/kv": 16,
    "server/storage/log": 24,
    "spark/read": 19,
    "spark/write": 17,
}


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
        if path in OLD_PLACES:
            continue
        layer = layer_of(path)
        assert layer in ALLOWED, f"layer {layer} is not in the table of this test"
        allowed = {layer, "errors", "generated_code", "lazy_imports", "version", *ALLOWED[layer]}
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


def test_only_the_face_and_the_wall_know_the_client() -> None:
    """`__init__` and `aio` export names of it."""
    assert {layer for layer, allowed in ALLOWED.items() if "client" in allowed} == {
        "__init__",
        "aio",
        "api",
        "client.engine",
    }


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    """Where a module lives; each module at the root of the package stands for itself."""
    folder = module if (PACKAGE.parent / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]
    return module if folder == "fluss" else folder


def test_no_folder_imports_one_that_imports_it() -> None:
    names = {module_of(path) for path in MODULES}
    below: dict[str, set[str]] = {}
    for path in MODULES:
        if path in OLD_PLACES:
            continue
        folder = folder_of(module_of(path))
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fluss":
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                for target in (each if each in names else node.module for each in whole):
                    if target in names and folder_of(target) != folder:
                        below.setdefault(folder, set()).add(folder_of(target))
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        raise AssertionError(f"folders that import each other: {' -> '.join(error.args[1])}") from None


def test_every_folder_has_one_subject() -> None:
    offences = []
    for folder in sorted({path.parent for path in MODULES}):
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py" and "_pb2" not in path.name]
        allowed = LARGE_FOLDERS.get(str(folder.relative_to(PACKAGE)), MODULES_PER_FOLDER)
        if len(modules) > allowed:
            offences.append(f"{name(folder)} has {len(modules)} modules, {allowed} are allowed")
        door = folder / "__init__.py"
        if not door.exists() or ast.get_docstring(ast.parse(door.read_text())) is None:
            offences.append(f"{name(folder)} does not say what lives there: give its __init__ a docstring")
    assert offences == []


GENERATORS = ("exec", "eval", "compile")
# Libraries that only some rooms know, with everything below them.
ROOMS_OF = {
    "pyiceberg": ("lake/tables/iceberg",),
    "pyspark": ("spark",),
    "rocksdict": ("server/storage/kv", "client/state"),  # the client reads snapshots, which are RocksDB's files
    "sqlite3": ("server/catalog", "server/coordinator/tables", "server/process"),
    "uvloop": ("server/runtime", "client/net"),
}


def test_libraries_stay_in_their_rooms() -> None:
    offences = [
        f"{name(path)} imports {module}"
        for path in MODULES
        for module in imported_modules(path)
        for rooms in [ROOMS_OF.get(module.split(".")[0])]
        if rooms is not None and not any(PACKAGE / room in path.parents for room in rooms)
    ]
    assert offences == []


def test_code_is_generated_in_one_place() -> None:
    """Which makes its lines known to tracebacks and debuggers."""
    offences = [
        f"{name(path)}:{node.lineno} calls {node.func.id}: use fluss.generated_code"
        for path in MODULES
        if path != PACKAGE / "generated_code.py"
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("exec", "eval", "compile")
    ]
    assert offences == []
