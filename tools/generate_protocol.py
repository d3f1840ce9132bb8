"""Regenerate the modules and stubs of our `.proto` files: `python -m tools.generate_protocol`.

`fluss_api.proto` is Apache Fluss's protocol, the others are this project's extensions of it.

Generated code runs on protobuf runtimes of its own version and newer. The package allows runtimes from 6.31 on, so the
compiler must be that of 6.31: `grpcio-tools` 1.73.1. If another version is installed, `uv` fetches 1.73.1 for this run
only. `compiled_descriptor` works with every compiler version; the test suite uses it to prove that the checked-in
modules match the `.proto` files.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

GENERATOR_REQUIREMENT = "grpcio-tools==1.73.1"
SOURCE_ROOT = Path(__file__).resolve().parent.parent / "src"
PROTO_FILE = SOURCE_ROOT / "fluss" / "protocol" / "fluss_api.proto"
STAGED_PROTO_FILE = PROTO_FILE.with_name("staged_api.proto")
KV_RANGE_PROTO_FILE = PROTO_FILE.with_name("kv_range_api.proto")
PROTO_FILES = (PROTO_FILE, STAGED_PROTO_FILE, KV_RANGE_PROTO_FILE)


def generator_command() -> list[str]:
    """The protoc command that generates code for the oldest runtime that we allow."""
    wanted = GENERATOR_REQUIREMENT.partition("==")[2]
    try:
        installed = importlib.metadata.version("grpcio-tools")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    if installed == wanted:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    return [
        *("uv", "run", "--quiet", "--no-project", "--isolated"),
        *("--with", GENERATOR_REQUIREMENT, "--with", "setuptools"),
        *("python", "-m", "grpc_tools.protoc"),
    ]


def generate(output_root: Path = SOURCE_ROOT) -> None:
    """Write the module and the stub of each `.proto` file below `output_root`."""
    options = [f"--proto_path={SOURCE_ROOT}", f"--python_out={output_root}", f"--pyi_out={output_root}"]
    subprocess.run([*generator_command(), *options, *map(str, PROTO_FILES)], check=True)


def compiled_descriptor(proto_file: Path = PROTO_FILE) -> bytes:
    """The file descriptor set of a `.proto` file, compiled now by the installed compiler."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "descriptor.bin"
        options = [f"--proto_path={SOURCE_ROOT}", f"--descriptor_set_out={target}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, str(proto_file)], check=True)
        return target.read_bytes()


if __name__ == "__main__":
    generate()
    for proto_file in PROTO_FILES:
        print(f"generated from {proto_file.relative_to(SOURCE_ROOT.parent)}")
