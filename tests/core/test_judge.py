"""Every way an attempt can end, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.core.event import AttemptFailed, AttemptLost, Event, NodeCompleted, NodeFailed, Skip
from weft.core.judge import judge, judge_loss
from weft.core.task import Result
from weft.definition.plan import compile_plan
from weft.testing.walk import an_error, node, workflow

if TYPE_CHECKING:
    from collections.abc import Container

    from weft.core.payload import Json

NOW = 1_700_000_000_000_000
MAX_DELIVERIES = 3
TIMES: dict[str, Any] = {"queued_at": NOW - 30, "started_at": NOW - 20, "finished_at": NOW - 10}
RETRY = {"base_delay_seconds": 1, "multiplier": 2, "max_delay_seconds": 60, "jitter": 0.5}


def plan_of(**fields: Json) -> Any:
    given = {"max_retries": 2, "retry": RETRY, **fields}
    return compile_plan(workflow(node("a", **given), node("b", "a"), node("c", "b")))


def result(**fields: Any) -> Result:
    given: dict[str, Any] = {
        "execution_id": "x1",
        "generation": 1,
        "node_id": "a",
        "attempt": 1,
        "digest": "d",
        "failures": 0,
        "losses": 0,
        "worker": "w",
        **TIMES,
    }
    return Result(**{**given, **fields})


def judged(given: Result, *, draw: float = 0.0, settled: Container[str] = (), **fields: Json) -> Event:
    plan = plan_of(**fields)
    return judge(given, plan, draw=draw, max_deliveries=MAX_DELIVERIES, settled=lambda *_: settled)


def lost(**fields: Any) -> Event:
    delivery = fields.pop("delivery", "at_least_once")
    given = {"losses": 0, "started": True, "issued": False, "max_deliveries": MAX_DELIVERIES, **fields}
    retries = {} if delivery == "at_least_once" else {"max_retries": 0}
    return judge_loss(result(attempt=4), plan_of(delivery=delivery, **retries), **given)


class TestAnOutput:
    def test_completes_the_node(self) -> None:
        assert judged(result(output=b'{"x":1}', cache_key="k")) == NodeCompleted(
            execution_id="x1",
            generation=1,
            node_id="a",
            attempt=1,
            worker="w",
            **TIMES,
            output=b'{"x":1}',
            output_bytes=7,
            cache_key="k",
        )

    def test_in_a_blob_has_the_size_the_worker_says(self) -> None:
        event = judged(result(blob="name", output_bytes=9_000_000))
        assert isinstance(event, NodeCompleted)
        assert (event.output, event.blob, event.output_bytes) == (None, "name", 9_000_000)


class TestAFailure:
    def test_that_may_be_retried_has_another_attempt_after_its_wait(self) -> None:
        event = judged(result(error=an_error(retryable=True)), draw=0.5)
        assert isinstance(event, AttemptFailed)
        assert event.delay_seconds == 1.25
        assert (event.error["code"], event.attempt) == ("handler_error", 1)

    def test_waits_longer_after_each_of_its_generation(self) -> None:
        event = judged(result(error=an_error(retryable=True), failures=1, attempt=7))
        assert isinstance(event, AttemptFailed)
        assert event.delay_seconds == 2

    def test_waits_at_least_as_long_as_it_was_told(self) -> None:
        event = judged(result(error=an_error(retryable=True), retry_after_seconds=90.0))
        assert isinstance(event, AttemptFailed)
        assert event.delay_seconds == 90

    @pytest.mark.parametrize(
        ("code", "asked", "retry", "delay"),
        [
            ("http_status", 7200.0, {}, 3600.0),
            ("http_status", 7200.0, {"max_delay_seconds": 5000}, 5000.0),
            ("http_status", 1e12, {"max_delay_seconds": 100}, 3600.0),
            ("http_status", 3599.0, {}, 3599.0),
            # The author of the workflow wrote the function: what it asks for is not cut.
            ("handler_error", 7200.0, {}, 7200.0),
        ],
    )
    def test_what_a_service_asks_for_has_a_ceiling(
        self, code: str, asked: float, retry: dict[str, Json], delay: float
    ) -> None:
        error = {**an_error(retryable=True), "code": code}
        event = judged(result(error=error, retry_after_seconds=asked), retry=retry)
        assert isinstance(event, AttemptFailed)
        assert event.delay_seconds == delay

    @pytest.mark.parametrize(
        ("given", "fields"),
        [
            (result(error=an_error(retryable=False)), {}),
            (result(error=an_error(retryable=True), failures=2), {}),
            (result(error=an_error(retryable=True)), {"max_retries": 0}),
            (result(error=an_error(retryable=True)), {"delivery": "at_most_once", "max_retries": 0}),
        ],
        ids=["not retryable", "retries used up", "no retries", "at most once"],
    )
    def test_for_good_comes_with_the_skips_behind_it(self, given: Result, fields: dict[str, Json]) -> None:
        event = judged(given, **fields)
        assert isinstance(event, NodeFailed)
        assert event.skips == (
            Skip("b", "upstream_failed", "a"),
            Skip("c", "upstream_failed", "a"),
        )
        assert (event.lost, event.worker, event.started_at) == (False, "w", NOW - 20)

    def test_does_not_walk_again_what_is_known_to_be_settled(self) -> None:
        event = judged(result(error=an_error()), settled={"b"})
        assert isinstance(event, NodeFailed)
        assert event.skips == ()

    def test_losses_before_it_count_for_nothing(self) -> None:
        assert isinstance(judged(result(error=an_error(retryable=True), losses=2)), AttemptFailed)


class TestALoss:
    def test_is_followed_by_another_attempt_and_is_no_failure(self) -> None:
        event = lost()
        assert isinstance(event, AttemptLost)
        assert (event.attempt, event.counted) == (4, True)

    def test_of_an_attempt_nobody_is_known_to_have_started_is_not_counted(self) -> None:
        event = lost(started=False, losses=99)
        assert isinstance(event, AttemptLost)
        assert not event.counted

    @pytest.mark.parametrize("losses", range(MAX_DELIVERIES - 1))
    def test_is_allowed_fewer_times_in_a_row_than_the_bound(self, losses: int) -> None:
        assert isinstance(lost(losses=losses), AttemptLost)

    def test_as_often_as_the_bound_fails_the_node(self) -> None:
        event = lost(losses=MAX_DELIVERIES - 1)
        assert isinstance(event, NodeFailed)
        assert event.lost
        assert event.error == {
            "code": "deliveries_exhausted",
            "message": "3 started attempts in a row were lost with their worker",
            "retryable": False,
        }
        assert len(event.skips) == 2

    def test_of_an_issued_at_most_once_attempt_fails_the_node(self) -> None:
        event = lost(delivery="at_most_once", issued=True)
        assert isinstance(event, NodeFailed)
        assert event.lost
        assert event.error["code"] == "lost"

    def test_of_an_at_most_once_attempt_that_was_not_issued_is_one_like_any(self) -> None:
        assert isinstance(lost(delivery="at_most_once", issued=False, started=False), AttemptLost)

    def test_of_an_at_most_once_attempt_that_started_fails_the_node_though_its_issue_is_lost(self) -> None:
        event = lost(delivery="at_most_once", issued=False, started=True)
        assert isinstance(event, NodeFailed)
        assert event.error["code"] == "lost"

    def test_of_an_at_most_once_attempt_counts_even_if_no_start_is_known(self) -> None:
        assert isinstance(lost(delivery="at_most_once", issued=True, started=False), NodeFailed)

    def test_that_a_worker_lived_to_tell_is_the_same(self) -> None:
        event = judged(result(lost=True, losses=1))
        assert isinstance(event, AttemptLost)
        assert event.counted
        assert isinstance(judged(result(lost=True, losses=2)), NodeFailed)

    def test_that_is_not_its_own_fault_is_not_charged(self) -> None:
        event = judged(result(lost=True, losses=99, charged=False))
        assert isinstance(event, AttemptLost)
        assert not event.counted

    def test_told_of_an_at_most_once_attempt_fails_the_node(self) -> None:
        event = judged(result(lost=True), delivery="at_most_once", max_retries=0)
        assert isinstance(event, NodeFailed)
        assert event.error["code"] == "lost"

    def test_ends_its_cascade_where_something_is_settled(self) -> None:
        event = judged(result(lost=True, losses=2), settled={"c"})
        assert isinstance(event, NodeFailed)
        assert [skip.node_id for skip in event.skips] == ["b"]
