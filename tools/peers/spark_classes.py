"""An archive of classes for the Java processes of Spark, which otherwise read 300 jar files.

Two thirds of the processor time until a session of Spark answers go into finding, reading and checking classes. Java
can store them in the form that they have in memory (class data sharing). An archive is valid for one Java and for jar
files with the same path and time stamp, so tests have a Spark home of their own in the cache: hard links to the jar
files of PySpark, which all clones of this repository share.

`python -m tools.peers.spark_classes` creates the archive if it is missing: a small program loads the classes that tests
need, and Java writes them to a file when it ends. The lanes with Spark do that beside the tests (tools/testing.py). A
Java process that starts earlier, or rejects the archive, reads the jar files as usual.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tools.peers.cache import make_once

COPIED_FOLDERS = ("bin", "sbin", "jars")
OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
HOME_VARIABLE = "SPARK_HOME"
ARCHIVE = "classes.jsa"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Options of Java that keep complaints about an archive away from standard output."""
JAVA_SECONDS = 120.0


def spark_home() -> Path:
    """The Spark home in the cache, created on the first call: hard links to the jar files of PySpark."""
    import pyspark

    package = Path(pyspark.__file__).parent
    jars = sorted((jar.name, jar.stat().st_size) for jar in (package / "jars").iterdir())

    def make(folder: Path) -> None:
        for name in COPIED_FOLDERS:
            shutil.copytree(package / name, folder / name, copy_function=_link_or_copy)

    return make_once(f"spark-{pyspark.__version__}-{_digest(repr(jars))}", make)


def archive_name(home: Path) -> str:
    """The name of the cache folder for the classes of a Spark home and the Java of this machine."""
    from fluss.spark.java.java_runtime import find_java_home

    given = os.environ.get("JAVA_HOME")
    found = find_java_home()
    if given is not None:
        os.environ["JAVA_HOME"] = given  # the search for Java may remove it
    java = str(found / "bin" / "java") if found is not None else str(shutil.which("java"))
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS).stderr
    version = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("NOTE: Picked up"))
    return f"{home.name}-classes-{_digest(f'{java} {version}')}"


def make_archive() -> Path:
    """The path of the archive, which is created if it is missing."""
    home = spark_home()

    def make(folder: Path) -> None:
        made = folder / "unfinished.jsa"
        os.environ[HOME_VARIABLE] = str(home)
        os.environ[OPTIONS_VARIABLE] = f"-XX:ArchiveClassesAtExit={made} {QUIET}"
        _load_classes(folder / "work")
        shutil.rmtree(folder / "work")
        made.rename(folder / ARCHIVE)  # in one step, because other processes may open it at any moment

    return make_once(archive_name(home), make, proof=ARCHIVE) / ARCHIVE


def _load_classes(folder: Path) -> None:
    """Load classes by doing what most tests of Spark do: SQL, reads and writes in batches and in a stream."""
    from pyspark import SparkContext

    import fluss
    import fluss.spark

    with fluss.embedded(str(folder / "data")) as cluster:
        settings = {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.fluss.bootstrap.servers": cluster.bootstrap_servers,
        }
        spark = fluss.spark.session(app_name="classes", master="local[2]", config=settings)
        fluss.spark.catalog.register(spark, "fl", cluster.bootstrap_servers)
        spark.sql("CREATE DATABASE fl.db")
        spark.sql("CREATE TABLE fl.db.log (id BIGINT, name STRING, at TIMESTAMP) PARTITIONED BY (name)")
        spark.sql("CREATE TABLE fl.db.keyed (id BIGINT NOT NULL, n BIGINT) TBLPROPERTIES ('primary.key' = 'id')")
        spark.sql("INSERT INTO fl.db.log VALUES (1, 'a', current_timestamp()), (2, 'b', current_timestamp())")
        spark.sql("SELECT name, count(*), max(at) FROM fl.db.log WHERE id > 0 GROUP BY name ORDER BY name").collect()
        rows = spark.readStream.format("fluss").load("db.log").selectExpr("id", "length(name) n")
        writer = rows.writeStream.format("fluss").option("table", "db.keyed")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        spark.table("fl.db.keyed").join(spark.table("fl.db.log"), "id").toPandas()
        spark.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()  # then Java ends, and writes the archive
        gateway.proc.wait(JAVA_SECONDS)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    print(make_archive())
