"""Runs the commands of the README on clean machines: `python3 dev.py fresh`, as root on Debian.

Each release of Debian has a root directory made with debootstrap, with Python, venv and git and nothing else that we
use: no Java, no Maven, no compiler. The commands run in a copy of that directory, in a fresh clone of HEAD, by a user
who is not root, in a folder with a space and a non-ASCII letter, with a umask that hides files from others, in a time
zone whose offset is not a whole number of hours.

apt and pip are used as this machine is configured to use them: mirror, proxies, certificates, files and variables.
Mounts and processes of a run are in namespaces of their own, so that none of them remains, however the run ends.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.environment import ROOT
from tools.peers.cache import make_once, peers_folder

RELEASES = ("bookworm", "trixie", "forky")  # Python 3.11, 3.13, 3.14
RUNS = ("demo", "test --fast")
WHOLE_GATE_ON = "trixie"
PACKAGES = ("python3", "python3-venv", "git", "ca-certificates", "tzdata")
PROGRAMS = ("debootstrap", "apt-config", "unshare", "chroot", "git")
COMMAND_MINUTES = 60
LAST_LINES = 30

USER, USER_ID = "tester", 4711
FOLDER = Path("home", USER, "mein Übungsplatz")
SURROUNDINGS = {
    "HOME": f"/home/{USER}",
    "USER": USER,
    "LOGNAME": USER,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "Asia/Kathmandu",
}
# How this machine reaches packages; a folder of wheels does not exist in the new root.
PASSED_ON = re.compile(r"PIP_(?!FIND_LINKS|CONFIG_FILE)\w+|UV_\w*INDEX\w*|SSL_CERT_\w+|(?i:\w+_proxy)")
# Files that pytest (of its last three runs), Java and uv always leave behind.
USUAL_LEFTOVERS = re.compile(r"pytest-of-.*|hsperfdata_.*|uv-.*\.lock")
DEBOOTSTRAP_SCRIPTS = Path("/usr/share/debootstrap/scripts")
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
# The first process of the namespace is a shell that waits: it also reaps processes that lost their parent.
INSIDE = """
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs -o mode=1777 shm "$1/dev/shm" || exit 125
root=$1 user=$2; shift 2
chroot --userspec="$user:$user" "$root" "$@"
code=$?
# A Java process that is exiting still removes its files; processes that run longer end with the namespace.
for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    set -- "$root"/proc/[0-9]*
    [ $# -gt 1 ] || break
    sleep 1
done
exit $code
"""


@dataclass(frozen=True)
class Outcome:
    """The result of one command on one release; a line of the table at the end."""

    release: str
    python: str
    command: str
    seconds: float
    code: int
    left_behind: tuple[str, ...]
    log: Path

    @property
    def is_good(self) -> bool:
        return self.code == 0 and not self.left_behind

    def __str__(self) -> str:
        result = "ok" if self.code == 0 else f"FAILED with code {self.code}, see {self.log}"
        if self.left_behind:
            result += f"; LEFT in /tmp: {', '.join(self.left_behind)}"
        return f"{self.release:10}{self.python:10}{self.command:22.22}{self.seconds:8.0f} s  {result}"


def main(arguments: list[str]) -> int:
    """Run commands in clean roots; return 0 if all succeeded and left nothing behind."""
    parser = argparse.ArgumentParser(prog="dev.py fresh", description=__doc__.splitlines()[0])
    parser.add_argument(
        "releases", nargs="*", metavar="RELEASE", help=f"releases of Debian (default: {' '.join(RELEASES)})"
    )
    parser.add_argument("--run", action="append", metavar="COMMAND", help="a command of dev.py; may be repeated")
    options = parser.parse_args(arguments)
    _fail_unless_possible()
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout:
        print("fresh: there are changes that are not committed; the clones do not have them", flush=True)
    outcomes: list[Outcome] = []
    for release in options.releases or RELEASES:
        runs = options.run or [*RUNS, *(["test"] if release == WHOLE_GATE_ON else [])]
        for outcome in _run_in(release, runs):
            outcomes.append(outcome)
            print(outcome, flush=True)
            if outcome.code != 0:
                print("\n".join(outcome.log.read_text(errors="replace").splitlines()[-LAST_LINES:]), flush=True)
    print("\nrelease   Python    command                    time  result")
    print("\n".join(str(outcome) for outcome in outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def _fail_unless_possible() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if sys.platform != "linux" or os.geteuid() != 0 or missing:
        needs = "root on Debian, and " + ", ".join(PROGRAMS)
        raise SystemExit(f"dev.py fresh needs {needs}. Missing here: {', '.join(missing) or 'root'}")


def _run_in(release: str, runs: list[str]) -> Iterator[Outcome]:
    """Run each command in one clone: the first one creates the environment."""
    print(f"fresh: a clean root of {release}", flush=True)
    base = make_once(f"root-{release}", lambda folder: _debootstrap(release, folder), "usr/bin/python3")
    root = peers_folder() / f"run-{release}"
    shutil.rmtree(root, ignore_errors=True)
    try:
        subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
        surroundings = _settle(root)
        version = _chrooted(root, surroundings, "python3", "-c", "import platform; print(platform.python_version())")
        python = subprocess.run(version, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        for number, run in enumerate(runs):
            print(f"fresh: {release}, Python {python}: python3 dev.py {run}", flush=True)
            yield _outcome(root, surroundings, release, python, run, number)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _outcome(root: Path, surroundings: Mapping[str, str], release: str, python: str, run: str, number: int) -> Outcome:
    log = ROOT / "build" / "fresh" / f"{release}-{number}-{run.split()[0]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    before = set(os.listdir(root / "tmp"))
    script = f"umask 077 && cd {shlex.quote(f'/{FOLDER}/flusspy')} && exec python3 dev.py {run}"
    start = time.monotonic()
    with log.open("wb") as stream:
        command = _chrooted(root, surroundings, "sh", "-c", script)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            code = process.wait(COMMAND_MINUTES * 60)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            process.kill()  # and everything in its namespaces
            process.wait()
    left = set(os.listdir(root / "tmp")) - before
    left_behind = sorted(name for name in left if not USUAL_LEFTOVERS.fullmatch(name))
    return Outcome(release, python, run, time.monotonic() - start, code, tuple(left_behind), log)


def _chrooted(root: Path, surroundings: Mapping[str, str], *command: str) -> list[str]:
    names = ["env", "-i", *(f"{key}={value}" for key, value in surroundings.items())]
    inside = ["sh", "-c", INSIDE, "sh", str(root), str(USER_ID), *names, *command]
    return ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", *inside]


# ---- creating a root ----


def _debootstrap(release: str, folder: Path) -> None:
    script = DEBOOTSTRAP_SCRIPTS / release
    if not script.exists():  # a release newer than this machine's debootstrap
        script = DEBOOTSTRAP_SCRIPTS / "sid"
    log = ROOT / "build" / "fresh" / f"{release}-debootstrap.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", "--include=" + ",".join(PACKAGES)]
    with log.open("wb") as stream:
        command = ["debootstrap", *options, release, str(folder), _mirror(), str(script)]
        done = subprocess.run(command, stdout=stream, stderr=stream, env={**os.environ, **_proxies()})
    if done.returncode != 0:
        raise SystemExit(f"dev.py fresh: debootstrap could not create {release}, see {log}")


def _mirror() -> str:
    """The address from which apt of this machine fetches packages."""
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    codename = dict(re.findall(r"^(\w+)=\"?(.*?)\"?$", release, re.MULTILINE)).get("VERSION_CODENAME", "")
    for path in sorted([Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]):
        text = path.read_text(encoding="utf-8") if path.suffix in (".list", ".sources") and path.exists() else ""
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", stanza, re.MULTILINE))
            if codename in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split():
                return str(fields["URIs"].split()[0])
        for uri, suite, components in re.findall(r"^deb\s+(?:\[.*?\]\s+)?(\S+)\s+(\S+)\s+(.*)$", text, re.MULTILINE):
            if suite == codename and "main" in components.split():
                return str(uri)
    raise SystemExit("dev.py fresh needs Debian: /etc/apt has no mirror for the release of this machine")


def _proxies() -> dict[str, str]:
    """The proxies of apt, for debootstrap, which fetches with another program."""
    names = ["http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"]
    told = subprocess.run(["apt-config", "shell", *names], capture_output=True, text=True).stdout
    return dict(re.findall(r"^(\w+)='(.+)'$", told, re.MULTILINE))


def _settle(root: Path) -> dict[str, str]:
    """Create a user with a clone of HEAD and this machine's package settings; return the variables for commands."""
    entries = {"passwd": f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/sh\n", "group": f"{USER}:x:{USER_ID}:\n"}
    for file, entry in entries.items():
        with (root / "etc" / file).open("a") as lines:
            lines.write(entry)
    for path in (CERTIFICATES, Path("etc/hosts"), Path("etc/resolv.conf"), Path("etc/pip.conf")):
        if Path("/", path).exists():
            (root / path).unlink(missing_ok=True)
            shutil.copyfile(Path("/", path), root / path)
    home = root / "home" / USER
    for given in (os.environ.get("PIP_CONFIG_FILE", ""), "~/.config/pip/pip.conf", "~/.pip/pip.conf"):
        if given and Path(given).expanduser().is_file():
            (home / ".config/pip").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(given).expanduser(), home / ".config/pip/pip.conf")
            break
    clone = root / FOLDER / "flusspy"
    clone.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    if (ROOT.parent / "shared").is_dir():
        shutil.copytree(ROOT.parent / "shared", clone.parent / "shared")
    subprocess.run(["chown", "-R", f"{USER_ID}:{USER_ID}", str(home)], check=True)
    return {**SURROUNDINGS, **{key: value for key, value in os.environ.items() if PASSED_ON.fullmatch(key)}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
