"""Follows an execution of a server to its end: ``weft watch``, and ``weft start --wait``.

The stream of events names what settles, so showing the progress costs the server no reads, for three nodes or
for ten thousand. Ctrl-C leaves the execution running.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.expected import expected_end
from weft.cli.identify import execution_id
from weft.cli.main import FAILED, INTERRUPTED
from weft.cli.notices import NodeNotices, attempts_of
from weft.cli.printing import print_json, print_text, say, write_error
from weft.cli.server import on_server
from weft.cli.table import elapsed_seconds, why
from weft.core.state import SETTLED, ExecutionState, NodeState
from weft.errors import ApiError, UnreachableError
from weft.sdk import calls
from weft.sdk.progress import (
    MAX_FAILURES,
    NodeLine,
    ProgressSnapshot,
    SettledNode,
    open_progress,
    progress_text,
)
from weft.sdk.report import report
from weft.sdk.stream import follow, follow_logs
from weft.sdk.waiting import NodeWait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.cli.server import RemoteServer
    from weft.sdk.sse import ServerSentEvent

LOOK_INTERVAL_SECONDS = 0.1
# Events and lines come by two streams. So long they are held back, to be shown in the order of their times.
HOLD_SECONDS = 0.3
# How often the server is asked when the end is expected.
PREDICTION_INTERVAL_SECONDS = 5.0
# Of a definition that is not stored, so many nodes are asked for how often they may be started.
MAX_ASKED = 100


def watch(
    execution: Annotated[str, Parameter(help="its id, or the first characters of it")],
    /,
    *,
    as_json: Annotated[bool, Parameter("--json", help="print each event as a line of JSON")] = False,
    quiet: Annotated[bool, Parameter(help="show no progress")] = False,
) -> int:
    """Follow an execution to its end, and print its output."""
    watched = execution

    async def work(server: RemoteServer) -> int:
        nonlocal watched
        watched = await execution_id(execution, server)
        ended = await stay(
            watched, server, quiet=quiet or as_json, on_event=_print_event if as_json else _ignore
        )
        return finish(ended, prints_output=not as_json, quiet=quiet)

    try:
        return on_server(work)
    except KeyboardInterrupt:
        return left_running(watched)


async def stay(
    execution_id: str,
    server: RemoteServer,
    *,
    quiet: bool,
    on_event: Callable[[ServerSentEvent], None] | None = None,
) -> dict[str, Any]:
    """Show an execution until it is terminal, and give it then, as ``for_report`` does."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    tracker = Tracker()
    execution = await server.ask(calls.execution(execution_id, nodes="brief"))
    tracker.begin(execution)
    tracker.notices.attempts = {} if quiet else await _attempts(execution, server)
    tracker.notices.how_to_answer = _how_to_answer
    progress = open_progress(tracker.total, stream=sys.stderr, quiet=quiet, environ=os.environ)
    events = _listen(execution_id, server, tracker, on_event or _ignore, quiet=quiet)
    listening = asyncio.ensure_future(events)
    reading = asyncio.ensure_future(_read_lines(execution_id, server, tracker.notices, quiet=quiet))
    both = asyncio.ensure_future(asyncio.wait({listening, reading}))
    outlook = _Outlook()
    predicting = asyncio.ensure_future(outlook.follow(execution_id, server, quiet=progress is None))
    try:
        while not both.done():
            if progress is not None:
                progress.show(tracker.look(loop.time() - begun, outlook.left_seconds(), holds=True))
            await asyncio.wait({both}, timeout=None if progress is None else LOOK_INTERVAL_SECONDS)
        await listening
        if progress is not None:
            progress.show(tracker.look(loop.time() - begun))
    finally:
        for task in (both, listening, reading, predicting):
            task.cancel()
        if progress is not None:
            progress.close()
    return await for_report(execution_id, server)


def _how_to_answer(execution_id: str, node_id: str) -> str:
    return f"weft answer {execution_id} {node_id} VALUE"


class _Outlook:
    """The predicted end of an execution."""

    def __init__(self) -> None:
        self._ends_at: float | None = None

    async def follow(self, execution_id: str, server: RemoteServer, *, quiet: bool) -> None:
        """Ask the server now and then."""
        while not quiet:
            expected = await expected_end(execution_id, server)
            now = asyncio.get_running_loop().time()
            self._ends_at = None if expected is None else now + expected["remaining_seconds"]
            await asyncio.sleep(PREDICTION_INTERVAL_SECONDS)

    def left_seconds(self) -> float | None:
        if self._ends_at is None:
            return None
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())


async def _listen(
    execution_id: str,
    server: RemoteServer,
    tracker: Tracker,
    on_event: Callable[[ServerSentEvent], None],
    *,
    quiet: bool,
) -> None:
    async with aclosing(follow(server.connection, execution_id)) as events:
        async for event in events:
            on_event(event)
            data = json.loads(event.data)
            if data["type"] == "node.retrying" and not quiet:
                await _learn_attempts(data, server, tracker.notices)
            if tracker.take(data):
                tracker.begin(await server.ask(calls.execution(execution_id, nodes="brief")))
            elif data["type"] == "node.waiting" and tracker.is_waiting(data["node"]) and not quiet:
                tracker.notices.waiting(await _node_wait(data, server), at=data.get("at") or "")


