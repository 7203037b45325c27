"""The API from a shell: executions, workers and queues of the server that ``WEFT_URL`` names."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the parser reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.identify import execution_id, nodes_missing
from weft.cli.pairs import Input, InputFile, Labels, read_input, read_labels
from weft.cli.printing import print_json, print_text, say
from weft.cli.server import AsJson, on_server
from weft.cli.table import age, facts, moment, payload, table, took, why
from weft.cli.workflows import Name, ask_workflow, version_of
from weft.core.state import SETTLED, NodeState
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.errors import ApiError, WeftError
from weft.sdk import calls
from weft.sdk.progress import progress_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.cli.server import RemoteServer
    from weft.sdk.calls import ApiCall

MAX_SHOWN_NODES = 50

Id = Annotated[str, Parameter(help="an execution's id, or the first characters of it")]
Version = Annotated[str | None, Parameter("--version", metavar="V", help="a number or an alias (latest)")]
Priority = Annotated[
    Literal["low", "normal", "high"] | None, Parameter(help="which waiting task starts first")
]
Key = Annotated[
    str | None, Parameter("--key", metavar="K", help="an idempotency key: the same again starts nothing anew")
]


def start(
    name: Name,
    /,
    *,
    input: Input = (),  # noqa: A002 - the name of the flag
    input_file: InputFile = None,
    version: Version = None,
    label: Labels = (),
    priority: Priority = None,
    key: Key = None,
    wait: Annotated[bool, Parameter(help="follow it to its end, and print its output")] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, Parameter(help="with --wait: show no progress")] = False,
) -> int:
    """Start an execution of a stored workflow, and print its id."""
    call = calls.start(
        name,
        read_input(input, input_file, DEFAULT_BOUNDS),
        version=version_of(version),
        labels=read_labels(label),
        priority=priority,
        key=key,
    )
    started: str | None = None

    async def work(server: RemoteServer) -> int:
        nonlocal started
        execution = await ask_workflow(name, call, server)
        started = execution["id"]
        if not wait:
            if as_json:
                print_json(execution)
            else:
                print_text(f"{started}\n")
            return 0
        from weft.cli.watch import finish, stay

        if not quiet:
            say(f"execution {started}")
        ended = await stay(execution["id"], server, quiet=quiet)
        if as_json:
            print_json(await server.ask(calls.execution(execution["id"])))
        return finish(ended, prints_output=not as_json, quiet=quiet)

    try:
        return on_server(work)
    except KeyboardInterrupt:
        if started is None:
            raise
        from weft.cli.watch import left_running

        return left_running(started)


def list_(
    *,
    workflow: Annotated[str | None, Parameter(metavar="NAME", help="of this workflow")] = None,
    state: Annotated[
        tuple[str, ...], Parameter("--state", metavar="STATE", help="in this state; may be repeated")
    ] = (),
    label: Labels = (),
    error: Annotated[
        str | None, Parameter(metavar="CODE", help="with this error, of its own or of a node")
    ] = None,
    node: Annotated[str | None, Parameter(metavar="NODE", help="in which this node failed")] = None,
    worker: Annotated[
        str | None, Parameter(metavar="ID", help="of which an attempt failed on this worker, or was lost")
    ] = None,
    q: Annotated[
        str | None,
        Parameter(metavar="TEXT", help="with this text in the workflow's name, a label, or first in the id"),
    ] = None,
    min_seconds: Annotated[float | None, Parameter(metavar="S", help="that took so long or longer")] = None,
    max_seconds: Annotated[float | None, Parameter(metavar="S", help="that took no longer")] = None,
    limit: Annotated[int, Parameter(metavar="N", help="at most so many (20)")] = 20,
    as_json: AsJson = False,
) -> int:
    """List executions, newest first."""
    if limit < 1:
        raise WeftError(f"--limit needs a number from 1 up, not {limit}")
    call = calls.executions(
        workflow=workflow,
        state=[one.upper() for one in state],
        labels=read_labels(label),
        error=error,
        node=node,
        worker=worker,
        q=q,
        min_seconds=min_seconds,
        max_seconds=max_seconds,
    )

    async def work(server: RemoteServer) -> int:
        items = [item async for item in server.items(call, limit=limit)]
        if as_json:
            print_json({"items": items})
        elif items:
            rows = [[item["id"], item["state"], age(item["created_at"]), _workflow(item)] for item in items]
            print_text(table(["ID", "STATE", "AGE", "WORKFLOW"], rows))
        else:
            say("there are no such executions")
        return 0

    return on_server(work)


def show(
    execution: Id,
    node: Annotated[str | None, Parameter(help="show this node: its attempts, config and output")] = None,
    /,
    *,
    as_json: AsJson = False,
) -> int:
    """Show one execution with its input, output and nodes; or one node of it."""

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        if node is not None:
            from weft.cli.node import describe_node

            detail = await ask_node(found, node, calls.node(found, node), server)
            if as_json:
                print_json(detail)
            else:
                is_waiting = detail["state"] == NodeState.WAITING
                waits = await open_waits(found, server) if is_waiting else {}
                print_text(describe_node(detail, waits.get(node)))
            return 0
        if as_json:
            print_json(await server.ask(calls.execution(found)))
            return 0
        from weft.cli.expected import expected_end
        from weft.cli.watch import for_report

        shown = await for_report(found, server)
        expected = await expected_end(found, server) if shown["finished_at"] is None else None
        waits = await open_waits(found, server) if shown["counts"].get(NodeState.WAITING) else {}
        prompts = {name: wait["prompt"] for name, wait in waits.items()}
        print_text(_described(shown, expected, prompts))
        return 0

    return on_server(work)


def explain(
    execution: Id,
    node: Annotated[str | None, Parameter(help="the id of a node (every node that is not settled)")] = None,
    /,
    *,
    as_json: AsJson = False,
) -> int:
    """Explain why a node is not running."""

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        if node is not None:
            explanation = await ask_node(found, node, calls.explain(found, node), server)
            if as_json:
                print_json(explanation)
            else:
                print_text(_explained(node, explanation))
            return 0
        unsettled = calls.nodes(found, state=[str(state) for state in NodeState if state not in SETTLED])
        names = [item["id"] async for item in server.items(unsettled, limit=MAX_SHOWN_NODES + 1)]
        shown = names[:MAX_SHOWN_NODES]
        explanations = {name: await server.ask(calls.explain(found, name)) for name in shown}
        if as_json:
            print_json({"nodes": explanations})
        for name, explanation in explanations.items() if not as_json else ():
            print_text(_explained(name, explanation))
        if not names:
            say("every node is settled")
        elif len(names) > len(shown):
            say(f"the first {len(shown)} nodes that are not settled are explained; name a node for another")
        return 0

    return on_server(work)


def cancel(
    execution: Id,
    /,
    *,
    offline: Annotated[
        bool, Parameter(help="without a server: in the data folder of one that is stopped")
    ] = False,
    data: Annotated[
        Path | None, Parameter(metavar="DIR", help="with --offline: the data folder (.weft)")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Cancel an execution: nothing of it starts any more."""
    if not offline:
        if data is not None:
            raise WeftError("--data names the folder of a stopped server: give --offline too")
        return _control(execution, calls.cancel, as_json=as_json)
    import asyncio

    from weft.cli.offline import cancel_in_folder
    from weft.settings import read_settings

    settings, _ = read_settings(flags={"data": data})
    _print_controlled(asyncio.run(cancel_in_folder(settings.data, execution)), as_json=as_json)
    return 0


