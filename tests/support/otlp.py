"""A collector for tests: a real HTTP server that takes spans by OTLP, as protobuf, and keeps them."""

from __future__ import annotations

import asyncio
import gzip
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from weft.testing.http_server import Answer, HttpServer, ReceivedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came over the wire, with its ids in hexadecimal and its times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    attributes: Mapping[str, Any]
    # The trace and the span that each link leads to.
    links: tuple[tuple[str, str], ...]
    # 0 unset, 1 ok, 2 error
    status: int
    resource: Mapping[str, Any]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


class Collector(HttpServer):
    """Listens on a free port; ``environment`` sends the spans of a process to it."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.spans: list[ReceivedSpan] = []
        self._came = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    async def find(self, wanted: Callable[[Self], list[ReceivedSpan]], *, count: int) -> list[ReceivedSpan]:
        """Return the spans that are wanted once there are as many."""
        return await asyncio.to_thread(self._wait, wanted, count)

    async def of(self, execution_id: str, *, count: int) -> dict[str, ReceivedSpan]:
        """Return the spans of an execution and its attempts by name, once there are as many.

        The name of an attempt's span is followed by the attempt's number, unless it is the first.
        """

        def wanted(collector: Self) -> list[ReceivedSpan]:
            return [s for s in collector.spans if s.attributes.get("weft.execution.id") == execution_id]

        found = await self.find(wanted, count=count)
        named = {
            f"{s.name} {number}" if (number := s.attributes.get("weft.node.attempt", 1)) > 1 else s.name: s
            for s in found
        }
        assert len(named) == len(found) == count, [s.name for s in found]
        return named

    async def calls_of(self, attempt: ReceivedSpan, *, count: int) -> list[ReceivedSpan]:
        """Return the spans of the calls that an attempt made."""
        return await self.find(
            lambda collector: [s for s in collector.spans if s.parent_id == attempt.span_id], count=count
        )

    def _wait(self, wanted: Callable[[Self], list[ReceivedSpan]], count: int) -> list[ReceivedSpan]:
        with self._came:
            if not self._came.wait_for(lambda: len(wanted(self)) >= count, _PATIENCE_SECONDS):
                raise TimeoutError(f"{[span.name for span in wanted(self)]} came, not {count}")
            return wanted(self)

    async def _take(self, request: ReceivedRequest) -> Answer:
        if (request.method, request.target) != ("POST", "/v1/traces"):
            return Answer(404)
        zipped = request.headers.get("content-encoding") == "gzip"
        batch = ExportTraceServiceRequest.FromString(
            gzip.decompress(request.body) if zipped else request.body
        )
        with self._came:
            for of_resource in batch.resource_spans:
                resource = _attributes(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    assert of_scope.scope.name == "weft"
                    self.spans += [_received(span, resource) for span in of_scope.spans]
            self._came.notify_all()
        headers = {"Content-Type": "application/x-protobuf"}
        return Answer(200, ExportTraceServiceResponse().SerializeToString(), headers)


def _received(span: Any, resource: Mapping[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        status=span.status.code,
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)
