"""Words that this house no longer uses: they slowed every reader, or meant a thing that has another name.

The glossary has the words that are used instead; what is said here is only what to write in place of each.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.repository import ROOT, files, name

# What is looked for -> what to write. Written so that no pattern finds itself here.
REPLACED = {
    r"\bane[w]\b": "again, or a verb with re-",
    r"\ba tex[t]\b": "a string",
    r"\btexts? to text[s]\b": "a dict of str to str",
    r"tiere[r]": "tiering service",
    r"upkee[p]": "maintenance",
    # Also a user without permissions, in backticks or quotes.
    r"(?<![`\"'])(?<!\| )\bnobod[y]\b": "no one, or name who does not",
    r"\bsomebod[y]\b": "name who: a client, another process, the user",
    r"\bwhoeve[r]\b": "name who: the caller, a reader, the owner",
    r"\bis conten[t]\b|\bare conten[t]\b": "passes, accepts",
    r"\bsuch one[s]\b": "those",
    r"\b[Ss]ee the module tex[t]\b": "nothing, or see the module docstring",
    r"\bagain and agai[n]\b": "repeatedly",
    r"\bis none; as[k]\b": "is invalid",
}
# "content" and "text" are also nouns of pages and of columns: only the phrases above are kept out.
OLD_WORDS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in REPLACED.items()}

WRITTEN = [*files(".py"), *files(".md"), *files(".java"), *files(".toml"), *files(".proto")]


def old_words(path: Path) -> list[str]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, instead in OLD_WORDS.items():
            match = pattern.search(line)
            if match:
                found.append(f"{name(path)}:{number} has {match.group(0)!r}; write: {instead}")
    return found


def test_old_words_stay_out() -> None:
    assert [offence for path in WRITTEN for offence in old_words(path)] == []


def test_no_file_is_named_by_an_old_word() -> None:
    names = [str(path.relative_to(ROOT)).replace("_", " ") for path in WRITTEN]
    assert [each for each in names if any(pattern.search(each) for pattern in OLD_WORDS)] == []