def pause(execution: Id, /, *, as_json: AsJson = False) -> int:
    """Pause an execution: what is running finishes, nothing else starts."""
    return _control(execution, calls.pause, as_json=as_json)


def resume(execution: Id, /, *, as_json: AsJson = False) -> int:
    """Go on with a paused execution."""
    return _control(execution, calls.resume, as_json=as_json)


def retry(
    execution: Id,
    /,
    *,
    node: Annotated[
        tuple[str, ...], Parameter("--node", metavar="NODE", help="also run this one again; may be repeated")
    ] = (),
    dry_run: Annotated[bool, Parameter(help="say what would run, and change nothing")] = False,
    as_json: AsJson = False,
) -> int:
    """Run again what failed or was cancelled; what completed keeps its output."""
    nodes = list(node) or None

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        call: ApiCall[Any] = (
            calls.retry_plan(found, nodes=nodes) if dry_run else calls.retry(found, nodes=nodes)
        )
        try:
            answer = await server.ask(call)
        except ApiError as error:
            raise await nodes_missing(found, node, error, server) from error
        if as_json:
            print_json(answer)
        elif dry_run:
            _print_plan(answer)
        else:
            _print_state(answer)
        return 0

    return on_server(work)


def fork(
    execution: Id,
    /,
    *,
    from_: Annotated[
        tuple[str, ...],
        Parameter("--from", metavar="NODE", help="run this node and all behind it; may be repeated"),
    ] = (),
    input: Input = (),  # noqa: A002 - the name of the flag
    input_file: InputFile = None,
    version: Version = None,
    key: Key = None,
    as_json: AsJson = False,
) -> int:
    """Start a new execution from one that has ended; without --from, everything runs again."""
    given = read_input(input, input_file, DEFAULT_BOUNDS) if input or input_file is not None else None

    async def work(server: RemoteServer) -> int:
        found = await execution_id(execution, server)
        call = calls.fork(
            found, from_nodes=list(from_) or None, input=given, version=version_of(version), key=key
        )
        try:
            forked = await server.ask(call)
        except ApiError as error:
            raise await nodes_missing(found, from_, error, server) from error
        if as_json:
            print_json(forked)
        else:
            print_text(f"{forked['id']}\n")
        return 0

    return on_server(work)


