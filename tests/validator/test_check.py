"""Values that could take long to check are checked by a process that can be killed."""

from __future__ import annotations

import asyncio
import os
import time
from functools import reduce
from typing import Any, cast

import pytest

from weft.core.payload import canonical
from weft.definition.schema import Schema, compile_schema
from weft.validator import wire
from weft.validator.asker import current_asker
from weft.validator.check import TOO_LONG, faults_in_process, problems_in_process, problems_of
from weft.validator.process import MAX_WAITING, checkers, child_environment


def compiled(schema: Any) -> Schema:
    made = compile_schema(schema)
    assert isinstance(made, Schema), made
    return made


LONG: list[tuple[Any, Any]] = [
    ({"pattern": "^(a{1,100}){1,300}$"}, "a" * 29_000),
    ({"items": {"anyOf": [{"const": i} for i in range(3000)]}}, [5000] * 20_000),
    (
        {
            "$dynamicAnchor": "m",
            "oneOf": [
                {"additionalProperties": {"$dynamicRef": "#m"}},
                {"patternProperties": {"": {"$dynamicRef": "#m"}}, "required": ["x"]},
            ],
        },
        reduce(lambda inner, _: {"x": inner}, range(60), cast("Any", {})),
    ),
]


@pytest.mark.parametrize(("schema", "value"), LONG)
async def test_a_check_that_takes_too_long_is_ended_and_the_loop_goes_on(schema: Any, value: Any) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    counting = asyncio.create_task(count())
    (problem,) = await problems_of(compiled(schema), value, canonical(value))
    counting.cancel()
    assert (problem.pointer, problem.message) == ("", TOO_LONG)
    assert turns > 20


async def test_a_long_array_is_checked_and_its_faults_are_placed() -> None:
    schema = compiled({"items": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}})
    value: list[Any] = [{"id": i} for i in range(30_000)]
    assert await problems_of(schema, value, canonical(value)) == []
    value[17] = {"id": "x"}
    value[18] = {}
    found = await problems_of(schema, value, canonical(value))
    assert [problem.pointer for problem in found] == ["/17/id", "/18"]


async def test_faults_that_would_fill_the_memory_are_no_list() -> None:
    schema = compiled({"allOf": [{"minProperties": 10_000}] * 2000})
    value = {f"k{i}": "x" * 500 for i in range(2000)}
    (problem,) = await problems_of(schema, value, canonical(value))
    assert problem.message == TOO_LONG


async def test_after_a_check_was_ended_others_are_made() -> None:
    slow, quick = compiled(LONG[0][0]), compiled({"type": "integer"})
    text = canonical(LONG[0][1])
    found = await asyncio.gather(*(problems_in_process(slow, [text]) for _ in range(2)))
    assert [[problem.message for problem in of_one] for (of_one,) in found] == [[TOO_LONG]] * 2
    assert await problems_in_process(quick, [b"1", b'"x"']) == [
        [],
        faults_in_process(wire.CheckKind.VALUE, quick, b'"x"'),
    ]


async def test_a_question_that_nobody_waits_for_is_not_asked() -> None:
    slow = compiled(LONG[0][0])
    text = canonical(LONG[0][1])
    waiting = [asyncio.create_task(problems_in_process(slow, [text])) for _ in range(20)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    begun = time.monotonic()
    assert await problems_in_process(compiled({}), [b"1"]) == [[]]
    assert time.monotonic() - begun < 30


def test_the_process_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEFT_API_KEYS", "WEFT_SECRET_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    assert "secret" not in child_environment().values()
    assert child_environment()["PATH"] == os.environ["PATH"]


def test_a_fork_has_processes_of_its_own() -> None:
    assert faults_in_process(wire.CheckKind.VALUE, compiled({}), b"1") == []
    before = checkers()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        is_new = checkers() is not before
        answered = faults_in_process(wire.CheckKind.VALUE, compiled({}), b"1") == []
        os.write(writer, b"1" if is_new and answered else b"0")
        os._exit(0)
    assert os.read(reader, 1) == b"1"
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def in_the_name_of(asker: str, schema: Any, value: Any) -> asyncio.Task[Any]:
    """Check a value as another caller would."""

    async def check() -> Any:
        current_asker.set(asker)
        return await problems_in_process(compiled(schema), [canonical(value)])

    return asyncio.create_task(check())


async def test_the_costly_checks_of_one_asker_delay_nobody_else() -> None:
    schema, value = LONG[0]
    costly = [in_the_name_of("one", schema, value) for _ in range(3)]
    await asyncio.sleep(0)
    ((problem,),) = await in_the_name_of("another", {"type": "integer"}, "x")
    assert "integer" in problem.message
    # Each takes two seconds of CPU. In the order in which they came, the quick one was the last of them.
    assert not costly[1].done()
    for check in costly:
        check.cancel()
    await asyncio.gather(*costly, return_exceptions=True)


async def test_one_asker_leaves_room_for_the_questions_of_another() -> None:
    schema, value = LONG[0]
    asked = [in_the_name_of("one", schema, value) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0.2)
    current_asker.set("one")
    assert not checkers().has_room()
    current_asker.set("another")
    assert checkers().has_room()
    for check in asked:
        check.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
