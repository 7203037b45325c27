"""Searches of the catalog: by failures, by text, by how long an execution took.

A search must not make commits slower. Only a failure writes something to be found by: the table ``failures``
has a row for each error code, failed node and worker of an execution (``failure_terms``). Text and durations
have no index. A search by them walks the list that the other conditions leave, over at most MAX_WALKED
executions a call, and says how far it came: the next call goes on from there. Its cost does not grow with the
history.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.rows import DeadLetter, ExecutionRow, History
    from weft.core.state import ExecutionState

T = TypeVar("T")

# So many entries of an index, or rows behind them, take a database some 20 ms.
MAX_WALKED = 10_000

# Entries of an index that an overview counts one by one.
MAX_COUNTED = 100_000

# A shorter beginning of an id is looked for like any other text. Eight digits of a UUIDv7 are about a minute.
ID_CHARACTERS = 8
# An id that begins with as many characters is one of few.
MAX_SAME_BEGINNING = 1_000

# Of each event that tells of a failure: whether its error, its node and its worker are found by a search.
_FAILURES = {
    "node.failed": (True, True, True),
    "node.retrying": (False, False, True),
    "node.lost": (False, False, True),
    "execution.failed": (True, False, False),
    "execution.completed": (True, False, False),
}
_UPPER_TO_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class ExecutionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions a list shows: those that meet every condition that is given."""

    workflow: str | None = None
    version: int | None = None
    states: tuple[ExecutionState, ...] = ()  # any of them
    labels: tuple[tuple[str, str], ...] = ()  # all of them
    batch: str | None = None
    trigger: str | None = None
    group: str | None = None
    # Its children; None: executions that are no children.
    parent: str | None = None
    created_after: int | None = None  # at or after this time
    created_before: int | None = None  # before this time
    # What went wrong in it, in any of its generations: the code of an error of the execution or of a node
    # that failed for good, such a node, a worker that an attempt failed on or was lost with.
    error: str | None = None
    node: str | None = None
    worker: str | None = None
    # In the name of the workflow or in the value of a label, or what the id begins with. ASCII letters of
    # either case are the same.
    text: str | None = None
    # From its start to its end, or until now while it has none.
    min_microseconds: int | None = None
    max_microseconds: int | None = None


class LetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters a list shows."""

    execution_id: str | None = None
    workflow: str | None = None  # "": without one
    state: str | None = None
    code: str | None = None  # of the error; "": without one
    node: str | None = None
    text: str | None = None  # as of an execution: of the letter's


EVERY_EXECUTION = ExecutionQuery()
EVERY_LETTER = LetterQuery()


class Found(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of what a search found."""

    rows: Sequence[T]
    # (created_at, id) up to which the search has come before the page was full: the next goes on behind it.
    # None: the page is full, or the search came to the end.
    searched_to: tuple[int, str] | None = None


class LetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one workflow, node and error code, in one state."""

    workflow: str | None
    node_id: str
    code: str | None
    # At most MAX_WALKED are counted.
    count: int
    executions: int
    first_at: int
    last_at: int
    # The newest of them.
    sample: DeadLetter

    @property
    def key(self) -> str:
        """The place of the group in the list of all groups."""
        return group_key(self.workflow, self.node_id, self.code)


class NamespaceCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what is not done in a namespace, at most MAX_COUNTED of each."""

    executions: dict[ExecutionState, int]  # of the states that are not terminal
    open_letters: int
    open_waits: int  # nodes that wait for an answer


class PeriodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The executions that began and ended in a period, at most MAX_COUNTED of each."""

    created: int
    ended: dict[ExecutionState, int]  # of the terminal states


class NodeRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one node in some executions."""

    # Of its attempts that completed, in microseconds.
    durations: list[int]
    # How often it failed for good, in all generations.
    failures: int


class SearchReader(Protocol):
    """The part of a journal's catalog that searches."""

    async def search(
        self,
        query: ExecutionQuery,
        *,
        namespace: str = ...,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[ExecutionRow]:
        """List executions like ``executions``, within a bounded walk over what the conditions leave out.

        The beginning of an id, of ID_CHARACTERS or more, finds the executions that have it and no others.
        """

    async def search_letters(
        self,
        query: LetterQuery,
        *,
        namespace: str = ...,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Found[DeadLetter]:
        """List dead letters like ``dead_letters``, within a bounded walk."""

    async def letter_groups(
        self,
        *,
        namespace: str = ...,
        state: str = "open",
        workflow: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Sequence[LetterGroup]:
        """List groups of dead letters by workflow, node and code. ``after``: key of the last one shown.

        ``workflow``: of this one, or of none ("").
        """

    async def newest_letter_groups(
        self, *, namespace: str = ..., state: str = "open", limit: int = 10
    ) -> Sequence[LetterGroup]:
        """List the groups that the newest dead letters belong to, the newest first."""

    async def namespace_counts(self, *, namespace: str = ...) -> NamespaceCounts:
        """Count what is not done in a namespace."""

    async def period_counts(self, *, namespace: str = ..., since: int, until: int) -> PeriodCounts:
        """Count the executions created, and those ended, at or after ``since`` and before ``until``."""

    async def node_runs(self, execution_ids: Sequence[str]) -> Mapping[str, NodeRuns]:
        """Read how long nodes of executions took, and how often they failed. Reads every node of theirs."""


def failure_terms(event: History) -> list[tuple[str, str]]:
    """Return what an execution is found by because of an event: fields of a query, with their values."""
    told = _FAILURES.get(event.type)
    if told is None:
        return []
    has_error, has_node, has_worker = told
    terms = []
    if has_error and event.error is not None and (code := code_of(event.error)) is not None:
        terms.append(("error", code))
    if has_node and event.node is not None:
        terms.append(("node", event.node))
    if has_worker and event.worker is not None:
        terms.append(("worker", event.worker))
    return terms


def group_key(workflow: str | None, node_id: str, code: str | None) -> str:
    """Return the key of a group. Neither a workflow's name nor a node's id has a space."""
    return f"{workflow or ''} {node_id} {code or ''}"


def code_of(error: Mapping[str, Any]) -> str | None:
    """Return the code of an error, if it has one."""
    code = error.get("code")
    return code if isinstance(code, str) else None


def folded(text: str) -> str:
    """Return the text with small letters for the capitals of ASCII, as both databases compare it."""
    return text.translate(_UPPER_TO_LOWER)
