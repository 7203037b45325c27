"""A program that uses the whole SDK, as a type checker of its author sees it."""

# ruff: noqa: A002 - a parameter named input is what a node asks for
from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypedDict

import msgspec
import pydantic

import weft
from weft import (
    HandlerContext,
    NonRetryable,
    RetryAfter,
    TokenBucketRateLimiter,
    Workflow,
    WorkflowDAG,
    WorkflowExecutor,
    handler,
    run,
)


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Line:
    sku: str
    price: Decimal
    size: Size = Size.SMALL


@dataclass
class Order:
    id: int
    placed_at: datetime
    lines: list[Line] = field(default_factory=list[Line])


class Request(pydantic.BaseModel):
    order: int
    express: bool = False


class Receipt(msgspec.Struct):
    order: int
    total: Decimal
    due: date


class Mail(TypedDict):
    to: str
    text: str


flow = Workflow(
    "shop",
    description="from an order to a receipt",
    failure_policy="continue",
    timeout_seconds=600,
    defaults={"max_retries": 2, "retry": {"base_delay_seconds": 0.01}},
    output="{{ receipt.output }}",
)


@flow.node
async def fetch(input: Request, context: HandlerContext) -> Order:
    context.logger.info("fetching order %d of attempt %d", input.order, context.attempt)
    if context.attempt == 1 and not context.is_last_attempt:
        raise RetryAfter(0.01, "the shop is busy")
    await asyncio.sleep(0)
    lines = [Line("tea", Decimal("3.50")), Line("cup", Decimal("4.25"), Size.LARGE)]
    return Order(input.order, datetime(2026, 5, 1, tzinfo=UTC), lines)


@flow.node(timeout_seconds=5, cache={"ttl_seconds": 60})
def total(fetch: Order) -> Decimal:
    if not fetch.lines:
        raise NonRetryable("an order without lines")
    return sum((line.price for line in fetch.lines), Decimal(0))


@flow.node
def receipt(fetch: Order, total: Decimal) -> Receipt:
    return Receipt(fetch.id, total, (fetch.placed_at + timedelta(days=30)).date())


greeting = flow.node(id="greeting", handler="echo", config={"text": "thank you"})


@flow.node(dependencies=[greeting, receipt], trigger_rule="all_done")
def mail(greeting: dict[str, str], receipt: Receipt | None, context: HandlerContext) -> Mail:
    state = context.parents["receipt"].state
    due = "never" if receipt is None else receipt.due.isoformat()
    return {"to": context.labels.get("customer", "nobody"), "text": f"{greeting['text']}: {state}, {due}"}


@handler("discount", config_schema=Request)
def discount(config: Request, context: HandlerContext) -> float:
    return 0.1 if config.express else 0.0


@handler
async def whisper(config: Any, context: HandlerContext) -> str:
    return str(config).lower()


class TooDearError(weft.HandlerError):
    code = "too_dear"
    retryable = False


def in_this_process() -> Decimal:
    result = run(flow, input=Request(order=7)).raise_for_state()
    receipt = result.nodes["receipt"]
    if receipt.error is not None:
        print(receipt.error.code, receipt.error.details.get("traceback"))
    print(result.state is weft.ExecutionState.COMPLETED, receipt.duration, receipt.attempt)
    return Decimal(result.output["total"])


def on_a_server(url: str) -> str:
    with weft.Client(url) as client:
        deployed = client.deploy(flow)
        started = client.start(deployed.name, {"order": 7}, labels={"customer": "acme"})
        for event in client.watch(started.id):
            print(event.type, event.node)
        try:
            execution = client.wait(started.id, timeout_seconds=60).raise_for_state()
        except weft.ExecutionFailed as failed:
            return failed.error.message if failed.error is not None else failed.state
        except weft.ApiError as refused:
            return f"{refused.status} {refused.code} {refused.problems}"
        return f"{execution.nodes['receipt'].state} {execution.output} {execution.duration}"


async def on_the_loop(url: str) -> int:
    result = await flow.execute({"order": 7})
    async with weft.AsyncClient(url) as client:
        async for each in client.executions(workflow="shop", state="FAILED"):
            await client.retry(each.id)
    return len(result.nodes)


async def at_run_time() -> weft.ExecutionState:
    dag = WorkflowDAG("document")
    dag.add_step("extract", lambda context: str(context["text"]).split())
    dag.add_step("count", lambda context: len(context["extract"]), depends_on=["extract"], max_retries=1)
    executor = WorkflowExecutor(
        max_concurrency=4, rate_limiters={"reader": TokenBucketRateLimiter(10, burst=1)}
    )
    result = await executor.execute(dag, context={"text": "warp and weft"})
    return result.status


if __name__ == "__main__":
    print(in_this_process(), asyncio.run(at_run_time()))
