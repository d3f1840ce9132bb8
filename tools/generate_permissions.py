"""Write the matrix of permissions into docs/security.md: `python -m tools.generate_permissions`.

`tests/integration/test_permission_matrix.py` checks the matrix against a server.
"""

from __future__ import annotations

from pathlib import Path

from fluss.model.permissions import Operation, ResourceType
from fluss.protocol.api_keys import ApiKey
from fluss.server.security.permissions import PERMISSIONS, On, Refusal, Rule

PATH = Path(__file__).resolve().parents[1] / "docs" / "security.md"
BEGIN, END = "<!-- permissions: generated -->\n", "<!-- end of permissions -->\n"

# The permissions of each user: on database `mine`, or on the cluster. No one has any on database `other`.
USERS: dict[str, tuple[Operation, ResourceType] | None] = {
    "nobody": None,
    "reader": (Operation.READ, ResourceType.DATABASE),
    "writer": (Operation.WRITE, ResourceType.DATABASE),
    "owner": (Operation.ALL, ResourceType.DATABASE),
    "operator": (Operation.ALL, ResourceType.CLUSTER),
}
MINE, OTHER = "mine", "other"


def is_allowed(user: str, key: ApiKey, database: str) -> bool:
    """True if the user may send requests of this key about a database."""
    rule, granted = PERMISSIONS[key], USERS[user]
    if rule.operation is None:
        return True
    if granted is None:
        return False
    operation, resource = granted
    if resource is ResourceType.DATABASE and (rule.on is On.CLUSTER or database != MINE):
        return False
    return operation in (Operation.ALL, rule.operation) or rule.operation is Operation.DESCRIBE


def matrix() -> str:
    """Return the matrix of all API keys as a Markdown table."""
    lines = [
        f"| key | permission | on | otherwise | {' | '.join(USERS)} |\n",
        f"|---|---|---|---|{'---|' * len(USERS)}\n",
    ]
    for key, rule in sorted(PERMISSIONS.items()):
        needed = "everybody" if rule.operation is None else rule.operation.name
        allowed = ("yes" if is_allowed(user, key, MINE) else "no" for user in USERS)
        lines.append(f"| {key.name} | {needed} | {_on(rule)} | {_otherwise(rule)} | {' | '.join(allowed)} |\n")
    return "".join(lines)


def _on(rule: Rule) -> str:
    return f"{rule.on.value}; {rule.note}" if rule.note else rule.on.value


def _otherwise(rule: Rule) -> str:
    return "error 48" if rule.refusal is Refusal.ERROR_BY_HANDLER else rule.refusal.value


def render(document: str) -> str:
    """Return the document with its matrix replaced by the current one."""
    before, rest = document.split(BEGIN)
    return before + BEGIN + "\n" + matrix() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PATH.write_text(render(PATH.read_text(encoding="utf-8")), encoding="utf-8")
