"""Write docs/configuration.md from the option table: `python -m tools.generate_configuration`."""

from __future__ import annotations

from pathlib import Path

from fluss.server.config.option import Option
from fluss.server.config.options import FAMILIES, OPTIONS

PATH = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

INTRODUCTION = """\
# Server options

For operators: every option of the server, its default, and whether it has an effect on one machine.

Generated from `src/fluss/server/config/options.py` by `python -m tools.generate_configuration`; a test checks it.

`fluss server` takes options from a YAML file (`--config server.yaml`), one by one (`-o NAME=VALUE`), and by its flags;
flags win over `-o`, which wins over the file. `fluss.embedded(DIR, config={...})` takes the same names. They are Apache
Fluss's names, so a `server.yaml` written for an Apache Fluss coordinator or tablet server starts this server.

- An option without effect on one machine is accepted; all of them share one warning line at start.
- An unknown option is an error that names the nearest known one.
- Durations are a whole number and a unit (`d`, `h`, `min`, `s`, `ms`); sizes a whole number and a unit (`b`, `kb`,
  `mb`, `gb`, `tb`, powers of 1024); booleans `true` or `false`.
- Nested maps in the file are the same as dotted names, lists the same as comma-separated strings.
- Values of options that hold secrets are never logged and never sent to clients.

## Options with effect

| option | type | default | meaning |
|---|---|---|---|
"""


def render() -> str:
    """Return the text of docs/configuration.md."""
    effective = [option for option in OPTIONS.values() if option.honoured]
    ignored = [option for option in OPTIONS.values() if not option.honoured]
    parts = [INTRODUCTION, *map(_row, effective)]
    parts += [f"| `{family.prefix}*` | | | {family.meaning} |\n" for family in FAMILIES if family.honoured]
    parts.append("\n(*) not an option of Apache Fluss\n")
    parts.append("\n## Options without effect here\n\n| option | why |\n|---|---|\n")
    parts += [f"| `{option.name}` | {option.meaning} |\n" for option in ignored]
    parts += [f"| `{family.prefix}*` | {family.meaning} |\n" for family in FAMILIES if not family.honoured]
    return "".join(parts)


def _row(option: Option) -> str:
    default = "" if option.default is None else f"`{option.default}`"
    mark = " (*)" if option.own else ""
    return f"| `{option.name}`{mark} | {option.kind.value} | {default} | {option.meaning} |\n"


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
