"""Whether a process exports spans, by the variables of OpenTelemetry."""

from __future__ import annotations

import logging
import sys

import pytest

from weft import run
from weft.tracing.opening import is_wanted, open_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": " True "}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        # Where spans go is not said: the default of the specification would be a guess.
        ({"OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_EXPORTER": "otlp"}, False),
    ],
)
def test_spans_are_exported_where_an_endpoint_is_named(environment: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environment) is wanted


def test_a_program_ends_though_its_collector_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    result = run({"nodes": [{"id": "a", "handler": "echo", "config": 1}]})
    assert result.output == {"a": 1}


@pytest.mark.parametrize(
    ("missing", "protocol", "remedy"),
    [
        ("opentelemetry.sdk.trace", "http/protobuf", "weft[otel]"),
        ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "http/protobuf", "weft[otel]"),
        ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "grpc", "proto-grpc"),
    ],
)
def test_without_the_packages_a_process_goes_on_and_says_once_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    missing: str,
    protocol: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "weft.tracing.otlp", raising=False)
    with caplog.at_level(logging.WARNING, "weft.tracing"):
        assert open_tracing(lambda: 0) is None
        assert open_tracing(lambda: 0) is None
    (line,) = caplog.records
    assert line.getMessage() == "tracing.unavailable"
    assert remedy in line.__dict__["do"]
