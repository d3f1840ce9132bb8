"""Our Java classes for Spark: compiled from the Java files in this folder, kept in a jar, loaded into running sessions.

Spark includes a Java compiler (Janino), which compiles these files in a second or two. The jar is kept for later
programs, one per version of the sources and of Spark. The classes wrap Spark's own for Python sources and depend on its
internals, so they are loaded only into the minor versions in `TESTED_SPARK`.

With them, `format("fluss")` can do what Spark does not offer Python sources: columns that a query does not need are not
read, filters are pushed down, `count(*)` reads no rows where their number is known, batch reads are columnar, and rows
become Arrow batches faster when they are written. Without them results are the same, but every column and row is read:
Spark keeps the planned reader of a Python source with the DataFrame and reuses it for the next query, so a reader with
the filters of one query would answer another one wrongly. The reader accepts filters only if the Java side says that
the scan belongs to one query (`OWN_SCAN_OPTION`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss.errors import FlussError
from fluss.lazy_imports import import_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTED_SPARK = ("4.2", "4.3")
CATALOG_CLASS = "flusspy.spark.FlussCatalog"
SOURCE_CLASS = "flusspy.spark.FlussSource"
OWN_SCAN_OPTION = "__own_scan"
STORED_SCAN = "stored"
"""The value of `OWN_SCAN_OPTION` for a batch read with one more column, for messages as servers store them."""
COUNT_SCAN = "count"
"""The value of `OWN_SCAN_OPTION` for a scan that returns numbers of rows instead of rows."""
DECLARED_SCHEMA_OPTION = "__declared_schema"
"""The option with all columns of the DataFrame as JSON, possibly from `.schema(...)`; a query may need fewer."""
SOURCE_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
JAVA_TARGET = 8
"""The newest version of Java that Janino can compile for; calls of static interface methods need it."""
_NAMES = (
    "ArrowColumns",
    "ArrowWrites",
    "StoredBatches",
    "ColumnarReads",
    "PartitionValues",
    "QueryOptions",
    "FlussSource",
    "PythonCalls",
    "FlussTables",
    "FlussCatalog",
)
SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in _NAMES)
"""Each file uses only those before it: Janino compiles them one by one."""

_logger = logging.getLogger(__name__)


def is_tested(spark: SparkSession) -> bool:
    """True if the classes are tested with this version of Spark."""
    return ".".join(spark.version.split(".")[:2]) in TESTED_SPARK


def load_if_possible(spark: SparkSession) -> bool:
    """Load the classes into a classic session of a tested version. False for others, or after a failure (logged)."""
    from py4j.protocol import Py4JError

    if not hasattr(spark, "_jsparkSession") or not is_tested(spark):
        return False
    try:
        load(spark)
    except (FlussError, Py4JError, OSError) as error:
        _logger.warning("format('fluss') reads all columns and rows from the server, because %s", error)
        return False
    return True


def load(spark: SparkSession) -> None:
    """Compile the classes unless their jar exists, and make them visible to all threads of the session."""
    jvm: Any = spark._jvm
    before = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    spark.sql(f"ADD JAR '{_compiled_jar(spark)}'")
    # Spark finds sources with the class loader of the calling thread, and ADD JAR changed that of this thread only.
    # Each Python thread gets a Java thread, which inherits the loader of the thread that accepts connections.
    after = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for thread in jvm.java.lang.Thread.getAllStackTraces().keySet():
        loader = thread.getContextClassLoader()
        if loader is not None and loader.equals(before):
            thread.setContextClassLoader(after)


def _compiled_jar(spark: SparkSession) -> Path:
    """The jar of the classes for these sources and this version of Spark, compiled if it does not exist."""
    with import_lock:
        from fluss.spark.java.java_runtime import cache_folder

    sources = [path.read_text(encoding="utf-8") for path in SOURCES]
    digest = hashlib.sha256("".join(sources).encode()).hexdigest()[:16]
    jar = cache_folder("java", f"{spark.version} {digest}") / "fluss-spark.jar"
    if not jar.exists():
        _write_jar(jar, _compile(spark, sources))
    return jar


def _compile(spark: SparkSession, sources: Sequence[str]) -> dict[str, bytes]:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    classes: dict[str, bytes] = {}
    for source in sources:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.setTargetVersion(JAVA_TARGET)
        try:
            compiler.cook(source)
        except Py4JJavaError as error:
            reason = error.java_exception.getMessage()
            raise FlussError(f"the Java classes could not be compiled for Spark {spark.version}: {reason}") from None
        classes.update((name, bytes(code)) for name, code in dict(compiler.getBytecodes()).items())
        loader = compiler.getClassLoader()
    return classes


def _write_jar(jar: Path, classes: Mapping[str, bytes]) -> None:
    """Create the jar in one step, since several programs may do this at the same time."""
    handle, name = tempfile.mkstemp(dir=jar.parent)
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for class_name, code in classes.items():
            archive.writestr(class_name.replace(".", "/") + ".class", code)
        archive.writestr(SOURCE_SERVICE, SOURCE_CLASS + "\n")
    os.replace(name, jar)
