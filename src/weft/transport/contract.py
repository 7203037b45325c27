"""Tasks out, results back: at least once, never relied upon.

A message may be lost, doubled, delayed or reordered; correctness never rests on it. What a transport
promises is that what it was given and not lost is delivered, and delivered again until it is
acknowledged. Between the tasks of one queue a higher priority goes first, and nothing is starved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from weft.core.task import Result, Task, Wake

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Sequence

Message: TypeAlias = Result | Wake
# What a transport knows a delivery by: to everybody else a name, and no more.
DeliveryId: TypeAlias = int | str | tuple[int, str, bytes, int]


class TaskDelivery(msgspec.Struct, frozen=True, gc=False):
    id: DeliveryId
    task: Task


class MessageDelivery(msgspec.Struct, frozen=True, gc=False):
    id: DeliveryId
    message: Message


class QueueStatus(msgspec.Struct, frozen=True, gc=False):
    name: str
    depth: int
    in_flight: int
    # When the task that waits longest was sent, in microseconds; None when none waits.
    oldest_at: int | None


class Transport(Protocol):
    # Whether queue() of the store also sends, in the same step. Where it does not, the mover sends.
    joint: bool

    async def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks to their queues."""

    async def fetch(
        self,
        consumer: str,
        *,
        queues: Collection[str] | None,
        limit: int,
        wait_seconds: float,
        handlers: Container[str] | None = None,
    ) -> Sequence[TaskDelivery]:
        """Take up to ``limit`` tasks of these queues (None: of all), waiting a while for the first.

        ``handlers``: those that the consumer has (None: all). A task of any other waits for one who has it.
        """

    async def ack_tasks(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        """Acknowledge tasks: they need no further delivery.

        No error where the transport is away: those tasks are delivered again, and refused at their start.
        """

    async def publish(self, messages: Sequence[Message]) -> None:
        """Append to the result stream."""

    async def read(self, consumer: str, *, limit: int, wait_seconds: float) -> Sequence[MessageDelivery]:
        """Take up to ``limit`` messages that no other consumer has, waiting a while for the first.

        Messages that were sent as one come together, so a few more than ``limit`` may come.
        """

    async def ack(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        """Acknowledge messages. No error where the transport is away: those are delivered again."""

    async def claim(
        self, consumer: str, *, idle_seconds: float, limit: int
    ) -> tuple[Sequence[MessageDelivery], Sequence[TaskDelivery]]:
        """Take over what others took and did not acknowledge for so long."""

    async def unacknowledged(self, consumer: str, *, limit: int) -> Sequence[MessageDelivery]:
        """Return again the messages that this consumer took and did not acknowledge, the oldest first."""

    async def leave(self, consumer: str) -> None:
        """Forget a consumer that stops. Tasks that it took and did not acknowledge are there for others now.

        One that has messages unacknowledged is not forgotten: they are claimed by others in time.
        """

    async def queues(self) -> Sequence[QueueStatus]:
        """Show the depth of each queue."""
