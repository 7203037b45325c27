"""What the scripts of the store do not do, and where their constants come from. Read from the source."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from msgspec.structs import replace

from weft.core.rows import ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState
from weft.redis.script import Script
from weft.store.redis import inspect, store, sweep
from weft.store.redis import layout as layouts
from weft.store.redis.layout import (
    CONSTANTS,
    LiveNode,
    PoisonError,
    fixed_value,
    read_fence,
    read_node,
    read_row,
    row_value,
)

FOLDER = files("weft.store.redis") / "lua"
COMMANDS = {
    entry.name.removesuffix(".lua"): entry.read_text(encoding="utf-8")
    for entry in FOLDER.iterdir()
    if entry.name.endswith(".lua")
}
LIBRARIES = {
    f"lib/{entry.name.removesuffix('.lua')}": entry.read_text(encoding="utf-8")
    for entry in (FOLDER / "lib").iterdir()
}
SOURCES = COMMANDS | LIBRARIES
SCRIPTS = sorted(SOURCES)
# The scripts as the server is given them.
WHOLE = {
    script.name: script.source.decode()
    for module in (store, sweep, inspect)
    for script in vars(module).values()
    if isinstance(script, Script)
}
# Words of Redis and of Lua: commands, options, error codes, names of types.
WORDS = {
    "*",
    "-inf",
    "+inf",
    "CH",
    "GT",
    "LIMIT",
    "WITHSCORES",
    "WRONGTYPE",
    "XX",
    "server",
    "string",
    "table",
}
LITERAL = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"|\[\[")


def code_of(name: str) -> str:
    """Return a script without its comments."""
    return re.sub(r"--[^\n]*", "", SOURCES[name])


def test_every_script_is_used() -> None:
    assert set(WHOLE) == set(COMMANDS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_no_literal_of_its_own(name: str) -> None:
    """Every letter, field, separator and pattern is in one table, in Python."""
    commands = set(re.findall(r"\bp?call\('([A-Z]+)'", code_of(name)))
    commands |= set(re.findall(r"\bcall_in_parts\('([A-Z]+)'", code_of(name)))
    for single, double in LITERAL.findall(code_of(name)):
        assert (single or double) in WORDS | commands, (single, double)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_script_names_no_constant_when_the_server_is_given_it(name: str) -> None:
    """Each is written out: as a variable, every function that names it would capture it, at every call."""
    code = re.sub(r"'[^'\n]*'", "", WHOLE[name])
    own = {word.strip() for words in re.findall(r"\blocal ([A-Z_, ]+) =", code) for word in words.split(",")}
    assert set(re.findall(r"\b[A-Z][A-Z_]+\b", code)) - own == {"ARGV", "KEYS"}


def test_every_constant_is_used() -> None:
    python = "".join(
        entry.read_text(encoding="utf-8")
        for entry in files("weft.store.redis").iterdir()
        if entry.name.endswith(".py")
    )
    table = python.index("CONSTANTS: dict"), python.index("}\n", python.index("CONSTANTS: dict"))
    rest = python[: table[0]] + python[table[1] :] + "".join(SOURCES.values())
    assert [name for name in CONSTANTS if not re.search(rf"\b{name}\b", rest)] == []


def test_letters_of_phases_and_of_states_are_each_their_own() -> None:
    names = ("FREE", "THROTTLED", "TIMER", "QUEUED", "RUNNING", "PARKED", "ORPHANED")
    phases = [CONSTANTS[name] for name in names]
    assert len({*phases, CONSTANTS["SETTLED"], CONSTANTS["WAITING"]}) == len(phases) + 2
    assert f"[{''.join(map(str, phases))}]" in str(CONSTANTS["NODE_PATTERN"])
    states = [CONSTANTS[name] for name in ("OPEN", "HALTED", "TERMINAL", "INSTALLING", "CLOSED")]
    assert len(set(states)) == len(states)
    fields = ("FENCE", "ROW", "FIXED", "PLAN", "INPUT", "COUNTS", "FREE_LIST")
    assert len({CONSTANTS[name] for name in fields}) == len(fields)


def test_what_is_written_is_read_again() -> None:
    row = ExecutionRow(
        id="x1",
        namespace="default",
        workflow=None,
        version=None,
        digest="d",
        state=ExecutionState.PAUSED,
        generation=2,
        epoch=3,
        total=4,
        unsettled=1,
        seq=7,
        input=b"1 2 3",
        deadline_at=99,
        created_at=1,
    )
    assert read_row("x1", row_value(row), fixed_value(row), digest="d", given=b"1 2 3") == row
    later = replace(row, seq=9, unsettled=0, failed=1, updated_at=5)
    assert layouts.with_changes(row, row_value(later)) == later
    assert layouts.read_progress(row_value(row)) == (1, 0)
    node = NodeRow(node_id="a", state=NodeState.COMPLETED, output=b"\x00:,", output_bytes=3)
    value, output = layouts.pack_outcome(node, keep_output=True)
    assert output is None
    assert layouts.read_outcome("a", value, None) == node
    fence = read_fence(b"2:to:ken:3:r")
    assert (fence.generation, fence.incarnation_id, fence.epoch, fence.is_live) == (2, b"to:ken", 3, True)


@pytest.mark.parametrize(
    ("value", "node"),
    [
        (b"5", LiveNode("waiting", 1, number=5)),
        (b"5 2:1,0,0:77", LiveNode("waiting", 2, number=5)),
        (b"f1::0", LiveNode("free", 1)),
        (b"f2:1,2,3rv:0", LiveNode("free", 2, 1, 2, 3, released=True, has_view=True)),
        (b"t1::77", LiveNode("timer", 1, due_at=77)),
        (b"q1::77:", LiveNode("queued", 1, queued_at=77)),
        (b"q1::77:1-0 a|b|1", LiveNode("queued", 1, queued_at=77, entry=("1-0", "a|b|1"))),
        (b"r1::7:8:w:1:a:b:3", LiveNode("running", 1, queued_at=7, started_at=8, worker="w:1")),
        (b"l3::", LiveNode("orphaned", 3)),
    ],
)
def test_a_nodes_field_says_where_it_stands(value: bytes, node: LiveNode) -> None:
    assert read_node(value) == node


@pytest.mark.parametrize("value", [b"", b"x", b"f", b"f1", b"z1::0", b"q1::x:", b"r1::1:2", b"5 6", b"\xff"])
def test_what_nobody_of_weft_has_written_is_poison(value: bytes) -> None:
    with pytest.raises(PoisonError):
        read_node(value)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_opens_with_what_it_does_and_what_it_is_given(name: str) -> None:
    head = re.match(r"(--[^\n]*\n)+", SOURCES[name])
    assert head is not None
    if name not in LIBRARIES:
        assert "eply" in head[0] or name == "announce"


@pytest.mark.parametrize("name", SCRIPTS)
def test_payloads_are_never_decoded(name: str) -> None:
    assert not re.search(r"\bcjson\b|\bcmsgpack\b|\bloadstring\b", code_of(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_are_only_those_declared(name: str) -> None:
    """The key of every command is KEYS[…], or was taken from there."""
    commands = re.findall(r"\bp?call(?:_in_parts)?\('([A-Z]+)'(?:,\s*([^,)]+))?", code_of(name))
    for command, key in commands:
        if command in ("TIME", "INFO"):  # about no key
            continue
        assert re.match(r"KEYS\[|unpack\(KEYS|hash$|key$", key.strip()), (command, key)
    # `key` has one source: KEYS, a parameter, or a list of keys.
    for found in re.findall(r"\b(?:key|hash)(?:, [\w, ]+)? = ([^,\n}]+)", code_of(name)):
        assert found.startswith(("KEYS[", "key", "part.key", "closed[")), found


@pytest.mark.parametrize("name", SCRIPTS)
def test_loops_have_an_end(name: str) -> None:
    """A loop goes over numbers or over what was read; the one `while` counts up to a number."""
    code = code_of(name)
    assert not re.search(r"\brepeat\b|\bgoto\b", code)
    whiles = re.findall(r"\bwhile ([^\n]*) do", code)
    assert all(condition.startswith("head < tail and") for condition in whiles)


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_so_much_is_unpacked_as_a_call_may_have(name: str) -> None:
    """Arguments and moves are cut by the adapter, lists of names by the room there is."""
    bounded = (
        r"KEYS, \w+, \w+",
        r"fields, 1, count",
        r"set, 1, filled",
        r"values, from, math\.min\(from \+ MOST_VALUES - 1, count",
        r"parts\[index\]",
        r"closed_ids|deadlines|gone|leases",
    )
    for given in re.findall(r"(?<![.\w])unpack\(((?:[^()]|\([^()]*\))*)\)", code_of(name)):
        assert any(re.match(pattern, given) for pattern in bounded), given


@pytest.mark.parametrize("name", SCRIPTS)
def test_large_numbers_become_text_whole(name: str) -> None:
    """``tostring`` and ``..`` make 1.8e+15 of a time."""
    code = code_of(name)
    assert "tostring" not in code
    assert not re.search(r"\.\.\s*now\b|\bnow\s*\.\.", code)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_global_is_set(name: str) -> None:
    local_names: set[str] = set()
    for source in (name, *LIBRARIES):
        for names in re.findall(r"\b(?:local (?:function )?|for )([\w, ]+)", code_of(source)):
            local_names |= {word.strip() for word in names.split(",")}
    parameters = re.findall(r"function[^(]*\(([^)]*)\)", code_of(name))
    code = re.sub(r"\{[^{}]*\}", "{}", code_of(name))
    for assigned in re.findall(r"(?m)^\s*([a-z_]\w*)(?:, \w+)* = ", code):
        assert assigned in local_names or any(assigned in one.split(", ") for one in parameters), assigned
