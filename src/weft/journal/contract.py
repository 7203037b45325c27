"""Durable history: the only truth.

What every journal promises:

- ``submit`` and ``record`` have committed when they return; what they wrote survives the death of every
  process. JournalError: nothing was written. OutcomeUnknownError: perhaps it was, and recording the same
  again is safe, because the fence knows what it has.
- One transaction per call, with the executions concerned locked in the order of their ids. The verdicts
  and changes are those of ``core.ledger``.
- Events of one execution are numbered 1, 2, 3 … without gaps, in the order of commit.
- Payloads come back byte for byte.
- Every row belongs to a namespace, and a read names the namespace it may see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.event import Event
    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.core.row import DeadLetter, ExecutionRow, History, NodeRow
    from weft.core.snapshot import Snapshot

DEFAULT_NAMESPACE = "default"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A new execution of a plan."""

    id: str
    plan: Plan
    # The definition's document as JSON: stored once per digest.
    document: bytes
    input: bytes
    namespace: str = DEFAULT_NAMESPACE
    workflow: str | None = None
    version: int | None = None
    labels: dict[str, str] = {}
    priority: str = "normal"
    batch: str | None = None


class ActiveExecution(msgspec.Struct, frozen=True):
    """An execution that is not terminal, as far as the sweep needs it."""

    id: str
    generation: int
    epoch: int
    updated_at: int


class Journal(Protocol):
    async def open(self) -> None:
        """Make the journal ready; raises JournalError or DataFolderError where it cannot be."""

    async def close(self) -> None:
        """End what is under way and let go of everything."""

    async def submit(self, submissions: Sequence[Submission]) -> Sequence[ExecutionRow]:
        """Store new executions, all or none, each PENDING in generation 1 and epoch 1."""

    async def record(self, events: Sequence[Event]) -> Sequence[Standing]:
        """Record events in order, in one transaction, each under the fence."""

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        """Commit epoch + 1 and read the rows in the same transaction; None where another was quicker.

        A terminal execution's epoch stays: its snapshot says so.
        """

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        """List executions that are not terminal and have not changed since then."""

    async def plan(self, digest: str) -> Plan | None:
        """Give a stored definition, made ready to run; kept for the next caller."""

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        """Read one execution."""

    async def nodes(self, execution_id: str) -> Mapping[str, NodeRow]:
        """Read the rows of an execution's nodes; a node without a row is not listed."""

    async def events(self, execution_id: str, *, after: int = 0, limit: int = 500) -> Sequence[History]:
        """Read the history after event number ``after``."""

    async def executions(
        self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 50
    ) -> Sequence[ExecutionRow]:
        """List executions, newest first."""

    async def dead_letters(
        self, *, execution_id: str | None = None, namespace: str = DEFAULT_NAMESPACE, limit: int = 50
    ) -> Sequence[DeadLetter]:
        """List dead letters, newest first."""

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Look outputs up in the result cache; what is missing or too old is not in the answer."""

    async def put_blob(self, payload: bytes) -> str:
        """Store a large payload and give its name."""

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Read large payloads."""
