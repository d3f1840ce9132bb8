"""A pytest plug-in: Java machines of Spark take their classes from the archive of `spark_classes`, if it is there."""

from __future__ import annotations

import os

import pytest

from tools.peers.cache import peers_folder
from tools.peers.spark_classes import ARCHIVE, HOME_VARIABLE, OPTIONS_VARIABLE, QUIET, archive_name, spark_home


def pytest_configure(config: pytest.Config) -> None:
    """The process that was started decides; those that run tests for it inherit the variables."""
    if hasattr(config, "workerinput") or HOME_VARIABLE in os.environ or OPTIONS_VARIABLE in os.environ:
        return
    home = spark_home()
    archive = peers_folder() / archive_name(home) / ARCHIVE
    os.environ[HOME_VARIABLE] = str(home)
    os.environ[OPTIONS_VARIABLE] = f"-XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}"
