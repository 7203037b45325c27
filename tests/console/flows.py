"""The workflows that the console shows in these tests."""

from __future__ import annotations

from typing import Any

KEY = "a-key-of-this-server-for-tests-01"

# Functions, so that there is something printed and raised.
FLOWS = """\
from pathlib import Path

from weft import Workflow

greet = Workflow("greet", output="{{ shout.output }}")


@greet.node
def shout(input):
    print("greeting", input["name"])
    return input["name"].upper()


# Fails until the file that its input names is there.
broken = Workflow("broken")


@broken.node
def before(input):
    return 1


@broken.node
def mend(before, input):
    print("looking for", input["file"])
    if not Path(input["file"]).exists():
        raise ValueError("the file is not there yet")
    return "mended"


@broken.node
def behind(mend):
    return 3


# Waits long for its second attempt.
stubborn = Workflow("stubborn")


@stubborn.node(retry={"base_delay_seconds": 200, "jitter": 0})
def tries(input):
    raise ValueError("not yet")


# Prints, returns and raises what its input is.
hostile = Workflow("hostile", output="{{ echoes.output }}")


@hostile.node
def echoes(input):
    print(input["text"])
    return {"text": input["text"], input["text"][:200]: "as a key", "much": "<b>wide</b>" * input["times"]}


@hostile.node
def raises(echoes, input):
    raise ValueError(input["text"])
"""

# Takes as long as its input says, and asks for that in a form.
PATIENT: dict[str, Any] = {
    "name": "patient",
    "input_schema": {
        "type": "object",
        "properties": {"seconds": {"type": "number", "title": "Seconds", "default": 0}},
        "required": ["seconds"],
    },
    "nodes": [
        {"id": "first", "handler": "echo", "config": "ready"},
        {
            "id": "rest",
            "handler": "sleep",
            "dependencies": ["first"],
            "config": {"seconds": "{{ input.seconds }}"},
        },
        {"id": "last", "handler": "echo", "dependencies": ["rest"]},
    ],
}

# Waits for an answer and for a time, and looks for something that never comes.
WAITING: dict[str, Any] = {
    "name": "waiting",
    "nodes": [
        {"id": "approve", "handler": "wait", "config": {"prompt": "Is it right?", "expires_seconds": 86400}},
        {"id": "later", "handler": "wait", "config": {"seconds": 86400}},
        {
            "id": "job",
            "handler": "echo",
            "config": {"is_done": False},
            "poll": {"until": "output.is_done", "every_seconds": 3600},
        },
        {"id": "after", "handler": "echo", "dependencies": ["approve", "later", "job"]},
    ],
}

# More lanes than a window has room for, and more nodes than are shown one by one.
MANY: dict[str, Any] = {
    "name": "many",
    "nodes": [{"id": f"node-{number}", "handler": "echo"} for number in range(2100)],
}

# Asks for an approval, and then with every kind of field.
ASKING: dict[str, Any] = {
    "name": "asking",
    "nodes": [
        {
            "id": "approval",
            "handler": "wait",
            "config": {
                "prompt": "Apply {{ input.changes }} changes?",
                "schema": {"enum": ["approve", "reject"]},
                "expires_seconds": 7200,
            },
        },
        {
            "id": "review",
            "handler": "wait",
            "dependencies": ["approval"],
            "condition": "approval.value == 'approve'",
            "config": {
                "prompt": "Is the invoice right?",
                "schema": {
                    "type": "object",
                    "required": ["total", "kind"],
                    "properties": {
                        "total": {"type": "number", "title": "Total", "minimum": 1},
                        "kind": {"enum": ["goods", "service"], "title": "Kind"},
                        "flags": {
                            "type": "array",
                            "uniqueItems": True,
                            "items": {"enum": ["late", "foreign"]},
                            "title": "Flags",
                        },
                        "due": {"type": "string", "format": "date", "title": "Due"},
                        "customer": {"type": "string", "title": "Customer"},
                        "extra": {"title": "Extra"},
                    },
                },
            },
        },
    ],
}

# Markup, the end of a script, right-to-left text and its controls, control characters, a combining mark.
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script>"
    "<b>&amp;</b> ${alert(1)} {{ 7 * 7 }} javascript:alert(1) \u202eevil\u202c \u0007\u001b[31m \u0301"
    " \u05e9\u05dc\u05d5\u05dd \ufeff"
)
