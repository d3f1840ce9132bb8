"""An empty environment in which nothing is installed but our wheel and what it asks for, as a user has it after pip.

The wheel is built and installed for real. Its dependencies are those that its metadata names, with the extras that were
asked for; they are links to the packages of the environment that runs the tests, so that nothing is fetched. What the
metadata forgets is therefore missing, which is the point.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from packaging.requirements import Requirement

from tools.environment import ROOT
from tools.waiting import patience

OWN_NAME = "flusspy"
STEP_SECONDS = patience(120.0)


class WheelEnvironment:
    """A virtual environment in a folder; `install` takes what stands behind `pip install` in a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "env"
        self.programs = self.folder / "bin"
        self.python = self.programs / "python"
        self._wheels = folder / "wheels"
        self._installed: set[tuple[str, str]] = set()
        sources = folder / "sources"  # setuptools leaves files beside them
        shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, sources)
        _uv("venv", "--python", sys.executable, str(self.folder))
        ours = ["--offline", "--no-build-isolation", "--python", sys.executable]
        _uv("build", "--wheel", *ours, "--out-dir", str(self._wheels), str(sources))
        (self._packages,) = self.folder.glob("lib/python*/site-packages")

    def variables(self) -> dict[str, str]:
        """What programs in it see: as after `activate`, and nothing of the checkout."""
        passed = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        path = os.pathsep.join([str(self.programs), os.environ.get("PATH", os.defpath)])
        return {**passed, "VIRTUAL_ENV": str(self.folder), "PATH": path}

    def install(self, *requirements: str) -> None:
        """`.` is the clone, `.[spark]` the clone with an extra, everything else a package of our environment."""
        for text in requirements:
            self._install(Requirement(OWN_NAME + text[1:] if text.startswith(".") else text))

    def _install(self, requirement: Requirement) -> None:
        name = requirement.name.lower().replace("_", "-")
        for extra in ("", *requirement.extras):
            if (name, extra) in self._installed:
                continue
            self._installed.add((name, extra))
            if extra == "":
                self._put(name)
            for line in importlib.metadata.requires(name) or []:
                wanted = Requirement(line)
                if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                    self._install(wanted)

    def _put(self, name: str) -> None:
        if name == OWN_NAME:
            (wheel,) = self._wheels.glob("*.whl")
            _uv("pip", "install", "--offline", "--no-deps", "--python", str(self.python), str(wheel))
            return
        source = Path(sysconfig.get_path("purelib"))
        files = importlib.metadata.files(name) or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (self._packages / top).exists():
                (self._packages / top).symlink_to(source / top)


def _uv(*arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS)
    assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"
