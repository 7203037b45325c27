"""Functions that ask their context for the execution around them; they run wherever weft runs functions."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from typing import Any

from weft import HandlerContext, NonRetryable, Workflow, handler

flow = Workflow("asking", failure_policy="continue", defaults={"retry": {"base_delay_seconds": 0}})


@flow.node
def good() -> dict[str, Any]:
    return {"at": date(2026, 5, 1), "many": "x" * 300_000}


@flow.node(max_retries=0)
def bad() -> None:
    raise NonRetryable("no")


def known(context: HandlerContext) -> dict[str, Any]:
    parents = context.parents
    return {
        "input": context.input,
        "labels": dict(context.labels),
        "workflow": context.workflow,
        "version": context.version,
        "last": context.is_last_attempt,
        "states": {name: parent.state for name, parent in parents.items()},
        "at": parents["good"].output["at"],
        "size": len(parents["good"].output["many"]),
        "none": parents["bad"].output,
        "code": parents["bad"].error.code if parents["bad"].error else None,
    }


@flow.node(dependencies=[good, bad], trigger_rule="all_done", max_retries=1)
def plain(context: HandlerContext) -> dict[str, Any]:
    if not context.is_last_attempt:
        raise ValueError("again")
    return known(context)


@flow.node(dependencies=[good, bad], trigger_rule="all_done", max_retries=3)
async def coroutine(context: HandlerContext) -> dict[str, Any]:
    await asyncio.sleep(0)
    return known(context)


@flow.node(dependencies=[good, bad], trigger_rule="all_done", max_retries=3)
def threaded(context: HandlerContext) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(known(context)))
    thread.start()
    thread.join()
    return found[0]


@handler("asking")
async def asking(config: Any, context: HandlerContext) -> dict[str, Any]:
    return known(context)


flow.node(id="handled", handler="asking", dependencies=[good, bad], trigger_rule="all_done", max_retries=3)
