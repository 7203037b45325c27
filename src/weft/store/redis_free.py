"""Free nodes as a script lists them, made whole: each with the rows of the nodes that it sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.store.contract import Answer, Applied, FreeNode
from weft.store.redis_records import is_outcome, is_set, read_outcome, read_record
from weft.store.redis_shape import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.core.row import ExecutionRow, NodeRow
    from weft.redis.connection import Reply
    from weft.store.redis_records import Record
    from weft.store.redis_shape import Shape


class Given:
    """The free nodes of one execution. What is ``missing`` of the rows they see is to be read, and added."""

    def __init__(self, row: ExecutionRow, shape: Shape, rows: dict[str, NodeRow]) -> None:
        self.row = row
        self._shape = shape
        # Rows of settled nodes, and of which of them the output is at hand. A settled row does not change.
        self._rows = rows
        self._whole = set(rows)
        # The nodes that were queued with the rows.
        self.queued: Sequence[str] = ()
        # Node, record, its parents and what it names, as far as it sees them; the parents it does not see.
        self._nodes: list[tuple[str, Record, Sequence[str], Sequence[str], int]] = []

    def read(self, replies: Iterator[Reply]) -> None:
        """Take the free nodes out of a script's reply."""
        shape = self._shape
        plan = shape.plan
        for _ in range(next(replies)):
            node_id = next(replies)[1:].decode()
            record, view = read_record(next(replies)), next(replies)
            count = next(replies)
            if count:
                self._add(shape.asked(node_id), [next(replies) for _ in range(count)])
            parents: Sequence[str] = plan.graph.parents[node_id]
            needs: Sequence[str] = list(plan.needs[node_id])
            waiting = 0
            if view:
                total = len(parents)
                size = (total + 7) // 8
                others = {name[1:] for name in view[size:].decode().split(",")}
                seen = [name for index, name in enumerate(parents) if is_set(view, index)]
                waiting = total - len(seen)
                parents = seen
                others.update(seen)
                needs = [name for name in needs if name in others]
            self._nodes.append((node_id, record, parents, needs, waiting))

    def missing(self) -> list[tuple[str, bool]]:
        """Name the nodes whose rows are still to be read, and say of which the output too."""
        rows, whole = self._rows, self._whole
        wanted: dict[str, bool] = {}
        for _, _, parents, needs, _ in self._nodes:
            for name in parents:
                if name not in rows:
                    wanted.setdefault(name, False)
            for name in needs:
                if name not in whole:
                    wanted[name] = True
        return list(wanted.items())

    def _add(self, names: Iterable[tuple[str, bool]], values: Sequence[bytes | None]) -> None:
        at = 0
        for name, with_output in names:
            outcome = values[at]
            output = values[at + 1] if with_output else None
            at += 2 if with_output else 1
            # An unsettled one has a record here, or nothing; it is then not seen either.
            if (
                outcome is None
                or not is_outcome(outcome)
                or name in (self._whole if with_output else self._rows)
            ):
                continue
            self._rows[name] = read_outcome(name, outcome, output)
            if with_output:
                self._whole.add(name)

    def add(self, names: Sequence[tuple[str, bool]], values: Sequence[bytes | None]) -> None:
        """Take what was read of the rows that were missing."""
        self._add(names, values)

    def applied(self) -> Applied:
        return Applied(Answer.YES, self.nodes(), self.queued)

    def nodes(self) -> Sequence[FreeNode]:
        """Make the nodes; none where rows are gone that were there when they were listed."""
        made = []
        rows, plan = self._rows, self._shape.plan
        for node_id, record, parents, needs, waiting in self._nodes:
            try:
                seen_parents = tuple([rows[name] for name in parents])
            except KeyError:
                return ()
            made.append(
                FreeNode(
                    self.row,
                    plan,
                    node_id,
                    record.attempt,
                    record.failures,
                    record.losses,
                    record.issued,
                    record.released,
                    seen_parents,
                    {name: rows[name] for name in needs if name in rows} if needs else {},
                    waiting,
                )
            )
        return made


def missing_fields(names: Sequence[tuple[str, bool]]) -> list[str]:
    return [field for name, with_output in names for field in fields_of(name, with_output=with_output)]
