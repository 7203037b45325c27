"""A service that asks to wait: how long weft waits, and what ``explain`` says of the delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.api.sse import watch

from weft.core.time import parse_rfc3339
from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from tests.api.conftest import Serve

LOCAL = ("127.0.0.1",)


@pytest.mark.parametrize(
    ("settings", "retry", "seconds", "source"),
    [
        (
            {},
            {},
            3600,
            "the service asked for 604800 s (Retry-After), cut to 3600 s (WEFT_MAX_RETRY_AFTER)",
        ),
        (
            {"max_retry_after_seconds": 90.0},
            {"max_delay_seconds": 60},
            90,
            "the service asked for 604800 s (Retry-After), cut to 90 s (WEFT_MAX_RETRY_AFTER)",
        ),
        (
            {"max_retry_after_seconds": 90.0},
            {"max_delay_seconds": 86_400},
            86_400,
            "the service asked for 604800 s (Retry-After), cut to 86400 s (the node's `max_delay_seconds`)",
        ),
        ({"max_retry_after_seconds": 700_000.0}, {}, 604_800, "the service asked for 604800 s (Retry-After)"),
    ],
)
async def test_a_week_is_cut_and_explained(
    serve: Serve, settings: dict[str, Any], retry: dict[str, Any], seconds: int, source: str
) -> None:
    with RecordingService() as service:
        service.script(Answer(503, headers={"Retry-After": "604800"}))
        call = {
            "id": "call",
            "handler": "call_external_service",
            "config": {"url": service.url},
            "retry": retry,
        }
        async with serve(http_allow=LOCAL, **settings) as server:
            started = await server.post("/v1/executions", json={"definition": {"nodes": [call]}})
            path = f"/v1/executions/{started.json['id']}"
            async with watch(server, f"{path}/events") as stream:
                event = (await stream.until("node.retrying")).data
            delay = parse_rfc3339(event["due_at"]) - parse_rfc3339(event["at"])
            assert delay == seconds * 1_000_000
            assert event["error"]["details"]["retry_after_seconds"] == 604_800
            (reason,) = (await server.get(f"{path}/nodes/call/explain")).json["reasons"]
            assert reason["code"] == "retry_scheduled"
            assert reason["message"] == f"attempt 2 follows after a failure; {source}"
            assert reason["until"] == event["due_at"]
            await server.post(f"{path}/cancel")
