"""Dead letters by groups: of one workflow, node and error code, in one state.

The index ``dead_letters_groups`` has the groups one behind the other. A page of groups is read by one seek
for each, and at most MAX_WALKED letters of each are counted: the history may be of any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.journal import rows
from weft.journal.search import MAX_WALKED, LetterGroup, code_of

if TYPE_CHECKING:
    from weft.journal.queries import Query

# As in the index. Neither a workflow's name nor a node's id has a space.
GROUP_KEY = (
    "coalesce(dead_letters.workflow, '') || ' ' || dead_letters.node_id"
    " || ' ' || coalesce(dead_letters.code, '')"
)
_IN_STATE = "dead_letters INDEXED BY dead_letters_groups WHERE namespace = ? AND state = ?"
_IN_GROUP = f"dead_letters.namespace = ? AND dead_letters.state = ? AND {GROUP_KEY} = ?"
_NEWEST = "ORDER BY dead_letters.created_at DESC, dead_letters.id DESC LIMIT ?"
# Newest letters among which the newest groups are looked for.
_NEWEST_LETTERS = 1_000


def letter_groups(
    namespace: str, state: str, workflow: str | None, after: str | None, limit: int
) -> Query[list[LetterGroup]]:
    """List groups in the order of their keys, behind the key ``after``; ``workflow``: those of one."""
    # The first key that is none of its groups: "!" comes behind a space.
    first, end = ("", "\U0010ffff") if workflow is None else (f"{workflow} ", f"{workflow}!")
    last = max(first, after or "")
    found: list[LetterGroup] = []
    while len(found) < limit:
        keys = yield (
            f"SELECT {GROUP_KEY} FROM {_IN_STATE} AND {GROUP_KEY} > ? AND {GROUP_KEY} < ?"  # noqa: S608
            f" ORDER BY {GROUP_KEY} LIMIT 1",
            (namespace, state, last, end),
        )
        if not keys:
            break
        ((last,),) = keys
        group = yield from _group(namespace, state, last)
        if group is not None:
            found.append(group)
    return found


def newest_groups(namespace: str, state: str, limit: int) -> Query[list[LetterGroup]]:
    """List the groups that the newest letters belong to, the newest first."""
    keys = yield (
        f"SELECT {GROUP_KEY} FROM dead_letters INDEXED BY dead_letters_state"  # noqa: S608
        f" WHERE namespace = ? AND state = ? {_NEWEST}",
        (namespace, state, _NEWEST_LETTERS),
    )
    found: list[LetterGroup] = []
    for key in dict.fromkeys(key for (key,) in keys):
        group = yield from _group(namespace, state, key)
        if group is not None:
            found.append(group)
        if len(found) == limit:
            break
    return found


def _group(namespace: str, state: str, key: str) -> Query[LetterGroup | None]:
    """Read one group; None: the executions of its letters are being purged."""
    chosen: tuple[Any, ...] = (namespace, state, key)
    newest = yield (
        f"SELECT {rows.LETTER_COLUMNS} FROM dead_letters INDEXED BY dead_letters_groups"  # noqa: S608
        f" CROSS JOIN executions ON number = execution WHERE {_IN_GROUP} {_NEWEST}",
        (*chosen, 1),
    )
    if not newest:
        return None
    sample = rows.read_letter(newest[0])
    ((count, executions, first_at),) = yield (
        "SELECT count(*), count(DISTINCT execution), min(created_at) FROM"  # noqa: S608
        " (SELECT execution, created_at FROM dead_letters INDEXED BY dead_letters_groups"
        f" WHERE {_IN_GROUP} {_NEWEST}) AS counted",
        (*chosen, MAX_WALKED),
    )
    if count == MAX_WALKED:
        ((first_at,),) = yield (
            "SELECT created_at FROM dead_letters INDEXED BY dead_letters_groups"  # noqa: S608
            f" WHERE {_IN_GROUP} ORDER BY created_at, id LIMIT 1",
            chosen,
        )
    return LetterGroup(
        workflow=sample.workflow,
        node_id=sample.node_id,
        code=code_of(sample.error),
        count=count,
        executions=executions,
        first_at=first_at,
        last_at=sample.created_at,
        sample=sample,
    )
