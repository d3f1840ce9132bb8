"""`fluss.spark.session()`: a Spark session for tables of a cluster, on a machine without any set-up.

Before the Java process starts, the function finds a Java (`fluss.spark.java.java_runtime`), tells Spark to run its
workers with this Python, and gives Spark a home without a zipped copy of PySpark, from which workers would start
slowly. After the start it loads the Java classes with which reads push filters down and leave columns out
(`fluss.spark.java.java_classes`). Settings that a user gives win over the defaults here; existing environment variables
are left alone.

If the environment has `SPARK_REMOTE`, the session is one of Spark Connect, as in PySpark itself: the Java process is
that of a server, and only the settings of the session can be changed.
"""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.spark.java.java_classes import load_if_possible
from fluss.spark.java.java_runtime import check_spark_version, prepare_environment
from fluss.spark.options.session_options import SESSION_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_APP_NAME = "fluss"
DEFAULT_MASTER = "local[*]"
REMOTE_VARIABLE = "SPARK_REMOTE"
REMOTE_SETTING = "spark.remote"
MIN_HEAP_MIB, MAX_HEAP_MIB = 1024, 8192

# lz4 for Arrow (spark.sql.execution.arrow.compression.codec) is deliberately not set: it makes the transfer of rows to
# Python hundreds of times slower.
DEFAULT_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.timeType.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# For rows between Java and Python: 20 to 33 percent more per second than over loopback.
if hasattr(socket, "AF_UNIX"):
    DEFAULT_SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"


def session(
    app_name: str = DEFAULT_APP_NAME, master: str | None = None, config: Mapping[str, object] | None = None
) -> SparkSession:
    """Return a Spark session for tables, or the existing session::

        spark = fluss.spark.session(config={"spark.sql.fluss.bootstrap.servers": "localhost:9123"})
        spark.read.format("fluss").load("shop.orders").show()

    `config` are Spark settings; `spark.sql.fluss.*` are defaults for the options of `format("fluss")`. Without
    `master`, Spark runs on this machine's cores, or the session is the one of Spark Connect that the variable
    `SPARK_REMOTE` or the setting `spark.remote` names. An existing session is returned with those settings of `config`
    changed that can still change; a warning names those that cannot.
    """
    settings = {key: _as_string(value) for key, value in (config or {}).items()}
    check_spark_version()
    existing = _existing_session()
    if existing is not None:
        _apply(existing, settings, master)
        load_if_possible(existing)
        return existing
    remote = settings.pop(REMOTE_SETTING, None) or os.environ.get(REMOTE_VARIABLE)
    if remote:
        return _connect_session(remote, app_name, master, settings)
    from pyspark.sql import SparkSession

    submitted = _submitted_settings()
    said_master = settings.get("spark.master") or submitted.get("spark.master") or os.environ.get("MASTER")
    chosen_master = settings["spark.master"] = master or said_master or DEFAULT_MASTER
    prepare_environment(settings)
    _export_options(settings)
    _forget_earlier_options()
    if app_name != DEFAULT_APP_NAME or "spark.app.name" not in submitted:
        settings["spark.app.name"] = app_name
    defaults = {**DEFAULT_SETTINGS, **_local_settings(chosen_master)}
    builder: Any = SparkSession.builder
    for key, value in {**defaults, **submitted, **settings}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    load_if_possible(spark)
    return spark


