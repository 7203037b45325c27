"""Messages between orchestrator and worker: a task for one attempt, a result back.

These are ``msgspec`` structs, not dataclasses: a frozen dataclass costs ten times as much to make,
and each attempt makes several. On a wire they are arrays (``weft.envelope``): a field may be added at the
end, with a default, and none be taken away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.core.attempt import AttemptRef
from weft.expressions.template import SecretSlot  # noqa: TC001 - the decoder reads the annotations

# Higher starts first.
PRIORITIES = {"low": 0, "normal": 1, "high": 2}


class Task(AttemptRef, frozen=True, kw_only=True, array_like=True, gc=False):
    """One attempt of one node, on its way to a worker that knows nothing of the graph."""

    digest: str
    handler: str
    queue: str
    priority: int
    config: bytes
    timeout_seconds: float
    queued_at: int
    # Of this generation, before this attempt: they come back with the result, so that judging it needs
    # no further look at the journal. An attempt is issued with fixed counts, so they cannot be stale.
    failures: int
    losses: int
    secrets: tuple[SecretSlot, ...] = ()
    resource_tag: str | None = None
    cache_key: str | None = None
    # Of its execution: subscribers of a namespace receive its events alone.
    namespace: str = "default"
    # A large config lies in the journal under this name; then ``config`` is empty.
    config_blob: str | None = None
    # What a result must bring back to be believed: nobody else can make it (``weft.envelope``).
    signature: bytes = b""
    # Of the execution's hot state that the task was made on: the store queues it under no other.
    epoch: int = 0
    # The names of the secrets that its function may read, beside those that stand in its config.
    granted: tuple[str, ...] = ()
    # Of a large config: its length, and what it takes in memory (``core.payload.weight_of``). Small: 0.
    config_bytes: int = 0
    config_weight: int = 0
    # The span that the attempt's is a child of: that of its execution, or the caller's where the process that
    # made the task exports no spans. None: there is no trace.
    traceparent: str | None = None
    # For the attempt's span alone: given where the process that made the task exports spans.
    workflow: str | None = None
    version: int | None = None
    # Of a node that polls: what tells this look from the others, and not its attempts; 0: it does not poll.
    look: int = 0

    @property
    def idempotency_key(self) -> str:
        key = f"{self.execution_id}/{self.node_id}/{self.generation}"
        return f"{key}/{self.look}" if self.look else key


class Result(AttemptRef, frozen=True, kw_only=True, array_like=True, gc=False):
    """The end of one attempt: an output or an error."""

    digest: str
    failures: int
    losses: int
    worker: str
    queued_at: int
    started_at: int
    finished_at: int
    output: bytes | None = None
    blob: str | None = None
    error: dict[str, Any] | None = None
    retry_after_seconds: float | None = None
    # Of an output that lies in a blob; 0 where it is at hand.
    output_bytes: int = 0
    cache_key: str | None = None
    # The attempt was lost with the process that ran it, and the worker lived to say so.
    lost: bool = False
    # Whether that loss counts towards MAX_DELIVERIES: not where a neighbour took the process down.
    charged: bool = True
    # The task's, as it came.
    signature: bytes = b""


class Wake(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A hint on the result stream: this execution has work that no result announces."""

    execution_id: str
    generation: int
    digest: str
