"""The trace of one execution, read from a server or from a data folder, for ``weft doctor --execution``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from weft.cli.offline import open_folder
from weft.core.payload import encode
from weft.core.rows import History
from weft.core.state import SETTLED, NodeState
from weft.core.time import parse_rfc3339
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.plan import compile_plan
from weft.errors import ApiError, DocumentError, NotFoundError
from weft.views.history_check import check
from weft.views.history_state import Letter, Stored, StoredNode, Violation, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from weft.cli.server import RemoteServer
    from weft.core.payload import Json
    from weft.core.rows import DeadLetter
    from weft.definition.plan import Plan
    from weft.journal.contract import Catalog

# An execution that goes on while it is read is read again, so often; then its history alone is checked.
_READS = 5
_PAGE = 500
_TIMES = ("at", "queued_at", "started_at", "finished_at", "due_at")
_NODE_TIMES = ("queued_at", "started_at", "finished_at")


class Trace(msgspec.Struct, frozen=True):
    """An execution with its history; ``stored`` is None where it changed while it was read."""

    execution: str
    plan: Plan
    history: Sequence[History]
    stored: Stored | None

    def check(self) -> list[Violation]:
        return check(self.plan, self.history, self.stored)


# --- From a journal.


async def read_folder(path: Path, execution_id: str) -> Trace:
    """Read an execution from the data folder of a server that is stopped."""
    async with open_folder(path) as journal:
        return await read_journal(journal, execution_id)


async def read_journal(catalog: Catalog, execution_id: str) -> Trace:
    """Read an execution from a journal that no server writes."""
    execution = await catalog.execution(execution_id)
    plan = None if execution is None else await catalog.plan(execution.digest)
    if execution is None or plan is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    history: list[History] = []
    while page := await catalog.events(execution_id, after=len(history), limit=_PAGE):
        history += page
    stored = stored_rows(
        execution,
        await catalog.nodes(execution_id),
        await _letters(catalog, execution_id, execution.namespace),
    )
    return Trace(execution_id, plan, history, stored)


async def _letters(catalog: Catalog, execution_id: str, namespace: str) -> list[DeadLetter]:
    from weft.journal.contract import LetterQuery

    query = LetterQuery(execution_id=execution_id)
    letters: list[DeadLetter] = []
    before = None
    while page := await catalog.dead_letters(query, namespace=namespace, before=before, limit=_PAGE):
        letters += page
        before = (page[-1].created_at, page[-1].id)
    return letters


# --- From a server.


async def read_server(server: RemoteServer, execution_id: str, document: Json = None) -> Trace:
    """Read an execution from a server; ``document``: its definition, where it has none by name."""
    from weft.sdk import calls

    execution = await server.ask(calls.execution(execution_id))
    plan = await _plan(server, execution, document)
    events = [event async for event in server.items(calls.events(execution_id))]
    for _ in range(_READS):
        execution = await server.ask(calls.execution(execution_id))
        letters = await _server_letters(server, execution)
        later = [event async for event in server.items(calls.events(execution_id, after=len(events)))]
        events += later
        if not later:
            return of_answers(plan, execution, events, letters)
    return Trace(execution_id, plan, [_event(event) for event in events], None)


async def _plan(server: RemoteServer, execution: Mapping[str, Any], document: Json) -> Plan:
    from weft.sdk import calls

    if document is None and execution["version"] is not None:
        try:
            stored = await server.ask(calls.workflow(execution["workflow"], version=execution["version"]))
            document = stored["definition"]
        except ApiError as error:
            if error.code != "not_found":  # else: the workflow was deleted
                raise
    if document is None:
        raise DocumentError(
            f"the server does not give out the definition of execution {execution['id']}: "
            "name its file with --file, or check the stopped server's data folder with --data"
        )
    plan = compile_plan(document)
    if plan.digest != execution["digest"]:
        raise DocumentError(f"that is not the definition that execution {execution['id']} ran")
    return plan


async def _server_letters(server: RemoteServer, execution: Mapping[str, Any]) -> list[dict[str, Any]]:
    from weft.sdk import calls

    letters = []
    # The API does not filter dead letters by execution; newest come first, so stop where the execution began.
    async for letter in server.items(calls.dead_letters(workflow=execution["workflow"])):
        if letter["created_at"] < execution["created_at"]:
            break
        if letter["execution"] == execution["id"]:
            letters.append(letter)
    return letters


def of_answers(
    plan: Plan,
    execution: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]],
    letters: Iterable[Mapping[str, Any]] | None = None,
) -> Trace:
    """Make a trace of what a server answers: an execution with its nodes, its events, its dead letters."""
    stored = Stored(
        state=execution["state"],
        generation=execution["generation"],
        error=execution["error"],
        counts=execution["counts"],
        nodes={node["id"]: _node(node) for node in execution["nodes"]},
        letters=None
        if letters is None
        else {
            (letter["node"], letter["generation"]): Letter(
                letter["attempt"], letter["error"], letter["state"]
            )
            for letter in letters
        },
        **_times(execution, ("created_at", "started_at", "finished_at")),
    )
    return Trace(execution["id"], plan, [_event(event) for event in events], stored)


def _event(answer: Mapping[str, Any]) -> History:
    known = {name: answer[name] for name in History.__struct_fields__ if answer.get(name) is not None}
    return History(**{**known, **_times(known, [name for name in _TIMES if name in known])})


def _node(answer: Mapping[str, Any]) -> StoredNode:
    state = NodeState(answer["state"])
    if state not in SETTLED:
        return StoredNode(state=None)
    same = ("attempt", "reason", "cause", "error", "worker")
    return StoredNode(
        state=state,
        cached=state is NodeState.COMPLETED and (answer["cached"] or answer.get("reused", False)),
        output_digest=_digest(answer),
        **{name: answer[name] for name in same},
        **_times(answer, _NODE_TIMES),
    )


def _digest(answer: Mapping[str, Any]) -> str | None:
    """Return the digest of the output in an answer, or None without one; re-encoding gives the same bytes."""
    if answer["state"] != NodeState.COMPLETED:
        return None
    output = encode(answer["output"], max_bytes=DEFAULT_BOUNDS.max_payload_bytes)
    if answer["output"] is None and answer["output_bytes"] != len(output):
        return None  # too large to be shown among others
    return hashlib.sha256(output).hexdigest()


def _times(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: None if answer[name] is None else parse_rfc3339(answer[name]) for name in names}