def workers(*, as_json: AsJson = False) -> int:
    """List the workers, with their load and the age of their last heartbeat."""

    def row(item: Mapping[str, Any]) -> list[object]:
        load = f"{item['running']}/{item['concurrency']}"
        queues = ", ".join(item["queues"])
        heartbeat = f"{item['heartbeat_age_seconds']:.1f} s"
        return [item["id"], item["state"], load, heartbeat, f"{item['host']}:{item['pid']}", queues]

    return _fleet(
        calls.workers(), ["ID", "STATE", "LOAD", "HEARTBEAT", "HOST", "QUEUES"], row, as_json=as_json
    )


def queues(*, as_json: AsJson = False) -> int:
    """List the queues, with what waits in them and what is in flight."""

    def row(item: Mapping[str, Any]) -> list[object]:
        oldest = item["oldest_age_seconds"]
        waits = None if oldest is None else f"{oldest:.1f} s"
        return [item["name"], item["depth"], waits, item["in_flight"], item["workers"]]

    return _fleet(calls.queues(), ["QUEUE", "DEPTH", "OLDEST", "IN FLIGHT", "WORKERS"], row, as_json=as_json)


# --- What they share.


async def ask_node(execution: str, node: str, call: ApiCall[Any], server: RemoteServer) -> Any:
    """Ask something of a node; one that is unknown may have been spelled wrong."""
    try:
        return await server.ask(call)
    except ApiError as error:
        raise await nodes_missing(execution, [node], error, server) from error


async def open_waits(execution: str, server: RemoteServer) -> dict[str, dict[str, Any]]:
    """Return what the API says of each node that waits for an answer, by its id."""
    call = calls.waits(execution=execution)
    return {item["node"]: item async for item in server.items(call, limit=MAX_SHOWN_NODES)}


def _explained(node: str, explanation: Mapping[str, Any]) -> str:
    text = f"{node} is {explanation['state']}\n"
    for reason in explanation["reasons"]:
        until = f" (until {moment(reason['until'])})" if reason.get("until") else ""
        text += f"  {reason['code']}: {reason['message']}{until}\n"
    return text


def _control(execution: str, call: Callable[[str], ApiCall[Any]], *, as_json: bool) -> int:
    async def work(server: RemoteServer) -> int:
        _print_controlled(await server.ask(call(await execution_id(execution, server))), as_json=as_json)
        return 0

    return on_server(work)


