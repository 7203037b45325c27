from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.state import NodeState
from weft.definition.graph import Graph
from weft.drawing.layout import lay_out
from weft.drawing.lifecycle import lifecycle_page
from weft.drawing.mermaid import draw_mermaid
from weft.drawing.svg import LETTERS, draw_svg
from weft.drawing.text import draw_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def graph_of(dependencies: Mapping[str, Sequence[str]]) -> Graph:
    return Graph(dependencies, dependencies)


DIAMOND = graph_of({"order": [], "stock": ["order"], "payment": ["order"], "report": ["stock", "payment"]})
LABELS = {"order": "input", "stock": "sleep", "payment": "sleep", "report": "output"}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    dependencies: dict[str, list[str]] = {}
    for index in range(count):
        earlier = list(dependencies)
        parents = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        dependencies[f"n{index}"] = parents
    return graph_of(dependencies)


# --- Text


def test_text_shows_each_layer_with_what_its_nodes_run_after() -> None:
    assert draw_text(DIAMOND, LABELS) == (
        "4 nodes, 4 dependencies, 3 layers\n"
        "\n"
        "1  order      input\n"
        "2  ├ stock    sleep   ← order\n"
        "   └ payment  sleep   ← order\n"
        "3  report     output  ← stock, payment\n"
    )


def test_a_wide_layer_is_folded_into_one_line_per_handler_with_a_count() -> None:
    pages = {f"page_{index}": ["split"] for index in range(300)}
    graph = graph_of({"split": [], **pages, "check": ["split"], "join": [*pages, "check"]})
    labels = {**dict.fromkeys(graph.ids, "echo"), "check": "python"}
    drawn = draw_text(graph, labels)
    assert len(drawn.splitlines()) == 6
    assert "├ page_0 … page_299  (300 nodes)" in drawn
    assert "└ check " in drawn
    assert "← page_0, page_1, page_2 and 298 more" in drawn


def test_a_long_chain_is_folded_into_its_two_ends() -> None:
    chain = graph_of({f"s{index}": [f"s{index - 1}"] if index else [] for index in range(300)})
    lines = draw_text(chain, {}).splitlines()
    assert len(lines) == 9
    assert lines[5].endswith("… 294 layers of one node")
    assert lines[-1].split()[:2] == ["300", "s299"]


# --- Mermaid


def test_mermaid_draws_every_node_and_every_dependency() -> None:
    lines = draw_mermaid(DIAMOND, LABELS).splitlines()
    assert lines[0] == "flowchart LR"
    assert lines[1] == '  n0["order<br><small>input</small>"]'
    assert {"  n0 --> n1", "  n0 --> n2", "  n1 --> n3", "  n2 --> n3"} == set(lines[5:])


def test_no_name_can_break_out_of_a_mermaid_label() -> None:
    drawn = draw_mermaid(
        graph_of({"end": []}), {"end": 'a"]; click n0 "javascript:x" <script>`\n--> %%{init}'}
    )
    assert drawn.count('"') == 2
    assert len(drawn.splitlines()) == 2
    assert "<script>" not in drawn
    assert "%%" not in drawn


# --- SVG


def test_svg_has_a_card_per_node_and_a_line_per_dependency() -> None:
    root = ElementTree.fromstring(draw_svg(DIAMOND, LABELS, title="orders"))
    assert root.findtext(f"{SVG}title") == "orders"
    assert len(root.findall(f".//{SVG}rect[@class='card']")) == 4
    assert len(root.findall(f".//{SVG}path[@class='edge']")) == 4
    assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")


def test_a_state_shows_as_a_class_and_as_a_letter() -> None:
    root = ElementTree.fromstring(draw_svg(DIAMOND, LABELS, title="x", states={"stock": "FAILED"}))
    group = root.find(f".//{SVG}g[@class='FAILED']")
    assert group is not None
    assert group.findtext(f"{SVG}text[@class='letter']") == LETTERS["FAILED"]
    assert len(root.findall(f".//{SVG}text[@class='letter']")) == 1


def test_every_state_of_a_node_has_a_letter() -> None:
    assert set(LETTERS) == {state.value for state in NodeState}


@given(st.text(), st.text())
def test_svg_is_well_formed_whatever_the_names_are(name: str, label: str) -> None:
    root = ElementTree.fromstring(
        draw_svg(graph_of({name: []}), {name: label}, title=label, states={name: "<x>"})
    )
    assert len(root.findall(f".//{SVG}rect[@class='card']")) == 1


def test_an_empty_graph_is_an_empty_picture() -> None:
    assert ElementTree.fromstring(draw_svg(graph_of({}), {}, title="")).tag == f"{SVG}svg"
    assert draw_text(graph_of({}), {}).startswith("0 nodes")


@settings(max_examples=60)
@given(graphs())
def test_no_two_cards_of_a_rank_overlap_and_no_dependency_crosses_a_card(graph: Graph) -> None:
    layout = lay_out(graph, card_height=40, card_gap=10, waypoint_gap=6)
    for nodes in layout.ranks:
        heights = [layout.y[node] for node in nodes]
        assert all(below - above >= 50 - 1e-6 for above, below in pairwise(heights))
    rank = {node: index for index, nodes in enumerate(layout.ranks) for node in nodes}
    for (parent, node), stops in layout.waypoints.items():
        assert len(stops) == rank[node] - rank[parent] - 1
        for index, stop in enumerate(stops, start=rank[parent] + 1):
            assert all(abs(stop - layout.y[other]) >= 20 for other in layout.ranks[index])


def test_a_graph_of_ten_thousand_nodes_deep_is_laid_out() -> None:
    chain = graph_of({f"s{index}": [f"s{index - 1}"] if index else [] for index in range(10_000)})
    assert len(lay_out(chain, card_height=40, card_gap=10, waypoint_gap=6).ranks) == 10_000


# --- Lifecycles


def test_the_committed_lifecycles_are_the_tables_in_the_code() -> None:
    assert (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8") == lifecycle_page(), (
        "redraw it: python -m weft.drawing.lifecycle > docs/lifecycle.md"
    )