async def _node_wait(event: Mapping[str, Any], server: RemoteServer) -> NodeWait:
    """Return what a node waits for; the event does not say what it asks."""
    execution_id, node_id = event["execution"], event["node"]
    prompt, is_for_answer = None, False
    call = calls.waits(execution=execution_id)
    async for item in server.items(call, limit=MAX_ASKED):
        if item["node"] == node_id:
            prompt, is_for_answer = item["prompt"], True
    return NodeWait(execution_id, node_id, prompt, event.get("due_at"), is_for_answer)


async def _attempts(execution: Mapping[str, Any], server: RemoteServer) -> dict[str, int]:
    """Return how often each node may be started; of a definition that is not stored, nothing yet."""
    if execution["version"] is None:
        return {}
    try:
        stored = await server.ask(calls.workflow(execution["workflow"], version=execution["version"]))
    except ApiError:  # the workflow was deleted
        return {}
    return attempts_of(stored["definition"])


async def _learn_attempts(event: Mapping[str, Any], server: RemoteServer, notices: NodeNotices) -> None:
    """Ask how often a node of a definition that is not stored may be started.

    A server of an earlier release has no answer.
    """
    node_id = event["node"]
    if node_id in notices.attempts or len(notices.attempts) >= MAX_ASKED:
        return
    with suppress(ApiError, UnreachableError):
        node = await server.ask(calls.node(event["execution"], node_id))
        if node.get("max_retries") is not None:
            notices.attempts = {**notices.attempts, node_id: 1 + node["max_retries"]}


async def _read_lines(execution_id: str, server: RemoteServer, notices: NodeNotices, *, quiet: bool) -> None:
    """Take what the nodes print. A server of an earlier release has none of it."""
    if quiet:
        return
    with suppress(ApiError, UnreachableError):
        async with aclosing(follow_logs(server.connection, calls.live_logs(execution_id))) as lines:
            async for line in lines:
                notices.printed(json.loads(line.data))


async def for_report(execution_id: str, server: RemoteServer) -> dict[str, Any]:
    """Return an execution with its nodes, without outputs, and with the first errors.

    Whole, an execution of many nodes is large, and most of it would not be shown.
    """
    execution: dict[str, Any] = await server.ask(calls.execution(execution_id, nodes="brief"))
    failed = execution["counts"][NodeState.FAILED]
    errors: dict[str, Any] = {}
    if failed:
        call = calls.nodes(execution_id, state=NodeState.FAILED)
        errors = {node["id"]: node["error"] async for node in server.items(call, limit=MAX_FAILURES)}
    for node in execution["nodes"]:
        node["error"] = errors.get(node["id"])
    return execution


def finish(execution: Mapping[str, Any], *, prints_output: bool, quiet: bool) -> int:
    """Write the report of an execution to stderr, print the output, and return the exit code."""
    completed = execution["state"] == ExecutionState.COMPLETED
    if not (quiet and completed and execution["error"] is None):
        begun = execution["started_at"] or execution["created_at"]
        elapsed = elapsed_seconds(begun, execution["finished_at"] or begun)
        retry = f"weft retry {execution['id']}"
        write_error(report(execution, elapsed_seconds=elapsed, retry=retry) + "\n")
    if completed and prints_output:
        print_json(execution["output"])
    return 0 if completed else FAILED


def left_running(execution: str) -> int:
    say(f"execution {execution} goes on; `weft watch {execution}` follows it again")
    return INTERRUPTED


def _print_event(event: ServerSentEvent) -> None:
    print_text(event.data + "\n")


def _ignore(event: ServerSentEvent) -> None:
    pass


# --- Where each node stands, by the events.

_STATES = {
    "node.queued": NodeState.QUEUED,
    "node.started": NodeState.RUNNING,
    "node.waiting": NodeState.WAITING,
    "node.polled": NodeState.WAITING,
    "node.retrying": NodeState.QUEUED,
    "node.lost": NodeState.QUEUED,
    "node.completed": NodeState.COMPLETED,
    "node.failed": NodeState.FAILED,
    "node.skipped": NodeState.SKIPPED,
    "node.cancelled": NodeState.CANCELLED,
}
# Within one attempt: what comes later. An attempt that ends with another to come is behind its start.
_RANKS = {
    "node.queued": 1,
    "node.started": 2,
    "node.waiting": 2,
    "node.retrying": 3,
    "node.polled": 3,
    "node.lost": 3,
}
_SETTLED_RANK = 4
_SEEN_RANKS = {NodeState.PENDING: 0, NodeState.QUEUED: 1, NodeState.RUNNING: 2, NodeState.WAITING: 2}


