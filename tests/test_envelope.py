"""Messages on a wire, and the signature they carry."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.task import Result, Task, Wake
from weft.envelope import (
    make_signer,
    pack,
    pack_all,
    pack_json,
    unpack_all,
    unpack_json,
    unpack_message,
    unpack_task,
    verify,
)
from weft.expressions.scope import Scope
from weft.expressions.template import compile_template
from weft.testing.transport_contract import a_task

WAKE = Wake("x1", 1, "d")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_result(output: bytes | None = b'{"a":1}', **fields: object) -> Result:
    known: dict[str, object] = {
        "execution_id": "x1",
        "generation": 1,
        "node_id": "a",
        "attempt": 1,
        "digest": "d",
        "failures": 0,
        "losses": 0,
        "worker": "w",
        "queued_at": 1,
        "started_at": 2,
        "finished_at": 3,
    }
    return Result(output=output, **{**known, **fields})  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_a_payload_comes_back_byte_for_byte(payload: bytes) -> None:
    result = a_result(payload, error={"code": "x", "details": [1, None, {"é": 2.5}]}, signature=payload[:16])
    assert unpack_message(pack(result)) == result


def test_a_task_of_an_earlier_release_is_of_no_trace() -> None:
    task = a_task(1, traceparent=TRACEPARENT, workflow="orders", version=3)
    values = msgspec.msgpack.decode(pack(task))
    # The number of a look, which is newer still, stands behind them.
    assert values[2][-4:] == [TRACEPARENT, "orders", 3, 0]
    del values[2][-4:]
    earlier = unpack_task(msgspec.msgpack.encode(values))
    assert earlier == msgspec.structs.replace(task, traceparent=None, workflow=None, version=None)


def test_a_task_of_an_earlier_release_has_no_epoch() -> None:
    task = a_task(1)
    values = msgspec.msgpack.decode(pack(task))
    # Newer fields stand behind it.
    assert values[2][-8] == task.epoch
    del values[2][-8:]
    assert unpack_task(msgspec.msgpack.encode(values)) == msgspec.structs.replace(task, epoch=0)


def test_a_task_comes_back_with_its_secrets() -> None:
    template = compile_template(
        {"headers": [{"x": "Bearer {{ secrets.KEY }}!"}]}, max_template_bytes=1000, secrets_allowed=True
    )
    assert not isinstance(template, list)
    filled = template.fill(Scope({}, {}, {}, None), max_bytes=1000)
    task = msgspec.structs.replace(
        a_task(1), secrets=filled.secrets, granted=("A", "b"), signature=b"s", config_blob="b1"
    )
    assert filled.secrets
    assert unpack_task(pack(task)) == task
    assert unpack_json(pack_json(task)) == task


def test_a_wake_comes_back() -> None:
    assert unpack_message(pack(WAKE)) == WAKE


@given(st.lists(st.binary(max_size=50), min_size=1))
def test_several_messages_come_back_as_one_each(messages: list[bytes]) -> None:
    assert unpack_all(pack_all([pack(WAKE), *messages])) == [pack(WAKE), *messages]
    assert unpack_all(pack_all([pack(WAKE)])) == [pack(WAKE)]


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_happens(wire: bytes) -> None:
    for unpack in (unpack_task, unpack_message):
        with pytest.raises(ValueError, match="a message of"):
            unpack(wire)


@pytest.mark.parametrize(
    "wire",
    [
        msgspec.msgpack.encode((2, 1, a_result())),
        msgspec.msgpack.encode((1, 9, a_result())),
        msgspec.msgpack.encode((1, 1, {"execution_id": "x1"})),
        msgspec.msgpack.encode((1, 1, ("x1", "1", "a"))),
        b"\x93" * 100_000,
    ],
    ids=["a later version", "another kind", "not an array", "wrong types", "nested too deep"],
)
def test_what_does_not_fit_is_refused(wire: bytes) -> None:
    with pytest.raises(ValueError, match="a message of"):
        unpack_message(wire)


def test_a_task_is_no_result_and_a_result_no_task() -> None:
    with pytest.raises(ValueError, match="kind 0"):
        unpack_message(pack(a_task(1)))
    with pytest.raises(ValueError, match="kind 1"):
        unpack_task(pack(a_result()))


def test_a_seal_is_of_one_attempt_and_one_key() -> None:
    sign, other = make_signer(b"k" * 32), make_signer(b"j" * 32)
    mine = sign("x1", 1, "a", 1)
    assert verify(mine, sign("x1", 1, "a", 1))
    for forged in (
        other("x1", 1, "a", 1),
        sign("x2", 1, "a", 1),
        sign("x1", 2, "a", 1),
        sign("x1", 1, "a", 2),
    ):
        assert not verify(forged, mine)
    assert not verify(b"", mine)


def test_types_are_exact() -> None:
    assert isinstance(unpack_task(pack(a_task(1))), Task)


@given(st.binary(max_size=300))
def test_a_task_goes_through_json_byte_for_byte_and_with_its_secrets(payload: bytes) -> None:
    template = compile_template({"x": "{{ secrets.KEY }}!"}, max_template_bytes=1000, secrets_allowed=True)
    assert not isinstance(template, list)
    filled = template.fill(Scope({}, {}, {}, None), max_bytes=1000)
    task = a_task(0, config=payload, secrets=filled.secrets, signature=payload[:16])
    assert unpack_json(pack_json(task)) == task


@pytest.mark.parametrize(
    "text", ["", "{}", "[1, 0]", "[2, 0, []]", "[1, 1, []]", "[1, 0, {}]", "[" * 10_000, "\ud800"]
)
def test_json_that_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a task of weft"):
        unpack_json(text)


def test_json_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="a message of version 2"):
        unpack_json(pack_json(a_task(0)).replace("[1,", "[2,", 1))
