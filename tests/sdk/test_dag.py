"""Graphs built at run time, on the same engine."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from weft import (
    DefinitionError,
    InputError,
    NonRetryable,
    TokenBucketRateLimiter,
    WorkflowDAG,
    WorkflowExecutor,
    WorkflowResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Context = Mapping[str, Any]

AT_ONCE: Any = {"base_delay_seconds": 0}


async def execute(dag: WorkflowDAG, context: Context | None = None, **options: Any) -> WorkflowResult:
    return await WorkflowExecutor(**options).execute(dag, context)


def fail(context: Context) -> None:
    raise NonRetryable("no")


def nothing(context: Context) -> None:
    return None


# --- Running.


async def test_a_graph_built_at_run_time_runs_to_its_result() -> None:
    dag = WorkflowDAG("document")
    dag.add_step("extract", lambda context: context["text"].split())
    for word in range(3):
        dag.add_step(
            f"word-{word}",
            lambda context, word=word: context["extract"][word].upper(),  # type: ignore[misc]
            depends_on=["extract"],
        )

    async def join(context: Context) -> str:
        return " ".join(context[f"word-{word}"] for word in range(3))

    dag.add_step("join", join, depends_on=[f"word-{word}" for word in range(3)])
    result = await execute(dag, {"text": "warp weft loom"})
    assert result.status == "COMPLETED"
    assert result.completed == ["extract", "word-0", "word-1", "word-2", "join"]
    assert (result.failed, result.skipped) == ([], [])
    step = result.steps["join"]
    assert (step.status, step.output, step.error, step.retries) == ("COMPLETED", "WARP WEFT LOOM", None, 0)
    assert step.duration is not None
    assert 0 <= step.duration <= result.duration


async def test_coroutines_run_on_the_loop_and_functions_in_threads() -> None:
    dag = WorkflowDAG("graph")
    threads: dict[str, str] = {}

    async def on_the_loop(context: Context) -> None:
        threads["coroutine"] = threading.current_thread().name

    dag.add_step("a", on_the_loop)
    dag.add_step("b", lambda context: threads.update(function=threading.current_thread().name))
    await execute(dag)
    assert threads == {"coroutine": threading.current_thread().name, "function": "weft-function"}


async def test_what_is_given_may_be_any_objects_and_outputs_are_json() -> None:
    client = object()
    seen: list[object] = []
    dag = WorkflowDAG("graph")
    dag.add_step("use", lambda context: seen.append(context["client"]))
    dag.add_step("leak", lambda context: context["client"], depends_on=["use"])
    result = await execute(dag, {"client": client})
    assert seen == [client]
    error = result.steps["leak"].error
    assert error is not None
    assert error["code"] == "output_not_json"


async def test_graphs_of_one_shape_do_not_mix() -> None:
    def graph(word: str) -> WorkflowDAG:
        dag = WorkflowDAG("graph")
        dag.add_step(
            "say", lambda context: f"{word} {context['n']}", condition=lambda context: word != "three"
        )
        return dag

    executor = WorkflowExecutor()
    words = ["one", "two", "three"]
    results = await asyncio.gather(*(executor.execute(graph(word), {"n": word}) for word in words))
    assert [result.steps["say"].output for result in results] == ["one one", "two two", None]
    assert results[2].skipped == ["say"]


async def test_a_graph_may_grow_between_executions() -> None:
    dag = WorkflowDAG("graph")
    executor = WorkflowExecutor()
    dag.add_step("a", nothing)
    assert (await executor.execute(dag)).completed == ["a"]
    dag.add_step("b", nothing, depends_on=["a"])
    assert (await executor.execute(dag)).completed == ["a", "b"]


def test_an_executor_outlives_its_loop() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", nothing)
    executor = WorkflowExecutor()
    for _ in range(2):
        assert asyncio.run(executor.execute(dag)).status == "COMPLETED"


async def test_a_long_chain_sees_all_its_ancestors() -> None:
    dag = WorkflowDAG("chain")
    dag.add_step("s0", lambda context: 1)
    for n in range(1, 300):
        dag.add_step(f"s{n}", lambda context, n=n: context[f"s{n - 1}"] + 1, depends_on=[f"s{n - 1}"])  # type: ignore[misc]
    dag.add_step("sum", lambda context: sum(context.values()), depends_on=["s299"])
    assert (await execute(dag)).steps["sum"].output == sum(range(1, 301))


# --- The context.


async def test_the_context_maps_what_was_given_and_each_ancestors_output() -> None:
    seen: list[dict[str, Any]] = []
    dag = WorkflowDAG("graph")
    dag.add_step("a", lambda context: {"n": 1})
    dag.add_step("aside", lambda context: "unseen")
    dag.add_step("b", lambda context: 2, depends_on=["a"])
    dag.add_step("c", lambda context: seen.append(dict(context)), depends_on=["b"])
    await execute(dag, {"given": 0})
    assert seen == [{"given": 0, "a": {"n": 1}, "b": 2}]


async def test_the_context_is_a_mapping() -> None:
    facts: list[Any] = []

    def look(context: Context) -> None:
        facts.extend([len(context), list(context), "a" in context, "b" in context, context.get("b", "none")])
        facts.append(context == {"given": 0, "a": 1})

    dag = WorkflowDAG("graph")
    dag.add_step("a", lambda context: 1)
    dag.add_step("look", look, depends_on=["a"])
    await execute(dag, {"given": 0})
    assert facts == [2, ["given", "a"], True, False, "none", True]


async def test_an_ancestor_that_did_not_complete_is_none() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("no", nothing, condition="false")
    dag.add_step("yes", lambda context: 1)
    dag.add_step("join", lambda context: [context["no"], context["yes"]], depends_on=["no", "yes"])
    assert (await execute(dag)).steps["join"].output == [None, 1]


async def test_an_output_goes_before_what_was_given_under_its_name() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", lambda context: f"{context['a']} and more")
    dag.add_step("b", lambda context: context["a"], depends_on=["a"])
    assert (await execute(dag, {"a": "given"})).steps["b"].output == "given and more"


@pytest.mark.parametrize(
    ("key", "message"),
    [("a", "a does not run before b; add it to its depends_on"), ("x", "x was not given, and is no step")],
)
async def test_a_missing_key_says_what_to_do(key: str, message: str) -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", nothing)
    dag.add_step("b", lambda context: context[key], max_retries=0)
    error = (await execute(dag)).steps["b"].error
    assert error is not None
    assert message in error["message"]


# --- Conditions.


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ("a.n == 1 and nodes['a'].state == 'COMPLETED'", True),
        ("a.n == 2", False),
        ("input.word == 'yes'", True),
        ("input.word is defined and input.nothing is defined", False),
        (lambda context: context["a"]["n"] == 1 and context["word"] == "yes", True),
        (lambda context: [], False),
    ],
)
async def test_a_condition_is_an_expression_or_a_function_of_the_context(
    condition: str | Callable[[Context], bool], runs: bool
) -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", lambda context: {"n": 1})
    dag.add_step("b", nothing, depends_on=["a"], condition=condition)
    result = await execute(dag, {"word": "yes", "client": object()})
    assert result.status == "COMPLETED"
    assert result.completed == (["a", "b"] if runs else ["a"])
    if not runs:
        step = result.steps["b"]
        assert (step.status, step.reason, step.duration, step.retries) == ("SKIPPED", "condition", None, 0)


def broken(context: Context) -> bool:
    return bool(context["nothing"])


@pytest.mark.parametrize(
    ("condition", "message"),
    [("input.nothing == 1", "input.nothing"), (broken, "nothing was not given"), ("input.client < 1", "")],
)
async def test_an_error_in_a_condition_fails_its_step_alone(
    condition: str | Callable[[Context], bool], message: str
) -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", nothing, condition=condition)
    dag.add_step("b", nothing)
    result = await execute(dag, {"client": object()})
    assert (result.status, result.completed, result.failed) == ("FAILED", ["b"], ["a"])
    error = result.steps["a"].error
    assert error is not None
    assert error["code"] == "condition_error"
    assert message in error["message"]


async def test_a_broken_condition_is_named_with_its_place() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", nothing, condition=broken)
    error = (await execute(dag)).steps["a"].error
    assert error is not None
    assert f"broken() at {__file__}:{broken.__code__.co_firstlineno}" in error["message"]


# --- Failures.


async def test_independent_branches_go_on_after_a_failure() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("bad", fail)
    dag.add_step("behind", nothing, depends_on=["bad"])
    dag.add_step("further", nothing, depends_on=["behind"])
    dag.add_step("good", nothing)
    dag.add_step("better", nothing, depends_on=["good"])
    result = await execute(dag)
    assert result.status == "FAILED"
    assert (result.completed, result.failed, result.skipped) == (
        ["good", "better"],
        ["bad"],
        ["behind", "further"],
    )
    assert result.steps["further"].reason == "upstream_failed"


@pytest.mark.parametrize("of", ["executor", "graph"])
async def test_another_failure_policy_may_be_asked_for(of: str) -> None:
    dag = WorkflowDAG("graph", failure_policy="fail_fast" if of == "graph" else None)
    started = asyncio.Event()

    async def endless(context: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    async def explode(context: Context) -> None:
        await started.wait()
        raise NonRetryable("now")

    dag.add_step("endless", endless)
    dag.add_step("explode", explode)
    executor = WorkflowExecutor(failure_policy="fail_fast") if of == "executor" else WorkflowExecutor()
    result = await executor.execute(dag)
    assert (result.status, result.steps["endless"].status) == ("FAILED", "CANCELLED")


async def test_a_failure_is_tried_again_and_the_retries_are_counted() -> None:
    calls: list[int] = []

    def flaky(context: Context) -> int:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("busy")
        return len(calls)

    dag = WorkflowDAG("graph")
    dag.add_step("flaky", flaky, retry=AT_ONCE)
    dag.add_step("hopeless", lambda context: 1 / 0, max_retries=1, retry=AT_ONCE)
    result = await execute(dag)
    assert (result.steps["flaky"].output, result.steps["flaky"].retries) == (3, 2)
    assert (result.steps["hopeless"].status, result.steps["hopeless"].retries) == ("FAILED", 1)


async def test_an_attempt_that_takes_too_long_times_out() -> None:
    async def endless(context: Context) -> None:
        await asyncio.Event().wait()

    dag = WorkflowDAG("graph")
    dag.add_step("slow", endless, timeout_seconds=0.02, max_retries=1, retry=AT_ONCE)
    step = (await execute(dag)).steps["slow"]
    assert step.error is not None
    assert (step.error["code"], step.retries) == ("timeout", 1)


async def test_an_error_branch_handles_a_failure() -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("bad", fail)
    dag.add_step("handle", lambda context: context["bad"], depends_on=["bad"], trigger_rule="one_failed")
    result = await execute(dag)
    assert (result.status, result.completed, result.failed) == ("COMPLETED", ["handle"], ["bad"])


# --- Concurrency and rates.


async def test_all_executions_of_an_executor_share_its_slots() -> None:
    now, most = 0, 0

    async def work(context: Context) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(20):
            await asyncio.sleep(0)
        now -= 1

    dag = WorkflowDAG("graph")
    for n in range(4):
        dag.add_step(f"s{n}", work)
    executor = WorkflowExecutor(max_concurrency=3)
    results = await asyncio.gather(*(executor.execute(dag) for _ in range(4)))
    assert [result.status for result in results] == ["COMPLETED"] * 4
    assert most == 3


def limited(tags: Mapping[str, int]) -> tuple[WorkflowDAG, dict[str, list[float]]]:
    """Return a graph with so many steps of each tag, and the moments at which they start."""
    dag = WorkflowDAG("graph")
    moments: dict[str, list[float]] = {tag: [] for tag in tags}

    def step(tag: str) -> Callable[[Context], Any]:
        async def start(context: Context) -> None:
            moments[tag].append(asyncio.get_running_loop().time())

        return start

    for tag, count in tags.items():
        for n in range(count):
            dag.add_step(f"{tag}{n}", step(tag), resource_tag=tag)
    return dag, moments


# Between the token and the moment that a step notes a little time may pass, more for one than for another.
TOLERANCE_SECONDS = 0.015


def span(moments: list[float]) -> float:
    return max(moments) - min(moments)


async def test_a_rate_limiter_holds_for_the_starts_of_its_tag() -> None:
    dag, moments = limited({"api": 6, "free": 3})
    limiter = TokenBucketRateLimiter(50, burst=1)
    result = await execute(dag, rate_limiters={"api": limiter}, max_concurrency=16)
    assert len(result.completed) == 9
    assert span(moments["api"]) >= 5 / 50 - TOLERANCE_SECONDS
    # What is not limited does not wait in its line.
    assert max(moments["free"]) < max(moments["api"])


async def test_a_burst_starts_at_once_and_the_rest_at_the_rate() -> None:
    dag, moments = limited({"api": 6})
    await execute(dag, rate_limiters={"api": TokenBucketRateLimiter(50, burst=3)}, max_concurrency=16)
    starts = sorted(moments["api"])
    assert starts[5] - starts[0] >= 3 / 50 - TOLERANCE_SECONDS


async def test_several_rates_hold_at_once() -> None:
    dag, moments = limited({"fast": 5, "slow": 3})
    limiters = {"fast": TokenBucketRateLimiter(100), "slow": TokenBucketRateLimiter(25)}
    await execute(dag, rate_limiters=limiters)
    assert span(moments["fast"]) >= 4 / 100 - TOLERANCE_SECONDS
    assert span(moments["slow"]) >= 2 / 25 - TOLERANCE_SECONDS
    assert max(moments["fast"]) < max(moments["slow"])


async def test_a_limiter_holds_from_one_execution_to_the_next() -> None:
    dag, moments = limited({"api": 1})
    executor = WorkflowExecutor(rate_limiters={"api": TokenBucketRateLimiter(25)})
    for _ in range(4):
        await executor.execute(dag)
    assert span(moments["api"]) >= 3 / 25 - TOLERANCE_SECONDS


async def test_executors_may_share_a_limiter() -> None:
    dag, moments = limited({"api": 3})
    limiter = TokenBucketRateLimiter(50)
    executors = [WorkflowExecutor(rate_limiters={"api": limiter}) for _ in range(2)]
    results = await asyncio.gather(*(executor.execute(dag) for executor in executors))
    assert [result.status for result in results] == ["COMPLETED"] * 2
    assert span(moments["api"]) >= 5 / 50 - TOLERANCE_SECONDS


async def test_a_retry_takes_a_token_too() -> None:
    moments: list[float] = []

    async def flaky(context: Context) -> None:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) < 4:
            raise RuntimeError("busy")

    dag = WorkflowDAG("graph")
    dag.add_step("flaky", flaky, resource_tag="api", retry=AT_ONCE)
    result = await execute(dag, rate_limiters={"api": TokenBucketRateLimiter(50)})
    assert result.steps["flaky"].retries == 3
    assert span(moments) >= 3 / 50 - TOLERANCE_SECONDS


# --- Giving up.


async def test_cancelling_one_execution_leaves_the_others_alone() -> None:
    started, stopped, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def endless(context: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def patient(context: Context) -> str:
        await go_on.wait()
        return "done"

    one, other = WorkflowDAG("one"), WorkflowDAG("other")
    one.add_step("endless", endless)
    other.add_step("patient", patient)
    executor = WorkflowExecutor()
    given_up = asyncio.ensure_future(executor.execute(one))
    kept = asyncio.ensure_future(executor.execute(other))
    await started.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await stopped.wait()
    go_on.set()
    assert (await kept).steps["patient"].output == "done"
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- What is refused.


async def test_a_bad_graph_lists_every_problem_before_anything_runs() -> None:
    calls: list[int] = []
    dag = WorkflowDAG("graph")
    dag.add_step("a", lambda context: calls.append(1))
    dag.add_step("b", nothing, depends_on=["c", "missing"], max_retries=1000)
    dag.add_step("c", nothing, depends_on=["b"], condition="1 +")
    with pytest.raises(DefinitionError) as caught:
        await execute(dag)
    assert [problem.pointer for problem in caught.value.problems] == [
        "/nodes/1/depends_on/0",
        "/nodes/1/depends_on/1",
        "/nodes/1/max_retries",
        "/nodes/2/condition",
    ]
    assert "b -> c -> b" in str(caught.value)
    assert calls == []


async def test_a_graph_without_steps_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least one node"):
        await execute(WorkflowDAG("graph"))


async def coroutine_condition(context: Context) -> bool:
    return True


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"id": "a"}, "step 'a' is there already"),
        ({"id": "b", "depends_on": "a"}, "depends_on is a list of ids, not 'a'"),
        ({"id": "b", "fn": 3}, "fn is a function of the context, not 3"),
        ({"id": "b", "fn": lambda: 1}, r"fn takes one argument, the context; .*<lambda>\(\) at .* does not"),
        ({"id": "b", "condition": lambda: True}, "condition takes one argument, the context"),
        ({"id": "b", "condition": coroutine_condition}, r"not async; coroutine_condition\(\) at"),
    ],
)
def test_a_step_that_cannot_be_is_refused_where_it_is_added(step: dict[str, Any], message: str) -> None:
    dag = WorkflowDAG("graph")
    dag.add_step("a", nothing)
    with pytest.raises(DefinitionError, match=message):
        dag.add_step(**{"fn": nothing, **step})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_concurrency": 0}, "max_concurrency needs a whole number from 1 up, not 0"),
        ({"rate_limiters": {"api": 10}}, r"rate_limiters\['api'\] needs a TokenBucketRateLimiter, not 10"),
    ],
)
def test_an_executor_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        WorkflowExecutor(**options)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (float("inf"), 1), (10, 0), (10, 1.5)])
def test_a_limiter_that_cannot_be_is_refused(rate: float, burst: Any) -> None:
    with pytest.raises(ValueError, match="needs a"):
        TokenBucketRateLimiter(rate, burst=burst)


# --- As the first users wrote it.


async def test_a_graph_needs_no_name_and_is_executed_as_shown() -> None:
    dag = WorkflowDAG()
    dag.add_step(
        "extract",
        lambda context: context["text"].split(),
        depends_on=[],
        condition=lambda context: bool(context["text"]),
        resource_tag="gemini_api",
        max_retries=3,
        timeout_seconds=300,
    )
    limiter = TokenBucketRateLimiter(10, burst=1)
    executor = WorkflowExecutor(max_concurrency=4, rate_limiters={"gemini_api": limiter})
    result = await executor.execute(dag, context={"text": "warp and weft"})
    assert isinstance(result, WorkflowResult)
    assert (result.status, result.completed, result.failed, result.skipped) == (
        "COMPLETED", ["extract"], [], []
    )  # fmt: skip
    assert result.duration >= 0
    step = result.steps["extract"]
    assert (step.status, step.output, step.error, step.retries) == (
        "COMPLETED", ["warp", "and", "weft"], None, 0
    )  # fmt: skip
    assert step.duration is not None
    assert repr(dag) == "WorkflowDAG(steps: 1)"


def test_a_graph_is_validated_without_being_executed() -> None:
    dag = WorkflowDAG("graph")
    with pytest.raises(DefinitionError):
        dag.validate()
    dag.add_step("a", nothing)
    dag.add_step("b", nothing, depends_on=["a"])
    dag.validate()
    dag.add_step("c", nothing, depends_on=["nobody", "d"])
    dag.add_step("d", nothing, depends_on=["c"])
    for call in (dag.validate, dag.get_execution_layers):
        with pytest.raises(DefinitionError) as caught:
            call()
        assert len(caught.value.problems) == 2


def test_the_layers_are_lists_of_ids_by_distance_from_the_roots() -> None:
    dag = WorkflowDAG()
    dag.add_step("join", nothing, depends_on=["a", "c"])
    dag.add_step("a", nothing)
    dag.add_step("b", nothing)
    dag.add_step("c", nothing, depends_on=["b"])
    assert dag.get_execution_layers() == [["a", "b"], ["c"], ["join"]]


async def test_step_outputs_maps_the_completed_ancestors_beside_the_flat_keys() -> None:
    seen: dict[str, Any] = {}

    def look(context: Any) -> None:
        seen.update(context["step_outputs"])
        assert "step_outputs" in context
        assert context["step_outputs"]["a"] == context["a"] == {"n": 1}
        assert context["step_outputs"].get("no") is None
        assert "no" not in context["step_outputs"]
        assert "aside" not in context["step_outputs"]

    dag = WorkflowDAG()
    dag.add_step("a", lambda context: {"n": 1})
    dag.add_step("aside", nothing)
    dag.add_step("no", nothing, condition="false")
    dag.add_step("b", lambda context: len(context["step_outputs"]), depends_on=["a"])
    dag.add_step("look", look, depends_on=["b", "no"])
    result = await execute(dag, {"given": 0})
    assert result.steps["look"].error is None
    assert seen == {"a": {"n": 1}, "b": 1}


async def test_a_step_may_change_its_own_context_and_no_other_sees_it() -> None:
    given: dict[str, Any] = {"given": 0}
    seen: list[Any] = []

    def change(context: Any) -> None:
        context["new"] = context.pop("given")
        context["a"] = "mine"
        context.setdefault("more", 1)
        seen.append((dict(context), len(context), "given" in context))
        del context["a"]
        seen.append(context.get("a", "gone"))
        with pytest.raises(KeyError):
            del context["a"]
        if len(seen) == 2:
            raise RuntimeError("again")

    dag = WorkflowDAG()
    dag.add_step("a", lambda context: 1)
    dag.add_step("change", change, depends_on=["a"], retry=AT_ONCE)
    dag.add_step("after", lambda context: seen.append(dict(context)), depends_on=["change"])
    result = await execute(dag, given)
    assert result.steps["change"].error is None
    once = [({"a": "mine", "new": 0, "more": 1}, 3, False), "gone"]
    assert seen == [*once, *once, {"given": 0, "a": 1, "change": None}]
    assert given == {"given": 0}


def test_a_limiter_lets_ten_a_second_start_one_at_a_time_unless_told_otherwise() -> None:
    limiter = TokenBucketRateLimiter()
    assert (limiter.rate_per_second, limiter.burst) == (10.0, 1)


async def test_a_limiter_is_asked_outside_an_executor_too() -> None:
    limiter = TokenBucketRateLimiter(50, burst=2)
    loop = asyncio.get_running_loop()
    begun, order = loop.time(), list[int]()

    async def call(number: int) -> None:
        await limiter.acquire()
        order.append(number)

    await asyncio.gather(*map(call, range(6)))
    assert order == list(range(6))
    assert loop.time() - begun >= 4 / 50
    # One bucket, whoever takes from it.
    dag = WorkflowDAG()
    dag.add_step("a", nothing, resource_tag="api")
    begun = loop.time()
    await limiter.acquire()
    await execute(dag, rate_limiters={"api": limiter})
    assert loop.time() - begun >= 1.5 / 50


async def test_who_gives_up_waiting_takes_no_token() -> None:
    limiter = TokenBucketRateLimiter(0.0001)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    assert not other.done()
    other.cancel()


async def test_a_step_behind_a_failure_carries_an_error_that_names_it() -> None:
    dag = WorkflowDAG()
    dag.add_step("a", fail)
    dag.add_step("b", nothing, depends_on=["a"])
    dag.add_step("c", nothing, depends_on=["b"])
    dag.add_step("no", nothing, condition="false")
    dag.add_step("behind", nothing, depends_on=["no"])
    result = await execute(dag)
    assert result.skipped == ["b", "c", "no", "behind"]
    for step in ("b", "c"):
        error = result.steps[step].error
        assert str(error) == "Dependency failed: a"
        assert error == {
            "code": "dependency_failed",
            "message": "Dependency failed: a",
            "retryable": False,
            "details": {},
        }
    assert result.steps["no"].error is result.steps["behind"].error is None
    failure = result.steps["a"].error
    assert failure is not None
    assert str(failure) == failure["message"]


async def test_what_executors_do_is_counted_in_the_registry_of_the_process() -> None:
    from prometheus_client import REGISTRY, generate_latest

    def count(state: str) -> float:
        labels = {"handler": "function", "state": state}
        return REGISTRY.get_sample_value("weft_nodes_settled_total", labels) or 0

    completed, failed = count("COMPLETED"), count("FAILED")
    dag = WorkflowDAG()
    dag.add_step("a", nothing)
    dag.add_step("b", fail)
    await execute(dag)
    await execute(dag)
    assert (count("COMPLETED") - completed, count("FAILED") - failed) == (2, 2)
    assert b"weft_attempt_duration_seconds" in generate_latest()


# --- With a folder.


class Calls:
    """A graph that writes down which of its steps ran; ``broken`` steps fail."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.ran: list[str] = []

    def dag(self, name: str | None = None) -> WorkflowDAG:
        dag = WorkflowDAG(name)
        dag.add_step("a", self.step("a"), max_retries=0)
        dag.add_step("b", self.step("b"), depends_on=["a"], max_retries=0)
        dag.add_step("c", self.step("c"), depends_on=["b"], condition=lambda context: context["b"] == 2)
        dag.add_step("no", self.step("no"), depends_on=["a"], condition=lambda context: False)
        dag.add_step("large", lambda context: "x" * 300_000)
        dag.add_step("size", lambda context: len(context["large"]), depends_on=["large", "b"])
        return dag

    def step(self, step_id: str) -> Callable[[Context], Any]:
        def run(context: Context) -> Any:
            self.ran.append(step_id)
            if step_id in self.broken:
                raise NonRetryable("no")
            return len(context["step_outputs"]) + 1

        return run


