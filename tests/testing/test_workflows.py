"""Workflows in virtual time, with mocked nodes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock

import pytest

from weft import (
    DefinitionError,
    ExecutionState,
    InputError,
    NodeState,
    NonRetryable,
    RetryAfter,
    SettingsError,
    Workflow,
)
from weft.journal.memory import MemoryJournal
from weft.testing import MockedResult, RecordingService, WeftRun, plugin, run, sequence
from weft.testing.http_server import Answer, json_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft import HandlerContext

PAGE = (Path(__file__).parent.parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")

FETCH = {
    "id": "fetch",
    "handler": "sleep",
    "config": {"seconds": 1, "url": "https://example.org/{{ input.order }}"},
}


def document(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), **fields}


@pytest.fixture
def in_no_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 5


def report() -> Workflow:
    flow = Workflow("report", output="{{ total }}")

    @flow.node
    def fetch(input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - the word of the interface
        raise AssertionError("a test does not call the service")

    @flow.node(dependencies=[fetch], condition="fetch.status == 200")
    def total(fetch: dict[str, Any]) -> int:
        return sum(fetch["lines"])

    return flow


# -- mocks -------------------------------------------------------------------------------------------------


def test_a_value_is_the_output_of_the_node_it_mocks(weft_run: WeftRun) -> None:
    result = weft_run(report(), input={"order": 7}, mocks={"fetch": {"status": 200, "lines": [3, 4]}})

    assert result.state is ExecutionState.COMPLETED
    assert result.output == 7
    assert result.nodes["fetch"].attempt == 1
    assert result.nodes["total"].output == 7
    assert result.calls("fetch") == [{"input": {"order": 7}}]


def test_the_rest_of_the_graph_sees_the_mocked_output(weft_run: WeftRun) -> None:
    result = weft_run(report(), input={}, mocks={"fetch": {"status": 404}})

    assert result.state == "COMPLETED"
    assert result.nodes["total"].state is NodeState.SKIPPED


def test_an_exception_is_raised_and_retries_as_ever(weft_run: WeftRun, in_no_time: None) -> None:
    result = weft_run(report(), mocks={"fetch": RuntimeError("down")})

    assert result.state == "FAILED"
    assert result.nodes["fetch"].attempt == 4
    assert result.nodes["fetch"].error is not None
    assert result.nodes["fetch"].error["message"] == "RuntimeError: down"
    assert len(result.calls("fetch")) == 4


@pytest.mark.parametrize("error", [NonRetryable("no"), NonRetryable])
def test_an_exception_that_does_not_retry_is_raised_once(weft_run: WeftRun, error: Any) -> None:
    assert weft_run(report(), mocks={"fetch": error}).nodes["fetch"].attempt == 1


def test_a_sequence_mocks_one_attempt_after_the_other(weft_run: WeftRun, in_no_time: None) -> None:
    answers = sequence(RetryAfter(3600), TimeoutError, {"status": 200, "lines": [1]})

    result = weft_run(report(), mocks={"fetch": answers})

    assert result.output == 1
    assert result.nodes["fetch"].attempt == 3
    assert result.duration > 3600


def test_the_last_of_a_sequence_stands_for_all_further_attempts(weft_run: WeftRun) -> None:
    assert weft_run(report(), mocks={"fetch": sequence("x", RuntimeError)}).nodes["fetch"].output == "x"
    assert weft_run(report(), mocks={"fetch": sequence(RuntimeError)}).nodes["fetch"].attempt == 4


def test_a_sequence_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        sequence()


def test_a_function_is_given_the_config_of_the_handler_it_mocks(weft_run: WeftRun) -> None:
    def fetch(config: dict[str, Any], context: HandlerContext) -> Any:
        return [config["url"], context.node_id, context.attempt]

    result = weft_run(document(FETCH), input={"order": 7}, mocks={"fetch": fetch})

    assert result.nodes["fetch"].output == ["https://example.org/7", "fetch", 1]
    assert result.calls("fetch") == [{"seconds": 1, "url": "https://example.org/7"}]


def test_a_function_is_given_only_what_it_has_parameters_for(weft_run: WeftRun) -> None:
    flow = report()
    assert weft_run(flow, {"a": 1}, mocks={"fetch": lambda: 1}).nodes["fetch"].output == 1
    mock = lambda input: input  # noqa: A006, E731 - a test would write it like this
    assert weft_run(flow, {"a": 1}, mocks={"fetch": mock}).nodes["fetch"].output == {"a": 1}
    taken = weft_run(flow, {"a": 1}, mocks={"fetch": lambda **given: sorted(given)}).nodes["fetch"].output
    assert taken == ["context", "input"]


async def test_a_coroutine_function_may_take_its_time_in_an_async_test_too(
    weft_run: WeftRun, in_no_time: None
) -> None:
    async def fetch(config: Any) -> str:
        await asyncio.sleep(250)
        return "late"

    result = weft_run(document(FETCH), {"order": 1}, mocks={"fetch": fetch})

    assert result.nodes["fetch"].duration == 250
    assert result.output == {"fetch": "late"}


def test_the_mocks_of_the_standard_library_fit(weft_run: WeftRun) -> None:
    mock = Mock(side_effect=[RuntimeError("once"), {"status": 500}])
    assert weft_run(report(), mocks={"fetch": mock}).nodes["fetch"].attempt == 2
    assert mock.call_args.kwargs["input"] == {}
    assert weft_run(report(), mocks={"fetch": AsyncMock(return_value=5)}).nodes["fetch"].output == 5


@pytest.mark.parametrize("handler", ["echo", "output", "input"])
def test_handlers_that_need_no_call_are_mocked_all_the_same(weft_run: WeftRun, handler: str) -> None:
    result = weft_run(document({"id": "a", "handler": handler}), {"x": 1}, mocks={"a": sequence(OSError, 2)})

    assert result.nodes["a"].output == 2
    assert result.nodes["a"].attempt == 2
    assert result.calls("a")[0] == ({"x": 1} if handler == "input" else {})


def test_a_mocked_node_needs_no_secret(weft_run: WeftRun) -> None:
    node = {"id": "a", "handler": "echo", "config": {"key": "{{ secrets.NOBODY_HAS_IT }}"}}

    result = weft_run(document(node), mocks={"a": lambda config: config})

    assert result.nodes["a"].output == {"key": "***"}


def test_a_mock_that_changes_what_it_is_given_changes_no_record(weft_run: WeftRun) -> None:
    result = weft_run(document(FETCH), {"order": 7}, mocks={"fetch": lambda config: config.clear()})
    assert result.calls("fetch") == [{"seconds": 1, "url": "https://example.org/7"}]


def test_a_mock_of_no_node_is_an_error_that_names_the_near_miss(weft_run: WeftRun) -> None:
    with pytest.raises(ValueError, match="no node to mock: 'fetsh'; did you mean 'fetch'"):
        weft_run(report(), mocks={"fetsh": 1})


@pytest.mark.parametrize(
    ("flow", "mock", "there_is"),
    [
        (report(), lambda status: 1, "input, context"),
        (report(), lambda config: 1, "input, context"),
        (report(), lambda input, /: 1, "input, context"),  # noqa: A006 - its own name
        (document(FETCH), lambda url: 1, "config, context"),
    ],
)
def test_a_mock_that_asks_for_what_there_is_not_is_an_error(flow: Any, mock: Any, there_is: str) -> None:
    with pytest.raises(TypeError, match=f"node 'fetch' is called by keyword.* there is: {there_is}"):
        run(flow, {"order": 1}, mocks={"fetch": mock})


def test_the_calls_of_a_node_that_is_not_mocked_are_not_kept(weft_run: WeftRun) -> None:
    result = weft_run(report(), mocks={"fetch": {"status": 1}})
    with pytest.raises(ValueError, match=r"'total' is not mocked.*mocked: fetch"):
        result.calls("total")


# -- time --------------------------------------------------------------------------------------------------


def test_ten_retries_with_the_longest_delays_take_no_time(weft_run: WeftRun, in_no_time: None) -> None:
    patient = {"base_delay_seconds": 300, "max_delay_seconds": 300, "jitter": 0}
    node = {"id": "a", "handler": "echo", "max_retries": 10, "retry": patient}

    result = weft_run(document(node), mocks={"a": sequence(*[OSError] * 10, "at last")})

    assert result.output == {"a": "at last"}
    assert result.nodes["a"].attempt == 11
    assert result.duration == 3000


def test_a_sleep_of_a_week_takes_no_time(weft_run: WeftRun) -> None:
    week = 604_800
    node = {"id": "a", "handler": "sleep", "config": {"seconds": week - 1}, "timeout_seconds": week}

    result = weft_run(document(node))

    assert result.state == "COMPLETED"
    assert result.nodes["a"].attempt == 1
    assert result.nodes["a"].duration == result.duration == week - 1


def test_a_wait_of_a_month_makes_few_reads(weft_run: WeftRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop of the engine looks for work every few seconds of a virtual month: each look is real time."""
    find, found = MemoryJournal.due_triggers, 0

    async def counted(self: MemoryJournal, *, now: int, limit: int) -> Any:
        nonlocal found
        found += 1
        return await find(self, now=now, limit=limit)

    monkeypatch.setattr(MemoryJournal, "due_triggers", counted)
    month = 30 * 86_400
    node = {"id": "a", "handler": "wait", "config": {"expires_seconds": month, "default": "no"}}

    result = weft_run(document(node))

    assert result.nodes["a"].output["expired"]
    assert result.duration == month
    assert 1 <= found < 1_000


