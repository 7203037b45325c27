"""What no script of the store does. Read from the source; a server says nothing about it."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

FOLDER = files("weft.store") / "lua"
SOURCES = {
    entry.name.removesuffix(".lua"): entry.read_text(encoding="utf-8")
    for entry in FOLDER.iterdir()
    if entry.name.endswith(".lua")
}
# What others build on; they name no keys and have no end of their own.
SHARED = {"ahead", "attempt", "state", "moves", "queued", "given", "merge", "closed"}
SCRIPTS = sorted(SOURCES)


def code_of(name: str) -> str:
    """Give a script without its comments."""
    return re.sub(r"--[^\n]*", "", SOURCES[name])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_opens_with_what_it_does_and_what_it_is_given(name: str) -> None:
    first, *_ = SOURCES[name].splitlines()
    assert first.startswith("-- ")
    head = re.match(r"(--[^\n]*\n)+", SOURCES[name])
    assert head is not None
    if name not in SHARED:
        assert "eply" in head[0] or name == "announce"


@pytest.mark.parametrize("name", SCRIPTS)
def test_payloads_are_never_decoded(name: str) -> None:
    assert not re.search(r"\bcjson\b|\bcmsgpack\b|\bloadstring\b", code_of(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_are_only_those_declared(name: str) -> None:
    """The key of every command is KEYS[…], or was taken from there."""
    commands = re.findall(r"\bcall\('([A-Z]+)'(?:,\s*([^,)]+))?", code_of(name))
    for command, key in commands:
        if command in ("TIME", "INFO"):  # about no key
            continue
        assert re.match(r"KEYS\[|ex\.key$|key$", key.strip()), (command, key)
    # `key` and `ex.key` have one source each.
    for found in re.findall(r"\bkey = ([^,\n}]+)", code_of(name)):
        assert found.startswith(("KEYS[", "key")), found
    assert "{p" not in code_of(name)
    assert "weft:" not in code_of(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_loops_have_an_end(name: str) -> None:
    """A loop goes over numbers or over what was read; the one `while` counts up to a number."""
    code = code_of(name)
    assert not re.search(r"\brepeat\b", code)
    whiles = re.findall(r"\bwhile ([^\n]*) do", code)
    assert all(condition.startswith("head < tail and") for condition in whiles)
    assert not re.search(r"\bgoto\b", code)


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_so_much_is_unpacked_as_a_call_may_have(name: str) -> None:
    """Arguments and moves are cut by the adapter, records by constants, names by a list's piece."""
    bounded = (
        r"ARGV, \w+, \w+",
        r"ARGV, asked\[1\], asked\[2\]",
        r"(?:ex|node), 1, (?:META|NODE)_LAST",
        r"values, from, math\.min\(from \+ MOST_VALUES - 1, #values",
        r"unread",
        r"names",
        r"gone",
        r"leases",
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
    declared = set(re.findall(r"\blocal (?:function )?([\w, ]+)", code_of(name)))
    local_names = {word.strip() for names in declared for word in names.split(",")}
    for shared in SHARED:
        local_names |= {
            word.strip()
            for names in re.findall(r"\blocal (?:function )?([\w, ]+)", code_of(shared))
            for word in names.split(",")
        }
    for assigned in re.findall(r"(?m)^\s*([a-z_]\w*)(?:, \w+)* = ", code_of(name)):
        parameters = re.findall(r"function[^(]*\(([^)]*)\)", code_of(name))
        assert assigned in local_names or any(assigned in one.split(", ") for one in parameters), assigned


def test_what_is_written_is_written_last() -> None:
    """Where nodes are moved nothing goes to the server before all was looked at, but for messages."""
    for name in SCRIPTS:
        code = code_of(name)
        if "answers(" in code and name not in SHARED:
            # What moves one at a time is written behind the last of them, by what they share.
            assert not re.findall(r"\bcall\(", code), name
        if name in SHARED - {"moves"} or "flush()" not in code:
            continue
        before, _, after = code.rpartition("flush()")
        allowed = {"HMGET", "HGET", "GET", "ZSCORE", "TIME", "XADD", "SADD"}
        if name in ("install", "close"):
            # An old life goes as a whole, before the new one is written.
            allowed |= {"UNLINK", "ZADD", "HSET", "EXPIRE", "ZREM"}
        assert set(re.findall(r"\bcall\('([A-Z]+)'", before)) <= allowed, name
        assert not set(re.findall(r"\bcall\('([A-Z]+)'", after)) - {"HMGET", "HGET"}, name
