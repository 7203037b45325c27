"""Pages of executions and dead letters: which index walks to the newest that are asked for.

Every list is ordered by (created_at, id), and every index named here ends with these two: the walk begins
behind the last row that was shown and ends when the page is full. What a condition without an index of its
own leaves out is walked over: by a list as far as it takes, by a search over at most MAX_WALKED entries. The
index is named because SQLite, without statistics, takes the wrong one. For PostgreSQL the conditions are
written so that only that index has them in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.journal import rows
from weft.journal.letter_groups import GROUP_KEY
from weft.journal.queries import Listing
from weft.journal.search import ID_CHARACTERS, MAX_SAME_BEGINNING, MAX_WALKED, Found, folded

if TYPE_CHECKING:
    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import ExecutionQuery, LetterQuery
    from weft.journal.queries import Query

Before = tuple[int, str] | None
# Executions by (created_at, id).
Named = Sequence[tuple[int, str]]

_BY_LABEL = (
    "labels CROSS JOIN executions ON number = labels.execution"
    " CROSS JOIN progress ON progress.execution = number"
)
_BY_FAILURE = (
    "failures INDEXED BY failures_newest CROSS JOIN executions ON number = failures.execution"
    " CROSS JOIN progress ON progress.execution = number"
)
_BY_STATE = "progress INDEXED BY progress_state CROSS JOIN executions ON number = execution"
_BY_GROUP = "progress INDEXED BY progress_group_name CROSS JOIN executions ON number = execution"
_BY_INDEX = "executions INDEXED BY {} CROSS JOIN progress ON execution = number"
# A letter whose execution is being purged is seen no more.
_LETTERS_BY_INDEX = "dead_letters INDEXED BY {} CROSS JOIN executions ON number = execution"
# What a condition on ``failures`` or ``labels`` asks of an execution that another index was walked to.
_HAS_FAILURE = (
    "EXISTS (SELECT 1 FROM failures AS other WHERE other.namespace = executions.namespace"
    " AND other.field = ? AND other.value = ? AND other.created_at = executions.created_at"
    " AND other.id = executions.id)"
)
_HAS_LABEL = (
    "EXISTS (SELECT 1 FROM labels AS other WHERE other.namespace = executions.namespace"
    " AND other.key = ? AND other.value = ? AND other.created_at = executions.created_at"
    " AND other.id = executions.id)"
)
_HAS_TEXT = (
    "(instr(lower(executions.workflow), ?) > 0 OR instr(executions.id, ?) = 1"
    " OR EXISTS (SELECT 1 FROM labels AS other WHERE other.execution = executions.number"
    " AND instr(lower(label_text(other.value)), ?) > 0))"
)
# Behind every text that begins with what stands before it.
_LAST_LETTER = "\U0010ffff"


class IndexWalk:
    """A statement that walks an index to a page, put together with the values that it binds."""

    def __init__(self, source: str, namespace: str, before: Before) -> None:
        """``source``: the table that is walked, the first, has an index in the order of the list."""
        self._source = source
        self._table = table = source.split(" ", 1)[0]
        # What the index is entered with, and what is asked of the rows that it leads to.
        self._walked = [(f"{table}.namespace = ?", (namespace,))]
        self._asked: list[tuple[str, tuple[Any, ...]]] = []
        if before is not None:
            self.walk(f"({table}.created_at, {table}.id) < (?, ?)", *before)

    @property
    def leaves_out(self) -> bool:
        """True if it leads to rows that are not listed."""
        return bool(self._asked)

    def walk(self, condition: str, *values: Any) -> None:
        self._walked.append((condition, values))

    def ask(self, condition: str, *values: Any) -> None:
        self._asked.append((condition, values))

    def ask_given(self, condition: str, value: Any) -> None:
        if value is not None:
            self.ask(condition, value)

    def within(self, after: int | None, before: int | None) -> None:
        """IndexWalk executions from this time on, and up to before that time."""
        for bound, at in ((">=", after), ("<", before)):
            if at is not None:
                self.walk(f"{self._table}.created_at {bound} ?", at)

    def listing(self, columns: str, limit: int, *, down_to: Before = None) -> Listing:
        """Return the statement; ``down_to``: the last entry that it may list."""
        conditions = [*self._walked, *self._asked]
        if down_to is not None:
            conditions.append((f"({self._table}.created_at, {self._table}.id) >= (?, ?)", down_to))
        return Listing(columns, *self._behind(self._source, conditions, "LIMIT ?", limit))

    def bound(self) -> Listing:
        """Return the statement that reads the last entry of the index that a search may walk to."""
        entries = self._source.split(" CROSS JOIN ", 1)[0]
        columns = f"{self._table}.created_at, {self._table}.id"
        return Listing(columns, *self._behind(entries, self._walked, "LIMIT 1 OFFSET ?", MAX_WALKED - 1))

    def _behind(
        self, source: str, conditions: Sequence[tuple[str, tuple[Any, ...]]], page: str, size: int
    ) -> tuple[str, tuple[Any, ...]]:
        met = " AND ".join([condition for condition, _ in conditions])
        values = [value for _, values in conditions for value in values]
        order = f"{self._table}.created_at DESC, {self._table}.id DESC"
        return f"FROM {source} WHERE {met} ORDER BY {order} {page}", (*values, size)


class PageOf(NamedTuple):
    """Where a page of a list begins, and how many rows it has at most."""

    namespace: str
    before: Before
    limit: int


# -- executions --------------------------------------------------------------------------------------


def executions(query: ExecutionQuery, page: PageOf, now: int) -> Query[list[ExecutionRow]]:
    return (yield from _listed_executions(execution_walks(query, page, now), page.limit))


def search(query: ExecutionQuery, page: PageOf, now: int) -> Query[Found[ExecutionRow]]:
    """Search executions within a bounded walk; ``now``: the time that those under way have come to."""
    named: Named = []
    if query.text is not None and len(query.text) >= ID_CHARACTERS:
        named = yield from _named(folded(query.text), page.namespace)
    if named:
        query = replace(query, text=None)
    walks = execution_walks(query, page, now, named=named)
    down_to = None
    if any(walk.leaves_out for walk in walks):
        down_to = yield from _bound(walks)
    found = yield from _listed_executions(walks, page.limit, down_to)
    return Found(rows=found, searched_to=down_to if len(found) < page.limit else None)


def _listed_executions(
    walks: Sequence[IndexWalk], limit: int, down_to: Before = None
) -> Query[list[ExecutionRow]]:
    found: list[ExecutionRow] = []
    for walk in walks:
        listed = yield walk.listing(rows.LISTED_COLUMNS, limit, down_to=down_to)
        found += [rows.read_execution(values) for values in listed]
    return sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)[:limit]


def _bound(walks: Sequence[IndexWalk]) -> Query[Before]:
    """Find the entry down to which each of the walks may go; None: all of them come to their ends."""
    bounds = []
    for walk in walks:
        bounds += [(created_at, id_) for created_at, id_ in (yield walk.bound())]
    return max(bounds, default=None)


def _named(beginning: str, namespace: str) -> Query[Named]:
    """Find the executions whose ids begin so: the last of them by their ids."""
    found = yield Listing(
        "created_at, id",
        "FROM executions INDEXED BY sqlite_autoindex_executions_1"
        " WHERE id >= ? AND id < ? AND namespace = ? ORDER BY id DESC LIMIT ?",
        (beginning, beginning + _LAST_LETTER, namespace, MAX_SAME_BEGINNING),
    )
    return [(created_at, id_) for created_at, id_ in found]


def execution_walks(
    query: ExecutionQuery, page: PageOf, now: int = 0, *, named: Named = ()
) -> list[IndexWalk]:
    """Return the walks whose rows, together, have the page in them: one, or one for each state.

    ``named``: of these executions alone.
    """
    table, source = _source(query, has_names=bool(named))
    states: Sequence[tuple[ExecutionState, ...]] = [query.states]
    if source is _BY_STATE:
        states = [(state,) for state in dict.fromkeys(query.states)]
    walks = []
    for any_of in states:
        walk = IndexWalk(source, page.namespace, page.before)
        walk.within(query.created_after, query.created_before)
        if any_of:
            states_met = f"progress.state IN ({', '.join('?' * len(any_of))})"
            (walk.walk if source is _BY_STATE else walk.ask)(states_met, *map(str, any_of))
        if named:
            walk.walk("executions.id IN ?", [id_ for _, id_ in named])
            # PostgreSQL may walk the list to them: then no further than it must.
            walk.within(min(named)[0], 1 + max(named)[0])
        _add_parent(walk, query, source)
        if query.batch is not None:
            (walk.walk if "_batch_newest" in source else walk.ask)("executions.batch = ?", query.batch)
        if query.trigger is not None:
            add = walk.walk if "executions_trigger" in source else walk.ask
            add("executions.trigger = ?", query.trigger)
        if query.group is not None:
            (walk.walk if source is _BY_GROUP else walk.ask)("progress.group_name = ?", query.group)
        if query.workflow is not None:
            add = walk.walk if "executions_workflow" in source else walk.ask
            add("executions.workflow = ?", query.workflow)
        _ask_for_terms(walk, query, table)
        _ask_without_index(walk, query, now)
        walks.append(walk)
    return walks


def _add_parent(walk: IndexWalk, query: ExecutionQuery, source: str) -> None:
    """Leave children out, or all but those of one execution."""
    if query.parent is not None:
        add = walk.walk if "executions_parent" in source else walk.ask
        add("executions.parent_id = ?", query.parent)
    else:
        has_none = "executions_newest" in source or "executions_workflow" in source
        (walk.walk if has_none else walk.ask)("executions.parent_id IS NULL")


def _ask_for_terms(walk: IndexWalk, query: ExecutionQuery, table: str) -> None:
    """Add the conditions on failures and labels; the first of those of ``table`` is walked to."""
    failures = [(field, getattr(query, field)) for field in ("node", "error", "worker")]
    failures = [failure for failure in failures if failure[1] is not None]
    for terms, name, condition, other in (
        (failures, "failures", "failures.field = ? AND failures.value = ?", _HAS_FAILURE),
        (query.labels, "labels", "labels.key = ? AND labels.value = ?", _HAS_LABEL),
    ):
        for place, term in enumerate(terms):
            if table == name and place == 0:
                walk.walk(condition, *term)
            else:
                walk.ask(other, *term)


def _ask_without_index(walk: IndexWalk, query: ExecutionQuery, now: int) -> None:
    # Its column in PostgreSQL is narrower than what may be asked for.
    walk.ask_given("executions.version = CAST(? AS bigint)", query.version)
    if query.text is not None:
        walk.ask(_HAS_TEXT, *[folded(query.text)] * 3)
    took = "coalesce(progress.finished_at, CAST(? AS bigint)) - progress.started_at"
    if query.min_microseconds is not None:
        walk.ask(f"{took} >= CAST(? AS bigint)", now, query.min_microseconds)
    if query.max_microseconds is not None:
        walk.ask(f"{took} <= CAST(? AS bigint)", now, query.max_microseconds)


def _source(query: ExecutionQuery, *, has_names: bool) -> tuple[str, str]:
    """Return the table to walk, and how: by the condition that likely leaves the fewest rows."""
    if has_names:
        return "executions", _BY_INDEX.format("sqlite_autoindex_executions_1")
    if query.parent is not None:
        return "executions", _BY_INDEX.format("executions_parent")
    if query.batch is not None:
        return "executions", _BY_INDEX.format("executions_batch_newest")
    if query.trigger is not None:
        return "executions", _BY_INDEX.format("executions_trigger")
    if query.group is not None:
        return "progress", _BY_GROUP
    if query.node is not None or query.error is not None or query.worker is not None:
        return "failures", _BY_FAILURE
    if query.labels:
        return "labels", _BY_LABEL
    # Most executions are completed: only of the other states can it be said that they are few.
    if query.states and (query.workflow is None or ExecutionState.COMPLETED not in query.states):
        return "progress", _BY_STATE
    if query.workflow is not None:
        return "executions", _BY_INDEX.format("executions_workflow")
    return "executions", _BY_INDEX.format("executions_newest")


# -- dead letters ------------------------------------------------------------------------------------


def dead_letters(query: LetterQuery, page: PageOf) -> Query[list[DeadLetter]]:
    return (yield from _listed_letters(letter_walk(query, page), page.limit))


def search_letters(query: LetterQuery, page: PageOf) -> Query[Found[DeadLetter]]:
    walk = letter_walk(query, page)
    down_to = (yield from _bound([walk])) if walk.leaves_out else None
    found = yield from _listed_letters(walk, page.limit, down_to)
    return Found(rows=found, searched_to=down_to if len(found) < page.limit else None)


def _listed_letters(walk: IndexWalk, limit: int, down_to: Before = None) -> Query[list[DeadLetter]]:
    found = yield walk.listing(rows.LETTER_COLUMNS, limit, down_to=down_to)
    letters = [rows.read_letter(values) for values in found]
    return sorted(letters, key=lambda letter: (letter.created_at, letter.id), reverse=True)


def letter_walk(query: LetterQuery, page: PageOf) -> IndexWalk:
    conditions = {
        # Of one execution there are few enough to be sorted.
        "dead_letters_execution": (
            "dead_letters.execution = (SELECT number FROM executions WHERE id = ?)",
            query.execution_id,
        ),
        "dead_letters_node": ("dead_letters.node_id = ?", query.node),
        "dead_letters_code": ("dead_letters.code = ?", query.code),
        "dead_letters_workflow": ("dead_letters.workflow = ?", query.workflow),
        "dead_letters_state": ("dead_letters.state = ?", query.state),
    }
    given = {index: asked for index, asked in conditions.items() if asked[1] is not None}
    walked = next(iter(given), "dead_letters_newest")
    group = query.workflow, query.node, query.code
    if query.state is not None and None not in group:
        walked = "dead_letters_groups"
    walk = IndexWalk(_LETTERS_BY_INDEX.format(walked), page.namespace, page.before)
    if walked == "dead_letters_groups":
        walk.walk(f"dead_letters.state = ? AND {GROUP_KEY} = ?", query.state, f"{' '.join(map(str, group))}")
        given = {index: asked for index, asked in given.items() if index == "dead_letters_execution"}
    for index, (condition, value) in given.items():
        add = walk.walk if index == walked else walk.ask
        if value == "" and condition.endswith(" = ?"):
            add(condition.replace("= ?", "IS NULL"))
        else:
            add(condition, value)
    if query.text is not None:
        walk.ask(_HAS_TEXT, *[folded(query.text)] * 3)
    return walk