async def test_executing_again_runs_only_what_did_not_complete(tmp_path: Path) -> None:
    first = Calls("b")
    result = await WorkflowExecutor(data=tmp_path).execute(first.dag(), {"n": 1})
    assert (result.status, result.failed, result.skipped) == ("FAILED", ["b"], ["c", "no", "size"])
    # As a later process does: another executor, other functions of the same names.
    second = Calls()
    result = await WorkflowExecutor(data=tmp_path).execute(second.dag(), {"n": 1})
    assert (result.status, result.skipped) == ("COMPLETED", ["no"])
    assert second.ran == ["b", "c"]
    assert [result.steps[step].output for step in ("a", "b", "c", "size")] == [1, 2, 3, 300_000]
    third = Calls("a", "b", "c")
    executor = WorkflowExecutor(data=str(tmp_path))
    result = await executor.execute(third.dag(), {"n": 1})
    assert (result.status, result.steps["c"].output, third.ran) == ("COMPLETED", 3, [])
    # Another context, another name, or another definition is another execution.
    for dag, context in ((third.dag(), {"n": 2}), (third.dag("other"), {"n": 1})):
        third.ran.clear()
        assert (await executor.execute(dag, context)).status == "FAILED"
        assert third.ran == ["a"]


async def test_an_execution_that_was_cancelled_or_cut_off_goes_on(tmp_path: Path) -> None:
    started = asyncio.Event()
    ran: list[str] = []

    def dag(wait: bool) -> WorkflowDAG:
        async def slow(context: Context) -> str:
            ran.append("slow")
            if wait:
                started.set()
                await asyncio.Event().wait()
            return f"after {context['a']}"

        made = WorkflowDAG()
        made.add_step("a", lambda context: ran.append("a"))
        made.add_step("slow", slow, depends_on=["a"])
        return made

    executor = WorkflowExecutor(data=tmp_path)
    execution = asyncio.create_task(executor.execute(dag(wait=True)))
    await started.wait()
    execution.cancel()
    with pytest.raises(asyncio.CancelledError):
        await execution
    result = await executor.execute(dag(wait=False))
    assert (result.status, result.steps["slow"].output, ran) == (
        "COMPLETED",
        "after None",
        ["a", "slow", "slow"],
    )


