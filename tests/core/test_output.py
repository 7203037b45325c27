"""What an execution gives back: made of what its nodes gave, and never larger than a payload may be."""

from __future__ import annotations

from typing import Any

import pytest

from weft.core.output import execution_output
from weft.core.payload import MAX_VALUES, decode
from weft.core.rows import READABLE, ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState
from weft.definition.plan import compile_plan
from weft.errors import PayloadError
from weft.testing.walk import node, workflow

LIMIT = 100


def _output(document: Any, rows: dict[str, NodeRow], blobs: dict[str, bytes], *, limit: int = LIMIT) -> bytes:
    plan = compile_plan(document)
    execution = ExecutionRow(
        id="x1",
        namespace="default",
        workflow=None,
        version=None,
        digest=plan.digest,
        state=ExecutionState.RUNNING,
        generation=1,
        epoch=1,
        total=len(plan.nodes),
        unsettled=0,
        seq=1,
        input=b"{}",
        created_at=0,
    )
    return execution_output(
        plan, execution, rows.__getitem__, blobs.__getitem__, load_input=_no_input, max_bytes=limit
    )


def _no_input(execution_id: str) -> bytes:
    raise AssertionError(f"the input of {execution_id} is there")


def _row(name: str, output: bytes, *, in_blob: bool = False) -> NodeRow:
    return NodeRow(
        node_id=name,
        state=NodeState.COMPLETED,
        output=None if in_blob else output,
        blob=name if in_blob else None,
        output_bytes=len(output),
    )


def test_the_leaves_are_joined_up_to_the_limit_and_not_a_byte_more() -> None:
    rows = {"a": _row("a", b'"' + b"x" * 20 + b'"'), "b-c": _row("b-c", b"[1]", in_blob=True)}
    blobs = {"b-c": b"[1]"}
    joined = _output(workflow("a", "b-c"), rows, blobs)
    assert decode(joined) == {"a": "x" * 20, "b-c": [1]}
    assert _output(workflow("a", "b-c"), rows, blobs, limit=len(joined)) == joined
    with pytest.raises(PayloadError, match=f"{len(joined)} bytes of JSON; the limit is {len(joined) - 1}"):
        _output(workflow("a", "b-c"), rows, blobs, limit=len(joined) - 1)


def test_what_is_too_large_is_refused_before_any_of_it_is_loaded() -> None:
    names = [f"n{index}" for index in range(9)]
    # There are no blobs: to load one of them would be a KeyError.
    rows = {name: _row(name, b"1" * LIMIT, in_blob=True) for name in names}
    with pytest.raises(PayloadError, match="bytes of JSON; the limit is 100"):
        _output(workflow(*names), rows, {})
    reading = workflow(*names, output=[f"{{{{ {name}.output }}}}" for name in names])
    with pytest.raises(PayloadError, match=f"reads are 900 bytes together; the limit is {READABLE * LIMIT}"):
        _output(reading, rows, {})


def test_many_small_values_are_refused_before_they_are_decoded() -> None:
    """A value of two characters takes 60 bytes: text within its limit could fill the memory."""
    names = [f"n{index}" for index in range(READABLE + 1)]
    # In strings they are no values.
    texts = {"values": b"[%s0]" % (b"0," * (MAX_VALUES - 2)), "prose": b'"%s"' % (b"0," * MAX_VALUES)}
    reading = workflow(*names, output=[f"{{{{ {name}.output | length }}}}" for name in names])
    large = 10 * MAX_VALUES
    prose = {name: _row(name, texts["prose"]) for name in names}
    assert decode(_output(reading, prose, {}, limit=large)) == [2 * MAX_VALUES] * len(names)
    for in_blob in (False, True):
        rows = {name: _row(name, texts["values"], in_blob=in_blob) for name in names}
        blobs = dict.fromkeys(names, texts["values"])
        with pytest.raises(PayloadError, match=f"values together; the limit is {READABLE * MAX_VALUES:,}"):
            _output(reading, rows, blobs, limit=large)


def test_one_output_node_gives_its_output_alone() -> None:
    document = workflow("a", {**node("out", "a"), "handler": "output"})
    assert _output(document, {"out": _row("out", b"7")}, {}) == b"7"
    skipped = NodeRow(node_id="out", state=NodeState.SKIPPED)
    assert _output(document, {"out": skipped}, {}) == b"null"
