from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.documents.conftest import EXAMPLE
from tests.documents.test_dataset import attempt
from tests.support.servers.process import free_port

from paperwork import exposition, metrics
from paperwork.__main__ import main

if TYPE_CHECKING:
    from tests.documents.conftest import Place

pytestmark = pytest.mark.usefixtures("place")


def note(execution_id: str, status: str, seconds: float, confidence: float | None = None) -> None:
    started_at = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    metrics.record("a.pdf", status, started_at, confidence, attempt(1, execution_id))


def samples() -> dict[str, float]:
    """Return every sample of the metrics by its name and label."""
    return {
        f"{sample.name}{''.join(f'{{{value}}}' for value in sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(exposition.as_text().decode())
        for sample in family.samples
    }


def test_prometheus_is_told_of_documents_their_time_and_their_confidence() -> None:
    note("a", "accepted", 0.2, 0.97)
    note("b", "review", 3, 0.45)
    note("c", "failed", 40)
    found = samples()
    assert found["documents_processed_total{accepted}"] == 1
    assert found["documents_processed_total{review}"] == 1
    assert found["documents_processed_total{failed}"] == 1
    assert found["documents_processed_total{success}"] == 2
    assert found["processing_duration_seconds_bucket{0.5}"] == 1
    assert found["processing_duration_seconds_bucket{5.0}"] == 2
    assert found["processing_duration_seconds_bucket{+Inf}"] == 3
    assert found["processing_duration_seconds_sum"] == pytest.approx(43.2, abs=0.5)
    assert found["extraction_confidence_bucket{0.5}"] == 1
    assert found["extraction_confidence_count"] == 2
    assert found["extraction_confidence_sum"] == pytest.approx(1.42)


def test_there_are_metrics_before_there_is_a_document() -> None:
    assert samples()["documents_processed_total{accepted}"] == 0
    assert samples()["documents_processed_total{success}"] == 0


def test_a_node_that_runs_twice_is_counted_once(place: Place) -> None:
    for _ in range(2):
        note("a", "accepted", 1, 0.9)
    assert samples()["documents_processed_total{accepted}"] == 1
    assert len(place.rows("processed")) == 1


def test_the_service_level_is_a_share_of_documents_within_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCUMENTS_SLA_SECONDS", "30")
    monkeypatch.setenv("DOCUMENTS_SLA_SHARE", "0.75")
    assert main(["sla"]) == 0
    for number, (status, seconds) in enumerate([("accepted", 1), ("review", 29), ("accepted", 2)]):
        note(str(number), status, seconds)
    assert main(["sla"]) == 0
    note("slow", "accepted", 31)
    assert main(["sla"]) == 0
    assert capsys.readouterr().out.endswith("75.0% of 4 documents within 30 s; 75.0% are wanted: kept\n")
    note("failed", "failed", 1)
    assert main(["sla"]) == 1
    assert capsys.readouterr().out == "60.0% of 5 documents within 30 s; 75.0% are wanted: missed\n"
    assert samples()["documents_sla_kept"] == 0
    assert metrics.check_sla(hours=0).documents == 0


def test_the_api_shows_the_metrics_and_the_service_level() -> None:
    note("a", "accepted", 1, 0.9)
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "paperwork", "api", "--port", str(port)], cwd=EXAMPLE)
    try:
        level = json.loads(read_page(process, f"http://127.0.0.1:{port}/sla"))
        assert (level["documents"], level["share"], level["kept"]) == (1, 1.0, True)
        text = read_page(process, f"http://127.0.0.1:{port}/metrics")
        assert 'documents_processed_total{status="accepted"} 1.0' in text
    finally:
        process.terminate()
        process.wait(30)


def read_page(process: subprocess.Popen[bytes], url: str) -> str:
    """Return a page of the API, once it is there."""
    give_up = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.05)
