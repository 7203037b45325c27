"""Whether this process exports spans, by the variables that OpenTelemetry defines."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.tracing.contract import Tracing

log = logging.getLogger("weft.tracing")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_REMEDY = "pip install 'weft[otel]'"
_GRPC_REMEDY = (
    "pip install opentelemetry-exporter-otlp-proto-grpc, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
)


def is_wanted(environment: Mapping[str, str]) -> bool:
    """True if the variables name where spans go, and none of them turns them off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    return "otlp" in [name.strip() for name in exporters] and any(
        environment.get(name) for name in _ENDPOINTS
    )


def open_tracing(now: Callable[[], int]) -> Tracing | None:
    """Return the exporter that the environment asks for; None: no spans. ``now``: microseconds.

    A platform may set the variables for all that it runs: without ``weft[otel]`` there is only a warning.
    """
    if not is_wanted(os.environ):
        return None
    protocol = next((value for name in _PROTOCOLS if (value := os.environ.get(name))), "http/protobuf")
    try:
        from weft.tracing.otlp import OtlpTracing
    except ImportError as error:
        _warn(str(error), _REMEDY)
        return None
    try:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        _warn(str(error), _GRPC_REMEDY if protocol == "grpc" else _REMEDY)
        return None
    return OtlpTracing(OTLPSpanExporter(), now=now)


@cache
def _warn(error: str, do: str) -> None:
    """Log what is missing, once in a process: a program may open an engine for each ``run``."""
    log.warning("tracing.unavailable", extra={"error": error, "do": do})
