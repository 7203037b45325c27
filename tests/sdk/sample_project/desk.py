"""A program that makes every call of the client, as a type checker of its author sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import weft
from weft import Client, Failure, HandlerContext, NodeState, StepResult, WorkflowDAG, WorkflowResult


def store(client: Client) -> int:
    verdict = client.validate("order.yaml")
    for problem in [*verdict.problems, *verdict.warnings]:
        print(problem.pointer, problem.message)
    deployed = client.deploy("order.yaml")
    client.set_alias(deployed.name, "prod", deployed.version)
    for each in client.workflows():
        print(each.name, each.version, [version.version for version in client.versions(each.name)])
    definition = client.workflow(deployed.name, version="prod").definition
    statistics = client.statistics(deployed.name)
    print(definition, statistics.success_rate, [(change.action, change.actor) for change in client.changes()])
    client.delete_alias(deployed.name, "prod")
    client.delete_workflow(deployed.name)
    return deployed.version


def follow(client: Client) -> str:
    started = client.start(
        "order", {"number": 7}, priority="high", labels={"customer": "acme"}, key="order-7"
    )
    adhoc = client.start_definition({"nodes": [{"id": "a", "handler": "echo"}]}, wait_seconds=1.5)
    client.pause(started.id)
    client.resume(started.id)
    for event in client.watch(adhoc.id, after=0):
        if event.progress is not None:
            print(event.progress.done, event.progress.total, event.progress.message)
    for line in client.watch_logs(started.id, node="pack", level="WARNING"):
        print(line.at.isoformat(), line.node, line.attempt, line.stream, line.message)
    print(
        [line.message for line in client.logs(started.id)], [event.seq for event in client.events(started.id)]
    )
    for reason in client.explain(started.id, "pack").reasons:
        print(reason.code, reason.message)
    for node in client.nodes(started.id, state=["FAILED", "SKIPPED"]):
        detail = client.node(started.id, node.id)
        print([(attempt.number, attempt.outcome) for attempt in detail.attempts], failure_of(detail.error))
    shown = client.execution(started.id, nodes="brief", wait_seconds=30)
    ended = client.wait(shown.id, timeout_seconds=60)
    if ended.state == "FAILED":
        plan = client.retry_plan(ended.id, nodes=["pack"])
        print(plan.run, plan.reuse)
        return client.retry(ended.id, nodes=["pack"]).state
    fork = client.fork(ended.id, from_nodes=["pack"], input={"number": 8})
    return client.cancel(fork.id).state


def answer(client: Client) -> str | None:
    for waiting in client.waits(workflow="order", signal="approval"):
        expires = "never" if waiting.expires_at is None else waiting.expires_at.isoformat()
        print(waiting.prompt, waiting.schema, waiting.since.date(), expires)
        answered = client.answer(waiting.execution, waiting.node, {"approved": True}, key=waiting.node)
        return client.signal(waiting.execution, "approval", {"by": answered.id}).answered
    return None


def called(client: Client, execution: str) -> list[str]:
    children = client.children(execution, "pack", state="FAILED")
    listed = client.executions(parent=execution)
    return [child.id for child in (*children, *listed) if child.parent is not None and child.parent.node]


def by_itself(client: Client) -> list[str]:
    nightly = client.put_trigger("nightly", {"workflow": "order", "schedule": {"cron": "0 2 * * *"}})
    client.disable_trigger(nightly.name)
    client.enable_trigger(nightly.name)
    print(client.trigger(nightly.name).schedule, [each.overlap for each in client.triggers(workflow="order")])
    since = datetime(2026, 5, 1, tzinfo=UTC)
    plan = client.backfill_plan(nightly.name, since, since + timedelta(days=7))
    batch = client.backfill_trigger(nightly.name, plan.due[0], "2026-05-08T00:00:00Z", max_running=2)
    fired = client.fire_trigger(nightly.name, event={"type": "order.paid"}, key="order-7")
    effect = client.send_event({"specversion": "1.0", "type": "order.paid", "source": "/shop", "id": "7"})
    for inbound in client.inbound_events(event_type="order.paid"):
        print(inbound.id, inbound.received_at, inbound.started)
    client.delete_trigger(nightly.name)
    return [batch.id, fired.id, *effect.started]


def look_after(client: Client) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    ids = [each.id for each in client.executions(workflow="order", state="FAILED", created_after=yesterday)]
    overview = client.overview()
    print(ids, overview, client.ready().ready, [queue.depth for queue in client.queues()])
    print([(worker.id, worker.state, worker.running) for worker in client.workers()])
    for group in client.dead_letter_groups(workflow="order", state="open"):
        print(group.node, group.code, group.count)
    for letter in client.dead_letters(code="handler_error"):
        print(client.dead_letter(letter.id).attempts)
        client.retry_dead_letter(letter.id, key=letter.id)
        client.drop_dead_letter(letter.id)
    client.retry_dead_letters(workflow="order", node="pack")
    client.drop_dead_letters(ids=ids)
    for wait in client.waits(workflow="order", signal="approval"):
        print(wait.node, wait.prompt, wait.since, wait.expires_at)
        print(client.answer(wait.execution, wait.node, "approve").output)
        print(client.signal(wait.execution, "paid", {"amount": 7}).answered)
    batch = client.start_batch("order", [{"number": 1}, {"number": 2}], labels={"kind": "nightly"})
    print(client.batch(batch.id).counts, [each.id for each in client.batches()])
    for result in client.batch_results(batch.id):
        print(result.index, result.state, result.output, failure_of(result.error))
    client.cancel_batch(batch.id)
    for event in client.watch_all():
        print(event.type, event.execution)
        break
    client.close()


def failure_of(error: Failure | None) -> str:
    return "" if error is None else f"{error.code}: {error.message} ({error.retryable}, {error.details})"


def count(context: HandlerContext) -> int:
    done = 0
    try:
        for done in range(100):
            context.heartbeat()
            context.progress(done, 100, f"line {done}")
    except weft.Cancelled:
        context.logger.warning("stopped at %d of %s", done, context.input)
    names = [name for name, parent in context.parents.items() if parent.state is NodeState.COMPLETED]
    return len(names) + (context.version or 0) + len(context.labels) + len(context.workflow or "")


async def in_steps(dag: WorkflowDAG, executor: weft.WorkflowExecutor) -> list[StepResult]:
    dag.validate()
    print(dag.get_execution_layers())
    result: WorkflowResult = await executor.execute(dag, context={"day": "monday"})
    print(result.status, result.duration, result.completed, result.failed, result.skipped)
    return list(result.steps.values())


def release() -> weft.Workflow:
    flow = weft.Workflow("release")
    cool_down = flow.wait("cool_down", seconds=180)
    flow.wait("approval", prompt="Apply it?", expires_seconds=60, default=None, dependencies=[cool_down])
    return flow


def results(flow: weft.Workflow) -> dict[str, weft.NodeResult]:
    try:
        ended: weft.ExecutionResult = flow.run(input={"number": 7})
    except weft.InputError as error:
        problems: list[weft.Problem] = list(error.problems)
        raise SystemExit(str(problems)) from error
    except (weft.DefinitionError, weft.DocumentError, weft.SettingsError) as error:
        raise SystemExit(str(error)) from error
    except (weft.DataFolderError, weft.JournalError, weft.UnreachableError, weft.WeftError) as error:
        raise SystemExit(1) from error
    print(ended.id, ended.started_at, ended.finished_at)
    return dict(ended.nodes)
