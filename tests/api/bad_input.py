"""Definitions that no door may let in: text that cannot be read, and documents that are no definitions.

Each case says what the verdict has to be: where it points, and some words of why. The cases are those of the
fault catalogue: shapes (F68), JSON (F69), YAML (F70), ids (F71), types (F72), templates (F73, F74), and
attempts to reach Python (F75).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.expressions.test_expression import ESCAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a process must never do, however it is asked: see the test that looks for this file.
CANARY = "/tmp/weft-test-canary"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    text: bytes
    # Of its file; the body of a request says the same by its media type.
    suffix: str = ".json"
    # Where the verdict points; None: the text cannot be read at all.
    pointer: str | None = None
    words: str = ""

    @property
    def media(self) -> str:
        return "application/json" if self.suffix == ".json" else "application/yaml"

    @property
    def status(self) -> int:
        return 400 if self.pointer is None else 422


def definition(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "bad", "nodes": list(nodes), **fields}


def echo(node_id: Any = "a", *parents: Any, **fields: Any) -> dict[str, Any]:
    dependencies = {"dependencies": list(parents)} if parents else {}
    return {"id": node_id, "handler": "echo", **dependencies, **fields}


def alias_bomb() -> bytes:
    """Nine lines that mean 9**9 values."""
    rows = [b"a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 9)]
    return b"\n".join(rows)


def unreadable() -> Iterator[Case]:
    good = json.dumps(definition(echo())).encode()
    for name, text, words in (
        ("empty", b"", "line 1"),
        ("only space", b" \n\t ", "line 2"),
        ("cut off", good[:-1], "line 1"),
        ("two values", good + good, "Extra data"),
        ("bytes behind it", good + b"\x00", "Extra data"),
        ("a comma too many", b'{"name": "bad", "nodes": [],}', "line 1"),
        ("single quotes", b"{'name': 'bad'}", "line 1"),
        ("a comment", b'{"name": "bad" /* no */}', "line 1"),
        ("NaN", b'{"name": "bad", "nodes": [], "timeout_seconds": NaN}', "no NaN"),
        ("Infinity", b'{"timeout_seconds": Infinity}', "no Infinity"),
        ("-Infinity", b'{"timeout_seconds": -Infinity}', "no -Infinity"),
        ("1e999", b'{"timeout_seconds": 1e999}', "too large"),
        ("a key twice", b'{"name": "bad", "nodes": [], "name": "bad"}', "'name' appears twice"),
        ("a key twice, deep", b'{"nodes": [{"config": {"x": 1, "x": 2}}]}', "'x' appears twice"),
        ("a key twice, escaped", b'{"n\\u0061me": "a", "name": "b"}', "'name' appears twice"),
        ("nested 100,000 deep", b"[" * 100_000 + b"]" * 100_000, "nested deeper than 100"),
        ("objects 100,000 deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper than 100"),
        ("just too deep", b"[" * 101 + b"]" * 101, "nested deeper than 100"),
        ("an integer of 5,000 digits", b'{"max_concurrency": ' + b"1" * 5000 + b"}", "4,300 digits"),
        ("half a surrogate pair", b'{"name": "\\ud800"}', "surrogate"),
        ("half a pair in a key", b'{"\\udfff": 1}', "surrogate"),
        ("bytes that are no UTF-8", b'{"name": "\xff\xfe"}', "not UTF-8"),
        ("a surrogate in UTF-8", b'{"name": "\xed\xa0\x80"}', "not UTF-8"),
        ("an overlong zero", b'{"name": "\xc0\x80"}', "not UTF-8"),
        ("a byte order mark", b"\xef\xbb\xbf" + good, "byte order mark"),
        ("UTF-16", good.decode().encode("utf-16"), "byte order mark"),
        ("UTF-16 without a mark", good.decode().encode("utf-16-le"), "line 1"),
        ("UTF-32", good.decode().encode("utf-32-be"), "line 1"),
        ("a raw control character", b'{"name": "a\x00b"}', "line 1"),
        ("YAML as JSON", b"name: bad\nnodes: []\n", "line 1"),
    ):
        yield Case(f"json: {name}", text, ".json", None, words)
    for name, text, words in (
        ("empty", b"", "empty"),
        ("only a comment", b"# nothing\n", "empty"),
        (
            "a python object",
            f"name: !!python/object/apply:os.system ['touch {CANARY}']".encode(),
            "is not known",
        ),
        ("a python name", b"name: !!python/name:os.system x", "is not known"),
        ("a new python object", b"!!python/object/new:type [x, [], {}]", "is not known"),
        ("a tag of their own", b"name: !evil x", "is not known"),
        ("a set", b"!!set {a, b}", "is not known"),
        ("binary", b"name: !!binary aGk=", "is not known"),
        ("a bomb of aliases", alias_bomb(), "aliases make it longer"),
        ("an alias of itself", b"name: bad\nnodes: &a [*a]", "refers to the value it stands in"),
        ("an alias of nothing", b"name: *nobody", "no anchor"),
        ("a key twice", b"name: bad\nnodes: []\nname: bad\n", "'name' appears twice"),
        ("a key that is a number", b"1: x\n", "a key must be a string"),
        ("a key that is a list", b"? [a]\n: x\n", "a key must be a string"),
        ("nested 500 deep", b"[" * 500 + b"]" * 500, "nested deeper than 100"),
        ("blocks 500 deep", b"- " * 500 + b"x", "nested deeper than 100"),
        ("two documents", b"name: a\n---\nname: b\n", "a second document"),
        ("YAML 1.1", b"%YAML 1.1\n---\nname: no\n", "only YAML 1.2"),
        ("not a number", b"timeout_seconds: .nan", "no .nan"),
        ("no number at all", b"timeout_seconds: .inf", "no .inf"),
        ("a byte order mark", b"\xef\xbb\xbfname: bad\n", "byte order mark"),
        ("bytes that are no UTF-8", b"name: \xff\n", "not UTF-8"),
        ("a control character", b"name: a\x00b\n", "control characters"),
        ("a tab for an indent", b"nodes:\n\t- id: a\n", "line 2"),
        ("not closed", b"nodes: [a, b\n", "line 2"),
    ):
        yield Case(f"yaml: {name}", text, ".yaml", None, words)


def documents() -> Iterator[tuple[str, Any, str, str]]:
    """Return what can be read and is no definition: its name, the document, a pointer and words."""
    # What is no definition at all.
    for name, document in (
        ("null", None),
        ("a list", [1]),
        ("text", "name"),
        ("a number", 3),
        ("true", True),
    ):
        yield name, document, "", "a definition must be an object"
    yield "no fields", {}, "", "missing"
    # F68: shapes.
    yield "no nodes", definition(), "/nodes", "node"
    yield "an id twice", definition(echo("a"), echo("a")), "/nodes/1/id", "'a'"
    yield "a dependency twice", definition(echo("a"), echo("b", "a", "a")), "/nodes/1/dependencies/1", "twice"
    yield (
        "an unknown dependency",
        definition(echo("fetch"), echo("b", "fetsh")),
        "/nodes/1/dependencies/0",
        "'fetch'",
    )
    yield "itself", definition(echo("a", "a")), "/nodes/0/dependencies/0", "itself"
    yield "a cycle", definition(echo("a", "b"), echo("b", "a")), "/nodes/0/dependencies/0", "-> a"
    ring = [echo(f"n{number}", f"n{(number + 1) % 300}") for number in range(300)]
    yield "a cycle of 300", definition(*ring), "/nodes/0/dependencies/0", "n0 -> n299"
    both = echo("b", "a", depends_on=["a"])
    yield "both spellings", definition(echo("a"), both), "/nodes/1/depends_on", "dependencies"
    yield "an unknown handler", definition({"id": "a", "handler": "ecko"}), "/nodes/0/handler", "'echo'"
    yield (
        "a bad config",
        definition({"id": "a", "handler": "sleep", "config": {}}),
        "/nodes/0/config",
        "seconds",
    )
    yield (
        "one_success without parents",
        definition(echo(trigger_rule="one_success")),
        "/nodes/0/trigger_rule",
        "depend",
    )
    yield "an unknown field", definition(echo(), retrys=3), "/retrys", "retrys"
    yield "an unknown field of a node", definition(echo(timeout=3)), "/nodes/0/timeout", "timeout_seconds"
    # F71: ids and names.
    for number, bad in enumerate(
        (
            "",
            "9a",
            "-a",
            "..",
            "a/b",
            "a.b",
            "a b",
            "a\n",
            "😀",
            "\u202ea",
            "é",
            "x" * 10_000,
            "a\x00",
            "../../etc",
        )
    ):
        yield f"id {number}", definition(echo(bad)), "/nodes/0/id", ""
        yield f"name {number}", {**definition(echo()), "name": bad.upper() or bad}, "/name", ""
    for reserved in ("nodes", "execution", "secrets", "input"):
        yield f"the id {reserved}", definition(echo(reserved)), "/nodes/0/id", reserved
    # F72: types and ranges.
    of_nodes: tuple[tuple[str, Any], ...] = (
        ("max_retries", "3"),
        ("max_retries", True),
        ("max_retries", 3.0),
        ("max_retries", -1),
        ("max_retries", 10**9),
        ("max_retries", None),
        ("timeout_seconds", "30"),
        ("timeout_seconds", True),
        ("timeout_seconds", 0),
        ("timeout_seconds", -0.5),
        ("timeout_seconds", 10**400),
        ("timeout_seconds", None),
        ("queue", ""),
        ("queue", 3),
        ("resource_tag", "a/b"),
        ("delivery", "exactly_once"),
        ("dependencies", "a"),
        ("dependencies", {"a": 1}),
        ("condition", 3),
        ("condition", None),
        ("trigger_rule", "ALL_DONE"),
        ("trigger_rule", ["all_done"]),
        ("cache", True),
        ("retry", []),
        ("handler", None),
        ("id", 7),
    )
    for field, value in of_nodes:
        yield f"{field}: {value!r:.20}", definition(echo(**{field: value})), f"/nodes/0/{field}", ""
    of_definitions: tuple[tuple[str, Any], ...] = (
        ("nodes", None),
        ("nodes", {"a": echo()}),
        ("nodes", "a"),
        ("description", 3),
        ("failure_policy", "ignore"),
        ("failure_policy", True),
        ("timeout_seconds", "3600"),
        ("max_concurrency", 0),
        ("max_concurrency", 1.5),
        ("max_concurrency", True),
        ("defaults", []),
        ("input_schema", "object"),
    )
    for field, value in of_definitions:
        yield f"{field}: {value!r:.30}", {**definition(echo()), field: value}, f"/{field}", ""
    for key, value in (("type", "nothing"), ("$ref", "https://example.org/schema")):
        yield f"schema: {key}", definition(echo(), input_schema={key: value}), f"/input_schema/{key}", ""
    not_nodes: tuple[Any, ...] = (None, 3, "a", [], {})
    for value in not_nodes:
        yield f"the node {value!r}", definition(echo(), value), "/nodes/1", ""
    # F73: templates that name what there is not.
    for name, text in (
        ("nobody", "{{ nobody.x }}"),
        ("itself", "{{ b.x }}"),
        ("a node behind it", "{{ c.x }}"),
        ("a node beside it", "{{ nodes['d'].output }}"),
        ("a statement", "{% for x in input %}{% endfor %}"),
        ("a comment", "{# hidden #}"),
        ("a call", "{{ input.get('x') }}"),
        ("not closed", "{{ input.x "),
        ("an unknown filter", "{{ input | shell }}"),
        ("an unknown test", "{{ input is callable }}"),
        ("an unknown field", "{{ execution.owner }}"),
    ):
        nodes = (echo("a"), echo("b", "a", config={"x": [text]}), echo("c", "b"), echo("d"))
        yield f"template: {name}", definition(*nodes), "/nodes/1/config/x/0", ""
        if text.startswith("{{") and text.endswith("}}"):
            condition = echo("b", "a", condition=text[2:-2])
            yield (
                f"condition: {name}",
                definition(echo("a"), condition, echo("c", "b"), echo("d")),
                "/nodes/1/condition",
                "",
            )
    yield "condition: with braces", definition(echo(condition="{{ true }}")), "/nodes/0/condition", ""
    yield (
        "condition: a secret",
        definition(echo(condition="secrets.KEY == 'x'")),
        "/nodes/0/condition",
        "secret",
    )
    yield "output: nobody", definition(echo(), output="{{ nobody.x }}"), "/output", "nobody"
    # F74: templates that would cost too much.
    yield (
        "template: too long",
        definition(echo(config="{{ " + "1 + " * 40_000 + "1 }}")),
        "/nodes/0/config",
        "65,536",
    )
    yield (
        "template: too deep",
        definition(echo(config="{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}")),
        "/nodes/0/config",
        "",
    )
    yield "condition: too deep", definition(echo(condition="not " * 5000 + "true")), "/nodes/0/condition", ""


def cases() -> list[Case]:
    """Return the whole corpus; every document that can be read comes as JSON and as YAML."""
    found = list(unreadable())
    for name, document, pointer, words in documents():
        text = json.dumps(document)
        found.append(Case(f"json: {name}", text.encode(), ".json", pointer, words))
        if not any(mark in text for mark in ("\\ud83d", "\\u0000", "/")):
            # JSON is YAML, with a few exceptions in how strings are written.
            found.append(Case(f"yaml: {name}", text.encode(), ".yaml", pointer, words))
    return found


CASES = cases()


def escapes() -> dict[str, Any]:
    """One definition of many nodes, each of which tries to reach Python (F75)."""
    nodes = [echo("fetch")]
    for number, text in enumerate(ESCAPES):
        nodes.append(echo(f"try{number}", "fetch", config=f"{{{{ {text} }}}}"))
    return definition(*nodes, failure_policy="continue", defaults={"max_retries": 0})
