"""A pytest plug-in: which tests run when. Every test is in one lane, and each lane runs with those before it.

    fast   unit, tidy, codec, the contract on the embedded server: while one works
    gate   every feature once, on our own server: what every landing passes
    all    also Apache Fluss, clusters, Connect, other Sparks, many rounds of kills: before an issue is resolved
    soak   hours

A mark on a test, class or module (`@pytest.mark.all`) decides; otherwise what runs on Apache Fluss is in `all`, and the
rest is where `FOLDERS` says. `python3 dev.py test [--fast | --all]` chooses by these marks.

Tests share servers and sessions by file, so those of a file stay in one process; those on Apache Fluss stay together
whatever their file, so that there is one such cluster, as do those of tests/tidy. So do those with the shared session
of Spark, in two groups of about the same length: a Java machine costs as much as a hundred tests, and one alone would
take longer than all the rest. Spark comes first and the many short ones last, so that every process has work until the
end.
"""

from __future__ import annotations

import os
import random

import pytest

LANES = ("fast", "gate", "all", "soak")
FOLDERS = {
    "unit": "fast",
    "tidy": "fast",
    "contract": "gate",
    "bench": "gate",
    "compat": "gate",
    "devtools": "gate",
    "docs": "gate",
    "fuzz": "gate",
    "golden": "gate",
    "history": "gate",
    "integration": "gate",
    "lake": "gate",
    "process": "gate",
    "recovery": "gate",
    "spark": "gate",
}
# The longest come first. Spark's must: Java calls back into Python through a server of py4j that uses `select`, which
# knows no descriptors above 1023, and later in a run a process has more (tests that play power cuts abandon files).
ORDER = ("spark", "recovery", "docs", "compat", "lake", "process", "devtools", "tidy", "contract", "integration")

APACHE, SPARK_TABLES, SPARK_STREAMS = SHARED_GROUPS = "Apache Fluss", "Spark tables", "Spark streams"
TIDY = "tidy"
"""They look at the same syntax trees of all files, which take longer to make than to look at."""
SHARED_SESSION = "spark"
# Files of tests/spark that start Java machines of their own, or none.
WITHOUT_SHARED_SESSION = (
    "batch_read_faults",
    "batch_read_keys",
    "batch_read_log",
    "batch_read_memory",
    "batch_write_keys",
    "batch_write_spooled",
    "cluster",
    "kill_rounds",
    "lake_model",
    "lake_read",
    "lake_stream",
    "light_processes",
    "stream_changes",
    "stream_leaks",
    "stream_loss",
    "stream_partitions",
    "stream_reader",
    "stream_write_staged",
    "tier_kill",
)

# How the names of files begin that belong to the second group with a session.
STREAMS = ("stream", "attach", "documents", "lake", "tier", "state", "cursor", "lookup", "golden", "binlog")

SEED_VARIABLE = "FLUSS_TEST_SEED"
LANE_VARIABLE = "FLUSS_TEST_LANE"


def seed() -> int:
    """The seed of this run: the same in all of its processes, said after a failure, given again to repeat it."""
    return int(os.environ[SEED_VARIABLE])


def rounds(*, gate: int, all_lanes: int, share_of_soak: float = 1.0) -> int:
    """How often a test of faults tries: in the gate once for every kind, more often in `all`."""
    wanted = os.environ.get("FLUSS_KILL_ROUNDS")
    if wanted is not None:
        return max(gate, int(int(wanted) * share_of_soak))
    return all_lanes if os.environ.get(LANE_VARIABLE) == "all" else gate


def examples(count: int) -> int:
    """How many inputs a property is tried with; fewer while one works and in the gate, which runs many times a day."""
    return max(5, count // 3) if os.environ.get(LANE_VARIABLE) in ("fast", "gate") else count


def is_on_apache(nodeid: str) -> bool:
    """Whether a test runs on Apache Fluss, by its name: all processes of a run must see it alike."""
    return "[apache" in nodeid or "-apache" in nodeid


def lane_of(item: pytest.Item) -> str:
    """The lane of a test; `pytest.UsageError` if it has none or several."""
    claims = {lane for lane in LANES if item.get_closest_marker(lane) is not None}
    if is_on_apache(item.nodeid) and "soak" not in claims:
        claims.add("all")
    if not claims:
        folder = _folder(item.nodeid)
        on_embedded = folder == "contract" and "embedded" in item.nodeid.partition("[")[2]
        claims = {"fast"} if on_embedded else {FOLDERS[folder]} if folder in FOLDERS else set()
    if len(claims) != 1:
        many = f"in two lanes: {sorted(claims)}" if claims else f"in no lane: name its folder in {__name__}, or mark it"
        raise pytest.UsageError(f"{item.nodeid} is {many}")
    return claims.pop()


def group_of(nodeid: str) -> str:
    """Tests of a group run in one process."""
    if is_on_apache(nodeid):
        return APACHE
    file = nodeid.partition("::")[0]
    if _folder(nodeid) == TIDY:
        return TIDY
    name = file.rpartition("/")[2].removeprefix("test_").removesuffix(".py")
    if _folder(nodeid) != "spark" or name in WITHOUT_SHARED_SESSION:
        return file
    return SPARK_STREAMS if name.startswith(STREAMS) else SPARK_TABLES


def _folder(nodeid: str) -> str:
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else ""


def _place(item: pytest.Item) -> int:
    folder = _folder(item.nodeid)
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def pytest_configure(config: pytest.Config) -> None:
    """The process that hands out tests draws the seed; the others inherit it."""
    os.environ.setdefault(SEED_VARIABLE, str(random.randrange(2**32)))


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test into its lane, and in order."""
    for item in items:
        item.add_marker(lane_of(item))
        if SHARED_SESSION in getattr(item, "fixturenames", ()) and group_of(item.nodeid) not in SHARED_GROUPS:
            raise pytest.UsageError(f"{item.nodeid} has the shared session of Spark, but {__name__} says it has not")
    items.sort(key=_place)  # stable: all else stays in order


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """As `--dist loadfile`, with groups instead of files."""
    from xdist.scheduler import LoadFileScheduling

    class LoadGroups(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return LoadGroups(config, log)
