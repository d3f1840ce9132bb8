"""Streaming tables for Python and Spark.

This package is called ``fluss`` as in the documentation of Apache Fluss; the published client pyfluss has the same
import name, so the two need environments of their own.
"""

from __future__ import annotations

import os as _os
import sys as _sys
import warnings as _warnings
from collections.abc import Mapping as _Mapping
from typing import TYPE_CHECKING as _TYPE_CHECKING

from fluss.errors import ErrorCode, FlussError

if _TYPE_CHECKING:
    from fluss.server.embedded import EmbeddedCluster

__all__ = ["ErrorCode", "FlussError", "__version__", "embedded"]

__version__ = "0.1.0"

DISTRIBUTION = "flusspy"


def embedded(
    directory: str | _os.PathLike[str],
    *,
    tablets: int = 1,
    config: _Mapping[str, str] | None = None,
    bind: str = "127.0.0.1:0",
) -> EmbeddedCluster:
    """Start a durable server inside this program and return it; leaving its ``with`` block stops it.

    ``config`` takes the options of a ``server.yaml``. The default takes a free port on the loopback interface::

        with fluss.embedded("my-data") as cluster:
            print(cluster.bootstrap_servers)
    """
    from fluss.server.embedded import start_embedded

    return start_embedded(directory, tablets=tablets, config=config, bind=bind)


def _warn_if_pyfluss_is_installed() -> None:
    """Looks for its metadata by file name only: asking ``importlib.metadata`` would double the import time."""
    for folder in _sys.path:
        try:
            names = _os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.startswith("pyfluss-") and name.endswith(".dist-info") for name in names):
            _warnings.warn(
                "pyfluss and flusspy are installed in the same environment and both own the package name 'fluss': "
                "one overwrites files of the other. Give each an environment of its own, "
                "or run: pip uninstall pyfluss && pip install --force-reinstall flusspy",
                RuntimeWarning,
                stacklevel=3,
            )
            return


_warn_if_pyfluss_is_installed()
