"""A new execution as a journal is given it, and the idempotency key that it may come with."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations

import msgspec

from weft.core.rows import NodeRow  # noqa: TC001 - the same
from weft.definition.plan import Plan  # noqa: TC001 - the same

DEFAULT_NAMESPACE = "default"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A new execution of a plan."""

    id: str
    plan: Plan
    # The definition's document as JSON, stored once per digest; b"": the journal has it as that of a version.
    document: bytes
    input: bytes
    namespace: str = DEFAULT_NAMESPACE
    workflow: str | None = None
    version: int | None = None
    labels: dict[str, str] = {}
    priority: str = "normal"
    batch: str | None = None
    partition: int = 0
    # Whether the commit that accepts the execution also starts it. Not where the store is away: an
    # execution that is PENDING has no task anywhere.
    starts: bool = False
    # The caller that submitted the execution: the name of an API key, or of the way in.
    actor: str | None = None
    # Of a fork: the execution that it is made of, and the settled rows that it takes over from there.
    forked_from: str | None = None
    kept: Sequence[NodeRow] = ()
    # The caller's place in a trace: a valid ``traceparent``, or None.
    traceparent: str | None = None
    # The trigger that starts it, and its lane. ``queue_slots``: it waits in its lane, PENDING, until fewer
    # than so many others of the lane run; 0: it does not wait.
    trigger: str | None = None
    lane: str | None = None
    queue_slots: int = 0
    # The group that it counts in, with those of its workflow's name (``core.rows.ExecutionRow.group_lane``).
    group_name: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key: taken in the transaction that makes what it stands for, or not at all."""

    key: str
    # Of the request that came with it: the same key with another request is a conflict.
    request_digest: str
    # What it started, as "execution/ID" or "batch/ID". The claim is kept as long as that is.
    resource: str
    namespace: str = DEFAULT_NAMESPACE
