"""Running a workflow in this process."""

# ruff: noqa: A002, A006 - a parameter named input is what a node asks for
from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import weft
from weft import DefinitionError, InputError, NonRetryable, RetryAfter, Workflow, execute, run
from weft.errors import DocumentError, HandlerError
from weft.sdk.run import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE: Any = {"base_delay_seconds": 0}


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """Forget the modules that a test imported from its folder."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        if not name.startswith("weft"):
            del sys.modules[name]


def failing(times: int, error: BaseException, then: Any = "done") -> tuple[Callable[[], Any], list[int]]:
    """Return a function that raises so many times, and the list of its calls."""
    calls: list[int] = []

    def function() -> Any:
        calls.append(len(calls) + 1)
        if len(calls) <= times:
            raise error
        return then

    return function, calls


# --- The walk of the interface's own example.


def test_a_failed_result_is_printed_with_the_line_that_raised() -> None:
    flow = Workflow("orders", defaults={"max_retries": 0}, failure_policy="continue")

    @flow.node()
    def plain() -> int:
        return {"price": 3}["prize"]

    @flow.node()
    async def coroutine() -> None:
        raise HandlerError("no more")

    result = run(flow)
    text = str(result)
    assert "  failed: plain: handler_error: KeyError: 'prize'\n" in text
    assert 'return {"price": 3}["prize"]\n' in text
    assert 'raise HandlerError("no more")\n' in text
    for node in ("plain", "coroutine"):
        error = result.nodes[node].error
        assert error is not None
        trace = error["details"]["traceback"]
        assert f"in {node}\n" in trace
        # None of weft's own frames.
        assert trace.count("  File ") == 1


def test_a_workflow_runs_in_this_process_and_gives_its_result() -> None:
    flow = Workflow("order-report")

    @flow.node(max_retries=3, timeout_seconds=30)
    async def fetch(input: Any) -> Any:
        return {"status": 200, "order": input["order_id"]}

    @flow.node(dependencies=[fetch], condition="fetch.status == 200")
    def summarise(fetch: Any) -> str:
        return f"order {fetch['order']}"

    result = run(flow, input={"order_id": 7})
    assert result.state == "COMPLETED"
    assert str(result.state) == "COMPLETED"
    assert result.output == {"summarise": "order 7"}
    assert result.error is None
    assert result.duration > 0
    assert list(result.nodes) == ["fetch", "summarise"]
    fetched = result.nodes["fetch"]
    assert (fetched.state, fetched.output, fetched.error, fetched.attempt) == (
        "COMPLETED",
        {"status": 200, "order": 7},
        None,
        1,
    )
    assert fetched.duration is not None
    assert 0 <= fetched.duration <= result.duration


async def test_execute_runs_on_the_running_loop() -> None:
    flow = Workflow("flow")
    loops = []

    @flow.node
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    assert (await flow.execute()).state == "COMPLETED"
    assert (await execute(flow)).state == "COMPLETED"
    assert loops == [asyncio.get_running_loop()] * 2


async def test_run_works_inside_a_running_loop() -> None:
    flow = Workflow("flow")
    color: ContextVar[str] = ContextVar("color")
    color.set("red")

    @flow.node
    async def aside() -> Any:
        return [threading.current_thread() is threading.main_thread(), color.get()]

    assert run(flow).output == {"aside": [False, "red"]}


async def test_run_inside_a_running_loop_raises_what_it_raises_outside() -> None:
    with pytest.raises(DefinitionError):
        run({"nodes": []})


def test_coroutines_run_on_the_loop_and_functions_in_threads() -> None:
    flow = Workflow("flow")
    threads: dict[str, str] = {}

    @flow.node
    async def on_the_loop() -> None:
        threads["coroutine"] = threading.current_thread().name

    @flow.node
    def aside() -> None:
        threads["function"] = threading.current_thread().name

    run(flow)
    assert threads == {"coroutine": threading.current_thread().name, "function": "weft-function"}


def test_what_does_not_depend_on_each_other_runs_at_the_same_time() -> None:
    flow = Workflow("flow")
    meeting = threading.Barrier(3, timeout=10)
    for name in ("a", "b", "c"):
        flow.node(id=name)(lambda: meeting.wait() >= 0)
    assert run(flow).state == "COMPLETED"


# --- Parameters.


def test_a_parent_that_did_not_complete_is_none() -> None:
    flow = Workflow("flow")
    flow.node(id="no", handler="echo", config=1, condition="false")
    flow.node(id="yes", handler="echo", config=2)

    @flow.node(dependencies=["no", "yes"])
    def join(no: Any, yes: Any, default: str = "kept") -> Any:
        return [no, yes, default]

    result = run(flow)
    assert result.output == {"join": [None, 2, "kept"]}
    skipped = result.nodes["no"]
    assert (skipped.state, skipped.reason, skipped.attempt) == ("SKIPPED", "condition", 0)
    assert (skipped.output, skipped.error, skipped.duration) == (None, None, None)


def test_a_parent_that_failed_is_none_where_the_rule_lets_the_node_run() -> None:
    flow = Workflow("flow", failure_policy="continue")
    function, _ = failing(9, NonRetryable("no"))
    flow.node(id="broken")(function)

    @flow.node(dependencies=["broken"], trigger_rule="all_done")
    def clean(broken: Any = "a default is for other callers") -> Any:
        return {"broken": broken}

    result = run(flow)
    assert result.state == "FAILED"
    assert result.nodes["clean"].output == {"broken": None}


def test_outputs_keep_their_types_and_input_is_an_empty_object_where_it_is_missing() -> None:
    flow = Workflow("flow")
    value = [1, 1.5, "{{ not a template }}", None, True, {"output": {"items": []}}]

    @flow.node
    def source(input: Any) -> Any:
        assert input == {}
        return value

    @flow.node(dependencies=[source])
    async def same(source: Any) -> Any:
        return source

    assert run(flow).output == {"same": value}


def test_the_context_says_which_attempt_it_is() -> None:
    flow = Workflow("flow")

    @flow.node(retry=AT_ONCE)
    def tell(context: weft.HandlerContext) -> Any:
        if context.attempt < 3:
            raise RuntimeError("again")
        assert not context.cancelled()
        return [context.node_id, context.generation, context.attempt, context.idempotency_key]

    result = run(flow)
    assert result.output == {"tell": ["tell", 1, 3, f"{result.id}/tell/1"]}
    assert result.nodes["tell"].attempt == 3


def test_closures_and_lambdas_and_methods_run() -> None:
    flow = Workflow("flow")

    def times(n: int) -> Callable[[Any], int]:
        return lambda input: int(input["n"]) * n

    class Service:
        def ask(self, input: Any) -> str:
            return f"asked {input['n']}"

    service = Service()
    flow.node(id="two")(times(2))
    flow.node(id="three")(times(3))
    flow.node(service.ask)
    flow.node(
        id="end", handler="echo", config="{{ two + three }}", dependencies=["two", "three", service.ask]
    )
    assert run(flow, {"n": 5}).output == {"end": 25}


def test_two_workflows_may_have_functions_of_one_name() -> None:
    results = []
    for word in ("one", "two"):
        flow = Workflow("flow")

        @flow.node
        def say(word: str = word) -> str:
            return word

        results.append(run(flow).output)
    assert results == [{"say": "one"}, {"say": "two"}]


def test_handlers_of_this_process_can_be_nodes() -> None:
    @weft.handler("tests.shout", config_schema={"type": "object", "required": ["text"]})
    async def shout(config: Any, context: weft.HandlerContext) -> str:
        return str(config["text"]).upper()

    flow = Workflow("flow")
    flow.node(id="loud", handler="tests.shout", config={"text": "{{ input.text }}"})
    assert run(flow, {"text": "hey"}).output == {"loud": "HEY"}
    with pytest.raises(DefinitionError, match="text"):
        run({"nodes": [{"id": "a", "handler": "tests.shout", "config": {}}]})


# --- Failures.


def test_a_failed_execution_is_a_result_and_no_exception() -> None:
    flow = Workflow("flow")

    @flow.node(max_retries=0)
    def explode() -> None:
        raise ValueError("no such order")

    flow.node(id="behind", handler="echo", config=1, dependencies=[explode])
    result = run(flow)
    assert (result.state, result.output) == ("FAILED", None)
    assert result.error is not None
    assert (result.error["code"], result.error["node"]) == ("node_failed", "explode")
    error = result.nodes["explode"].error
    assert error is not None
    assert (error["code"], error["message"]) == ("handler_error", "ValueError: no such order")
    assert error["details"]["type"] == "ValueError"
    assert result.nodes["behind"].reason == "upstream_failed"


def test_a_failure_is_tried_again() -> None:
    flow = Workflow("flow")
    function, calls = failing(2, RuntimeError("busy"))
    flow.node(id="flaky", max_retries=2, retry=AT_ONCE)(function)
    result = run(flow)
    assert result.output == {"flaky": "done"}
    assert (calls, result.nodes["flaky"].attempt) == ([1, 2, 3], 3)


def test_non_retryable_is_not_tried_again() -> None:
    flow = Workflow("flow")
    function, calls = failing(9, NonRetryable("never"))
    flow.node(id="hopeless", max_retries=5, retry=AT_ONCE)(function)
    result = run(flow)
    assert (result.state, calls) == ("FAILED", [1])


def test_retry_after_is_a_floor() -> None:
    flow = Workflow("flow")
    moments: list[float] = []

    @flow.node(retry=AT_ONCE)
    async def polite() -> str:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) == 1:
            raise RetryAfter(0.15)
        return "done"

    assert run(flow).output == {"polite": "done"}
    assert moments[1] - moments[0] >= 0.15


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_an_attempt_that_takes_too_long_times_out(kind: str) -> None:
    flow = Workflow("flow")
    released = threading.Event()

    async def endless() -> None:
        await asyncio.Event().wait()

    function: Callable[[], Any] = endless if kind == "coroutine" else lambda: released.wait(60)
    flow.node(id="slow", timeout_seconds=0.05, max_retries=1, retry=AT_ONCE)(function)
    result = run(flow)
    released.set()
    error = result.nodes["slow"].error
    assert error is not None
    assert (error["code"], result.nodes["slow"].attempt) == ("timeout", 2)


def test_what_is_not_json_fails_its_node() -> None:
    flow = Workflow("flow")
    flow.node(id="odd", max_retries=3)(lambda: {"at": object()})
    error = run(flow).nodes["odd"].error
    assert error is not None
    assert error["code"] == "output_not_json"
    name = f"{__name__}:test_what_is_not_json_fails_its_node.<locals>.<lambda>"
    assert error["message"] == (
        f"{name} returned a value that is not JSON: $.at is a value of type object; "
        "return a dict, a dataclass or a string instead"
    )


def test_a_failure_stops_what_runs_beside_it_at_once() -> None:
    flow = Workflow("flow")
    started, stopped = asyncio.Event(), []

    @flow.node
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("endless")

    @flow.node(max_retries=0)
    async def explode() -> None:
        await started.wait()
        raise RuntimeError("now")

    result = run(flow)
    assert result.nodes["endless"].state == "CANCELLED"
    assert result.nodes["endless"].reason == "fail_fast"
    assert stopped == ["endless"]


def test_a_function_in_a_thread_holds_nobody_up_when_its_execution_is_over() -> None:
    flow = Workflow("flow")
    started, released = threading.Event(), threading.Event()

    @flow.node
    def stuck() -> None:
        started.set()
        released.wait(60)

    @flow.node(max_retries=0)
    def explode() -> None:
        started.wait(10)
        raise RuntimeError("now")

    result = run(flow)
    assert not released.is_set()
    released.set()
    assert result.nodes["stuck"].state == "CANCELLED"


def test_large_outputs_are_whole() -> None:
    flow = Workflow("flow")

    @flow.node
    def large() -> str:
        return "x" * 1_000_000

    @flow.node(dependencies=[large])
    def measure(large: str) -> int:
        return len(large)

    result = run(flow)
    assert result.output == {"measure": 1_000_000}
    assert len(result.nodes["large"].output) == 1_000_000


# --- What is refused before anything runs.


def test_a_bad_definition_lists_every_problem_with_the_place_of_its_function() -> None:
    flow = Workflow("flow", timeout_seconds=-1)

    @flow.node(dependencies=["missing"], condition="1 +")
    def fetch() -> None: ...

    with pytest.raises(DefinitionError) as caught:
        run(flow)
    pointers = [problem.pointer for problem in caught.value.problems]
    assert pointers == ["/timeout_seconds", "/nodes/0/dependencies/0", "/nodes/0/condition"]
    assert all("fetch() at" in problem.message for problem in caught.value.problems[1:])


def test_a_cycle_is_named() -> None:
    flow = Workflow("flow")
    flow.node(id="a", handler="echo", config=1, dependencies=["b"])
    flow.node(id="b", handler="echo", config=1, dependencies=["a"])
    with pytest.raises(DefinitionError, match="a -> b -> a"):
        run(flow)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [({"n": "three"}, "/n"), ([1], ""), ({"n": 1, "x": object()}, "/x"), ({"n": float("nan")}, "/n")],
)
def test_a_bad_input_is_refused_with_its_pointer(value: Any, pointer: str) -> None:
    flow = Workflow("flow", input_schema={"properties": {"n": {"type": "integer"}}})
    calls: list[int] = []
    flow.node(id="a")(lambda: calls.append(1))
    with pytest.raises(InputError) as caught:
        run(flow, value)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert calls == []


def test_what_is_no_workflow_is_refused() -> None:
    nothing: Any = 3
    with pytest.raises(TypeError, match="a Workflow, a dict or the path of a file is needed, not 3"):
        run(nothing)


# --- Dicts and files.


def test_a_dict_runs_also_without_a_name() -> None:
    result = run({"nodes": [{"id": "a", "handler": "echo", "config": "{{ input.x }}"}]}, {"x": [1]})
    assert result.output == {"a": [1]}


def test_a_dict_may_not_call_any_function() -> None:
    result = run({"nodes": [{"id": "a", "handler": "python", "config": {"function": "os:getcwd"}}]})
    error = result.nodes["a"].error
    assert error is not None
    assert error["code"] == "function_not_allowed"


def test_functions_of_one_run_are_nobody_elses() -> None:
    flow = Workflow("flow")
    flow.node(id="a")(lambda: 1)
    document = flow.definition()
    assert run(flow).state == "COMPLETED"
    assert run(document).state == "FAILED"


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_file_runs_with_the_functions_beside_it(tmp_path: Path, as_path: Callable[[Path], Any]) -> None:
    (tmp_path / "beside_sdk_run.py").write_text("def double(n):\n    return 2 * n\n")
    file = tmp_path / "flow.yaml"
    file.write_text(
        "nodes:\n"
        "  - id: a\n"
        "    handler: python\n"
        "    config: {function: 'beside_sdk_run:double', args: {n: '{{ input.n }}'}}\n"
    )
    assert run(as_path(file), {"n": 4}).output == {"a": 8}


def test_a_workflow_of_a_python_file_runs_with_its_closures(tmp_path: Path) -> None:
    file = tmp_path / "sdk_run_flow.py"
    file.write_text(
        "from weft import Workflow\n"
        "flow = Workflow('flow')\n"
        "flow.node(id='a')(lambda input: input['n'] + 1)\n"
        "@flow.node(dependencies=['a'])\n"
        "def _private(a):\n"
        "    return a * 10\n"
    )
    assert run(f"{file}:flow", {"n": 1}).output == {"_private": 20}


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"nothing\.yaml: no such file"):
        run(tmp_path / "nothing.yaml")


def test_a_script_refers_to_its_functions_by_the_name_of_its_file(tmp_path: Path) -> None:
    script = tmp_path / "my_report.py"
    script.write_text(
        "import json\n"
        "from weft import Workflow, run\n"
        "flow = Workflow('flow')\n"
        "@flow.node\n"
        "def fetch(input):\n"
        "    return input\n"
        "reference = flow.definition()['nodes'][0]['config']['function']\n"
        "print(json.dumps([reference, run(flow, {'n': 1}).output]))\n"
    )
    printed = subprocess.check_output([sys.executable, str(script)], text=True)
    assert json.loads(printed) == ["my_report:fetch", {"fetch": {"n": 1}}]


# --- Settings.


def test_a_resource_tag_without_a_limit_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    flow = Workflow("flow")
    flow.node(id="a", handler="echo", config=1, resource_tag="api")
    with caplog.at_level(logging.WARNING, "weft"):
        assert run(flow).state == "COMPLETED"
    assert "no limit is configured for 'api'" in caplog.text


def test_limits_of_the_settings_hold(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEFT_RESOURCE_LIMITS", '{"api": {"rate_per_second": 50}}')
    flow = Workflow("flow")
    moments: list[float] = []

    async def call() -> None:
        moments.append(asyncio.get_running_loop().time())

    for n in range(5):
        flow.node(id=f"n{n}", resource_tag="api")(call)
    assert run(flow).state == "COMPLETED"
    assert max(moments) - min(moments) >= 0.06  # 0.08, less what may pass between a start and its call
    assert caplog.text == ""


def test_a_setting_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_WORKER_CONCURRENCY", "many")
    with pytest.raises(weft.SettingsError, match="WEFT_WORKER_CONCURRENCY"):
        run({"nodes": [{"id": "a", "handler": "echo"}]})


# --- Data folders.


def test_nothing_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run({"nodes": [{"id": "a", "handler": "echo"}]})
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_keeps_one_execution_after_the_other(tmp_path: Path) -> None:
    flow = Workflow("flow")

    @flow.node
    def count(input: Any) -> int:
        return int(input["n"]) + 1

    results = [run(flow, {"n": n}, data=tmp_path / "data") for n in (1, 1, 2)]
    assert [result.output for result in results] == [{"count": 2}, {"count": 2}, {"count": 3}]
    assert len({result.id for result in results}) == 3
    assert any((tmp_path / "data").iterdir())


def test_what_a_killed_process_left_is_taken_to_its_end(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import os, pathlib, signal, sys\n"
        "from weft import Workflow, run\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "flow = Workflow('flow')\n"
        "@flow.node\n"
        "def once():\n"
        "    with (folder / 'once').open('a') as file: file.write('x')\n"
        "    return 1\n"
        "@flow.node(dependencies=[once])\n"
        "def deadly(once):\n"
        "    if not (folder / 'died').exists():\n"
        "        (folder / 'died').touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return once + 1\n"
        "result = run(flow, data=folder / 'data')\n"
        "print(result.state, result.output)\n"
    )
    command = [sys.executable, str(script), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    # Another workflow in the same folder leaves it alone: it would lack its functions.
    other = run({"nodes": [{"id": "a", "handler": "echo", "config": 1}]}, data=tmp_path / "data")
    assert other.output == {"a": 1}
    assert subprocess.check_output(command, text=True).strip() == "COMPLETED {'deadly': 2}"
    assert (tmp_path / "once").read_text() == "x"


# --- Giving up.


async def test_cancelling_execute_stops_what_runs_and_leaves_nothing() -> None:
    flow = Workflow("flow")
    started, stopped = asyncio.Event(), []

    @flow.node
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    running = asyncio.ensure_future(flow.execute())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped == [True]
    assert asyncio.all_tasks() == {asyncio.current_task()}


INTERRUPTED = """
import asyncio, sys, threading
from weft import Workflow, run
flow = Workflow('flow')
@flow.node
async def endless():
    print('started', flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print('stopped', flush=True)
@flow.node
def stuck():
    threading.Event().wait()
async def cell():
    run(flow)
try:
    # As a notebook does: asyncio.run() itself would keep the first Ctrl-C for its own task.
    asyncio.new_event_loop().run_until_complete(cell()) if sys.argv[1] == 'inside' else run(flow)
except KeyboardInterrupt:
    print('interrupted', threading.active_count() <= 2, flush=True)
"""


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_ctrl_c_stops_what_runs_and_is_an_interrupt(where: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        try:
            printed, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (printed.splitlines(), complaints) == (["stopped", "interrupted True"], "")
    assert process.returncode == 0


# --- Notebooks.


def test_a_notebook_shows_the_states() -> None:
    flow = Workflow("flow")
    flow.node(id="good", handler="echo", config=1)
    function, _ = failing(9, NonRetryable("<no>"))
    flow.node(id="bad", dependencies=["good"])(function)
    result = run(flow)
    svg = result._repr_svg_()
    assert svg is not None
    assert "COMPLETED" in svg
    assert "FAILED" in svg
    html = result._repr_html_()
    assert "flow: FAILED in" in html
    assert "&lt;no&gt;" in html
    assert "data:image/svg+xml" in html


def test_a_graph_too_large_for_a_picture_is_told_in_words() -> None:
    flow = Workflow("flow", nodes=[{"id": f"n{n}", "handler": "echo"} for n in range(501)])
    assert flow._repr_svg_() is None
    assert "nodes: 501" in flow._repr_html_()
    assert "<img" not in run(flow)._repr_html_()


def test_what_a_run_gives_is_not_written_out() -> None:
    class Large:
        def __repr__(self) -> str:
            raise AssertionError("as text it may be a hundred megabytes")

    large = Large()

    async def main() -> Large:
        return large

    assert run_to_end(main()) is large


class TextualError(HandlerError):
    """An error of a handler whose author gave no object."""

    code = "of_mine"
    retryable = False
    details = "a text"


@pytest.mark.parametrize("error", [TextualError("no"), NonRetryable("no"), None])
def test_the_details_of_an_error_are_always_an_object(error: Exception | None) -> None:
    flow = Workflow("details", failure_policy="continue", timeout_seconds=60)

    @flow.node(max_retries=0)
    def bad() -> Any:
        if error is not None:
            raise error
        return object()

    flow.node(
        id="seen",
        handler="echo",
        dependencies=[bad],
        trigger_rule="all_done",
        config="{{ nodes.bad.error.details }}",
    )
    result = run(flow)
    failure = result.nodes["bad"].error
    assert failure is not None
    assert result.error is not None
    assert result.error["details"] == {"code": failure["code"]}
    details = failure["details"]
    assert result.nodes["seen"].output == details
    details.pop("traceback", None)
    match error:
        case None:
            assert details == {}
        case TextualError():
            assert details == {"value": "a text"}
        case _:
            assert details["type"] == "NonRetryable"


def test_the_details_of_an_executions_own_error_are_an_object() -> None:
    late = run(
        {"nodes": [{"id": "a", "handler": "sleep", "config": {"seconds": 60}}], "timeout_seconds": 0.05}
    )
    assert late.error is not None
    assert (late.error["code"], late.error["details"]) == ("deadline_exceeded", {})


def joining(**fields: Any) -> dict[str, Any]:
    """A definition whose output node comes behind parents that completed, were skipped, and failed."""
    return {
        "failure_policy": "continue",
        "nodes": [
            {"id": "done", "handler": "echo", "config": {"n": 1}},
            {"id": "null-like", "handler": "echo", "config": None},
            {"id": "large", "handler": "echo", "config": "x" * 300_000},
            {"id": "not_wanted", "handler": "echo", "condition": "false"},
            {"id": "broken", "handler": "echo", "config": "{{ input.missing }}"},
            {
                "id": "out",
                "handler": "output",
                "dependencies": ["large", "done", "null-like", "not_wanted", "broken"],
                "trigger_rule": "all_done",
                **fields,
            },
        ],
    }


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_output_node_without_config_gives_the_outputs_of_its_completed_parents(
    on_disk: bool, tmp_path: Path
) -> None:
    result = run(joining(), data=tmp_path if on_disk else None)
    assert result.nodes["out"].output == {"large": "x" * 300_000, "done": {"n": 1}, "null-like": None}
    assert run(joining(config={})).nodes["out"].output == {}
    assert run(joining(config=None)).nodes["out"].output is None


def test_the_output_of_an_output_node_without_config_is_the_executions() -> None:
    nodes = [{"id": each, "handler": "echo", "config": each.upper()} for each in "ab"]
    alone = {"id": "out", "handler": "output"}
    assert run({"nodes": [*nodes, {**alone, "dependencies": ["a", "b"]}]}).output == {"a": "A", "b": "B"}
    assert run({"nodes": [alone]}).output == {}
    # Any other handler has an empty config where it has none.
    assert (
        run({"nodes": [*nodes, {"id": "c", "handler": "echo", "dependencies": ["a"]}]}).nodes["c"].output
        == {}
    )


BREAKING = """
from weft import Workflow, run

flow = Workflow("flow")


@flow.node
def plain():
    number = 3
    breakpoint()
    return number


@flow.node
async def coroutine(plain):
    number = plain + 1
    breakpoint()
    return number


print(run(flow).output)
"""


def test_breakpoint_stops_in_the_functions_of_run(tmp_path: Path) -> None:
    file = tmp_path / "breaking.py"
    file.write_text(BREAKING)
    done = subprocess.run(
        [sys.executable, str(file)],
        input="p number * 100\nc\n" * 2,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 300\n" in done.stdout
    assert "(Pdb) 400\n" in done.stdout
    assert done.stdout.endswith("{'coroutine': 4}\n")