@dataclass(slots=True)
class Tracker:
    """Counts the nodes of an execution by state.

    It begins with an answer of the server, and takes the events from the first on: those that are older than
    the answer change nothing, because a node's place (generation, attempt, rank) only grows.
    """

    generation: int = 0
    total: int = 0
    retried: int = 0
    notices: NodeNotices = field(default_factory=lambda: NodeNotices({}))
    _states: dict[str, NodeState] = field(default_factory=dict)
    _places: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _counts: Counter[NodeState] = field(default_factory=Counter)
    _running: dict[str, None] = field(default_factory=dict)
    # With their times.
    _settled: list[tuple[str, SettledNode]] = field(default_factory=list)
    # Lines and nodes to print, each with the moment at which a look found it and with its own time.
    _held: list[tuple[float, str, NodeLine | SettledNode]] = field(default_factory=list)
    _told: dict[str, str] = field(default_factory=dict)

    def begin(self, execution: Mapping[str, Any]) -> None:
        """Take the states of all nodes from an answer."""
        self.generation, self.total = execution["generation"], len(execution["nodes"])
        self._states = {node["id"]: NodeState(node["state"]) for node in execution["nodes"]}
        self._places = {
            node["id"]: (
                self.generation,
                node["attempt"],
                _SEEN_RANKS.get(self._states[node["id"]], _SETTLED_RANK),
            )
            for node in execution["nodes"]
        }
        self._counts = Counter(self._states.values())
        self._running = {name: None for name, state in self._states.items() if state is NodeState.RUNNING}
        # A server of an earlier release shows no progress.
        self._told = {
            node["id"]: progress_text(node["progress"])
            for node in execution["nodes"]
            if node["id"] in self._running and node.get("progress") is not None
        }

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take one event; True: a retry has opened nodes again, and only the server knows which."""
        kind, node_id, generation = event["type"], event.get("node"), event.get("generation") or 0
        if kind == "execution.retried":
            return generation > self.generation
        if kind == "node.progress":
            self._hear_progress(event)
            return False
        state = _STATES.get(kind)
        if state is None or node_id not in self._states or generation < self.generation:
            return False
        if kind in ("node.retrying", "node.lost"):
            self.retried += 1
        if kind == "node.retrying":
            self.notices.retrying(event)
        if state in SETTLED:
            at = event.get("finished_at") or event.get("at") or ""
            self._settled.append((at, _settled_node(event, state)))
        _, attempt, _ = before = self._places[node_id]
        # Without an attempt of its own, what is skipped or cancelled is behind the latest.
        place = (generation, event.get("attempt") or attempt, _RANKS.get(kind, _SETTLED_RANK))
        if place > before:
            self._places[node_id] = place
            self._move(node_id, state)
        return False

    def is_waiting(self, node_id: str) -> bool:
        return self._states.get(node_id) is NodeState.WAITING

    def look(
        self, elapsed_seconds: float, left_seconds: float | None = None, *, holds: bool = False
    ) -> ProgressSnapshot:
        """Return a snapshot of the execution, with the nodes that have settled since the last snapshot.

        ``holds``: without what came in the last moment, for something older may still come.
        """
        settled, self._settled = self._settled, []
        self._held += [(elapsed_seconds, line.at, line) for line in self.notices.take()]
        self._held += [(elapsed_seconds, at, node) for at, node in settled]
        shown_until = elapsed_seconds - (HOLD_SECONDS if holds else 0.0)
        ready = sorted((one for one in self._held if one[0] <= shown_until), key=itemgetter(1))
        self._held = [one for one in self._held if one[0] > shown_until]
        return ProgressSnapshot(
            elapsed_seconds,
            self._counts,
            running=list(self._running),
            settled=[one for _, _, one in ready if isinstance(one, SettledNode)],
            retried=self.retried,
            lines=[one for _, _, one in ready if isinstance(one, NodeLine)],
            told=self._told.copy(),
            left_seconds=left_seconds,
        )

    def _hear_progress(self, event: Mapping[str, Any]) -> None:
        node_id = event["node"]
        generation, attempt, _ = self._places.get(node_id, (0, 0, 0))
        if node_id in self._running and (event["generation"], event["attempt"]) == (generation, attempt):
            self._told[node_id] = progress_text(event["progress"])

    def _move(self, node_id: str, state: NodeState) -> None:
        self._counts[self._states[node_id]] -= 1
        self._counts[state] += 1
        self._states[node_id] = state
        self._told.pop(node_id, None)
        if state is NodeState.RUNNING:
            self._running[node_id] = None
        else:
            self._running.pop(node_id, None)


def _settled_node(event: Mapping[str, Any], state: NodeState) -> SettledNode:
    begun, ended = event.get("started_at"), event.get("finished_at")
    return SettledNode(
        event["node"], state, elapsed_seconds(begun, ended) if begun and ended else None, why(event)
    )
