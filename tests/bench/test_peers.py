"""The table, the ratios and the picture of weft beside its peers. The peers themselves are run by hand."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from bench.peers.peer import PEERS
from bench.peers.plot import Panel, svg
from bench.peers.programs.contract import CannotExpressError, Stamps, measure
from bench.peers.run import Row
from bench.peers.table import HOP, RATE, as_markdown, as_text, ratio, table, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def a_row(name: str, *, hop_ms: float, rate: float, share: float = 0.5, **more: Any) -> Row:
    return Row(
        name=name,
        versions={name: "1.2.3"},
        workloads={
            "W1": {"hop_ms": hop_ms, "chain_ms": hop_ms * 110, "nodes": 100},
            "W2": {"seconds": 1.5, "nodes": 1002},
            "W3": {"rate": rate, "nodes": 500},
            "W4": {"share": share, "nodes": 200},
        },
        memory_bytes=50_000_000,
        **more,
    )


@pytest.fixture
def rows() -> dict[str, Row]:
    given = [
        a_row("weft", hop_ms=0.3, rate=20_000),
        a_row("weft-fleet", hop_ms=1.0, rate=10_000),
        a_row("celery", hop_ms=2.0, rate=500),
        a_row("dbos", hop_ms=2.5, rate=400),
        a_row("dbos-sqlite", hop_ms=9.0, rate=50),
        a_row("langgraph", hop_ms=3.0, rate=300),
        Row(name="restate", failure="there is no npm, which its server comes from"),
    ]
    return {row.name: row for row in given}


def test_every_peer_has_a_line_also_one_that_was_not_run(rows: dict[str, Row]) -> None:
    heads, *lines = table(rows)
    assert [line[0] for line in lines] == [PEERS[name].title for name in rows]
    assert all(len(line) == len(heads) for line in lines)
    assert lines[-1][2] == "not run: there is no npm, which its server comes from"


def test_a_figure_is_shown_with_its_nodes_and_as_a_multiple_of_weft_of_the_same_kind(
    rows: dict[str, Row],
) -> None:
    cells = {line[0]: line for line in table(rows)[1:]}
    assert cells["Celery, Redis"][5] == "500 (500) [0.05 ×]"
    assert cells["LangGraph, SQLite"][2] == "3 [10.0 ×]"
    assert cells["weft, embedded"][5] == "20,000 (500)"


def test_what_a_peer_cannot_express_is_said_in_its_cell(rows: dict[str, Row]) -> None:
    celery = rows["celery"]
    said = Row(
        name="celery",
        versions=celery.versions,
        workloads={**celery.workloads, "W4": {"cannot": "it has no slots"}},
    )
    assert table({**rows, "celery": said})[3][6] == "cannot: it has no slots"


def test_a_peer_that_broke_off_keeps_what_it_measured(rows: dict[str, Row]) -> None:
    broken = a_row("dbos", hop_ms=2.5, rate=400, failure="took more than 240 s")
    cells = table({"dbos": broken})[1]
    assert cells[2] == "2.5"
    assert cells[-1].endswith("not run to its end: took more than 240 s")


def test_a_ratio_needs_both_figures(rows: dict[str, Row]) -> None:
    assert ratio(rows["dbos"], HOP, rows) == 2.5
    assert ratio(rows["restate"], HOP, rows) is None
    assert ratio(rows["langgraph"], RATE, {"langgraph": rows["langgraph"]}) is None


def test_weft_is_held_against_the_peers_that_its_targets_name(rows: dict[str, Row]) -> None:
    rows["restate"] = a_row("restate", hop_ms=1.6, rate=1_000)
    said = {figure.what: (round(figure.value, 3), figure.verdict) for figure in verdicts(rows)}
    assert said == {
        "W3, a fleet beside Celery": (20.0, "missed"),
        "W3, a fleet beside Restate": (10.0, "ok"),
        "W3, embedded beside LangGraph": (66.667, "ok"),
        "W3, embedded beside Restate": (20.0, "missed"),
        "hop, embedded, of LangGraph's": (0.1, "ok"),
        "hop, a fleet, of Restate's": (0.625, "ok"),
        "W4, embedded": (0.5, "missed"),
        "W4, a fleet": (0.5, "missed"),
    }


def test_a_figure_that_is_exactly_its_target_reaches_it() -> None:
    rows = {
        "weft": a_row("weft", hop_ms=0.2, rate=60_000, share=0.95),
        "weft-fleet": a_row("weft-fleet", hop_ms=0.7, rate=28_000, share=0.9),
        "celery": a_row("celery", hop_ms=1.0, rate=1_000),
        "langgraph": a_row("langgraph", hop_ms=1.0, rate=1_000),
        "restate": a_row("restate", hop_ms=1.0, rate=2_400),
    }
    assert {figure.verdict for figure in verdicts(rows)} == {"ok"}
    assert len(verdicts(rows)) == 8


def test_a_target_without_its_rows_is_left_out(rows: dict[str, Row]) -> None:
    assert verdicts({"celery": rows["celery"]}) == []


def test_the_table_is_aligned_as_text_and_valid_as_markdown(rows: dict[str, Row]) -> None:
    lines = table(rows)
    text = as_text(lines).splitlines()
    at = text[0].index("W3")
    assert all(line[at - 1] == " " for line in text[:-1])
    assert {line.count("|") for line in as_markdown(lines).splitlines()} == {len(lines[0]) + 1}


def test_the_picture_has_a_bar_for_every_figure_longer_for_more() -> None:
    bars = {"weft": 20_000.0, "a <peer>": 250.0, "another": None}
    picture = svg([Panel(title="W3", unit="nodes/s", bars=bars, ours=frozenset({"weft"}))], caption="here")
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{space}rect") if "rx" in bar.attrib]
    texts = [text.text for text in root.iter(f"{space}text")]
    assert len(widths) == 2
    assert widths[0] > widths[1] > 0
    assert {"a <peer>", "not run", "20,000 nodes/s", "250 nodes/s", "here"} <= set(texts)


class Quick:
    """A peer in no time."""

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        return [(number * 0.002, number * 0.002 + 0.001) for number in range(length)]

    def fan(self, width: int) -> None:
        pass

    def diamonds(self, count: int) -> None:
        time.sleep(count / 100_000)

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        raise CannotExpressError("it has no slots")


class Heard:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def say(self, **line: Any) -> None:
        self.lines.append(json.loads(json.dumps(line)))


def test_all_programs_are_measured_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEER_BUDGET", "0.2")
    heard = Heard()
    measure(Quick(), heard, versions={"quick": "1"})
    first, w1, w2, w3, w4 = heard.lines
    assert first == {"versions": {"quick": "1"}}
    assert w1["hop_ms"] == pytest.approx(1.0)
    assert w2["nodes"] == 1002
    assert w3["nodes"] > 100, "it grows while a run takes little of the budget"
    assert w4 == {"workload": "W4", "cannot": "it has no slots"}


def test_stamps_come_back_in_order_and_once(tmp_path: Path) -> None:
    ours, theirs = Stamps(str(tmp_path / "stamps")), Stamps(str(tmp_path / "stamps"))
    theirs.add(2.0, 3.0)
    ours.add(0.5, 1.0)
    assert ours.take() == [(0.5, 1.0), (2.0, 3.0)]
    assert ours.take() == []