def _print_controlled(execution: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(execution)
    else:
        _print_state(execution)


def _print_state(execution: Mapping[str, Any]) -> None:
    generation = f", generation {execution['generation']}" if execution["generation"] > 1 else ""
    print_text(f"{execution['id']} is {execution['state']}{generation}\n")


def _print_plan(plan: Mapping[str, Any]) -> None:
    run, keep = plan["run"], plan["reuse"]
    nodes = "node" if len(run) == 1 else "nodes"
    print_text(f"generation {plan['generation']} would run {len(run):,} {nodes} and keep {len(keep):,}\n")
    rows = [[name, "run"] for name in run] + [[name, "keep"] for name in keep]
    print_text(table(["NODE", "PLAN"], rows[:MAX_SHOWN_NODES]))
    _say_left_out(len(rows), "--json")


def _fleet(
    call: ApiCall[Any],
    headings: list[str],
    row: Callable[[Mapping[str, Any]], list[object]],
    *,
    as_json: bool,
) -> int:
    async def work(server: RemoteServer) -> int:
        answer = await server.ask(call)
        if as_json:
            print_json(answer)
        else:
            print_text(table(headings, [row(item) for item in answer["items"]]))
        return 0

    return on_server(work)


def _workflow(execution: Mapping[str, Any]) -> str:
    if execution["version"] is None:
        return execution["workflow"] or "(not stored)"
    return f"{execution['workflow']} v{execution['version']}"


def _described(
    execution: Mapping[str, Any], expected: dict[str, Any] | None, prompts: Mapping[str, str | None]
) -> str:
    from weft.cli.expected import expected_text

    counts = [f"{count:,} {state.lower()}" for state, count in execution["counts"].items() if count]
    generation = execution["generation"]
    error = execution["error"]
    text = facts(
        {
            "execution": execution["id"],
            "workflow": _workflow(execution),
            "state": execution["state"] + (f", generation {generation}" if generation > 1 else ""),
            "created": moment(execution["created_at"]),
            "started": moment(execution["started_at"]),
            "finished": moment(execution["finished_at"]),
            "took": took(execution),
            "expected": expected_text(expected),
            "labels": ", ".join(f"{key}={value}" for key, value in execution["labels"].items()),
            "batch": execution["batch"],
            "trigger": execution["trigger"],
            "group": execution["group"],
            "forked from": execution["forked_from"],
            "trace": execution.get("trace_id"),
            "nodes": ", ".join(counts),
            "error": why({"error": error}) if error else None,
        }
    )
    text += payload("input", execution["input"]) + payload("output", execution["output"])
    nodes = execution["nodes"]
    rows = [
        [node["id"], node["state"], node["attempt"], took(node), _remark(node, prompts)]
        for node in _first(nodes)
    ]
    text += "\n" + table(["NODE", "STATE", "ATTEMPT", "TOOK", "WHY"], rows)
    text += _tracebacks(nodes)
    _say_left_out(len(nodes), f"weft show {execution['id']} --json")
    return text


def _remark(node: Mapping[str, Any], prompts: Mapping[str, str | None]) -> str:
    return why(node) or _progress(node) or _waiting(node, prompts)


def _waiting(node: Mapping[str, Any], prompts: Mapping[str, str | None]) -> str:
    """Return since and until when a node waits, and what it asks; empty if it does not wait."""
    if node["state"] != NodeState.WAITING:
        return ""
    text = "waits for an answer" if node["id"] in prompts else "waits"
    if node["started_at"]:
        text += f", {age(node['started_at'])} so far"
    if node["due_at"]:
        text += f", until {moment(node['due_at'])}"
    prompt = prompts.get(node["id"])
    return f"{text}: {prompt}" if prompt else text


def _progress(node: Mapping[str, Any]) -> str:
    """Return how far a running node has come; a server of an earlier release does not say."""
    progress = node.get("progress")
    return progress_text(progress) if progress and node["state"] == NodeState.RUNNING else ""


def _tracebacks(nodes: list[dict[str, Any]]) -> str:
    """Return the tracebacks of the first nodes that failed, each under the name of its node."""
    from weft.sdk.report import MAX_TRACEBACKS, traceback_lines

    text = ""
    failed = [node for node in nodes if node["state"] == NodeState.FAILED]
    for node in failed[:MAX_TRACEBACKS]:
        if lines := list(traceback_lines(node["error"], indent="  ")):
            text += "\n" + "\n".join([f"{node['id']}, attempt {node['attempt']}:", *lines]) + "\n"
    return text


def _first(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose what to show of many nodes: what failed, then what is under way, then the rest."""
    if len(nodes) <= MAX_SHOWN_NODES:
        return nodes

    def rank(node: Mapping[str, Any]) -> int:
        return 0 if node["state"] == NodeState.FAILED else 2 if node["state"] in SETTLED else 1

    return sorted(nodes, key=rank)[:MAX_SHOWN_NODES]


def _say_left_out(total: int, all_of_it: str) -> None:
    if total > MAX_SHOWN_NODES:
        say(f"{MAX_SHOWN_NODES} of {total:,} nodes are shown; {all_of_it} has all")