KILLED = """
import asyncio, os, sys
from weft import WorkflowDAG, WorkflowExecutor

async def main(folder, dies):
    def b(context):
        print("b", flush=True)
        if dies:
            os.kill(os.getpid(), 9)
        return context["a"] + context["n"]
    dag = WorkflowDAG("killed")
    dag.add_step("a", lambda context: print("a", flush=True) or 1)
    dag.add_step("b", b, depends_on=["a"], condition=lambda context: True)
    result = await WorkflowExecutor(data=folder).execute(dag, {"n": 2})
    print(result.status, result.steps["b"].output)

asyncio.run(main(sys.argv[1], len(sys.argv) > 2))
"""


async def test_an_execution_goes_on_after_its_process_was_killed(tmp_path: Path) -> None:
    said = []
    for arguments in (["dies"], [], []):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, str(tmp_path), *arguments, stdout=asyncio.subprocess.PIPE
        )
        said.append((await process.communicate())[0].decode().split("\n")[:-1])
    assert said == [["a", "b"], ["b", "COMPLETED 3"], ["COMPLETED 3"]]


async def test_a_folder_takes_a_context_of_json_alone(tmp_path: Path) -> None:
    dag = WorkflowDAG()
    dag.add_step("a", nothing)
    executor = WorkflowExecutor(data=tmp_path)
    with pytest.raises(InputError, match="/client"):
        await executor.execute(dag, {"client": object()})
    same = await asyncio.gather(*(executor.execute(dag, {"n": 1}) for _ in range(3)))
    assert {result.status for result in same} == {"COMPLETED"}
