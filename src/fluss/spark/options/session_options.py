"""Options that a Spark session sets for all tables: `spark.sql.fluss.<option>`.

Spark does not pass its settings to the processes of Python sources. `fluss.spark.session` puts the options that it gets
into an environment variable, which Java and the processes that it starts inherit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

SESSION_PREFIX = "spark.sql.fluss."
SESSION_OPTIONS_VARIABLE = "FLUSS_SPARK_SESSION_OPTIONS"
DEFAULTS_OPTION = "__defaults"
"""An option that our Java classes and functions set, not users: the names, separated by commas, of those options that
the session, a catalog or `fluss.spark.attach` gave as defaults."""


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


def over_defaults(defaults: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    """Merge the options of one read or write over the defaults, and list which are defaults; keys in lower case.

    >>> over_defaults({"limit": "5", "table": "a"}, {"table": "b"})
    {'limit': '5', 'table': 'b', '__defaults': 'limit'}
    """
    noted = said.get(DEFAULTS_OPTION, "").split(",")
    names = [*noted, *(key for key in defaults if key not in said and key != DEFAULTS_OPTION)]
    return {**defaults, **said, DEFAULTS_OPTION: ",".join(filter(None, names))}


def inherited_options() -> dict[str, str]:
    """The options that `fluss.spark.session` has put into the environment that this process inherited."""
    text = os.environ.get(SESSION_OPTIONS_VARIABLE)
    return {str(key): str(value) for key, value in json.loads(text).items()} if text else {}
