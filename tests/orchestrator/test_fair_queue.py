"""Messages in hand, and whose turn it is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weft.core.task import Wake
from weft.orchestrator.fair_queue import FairQueue
from weft.transport.contract import MessageDelivery

if TYPE_CHECKING:
    from collections.abc import Iterator


def _messages(execution: str, count: int, digest: str = "d", first: int = 0) -> Iterator[MessageDelivery]:
    for number in range(first, first + count):
        yield MessageDelivery(f"{execution}-{number}", Wake(execution, 1, digest))


def _taken(queue: FairQueue, limit: int = 256) -> Counter[str]:
    return Counter(delivery.message.execution_id for delivery in queue.take(limit))


def _queue(*digests: str) -> FairQueue:
    """Return a queue that has met definitions."""
    queue = FairQueue()
    for digest in digests:
        queue.put(_messages("first", 1, digest))
        queue.done(queue.take(1))
    return queue


def test_who_sends_few_does_not_wait_for_who_sends_many() -> None:
    queue = _queue("d")
    queue.put(_messages("wide", 1000))
    queue.put(_messages("small", 2))
    # The batch is short, too: the small one's messages are behind what else is in it.
    assert _taken(queue) == {"wide": 64, "small": 2}
    assert _taken(queue) == {"wide": 256}
    assert len(queue) == 680


def test_one_alone_has_whole_batches() -> None:
    queue = _queue("d")
    queue.put(_messages("wide", 300))
    assert [_taken(queue)["wide"], _taken(queue)["wide"], _taken(queue)["wide"]] == [256, 44, 0]


def test_of_many_each_has_its_messages_together_and_the_others_are_next() -> None:
    queue = _queue("d")
    for number in range(300):
        queue.put(_messages(f"e{number}", 2))
    first, second = _taken(queue), _taken(queue)
    assert first == {f"e{number}": 2 for number in range(128)}
    assert second == {f"e{number}": 2 for number in range(128, 256)}


def test_among_many_who_sends_much_has_little_of_a_batch() -> None:
    queue = _queue("d")
    for number in range(10):
        queue.put(_messages(f"wide{number}", 100))
    for number in range(90):
        queue.put(_messages(f"e{number}", 1))
    assert _taken(queue) == {f"wide{number}": 8 for number in range(10)} | {
        f"e{number}": 1 for number in range(90)
    }
    # Alone with each other they share it out.
    assert _taken(queue) == {f"wide{number}": 25 for number in range(10)}


def test_an_execution_s_messages_keep_their_order() -> None:
    queue = _queue("d")
    queue.put(_messages("one", 3))
    queue.put(_messages("two", 1))
    queue.put(_messages("one", 2, first=3))
    ids = [delivery.id for _ in range(9) for delivery in queue.take(2)]
    assert [one for one in ids if str(one).startswith("one")] == [f"one-{number}" for number in range(5)]
    assert len(ids) == 6
    assert len(queue) == 0


def test_a_definition_that_was_not_met_holds_up_no_other() -> None:
    queue = _queue("d")
    queue.put(_messages("small", 2))
    queue.put(_messages("new", 1, "large"))
    queue.put(_messages("other", 1, "also new"))
    assert _taken(queue) == {"small": 2}
    # Neither kind waits while more of the other come.
    queue.put(_messages("small", 1))
    strange = queue.take(256)
    assert {delivery.message.execution_id for delivery in strange} == {"new", "other"}
    queue.put(_messages("newer", 1, "one more"))
    assert _taken(queue) == {"small": 1}
    queue.done(strange)
    strange = queue.take(256)
    assert {delivery.message.execution_id for delivery in strange} == {"newer"}
    queue.done(strange)
    # Now they are met.
    queue.put(_messages("new", 1, "large"))
    queue.put(_messages("small", 1))
    assert _taken(queue) == {"new": 1, "small": 1}


def test_one_batch_waits_for_a_definition_and_the_others_are_served_meanwhile() -> None:
    """Two collectors that both waited for the same definition held up everybody else for seconds."""
    queue = _queue("d")
    queue.put(_messages("wide", 300, "large"))
    strange = queue.take(256)
    assert len(strange) == 256
    queue.put(_messages("wide", 10, "large", first=300))
    queue.put(_messages("small", 1))
    ready = [queue.is_ready]
    assert _taken(queue) == {"small": 1}
    ready.append(queue.is_ready)
    assert queue.take(256) == []
    assert len(queue) == 54
    queue.done(strange)
    ready.append(queue.is_ready)
    assert ready == [True, False, True]
    assert [delivery.id for delivery in queue.take(256)] == [f"wide-{number}" for number in range(256, 310)]


def test_a_batch_of_known_definitions_meets_no_other() -> None:
    queue = _queue("d")
    queue.put(_messages("new", 2, "large"))
    strange = queue.take(1)
    queue.put(_messages("small", 1))
    queue.done(queue.take(256))
    assert not queue.is_ready
    queue.done(strange)
    assert _taken(queue) == {"new": 1}


def test_nothing_is_left_when_it_is_cleared() -> None:
    queue = _queue("d")
    queue.put(_messages("known", 1))
    queue.put(_messages("strange", 1, "new"))
    queue.clear()
    assert len(queue) == 0
    assert queue.take(9) == []
