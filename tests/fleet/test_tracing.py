"""Spans of a fleet: those of one execution come from several processes, and fit together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.fleet.test_roles import FLOW, Place
from tests.support.otlp import Collector

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_processes_of_a_fleet_send_the_spans_of_one_trace(
    tmp_path: Path, redis_url: str, postgres_url: str
) -> None:
    async with Collector() as collector, Place(tmp_path, redis_url, postgres_url) as place:
        (place.folder / "order.yaml").write_text(FLOW)
        async with place.fleet(**collector.environment) as running:
            url = {"WEFT_URL": running.api_process.url}
            assert (await place.ask("deploy", "order.yaml", **url)).returncode == 0
            started = await place.ask("start", "order", "--input", "number=7", "--wait", "--json", **url)
            execution = json.loads(started.stdout)
            spans = await collector.of(execution["id"], count=4)
            whole = spans["execution order"]
            assert {span.trace_id for span in spans.values()} == {execution["trace_id"]}
            for name in ("node fetch", "node rest", "node pack"):
                assert spans[name].parent_id == whole.span_id
                assert whole.start <= spans[name].start <= spans[name].end <= whole.end
            assert spans["node fetch"].attributes["weft.workflow.name"] == "order"
            # Cancelled by the API process, which makes the span then.
            held = await running.api.start(
                {"nodes": [{"id": "nap", "handler": "sleep", "config": {"seconds": 60}}]}
            )
            await running.api.call("POST", f"/v1/executions/{held}/cancel")
            ended = (await collector.of(held, count=1))["execution"]
            assert ended.attributes["weft.execution.state"] == "CANCELLED"