def test_attempts_that_wait_for_hours_for_a_place_are_not_taken_for_lost(weft_run: WeftRun) -> None:
    flow = Workflow("naps")

    async def nap() -> None:
        await asyncio.sleep(3600)

    for number in range(50):
        flow.node(id=f"nap{number}", timeout_seconds=4000)(nap)

    result = weft_run(flow, settings={"worker_concurrency": 10})

    assert {node.attempt for node in result.nodes.values()} == {1}
    assert result.duration == 5 * 3600


def test_sleeps_wait_for_no_place(weft_run: WeftRun) -> None:
    nap = {"handler": "sleep", "config": {"seconds": 3600}, "timeout_seconds": 4000}

    result = weft_run(
        document(*({"id": f"nap{number}", **nap} for number in range(50))),
        settings={"worker_concurrency": 1},
    )

    assert {(node.attempt, node.duration) for node in result.nodes.values()} == {(1, 3600)}
    assert result.duration == 3600


def test_a_sleep_that_is_mocked_does_not_sleep(weft_run: WeftRun) -> None:
    node = {"id": "a", "handler": "sleep", "config": {"seconds": 250}}

    result = weft_run(document(node), mocks={"a": {"mocked": True}})

    assert (result.nodes["a"].output, result.duration) == ({"mocked": True}, 0)
    assert result.calls("a") == [{"seconds": 250}]


