"""Hot state follows the journal, whoever died in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import (
    CancelRequested,
    ExecutionStarted,
    NodeCompleted,
    NodeFailed,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from weft.core.ledger.changes import Verdict
from weft.core.task import Wake
from weft.definition.plan import compile_plan
from weft.journal.contract import Submission
from weft.orchestrator.control import pause
from weft.orchestrator.recover import rebuild, recover
from weft.orchestrator.submit import submit
from weft.store.contract import Answer
from weft.testing.walk import an_error

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.ports import Ports

PLAN = compile_plan({"name": "pair", "nodes": [{"id": "a", "handler": "echo"}]})


def submission(execution_id: str) -> Submission:
    return Submission(id=execution_id, plan=PLAN, document=b"{}", input=b"{}")


async def test_a_submit_that_died_after_its_commit_is_taken_up(ports: Ports, clock: VirtualClock) -> None:
    await ports.journal.submit([submission("x")])
    assert await ports.store.epochs(["x"]) == [None]
    assert await recover(ports, grace_seconds=5) == 0  # it may be on its way just now
    clock.advance(6)
    assert await recover(ports, grace_seconds=5) == 1
    assert await ports.store.epochs(["x"]) == [2]


async def test_a_cancel_that_died_after_its_commit_is_closed_in_the_store(
    ports: Ports, clock: VirtualClock
) -> None:
    await submit([submission("x")], ports)
    await ports.journal.record([CancelRequested(execution_id="x", generation=0)])
    assert await ports.store.epochs(["x"]) == [1]
    clock.advance(6)
    await recover(ports, grace_seconds=5)
    assert await ports.store.epochs(["x"]) == [None]


async def test_a_pause_that_died_after_its_commit_reaches_the_store(
    ports: Ports, clock: VirtualClock
) -> None:
    await submit([submission("x")], ports)
    clock.advance(1)
    await ports.journal.record([PauseRequested(execution_id="x", generation=0)])
    assert not await is_paused_in_store(ports)
    clock.advance(6)
    await recover(ports, grace_seconds=5)
    assert await is_paused_in_store(ports)


async def test_a_resume_that_died_after_its_commit_reaches_the_store_and_is_announced(
    ports: Ports, clock: VirtualClock
) -> None:
    await submit([submission("x")], ports)
    await pause("x", ports)
    clock.advance(1)
    await ports.journal.record([ResumeRequested(execution_id="x", generation=0)])
    await ports.transport.read("before", limit=10, wait_seconds=0)
    clock.advance(6)
    assert await recover(ports, grace_seconds=5) == 0  # told, and not built anew: what runs goes on
    assert not await is_paused_in_store(ports)
    assert await ports.store.epochs(["x"]) == [1]
    (wake,) = await ports.transport.read("after", limit=10, wait_seconds=0)
    assert wake.message == Wake("x", 1, PLAN.digest)


async def test_results_that_are_discarded_do_not_hide_a_retry_that_died_after_its_commit(
    ports: Ports, clock: VirtualClock
) -> None:
    await submit([submission("x")], ports)
    await ports.journal.record(
        [
            ExecutionStarted(execution_id="x", generation=1),
            NodeFailed(execution_id="x", generation=1, node_id="a", attempt=1, error=an_error()),
        ]
    )
    await ports.store.close("x", generation=1, epoch=1)
    await ports.journal.record([RetryRequested(execution_id="x", generation=0)])
    # A result of the generation before that is delivered again and again: its acknowledgement is lost.
    late = NodeCompleted(execution_id="x", generation=1, node_id="a", attempt=1, output=b"1", output_bytes=1)
    for _ in range(7):
        clock.advance(1)
        (recorded_event,) = await ports.journal.record([late])
        assert recorded_event.verdict is Verdict.STALE
    assert await recover(ports, grace_seconds=5) == 1


async def is_paused_in_store(ports: Ports) -> bool:
    status = await ports.store.inspect("x")
    assert status is not None
    return status.paused


async def test_an_execution_that_is_merely_slow_is_left_alone(ports: Ports, clock: VirtualClock) -> None:
    await submit([submission("x")], ports)
    clock.advance(3600)
    assert await recover(ports, grace_seconds=5) == 0
    assert await ports.store.epochs(["x"]) == [1]


async def test_what_a_peer_has_rebuilt_meanwhile_is_not_rebuilt_again(
    ports: Ports, clock: VirtualClock
) -> None:
    """Both have found that the store does not have it, and the peer is quicker."""
    await ports.journal.submit([submission("x")])
    clock.advance(6)
    unchanged = ports.store.idle_since
    by_the_peer: list[int] = []

    async def after_the_peer(since: int) -> dict[str, int]:
        ports.store.idle_since = unchanged  # type: ignore[method-assign]
        by_the_peer.append(await recover(ports, grace_seconds=5))
        return dict(await unchanged(since))

    ports.store.idle_since = after_the_peer  # type: ignore[method-assign]
    assert await recover(ports, grace_seconds=5) == 0
    assert by_the_peer == [1]
    assert await ports.store.epochs(["x"]) == [2]


async def test_of_two_builders_the_later_epoch_stays(ports: Ports) -> None:
    await submit([submission("x")], ports)
    incarnation_id = await ports.store.incarnation_id()
    early = await ports.journal.rebuild("x", seen_epoch=1)
    assert early is not None
    assert await ports.journal.rebuild("x", seen_epoch=1) is None  # the other one was quicker
    assert await rebuild("x", ports) is Answer.YES
    assert list(await ports.store.install([early], incarnation_id=incarnation_id, fresh=False)) == [
        Answer.REFUSED
    ]
    assert await ports.store.epochs(["x"]) == [3]
