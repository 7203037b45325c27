"""LangGraph with its SQLite checkpointer: a library within the program.

``durability="sync"``: what a step wrote is kept before the next step starts, which is what the other
durable engines do too. A node is a node of a ``StateGraph``. The chain and the diamond are said with edges;
the fan and the sleepers with ``Send``, which its guide has for a width known at run time; slots are
``max_concurrency``. Many executions at once are ``batch``, each with a thread id of its own. The recursion
limit is raised to the length of the chain, as its error message asks. ``SqliteSaver`` is the saver of its
own example for a file; it holds one connection behind a lock.

What is on disk when a step is said to be done: its writes and the checkpoint, synced (WAL,
``synchronous=FULL``, SQLite's default).
"""

from __future__ import annotations

import operator
import time
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from bench.peers.programs.contract import Reporter, folder, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

_times: list[tuple[float, float]] = []


class Number(TypedDict):
    number: int


class Wide(TypedDict):
    width: int
    numbers: Annotated[list[int], operator.add]
    number: int
    seconds: float


def _link(state: Number) -> Number:
    start = time.monotonic()
    _times.append((start, time.monotonic()))
    return {"number": state["number"]}


def _echo(state: Wide) -> dict[str, Any]:
    return {"numbers": [1]}


def _first(state: Wide) -> dict[str, Any]:
    return {"number": 1}


def _join(state: Wide) -> dict[str, Any]:
    return {"number": state["numbers"][0]}


def _sleep(state: Wide) -> dict[str, Any]:
    time.sleep(state["seconds"])
    return {"numbers": [1]}


def _spread(state: Wide) -> list[Send]:
    return [Send("middle", state) for _ in range(state["width"])]


class OnLangGraph:
    def __init__(self, saver: SqliteSaver) -> None:
        self._saver = saver
        self._threads = count()
        self._fan = self._make_fan()
        self._sleepers = self._make_sleepers()
        self._diamond = self._make_diamond()

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        graph = StateGraph(Number)
        for i in range(length):
            graph.add_node(f"n{i}", _link)
            graph.add_edge(f"n{i - 1}" if i else START, f"n{i}")
        graph.add_edge(f"n{length - 1}", END)
        _times.clear()
        self._invoke(graph.compile(checkpointer=self._saver), {"number": 1}, recursion_limit=length + 10)
        return list(_times)

    def fan(self, width: int) -> None:
        self._invoke(self._fan, {"width": width, "numbers": []})

    def diamonds(self, count: int) -> None:
        states: list[dict[str, Any]] = [{"numbers": []} for _ in range(count)]
        configs = [self._config() for _ in range(count)]
        self._diamond.batch(states, configs, durability="sync")

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        state = {"width": count, "numbers": [], "seconds": seconds}
        self._invoke(self._sleepers, state, max_concurrency=slots)

    def _invoke(self, graph: Any, state: dict[str, Any], **config: Any) -> None:
        graph.invoke(state, {**self._config(), **config}, durability="sync")

    def _config(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": str(next(self._threads))}}

    def _make_fan(self) -> Any:
        graph = StateGraph(Wide)
        graph.add_node("first", _first)
        graph.add_node("middle", _echo)
        graph.add_node("last", _join)
        graph.add_edge(START, "first")
        graph.add_conditional_edges("first", _spread, ["middle"])
        graph.add_edge("middle", "last")
        graph.add_edge("last", END)
        return graph.compile(checkpointer=self._saver)

    def _make_sleepers(self) -> Any:
        graph = StateGraph(Wide)
        graph.add_node("middle", _sleep)
        graph.add_conditional_edges(START, _spread, ["middle"])
        graph.add_edge("middle", END)
        return graph.compile(checkpointer=self._saver)

    def _make_diamond(self) -> Any:
        graph = StateGraph(Wide)
        graph.add_node("a", _first)
        graph.add_node("e", _join)
        graph.add_edge(START, "a")
        for name in "bcd":
            graph.add_node(name, _echo)
            graph.add_edge("a", name)
        graph.add_edge(["b", "c", "d"], "e")
        graph.add_edge("e", END)
        return graph.compile(checkpointer=self._saver)


def main() -> None:
    reporter = Reporter()
    names = ("langgraph", "langgraph-checkpoint-sqlite")
    with SqliteSaver.from_conn_string(str(folder() / "checkpoints.sqlite")) as saver:
        measure(OnLangGraph(saver), reporter, versions={name: version(name) for name in names})


if __name__ == "__main__":
    main()
