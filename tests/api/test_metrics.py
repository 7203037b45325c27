"""What is counted, and that nobody's names can make it grow without bound."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.play import QUICK, Play
from tests.api.sse import watch
from tests.walks.stage import Stage, echo, fails, node

from weft.core.event import NodeCompleted
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.rows import NodeRow
from weft.core.state import NodeState
from weft.definition.validation import check
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.registry import Registry
from weft.telemetry import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    MAX_LABEL_VALUES,
    METRICS,
    OTHER,
    QUEUE_DEPTH,
    Metrics,
    Names,
    Spread,
    metrics_page,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.conftest import Serve

    from weft.definition.plan import Plan

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def stage() -> Stage:
    return Stage(None)


@pytest.fixture
def registry(stage: Stage) -> Registry:
    return stage.registry


@pytest.fixture
async def play(serve: Serve, stage: Stage) -> AsyncIterator[Play]:
    async with serve(**QUICK) as server:
        stage._engine = server.engine
        yield Play(server, stage)


def read(text: str) -> dict[tuple[Any, ...], float]:
    """Read a page of metrics: name and label values, in the order of the labels' names, to the value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def counted(play: Play) -> dict[tuple[Any, ...], float]:
    answer = await play.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.body.decode())


# --- The list.


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_rules(metric: Any) -> None:
    assert re.fullmatch(r"weft_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is COUNTER)
    assert (metric.kind is HISTOGRAM) == bool(metric.bounds)
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert not {"id", "execution", "node", "attempt"} & set(metric.labels)
    assert metric.kind in (COUNTER, GAUGE, HISTOGRAM)
    assert "milli" not in metric.name
    assert "minutes" not in metric.name


def test_names_are_given_once() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_committed_page_is_the_list_in_the_code() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page(), (
        "redraw it: python -m weft.telemetry > docs/metrics.md"
    )


async def test_the_page_of_a_server_has_every_metric_of_the_list_and_those_of_the_process(play: Play) -> None:
    text = (await play.get("/metrics")).body.decode()
    declared = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {metric.name: metric.kind for metric in METRICS}.items() <= declared.items()
    assert "process_resident_memory_bytes" in declared


# --- What is counted.


async def test_executions_nodes_and_attempts_are_counted_by_how_they_ended(play: Play) -> None:
    await play.store(echo("a"), fails("b", "a"), echo("c", "b"), name="bad")
    await play.store(echo("a"), echo("b", "a"), name="good")
    for name in ("good", "good", "bad"):
        await play.ended(await play.start(name))
    found = await counted(play)
    assert found["weft_executions_started_total", "good"] == 2
    assert found["weft_executions_finished_total", "COMPLETED", "good"] == 2
    assert found["weft_executions_finished_total", "FAILED", "bad"] == 1
    assert found["weft_execution_duration_seconds_count", "good"] == 2
    assert found["weft_nodes_settled_total", "echo", "COMPLETED"] == 5
    assert found["weft_nodes_settled_total", "echo", "SKIPPED"] == 1
    assert found["weft_nodes_settled_total", "fail", "FAILED"] == 1
    assert found["weft_attempts_total", "echo", "completed"] == 5
    assert found["weft_attempts_total", "fail", "failed"] == 1
    assert found["weft_attempt_duration_seconds_count", "echo"] == 5
    assert found["weft_queue_wait_seconds_count", "echo"] == 5
    assert found["weft_queue_wait_seconds_count", "fail"] == 1
    assert found["weft_dead_letters_total", "handler_error"] == 1
    assert found["weft_dead_letters_open",] == 1


async def test_retries_late_results_and_stopped_attempts_are_counted(play: Play) -> None:
    await play.store(node("a", max_retries=1), node("b"))
    execution_id = await play.start()
    (await play.stage.call("a")).fail(ValueError("once"))
    again = await play.stage.call("a")
    running = await play.stage.call("b")
    assert (await play.control(execution_id, "cancel")).status == 202
    await play.stage.publish_late(running)
    found = await counted(play)
    async with asyncio.timeout(20):
        # It is on its way to the orchestrator.
        while found.get(("weft_results_discarded_total",)) != 1:
            await asyncio.sleep(0.01)
            found = await counted(play)
    assert found["weft_retries_total", "held"] == 1
    assert found["weft_attempts_total", "held", "failed"] == 1
    assert found["weft_attempts_total", "held", "cancelled"] == 2
    assert found["weft_nodes_settled_total", "held", "CANCELLED"] == 2
    assert again.context.attempt == 2


async def test_a_lost_attempt_is_counted(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    await play.stage.call("a")
    engine = play.server.engine
    await engine.ports.store.abandon(list(engine.worker._leases.values()))
    engine.orchestrator.nudge()
    again = await play.stage.call("a")
    assert again.context.attempt == 2
    again.complete(1)
    await play.ended(execution_id)
    found = await counted(play)
    assert found["weft_attempts_total", "held", "lost"] == 1
    assert found["weft_attempts_total", "held", "completed"] == 1
    assert found["weft_attempt_duration_seconds_count", "held"] == 1


async def test_an_attempt_whose_loss_fails_its_node_is_lost_and_not_failed(
    serve: Serve, stage: Stage
) -> None:
    async with serve(**QUICK, max_deliveries=1) as server:
        stage._engine = server.engine
        play = Play(server, stage)
        await play.store(node("a"))
        execution_id = await play.start()
        await stage.call("a")
        await server.engine.ports.store.abandon(list(server.engine.worker._leases.values()))
        server.engine.orchestrator.nudge()
        await play.ended(execution_id)
        found = await counted(play)
    assert found["weft_attempts_total", "held", "lost"] == 1
    assert ("weft_attempts_total", "held", "failed") not in found
    assert found["weft_nodes_settled_total", "held", "FAILED"] == 1
    assert found["weft_dead_letters_total", "deliveries_exhausted"] == 1


async def test_an_output_from_the_cache_is_a_hit_and_no_attempt(play: Play) -> None:
    await play.store(echo("a", cache={"ttl_seconds": 60}))
    for _ in range(2):
        await play.ended(await play.start())
    found = await counted(play)
    assert found["weft_cache_hits_total", "echo"] == 1
    assert found["weft_attempts_total", "echo", "completed"] == 1
    assert found["weft_nodes_settled_total", "echo", "COMPLETED"] == 2


async def test_a_retried_execution_is_counted_as_such(play: Play) -> None:
    await play.store(fails("a"))
    execution_id = await play.start()
    await play.ended(execution_id)
    await play.control(execution_id, "retry")
    await play.ended(execution_id)
    found = await counted(play)
    assert found["weft_executions_retried_total", "flow"] == 1
    assert found["weft_executions_started_total", "flow"] == 1
    assert found["weft_executions_finished_total", "FAILED", "flow"] == 2


async def test_what_there_is_to_do_is_shown(play: Play) -> None:
    await play.store(node("a"), node("b", "a"), echo("c", "b"))
    await play.start()
    call = await play.stage.call("a")
    await play.server.engine.worker.announce()
    async with watch(play.server, "/v1/events"):
        found = await counted(play)
        assert found["weft_event_streams_open",] == 1
    assert found["weft_executions_active", "RUNNING"] == 1
    assert found["weft_executions_active", "PAUSED"] == 0
    assert found["weft_nodes_unsettled",] == 3
    assert found["weft_queue_depth", "held"] == 0
    assert found["weft_queue_oldest_age_seconds", "held"] == 0
    assert found["weft_workers", "alive"] == 1
    concurrency = play.server.engine.worker.concurrency
    assert found["weft_worker_slots", "busy"] == 1
    assert found["weft_worker_slots", "free"] == concurrency - 1
    assert found["weft_journal_up",] == 1
    call.complete(1)


async def test_tasks_that_nobody_takes_are_shown_with_their_age(serve: Serve, stage: Stage) -> None:
    async with serve(**QUICK, worker_concurrency=1) as server:
        stage._engine = server.engine
        play = Play(server, stage)
        await play.store(node("a"), echo("b"), echo("c"))
        await play.start()
        await stage.call("a")
        found = await counted(play)
        assert found["weft_queue_depth", "echo"] == 2
        assert found["weft_queue_oldest_age_seconds", "echo"] > 0


async def test_commits_are_measured(play: Play) -> None:
    await play.store(echo("a"))
    await play.ended(await play.start())
    found = await counted(play)
    # The submission, which starts the execution, and the one node.
    assert found["weft_journal_commit_events_count",] == 2
    assert found["weft_journal_commit_duration_seconds_count",] == 2
    assert found["weft_journal_commit_duration_seconds_sum",] > 0


async def test_requests_are_counted_by_the_template_of_their_route(play: Play) -> None:
    await play.store(echo("a"))
    for _ in range(3):
        await play.ended(await play.start())
    await play.get("/v1/executions/none")
    await play.get("/nothing/here")
    await play.call("HEAD", "/healthz")
    await play.call("PURGE", "/healthz")
    found = await counted(play)
    assert found["weft_http_requests_total", "GET", "/v1/executions/{execution_id}", "200"] == 3
    assert found["weft_http_requests_total", "GET", "/v1/executions/{execution_id}", "404"] == 1
    assert found["weft_http_requests_total", "POST", "/v1/workflows/{name}/executions", "202"] == 3
    assert found["weft_http_requests_total", "GET", OTHER, "404"] == 1
    assert found["weft_http_requests_total", "GET", "/healthz", "200"] == 1
    assert found["weft_http_requests_total", OTHER, "/healthz", "405"] == 1
    assert found["weft_http_request_duration_seconds_count", "GET", "/v1/executions/{execution_id}"] == 4


async def test_without_the_journal_the_rest_is_shown(play: Play) -> None:
    await play.store(echo("a"))
    await play.ended(await play.start())
    await play.server.engine.ports.journal.close()
    found = await counted(play)
    assert found["weft_journal_up",] == 0
    assert ("weft_dead_letters_open",) not in found
    assert found["weft_nodes_settled_total", "echo", "COMPLETED"] == 1
    await play.server.engine.ports.journal.open()


async def test_two_servers_count_for_themselves(serve: Serve, tmp_path: Path) -> None:
    async with serve() as first, serve(data=tmp_path / "other") as second:
        await first.get("/healthz")
        theirs = read((await second.get("/metrics")).body.decode())
        assert not any("/healthz" in key for key in theirs)


# --- Bounds.


def test_a_label_has_a_bounded_number_of_values() -> None:
    names = Names(2)
    assert [names.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def completed(plan: Plan, *, output: bytes = b"1") -> RecordedEvent:
    """What is recorded when the only node of a plan completes."""
    (node_id,) = plan.nodes
    times: dict[str, Any] = {"queued_at": 1_000_000, "started_at": 1_500_000, "finished_at": 3_500_000}
    common: dict[str, Any] = {"generation": 1, "attempt": 1, **times}
    event = NodeCompleted(
        execution_id="x", node_id=node_id, output=output, output_bytes=len(output), **common
    )
    row = NodeRow(node_id=node_id, state=NodeState.COMPLETED, seq=3, recorded_at=4_000_000, **common)
    return RecordedEvent(event, Verdict.ACCEPTED, None, plan, (row,))


def plan_of(handler: str, **fields: Any) -> Plan:
    registry = Registry()
    if handler not in registry.names():
        registry.add(Handler(handler, HandlerKind.USER, lambda config, context: None, None))
    document = {"name": "one", "nodes": [{"id": "a", "handler": handler, **fields}]}
    plan = check(document, handlers=registry).plan
    assert plan is not None
    return plan


def test_handlers_and_queues_without_number_make_a_page_of_a_bounded_size() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_LABEL_VALUES):
        metrics.receive([completed(plan_of("echo", queue=f"q{number}"))])
    metrics.show(QUEUE_DEPTH, {(f"q{number}",): 1 for number in range(2 * MAX_LABEL_VALUES)})
    found = read(metrics.render().decode())
    waits = {key[1]: value for key, value in found.items() if key[0] == "weft_queue_wait_seconds_count"}
    assert len(waits) == MAX_LABEL_VALUES + 1
    assert waits[OTHER] == MAX_LABEL_VALUES
    assert found["weft_queue_depth", OTHER] == MAX_LABEL_VALUES
    assert len(metrics._node_counts) == MAX_LABEL_VALUES


def test_durations_fall_under_their_bounds() -> None:
    metrics = Metrics()
    metrics.receive([completed(plan_of("echo"))])
    found = read(metrics.render().decode())
    assert found["weft_attempt_duration_seconds_sum", "echo"] == 2.0
    assert found["weft_queue_wait_seconds_sum", "echo"] == 0.5
    buckets = {
        key[2]: value for key, value in found.items() if key[0] == "weft_attempt_duration_seconds_bucket"
    }
    assert (buckets["1.0"], buckets["2.5"], buckets["+Inf"]) == (0, 1, 1)
    # A bound belongs to what is under it.
    waits = {key[1]: value for key, value in found.items() if key[0] == "weft_queue_wait_seconds_bucket"}
    assert (waits["0.25"], waits["0.5"]) == (0, 1)


def test_a_value_over_every_bound_is_counted() -> None:
    spread = Spread((1, 2))
    for value in (0.5, 1, 1.5, 99):
        spread.add(value)
    assert (spread.counts, spread.sum) == ([2, 1, 1], 102)


def test_tokens_of_llm_calls_are_counted_by_model() -> None:
    metrics = Metrics()
    plan = plan_of("llm_service", config={"prompt": "hello"})
    reply = b'{"text": "hi", "model": "m-1", "usage": {"input_tokens": 12, "output_tokens": 3}}'
    strange = [b'{"model": null, "usage": null}', b'{"usage": {"input_tokens": "many"}}', b"[]", b'"text"']
    metrics.receive([completed(plan, output=output) for output in [reply, reply, *strange]])
    found = read(metrics.render().decode())
    tokens = {key[1:]: value for key, value in found.items() if key[0] == "weft_llm_tokens_total"}
    assert tokens == {("input", "m-1"): 24, ("output", "m-1"): 6}
