"""The same kind of workflow, built by a program: one node per word, as many as there are words.

weft run examples/quickstart.py:flow
"""

from __future__ import annotations

WORDS = ["warp", "weft", "shuttle", "loom"]


def measure(word: str) -> dict[str, object]:
    return {"word": word, "letters": len(word)}


flow = {
    "name": "quickstart-python",
    "nodes": [
        *(
            {
                "id": word,
                "handler": "python",
                "config": {"function": "quickstart:measure", "args": {"word": word}},
            }
            for word in WORDS
        ),
        {
            "id": "total",
            "handler": "echo",
            "dependencies": WORDS,
            "config": {word: f"{{{{ {word}.letters }}}}" for word in WORDS},
        },
    ],
    "output": "{{ total | values | sum }}",
}
