"""The Java sources: javac compiles them without a warning, and their classes work without a Spark session.

A session compiles them with Janino, which checks no types that are in angle brackets and makes no bridge methods. So
javac checks the types, and the tests (`classes/*Test.java`) run on the classes of both compilers.

Spark's jars come with PySpark; a JDK is needed only here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from fluss.spark.java.java_classes import SOURCES

pytestmark = pytest.mark.gate

RELEASE = "17"
"""The oldest Java that Spark runs on."""
LINT = "-Xlint:all,-path,-classfile"
"""All but two about the jars of Spark, which refer to jars and annotations that Spark does not include."""
JDK_SECONDS = 120.0
JARS = Path(pyspark.__file__).parent / "jars" / "*"
TESTS = sorted(Path(__file__).with_name("classes").glob("*.java"))
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED")
COMPILERS = ("javac", "janino")
NAMES = [
    f"{path.stem}.{method}"
    for path in TESTS
    if path.stem.endswith("Test")
    for method in re.findall(r"^    void (test\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
]


def javac() -> Path | None:
    """The compiler of a JDK: that of `JAVA_HOME`, or else the one on the PATH; None if there is no JDK."""
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which("javac", path=str(Path(home) / "bin"))) or shutil.which("javac")
    return Path(found).resolve() if found else None


@pytest.fixture(scope="module")
def jdk() -> Path:
    """The folder with the programs of a JDK."""
    program = javac()
    if program is None:
        pytest.skip("no JDK: neither JAVA_HOME nor the PATH has javac")
    version = run(program, "-version").stdout
    if int(re.findall(r"\d+", version)[0]) < int(RELEASE):
        pytest.skip(f"the JDK is too old for Spark: {version.strip()}, needs {RELEASE}")
    return program.parent


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=JDK_SECONDS
    )


@pytest.fixture(scope="module")
def compiled(jdk: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """What javac printed, the folder of our classes, and that of their tests."""
    folder = tmp_path_factory.mktemp("java")
    ours, tests = folder / "javac", folder / "tests"
    flags = ["--release", RELEASE, LINT, "-Werror", "-proc:none", "-encoding", "UTF-8", "-cp", str(JARS)]
    printed = run(jdk / "javac", *flags, "-d", ours, *SOURCES, *TESTS).stdout
    names = {path.stem for path in TESTS}
    (tests / "flusspy" / "spark").mkdir(parents=True)
    for path in ours.rglob("*.class"):
        if re.split(r"[.$]", path.name)[0] in names:
            path.rename(tests / path.relative_to(ours))
    return printed, ours, tests


@pytest.fixture(scope="module", params=COMPILERS)
def outcomes(request: pytest.FixtureRequest, jdk: Path, compiled: tuple[str, Path, Path]) -> dict[str, str]:
    """The stack trace of every test that failed on the classes of a compiler, an empty string for the others."""
    _, ours, tests = compiled
    result = tests.parent / f"{request.param}.json"
    arguments: list[str | Path] = [result, *dict.fromkeys(name.partition(".")[0] for name in NAMES)]
    if request.param == "janino":
        ours = tests.parent / "janino"
        ours.mkdir()
        arguments += ["--janino", ours, *SOURCES]
    path = os.pathsep.join(map(str, (ours, tests, JARS)))
    done = run(jdk / "java", *JAVA_OPTIONS, "-cp", path, "flusspy.spark.RunTests", *arguments)
    assert done.returncode == 0, done.stdout
    found: dict[str, str] = json.loads(result.read_text(encoding="utf-8"))
    return found


def test_javac_has_nothing_to_say(compiled: tuple[str, Path, Path]) -> None:
    printed, _, _ = compiled
    assert printed == ""


@pytest.mark.parametrize("name", NAMES)
def test_classes(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == "", outcomes[name]


def test_every_test_of_the_classes_is_named_here(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == sorted(NAMES)


def test_every_source_is_compiled() -> None:
    assert sorted(SOURCES) == sorted(SOURCES[0].parent.glob("*.java"))
