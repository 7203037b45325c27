"""Buffers messages that were read, so that an execution with many messages does not hold up one with few.

Messages come in the order in which they were sent, and a wide execution may have a whole window of them under
way. So an orchestrator reads more messages than it processes at once, and each batch has a share for every
execution in the buffer. A batch with messages of one execution alone is kept short while others wait for its
end.

The first messages of a definition that this process has not compiled come apart from the others: to compile
the largest takes more than a second. One collector waits for that, with a batch of such messages alone. The
other collectors serve the other messages meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.transport.contract import MessageDelivery

# Beside others, one execution has at most this part of a batch; and so many of its messages stay together,
# however many others there are: one commit and one call of the store do for all of them.
_SHORT = 4
_TOGETHER = 8
_MOST_DIGESTS = 10_000


class FairQueue:
    def __init__(self) -> None:
        # By execution, the one first that was served longest ago; apart: of uncompiled definitions.
        self._known: dict[str, list[MessageDelivery]] = {}
        self._uncompiled: dict[str, list[MessageDelivery]] = {}
        self._count = 0
        # Digests of compiled definitions. A digest that is forgotten counts as not compiled.
        self._seen_digests: dict[str, None] = {}
        self._took_uncompiled = False
        # The definitions of the batch that a collector compiles now.
        self._in_hand: set[str] = set()

    def __len__(self) -> int:
        return self._count

    @property
    def is_ready(self) -> bool:
        """True if there is a batch to take now: the rest waits for a definition that is being compiled."""
        return bool(self._known) or (bool(self._uncompiled) and not self._in_hand)

    def put(self, deliveries: Iterable[MessageDelivery]) -> None:
        for delivery in deliveries:
            message = delivery.message
            waiting = self._known if message.digest in self._seen_digests else self._uncompiled
            line = waiting.get(message.execution_id)
            if line is None:
                waiting[message.execution_id] = [delivery]
            else:
                line.append(delivery)
            self._count += 1

    def take(self, limit: int) -> list[MessageDelivery]:
        """Take a batch out, of at most so many."""
        # In turn, so that neither kind waits for the other alone.
        self._took_uncompiled = bool(
            self._uncompiled and not self._in_hand and not (self._took_uncompiled and self._known)
        )
        waiting = self._uncompiled if self._took_uncompiled else self._known
        is_alone = len(self._known) + len(self._uncompiled) <= 1
        short = limit if is_alone else max(1, limit // _SHORT)
        names = list(waiting)[:limit]
        share = min(short, max(limit // max(1, len(names)), _TOGETHER))
        batch: list[MessageDelivery] = []
        for name in names:
            batch += _out(waiting, name, min(share, limit - len(batch)))
            if len(batch) == limit:
                break
        self._count -= len(batch)
        if self._took_uncompiled:
            self._in_hand = {delivery.message.digest for delivery in batch}
        return batch

    def done(self, deliveries: Iterable[MessageDelivery]) -> None:
        """Note that a batch is done with, however it ended: the definitions that it brought have been met."""
        if not self._in_hand or not any(one.message.digest in self._in_hand for one in deliveries):
            return
        self._seen_digests.update(dict.fromkeys(self._in_hand))
        while len(self._seen_digests) > _MOST_DIGESTS:
            del self._seen_digests[next(iter(self._seen_digests))]
        for name in [
            name for name, line in self._uncompiled.items() if line[0].message.digest in self._in_hand
        ]:
            self._known[name] = self._known.get(name, []) + self._uncompiled.pop(name)
        self._in_hand = set()

    def clear(self) -> None:
        self._known.clear()
        self._uncompiled.clear()
        self._in_hand = set()
        self._count = 0


def _out(waiting: dict[str, list[MessageDelivery]], name: str, count: int) -> Iterable[MessageDelivery]:
    """Take up to so many of an execution out. Where it has more, it is the last to be served again."""
    line = waiting.pop(name)
    if len(line) <= count:
        return line
    waiting[name] = line[count:]
    return line[:count]
