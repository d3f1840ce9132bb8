"""The API reference (document 002) as rows: which class, which name, which parameters.

Its tables have lost their columns and their titles: a row is a line that ends with a bar, followed by lines with its
description. The order of the tables tells whose methods they list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.docs.documents import document_or_none

# Tables in the order of the document. None: not a list of members, checked by tests of their own.
OWNERS: tuple[str | None, ...] = (
    "Config", "FlussConnection", "FlussAdmin", "ServerNode", "FlussTable", "TableScan", "TableAppend", "TableUpsert",
    "TableLookup", "AppendWriter", "UpsertWriter", "WriteResultHandle", "Lookuper", "LogScanner", "ScanRecords", None,
    "ScanRecords", "ScanRecord", "RecordBatch", "Schema", "TableDescriptor", "TablePath", "TableInfo", "PartitionInfo",
    "DatabaseDescriptor", "DatabaseInfo", "LakeSnapshot", "TableBucket", "FlussError", "constants", "OffsetSpec",
    "ChangeType",
)  # fmt: skip

_HEADER = re.compile(r"^\| (Method|Property|Expression|Constant|Value)\b")
_MEMBER = re.compile(
    r"^(?P<wait>await )?(?:\w+\.|\.)?(?P<name>\w+)(?P<call>\((?P<parameters>.*?)\))?"
    r"(?: -> .+?)?(?: \(\d\))? \|$"
)


@dataclass(frozen=True)
class Member:
    """One row: a method, a property or a constant."""

    owner: str
    name: str
    parameters: str | None
    is_awaited: bool

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"


def tables(text: str) -> list[list[str]]:
    """The first cells of all tables."""
    found: list[list[str]] = []
    in_code = False
    for line in text.splitlines():
        if _HEADER.match(line):
            found.append([])
            in_code = False
        elif line.startswith("scan_records = "):
            in_code = True  # an example between two tables
        elif found and not in_code and line.endswith(" |") and _is_first_cell(line, found[-1]):
            found[-1].append(line)
    return found


def _is_first_cell(line: str, rows: list[str]) -> bool:
    """Other cells that end with a bar: configuration keys, headings, numbers and signs of changes."""
    if line in ("Config Key |", "Description |", "Returns |", "Short String |", "Value |", "|"):
        return False
    return not re.fullmatch(r"[a-z-]+(\.[a-z-]+)+ \||(connect|request)-timeout \||-?\d+ \||[+-][AIUD] \|", line)


def members() -> list[Member]:
    """All rows of the reference; empty when the document is not there."""
    text = document_or_none("002")
    if text is None:
        return []
    found = []
    for owner, rows in zip(OWNERS, tables(text), strict=True):
        for row in rows if owner is not None else ():
            match = _MEMBER.match(row)
            if match is not None:
                parameters = match["parameters"] if match["call"] else None
                found.append(Member(str(owner), match["name"], parameters, bool(match["wait"])))
    return list(dict.fromkeys(found))
