"""Functions that tell all they know: what they find in their process, and every form of a secret.

For tests of secrets: they run on real servers, in child processes.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.secret_forms import forms

if TYPE_CHECKING:
    from weft import Context

# Everything that a server keeps to itself, each with a value that is nowhere else.
KEPT = {
    "WEFT_API_KEYS": "key-of-the-api-4f1b9c7d2e",
    "WEFT_API_KEY": "key-of-a-client-83c1d07e5f",
    "WEFT_LLM_API_KEY": "key-of-a-model-1d6b4a9f30",
    "WEFT_SECRET_OTHER": "not-for-this-node-77aa10be",
    "WEFT_SECRET_TOKEN": 'tök/en+of<this>"node" & 5d2c8e',
}
TOKEN = KEPT["WEFT_SECRET_TOKEN"]
STAYS = {"WEFT_TEST_OTHER": "other", "MY_VARIABLE": "stays", "DATABASE_URL": "postgresql://mine"}
ALLOW = {"WEFT_PYTHON_ALLOW": "tests.telling:*"}


def surroundings(context: Context) -> dict[str, Any]:
    """Return the environment of this process, in all ways to get at it, and the secrets of the call."""
    program = subprocess.run(["env", "-0"], capture_output=True, check=True)
    texts = [program.stdout, Path("/proc/self/environ").read_bytes()]
    return {
        "environment": dict(os.environ),
        "texts": [text.decode(errors="replace").split("\0") for text in texts],
        # Not their values: weft would mask them.
        "secrets": {name: len(value) for name, value in context.secrets.items()},
    }


def leak(context: Context, how: str) -> Any:
    """Write a secret in every form and in every way, then return or raise every form."""
    secret = context.secrets["TOKEN"]
    for number, text in enumerate(forms(secret).values()):
        print(f"printed {number}", text)
        context.logger.info("logged %d %s", number, text)
        logging.getLogger("mine").warning("logged by logging %s", text, extra={text: text})
    sys.stdout.write("in two " + secret[:7])
    sys.stdout.flush()
    sys.stdout.write(secret[7:] + " writes\n")
    subprocess.run(["printf", "%s", f"by a program {secret}"], check=True)
    sys.stdout.write("\n")
    if how == "return":
        return {"forms": forms(secret), secret: [secret]}
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise RuntimeError(f"with {sorted(forms(secret).values())}") from error


def function(name: str, node_id: str = "a", **fields: Any) -> dict[str, Any]:
    args = {"args": {"how": fields.pop("how")}} if "how" in fields else {}
    config = {"function": f"tests.telling:{name}", **args}
    return {"id": node_id, "handler": "python", "config": config, "max_retries": 0, **fields}


def check_surroundings(output: dict[str, Any], *, kept: dict[str, str], secrets: list[str]) -> None:
    """Check that a function saw nothing of what a server keeps to itself, and all the rest."""
    seen = str(output)
    for name, value in kept.items():
        assert name not in seen
        assert value not in seen
    for name, value in STAYS.items():
        assert output["environment"][name] == value
        assert all(f"{name}={value}" in text for text in output["texts"])
    assert sorted(output["secrets"]) == secrets


def check_absent(data: bytes | str, secret: str = TOKEN) -> None:
    """Check that no form of a secret is in some text or file, nor its letters in any case."""
    data = data.encode(errors="replace") if isinstance(data, str) else data
    for form, text in forms(secret).items():
        assert text.encode() not in data, form
    lowered = data.lower()
    for part in ("5d2c8e", "k/en", "k%2fen", "this", "NWQyYzhl", "VkMmM4Z", "1ZDJjOGU"):
        assert part.encode() not in lowered if part.islower() else part.encode() not in data, part