def _connect_session(remote: str, app_name: str, master: str | None, settings: dict[str, str]) -> SparkSession:
    """A session of Spark Connect: on a running server, or with `local` on one that PySpark starts in this process."""
    from pyspark.sql import SparkSession

    address = remote.partition(";")[0]  # a token may follow
    master = master or settings.get("spark.master")
    if master is not None:
        raise FlussError(
            f"the session uses Spark Connect at {address} ({REMOTE_VARIABLE} or {REMOTE_SETTING}), whose server "
            f"already has a master, but master={master} was given too: leave one of them out"
        )
    _export_options(settings)
    builder: Any = SparkSession.builder.remote(remote)
    if remote.startswith("local"):
        prepare_environment(settings)
        wanted = {"spark.app.name": app_name, **DEFAULT_SETTINGS, **_local_settings(remote), **settings}
        for key, value in wanted.items():
            builder = builder.config(key, value)
        return cast("SparkSession", builder.getOrCreate())
    spark: SparkSession = builder.getOrCreate()
    defaults = {key: value for key, value in DEFAULT_SETTINGS.items() if key.startswith("spark.sql.")}
    name = {} if app_name == DEFAULT_APP_NAME else {"spark.app.name": app_name}
    late = _change(spark, {**defaults, **name, **settings})
    if late:
        warnings.warn(
            f"these settings have no effect, because the Spark Connect server at {address} is already running: "
            f"{', '.join(late)}. Give them to the server",
            RuntimeWarning,
            stacklevel=3,
        )
    return spark


def _forget_earlier_options() -> None:
    """Remove options of an earlier session: Java outlives a session and keeps the settings that it was started with."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if jvm is None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    for key in list(jvm.java.lang.System.getProperties().stringPropertyNames()):
        if key.lower().startswith(SESSION_PREFIX):
            jvm.java.lang.System.clearProperty(key)


def _submitted_settings() -> dict[str, str]:
    """The settings given to `spark-submit` or `pyspark`: they win over our defaults, as `config` does."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to the Java process that is already running
    return dict(SparkConf().getAll())


def _as_string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _existing_session() -> SparkSession | None:
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        found = SparkSession._instantiatedSession if _context_runs() else None
    return found


def _context_runs() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _apply(spark: SparkSession, settings: Mapping[str, str], master: str | None) -> None:
    """Change what can be changed in a running session, and warn about what cannot."""
    late = [f"master={master}"] if master is not None and spark.conf.get("spark.master", None) != master else []
    late += _change(spark, settings)
    if late:
        warnings.warn(
            f"a Spark session is already running, so these settings have no effect: {', '.join(late)}. "
            "Stop it first (spark.stop()), or call fluss.spark.session() before any other session is made",
            RuntimeWarning,
            stacklevel=3,
        )


def _change(spark: SparkSession, settings: Mapping[str, str]) -> list[str]:
    """Change the settings of a session; return those that differ and can no longer be changed."""
    late = []
    for key, value in settings.items():
        if spark.conf.get(key, None) == value:
            continue
        if key.startswith(SESSION_PREFIX) or (key.startswith("spark.sql.") and spark.conf.isModifiable(key)):
            spark.conf.set(key, value)
        else:
            late.append(f"{key}={value}")
    return late


def _export_options(settings: Mapping[str, str]) -> None:
    """Pass options of the session to the source's processes, which inherit the environment through Java."""
    with import_lock:
        from fluss.spark.options.session_options import SESSION_OPTIONS_VARIABLE, session_options

    options = session_options(settings)
    if options:
        os.environ[SESSION_OPTIONS_VARIABLE] = json.dumps(options)
    else:
        os.environ.pop(SESSION_OPTIONS_VARIABLE, None)


def _local_settings(master: str) -> dict[str, str]:
    """Settings for Spark on this machine alone: a heap in proportion to its memory, and one shuffle task per core.

    Spark's default of 200 shuffle partitions turns every small aggregation, even each micro-batch, into 200 tasks.
    """
    if not master.startswith("local"):
        return {}
    return {"spark.driver.memory": f"{_heap_mib()}m", "spark.sql.shuffle.partitions": str(local_cores(master))}


def local_cores(master: str) -> int:
    """The number of cores of a `local`, `local[n]` or `local[*]` master.

    >>> local_cores("local[3]")
    3
    """
    inside = master.partition("[")[2].partition("]")[0].split(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    if inside and not inside.isdecimal():
        raise FlussError(f"master must be local, local[n] or local[*], got {master!r}")
    return int(inside or 1)


def _heap_mib() -> int:
    """The size of Spark's heap: a quarter of the memory of the machine, within bounds."""
    try:
        total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, ValueError, OSError):  # not available on every system
        return MIN_HEAP_MIB
    return max(MIN_HEAP_MIB, min(MAX_HEAP_MIB, total_mib // 4))
