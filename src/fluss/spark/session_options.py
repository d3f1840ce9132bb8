"""Options that a Spark session has for all tables: `spark.sql.fluss.<option>`.

Spark does not hand its settings to the processes of Python sources. `fluss.spark.session` puts those that it is given
into an environment variable, which Java and the processes that it starts inherit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

SESSION_PREFIX = "spark.sql.fluss."
SESSION_OPTIONS_VARIABLE = "FLUSS_SPARK_SESSION_OPTIONS"


def session_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The connector's options among Spark settings, without their prefix.

    >>> session_options({"spark.sql.fluss.bootstrap.servers": "localhost:9123", "spark.ui.enabled": "false"})
    {'bootstrap.servers': 'localhost:9123'}
    """
    return {
        key[len(SESSION_PREFIX) :].lower(): value
        for key, value in settings.items()
        if key.lower().startswith(SESSION_PREFIX)
    }


def inherited_options() -> dict[str, str]:
    """What `fluss.spark.session` left for this process."""
    text = os.environ.get(SESSION_OPTIONS_VARIABLE)
    return {str(key): str(value) for key, value in json.loads(text).items()} if text else {}