def test_a_node_times_out_in_virtual_time(weft_run: WeftRun, in_no_time: None) -> None:
    flow = Workflow("timeouts")

    @flow.node(id="python", timeout_seconds=90, max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    node = weft_run(flow).nodes["python"]

    assert node.error is not None
    assert node.error["code"] == "timeout"
    assert node.duration == 90


def test_an_execution_ends_at_its_deadline_in_virtual_time(weft_run: WeftRun, in_no_time: None) -> None:
    node = {"id": "a", "handler": "sleep", "config": {"seconds": 250}}

    result = weft_run(document(node, timeout_seconds=100))

    assert result.error is not None
    assert result.error["code"] == "deadline_exceeded"
    assert result.duration == 100
    assert result.nodes["a"].state is NodeState.CANCELLED


def test_a_rate_limit_holds_in_virtual_time(weft_run: WeftRun, in_no_time: None) -> None:
    nodes = ({"id": f"n{number}", "handler": "echo", "resource_tag": "api"} for number in range(10))
    limits = {"api": {"rate_per_second": 0.1, "burst": 1}}

    result = weft_run(document(*nodes), settings={"resource_limits": limits})

    assert result.state == "COMPLETED"
    assert result.duration == pytest.approx(90, abs=0.1)


def test_what_runs_beside_a_failure_is_stopped_at_once(weft_run: WeftRun, in_no_time: None) -> None:
    stopped = []
    flow = Workflow("fails", defaults={"max_retries": 0})

    @flow.node
    async def beside() -> None:
        try:
            await asyncio.sleep(200)
        except asyncio.CancelledError:
            stopped.append(asyncio.get_running_loop().time())
            raise

    @flow.node
    async def failing() -> None:
        await asyncio.sleep(30)
        raise RuntimeError

    result = weft_run(flow)

    assert result.nodes["beside"].state is NodeState.CANCELLED
    assert result.duration == 30
    assert stopped == [30]


def test_a_function_that_really_takes_time_takes_it(weft_run: WeftRun) -> None:
    flow = Workflow("threads")

    @flow.node(timeout_seconds=30)
    def slow() -> str:
        time.sleep(0.2)
        return "slept"

    flow.node(id="nap", handler="sleep", config={"seconds": 100})
    began = time.monotonic()
    result = weft_run(flow)
    assert 0.2 <= time.monotonic() - began < 5
    assert result.nodes["slow"].output == "slept"
    assert result.nodes["slow"].duration == pytest.approx(0.2, abs=0.15)
    assert result.nodes["nap"].duration == 100


def test_a_function_that_is_over_its_time_is_left_behind(weft_run: WeftRun) -> None:
    flow = Workflow("threads")

    @flow.node(timeout_seconds=0.2, max_retries=0)
    def stuck(context: HandlerContext) -> None:
        while not context.cancelled():
            time.sleep(0.01)

    result = weft_run(flow)
    assert result.error is not None
    error = result.nodes["stuck"].error
    assert error is not None
    assert (error.code, error.message, error.retryable) == ("timeout", "no result within 0.2 s", True)
    # Where it stood.
    assert "in stuck" in error.details["traceback"]


def test_a_real_call_takes_its_time_and_what_comes_after_it_takes_none(weft_run: WeftRun) -> None:
    with RecordingService() as service:
        busy = Answer(503, headers={"Retry-After": "3600"})
        service.script(busy, busy, json_answer({"ok": True}, status=200))
        fetch = {"id": "fetch", "handler": "call_external_service", "config": {"url": service.url}}
        nap = {"id": "nap", "handler": "sleep", "dependencies": ["fetch"], "config": {"seconds": 250}}
        began = time.monotonic()
        result = weft_run(document(fetch, nap), settings={"http_allow": "127.0.0.1"})

    assert result.state == "COMPLETED"
    assert result.nodes["fetch"].attempt == len(service.calls) == 3
    assert result.duration == pytest.approx(2 * 3600 + 250, abs=2)
    assert time.monotonic() - began < 5


def test_the_deadline_of_an_attempt_is_on_the_virtual_clock(weft_run: WeftRun) -> None:
    retry = {"base_delay_seconds": 1000, "max_delay_seconds": 1000, "jitter": 0}
    node = {"id": "a", "handler": "echo", "retry": retry}
    deadlines = []

    def fail_once(context: HandlerContext) -> None:
        deadlines.append(context.deadline.timestamp())
        if context.attempt == 1:
            raise OSError

    weft_run(document(node), mocks={"a": fail_once})
    assert deadlines[1] - deadlines[0] == pytest.approx(1000, abs=1e-3)


def test_one_test_is_one_run(weft_run: WeftRun) -> None:
    def observed() -> tuple[list[str], float]:
        order: list[str] = []
        flow = Workflow("many", max_concurrency=7)
        for number in range(60):
            parents = [f"n{parent}" for parent in (number // 2, number // 3) if parent < number]

            def work(context: HandlerContext, number: int = number) -> None:
                order.append(f"{context.node_id}/{context.attempt}")
                if (number + context.attempt) % 4 == 0:
                    raise OSError

            async def work_async(context: HandlerContext, number: int = number) -> None:
                await asyncio.sleep(number % 5)
                work(context, number)

            flow.node(id=f"n{number}", dependencies=sorted(set(parents)))(work if number % 3 else work_async)
        result = weft_run(flow)
        assert result.state == "COMPLETED"
        return order, result.duration

    first = observed()
    assert len(first[0]) > 60
    assert observed() == first


# -- what it is given --------------------------------------------------------------------------------------


def test_a_file_is_run_too(weft_run: WeftRun, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("nodes: [{id: a, handler: echo, config: '{{ input.x }}'}]")
    assert weft_run(tmp_path / "flow.yaml", {"x": 5}).output == {"a": 5}


def test_bad_definitions_inputs_and_settings_are_errors_of_the_test(weft_run: WeftRun) -> None:
    with pytest.raises(DefinitionError):
        weft_run(document({"id": "a", "handler": "ecko"}))
    with pytest.raises(InputError):
        weft_run(document(FETCH, input_schema={"required": ["order"]}), {})
    with pytest.raises(SettingsError, match=r"'worker_concurency' is not a setting.*'worker_concurrency'"):
        weft_run(document(FETCH), settings={"worker_concurency": 3})


def test_a_result_shows_what_every_result_shows(weft_run: WeftRun) -> None:
    result = weft_run(document(FETCH), {"order": 1}, mocks={"fetch": 1})
    assert isinstance(result, MockedResult)
    assert "_calls" not in repr(result)
    assert "COMPLETED" in result._repr_html_()


def test_the_engine_leaves_no_thread_behind() -> None:
    code = (
        "import threading; from weft.testing import run\n"
        "run({'nodes': [{'id': 'a', 'handler': 'sleep', 'config': {'seconds': 5}}]})\n"
        "print([thread.name for thread in threading.enumerate()])"
    )
    printed = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)
    assert printed.strip() == "['MainThread']"


# -- the plugin --------------------------------------------------------------------------------------------


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    assert [point.value for point in entry_points(group="pytest11", name="weft")] == ["weft.testing.plugin"]


def test_the_plugin_installs_fixtures_of_its_own_prefix_and_no_hook(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--fixtures", "-v", "-p", "no:cacheprovider"]
    shown = subprocess.check_output(command, cwd=tmp_path, text=True)
    assert shown.count("fixtures defined from weft") == 1
    _, _, after = shown.partition("fixtures defined from weft.testing.plugin")
    section = re.split(r"\n-+ fixtures defined from|\n=+ ", after)[0]
    names = re.findall(r"^(\w+)\b.* -- ", section, re.MULTILINE)
    assert [name for name in names if not name.startswith("weft_")] == []
    assert names == re.findall(
        r"^\| `(\w+)` \|", PAGE.partition("## What the plugin installs")[2], re.MULTILINE
    )
    assert "weft_run" in names
    assert [name for name in vars(plugin) if name.startswith("pytest_")] == []


def test_loading_the_plugin_loads_nothing_else_of_weft() -> None:
    code = "import sys, weft.testing.plugin; print(sorted(n for n in sys.modules if n.startswith('weft')))"
    printed = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True)
    assert printed.strip() == "['weft', 'weft.testing', 'weft.testing.plugin']"
