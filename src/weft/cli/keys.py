"""``weft keys``: the keys that callers of the API show. They live in the settings, and nowhere else."""

from __future__ import annotations

from weft.cli.admin import AsJson  # noqa: TC001 - the parser reads the annotations
from weft.cli.printing import print_json, print_text, say

_BYTES = 24
# So much of a key is shown, to find it again; of a short one that would be too much.
_SHOWN = 4
_LONG = 16


def new(*, as_json: AsJson = False) -> int:
    """Make a key, print it, and say where it goes. It is stored nowhere, so it is shown this once."""
    import secrets

    from weft.settings import read_settings

    settings, _ = read_settings()
    key = secrets.token_urlsafe(_BYTES)
    # The other keys are not written out again.
    line = f"WEFT_API_KEYS={'<the keys so far>,' if settings.api_keys else ''}{key}"
    if as_json:
        print_json({"key": key, "setting": line})
        return 0
    print_text(f"{key}\n")
    say(f"set it for every process of the server: {line}")
    say("callers send it as Authorization: Bearer KEY; commands take it from WEFT_API_KEY")
    return 0


def list_(*, as_json: AsJson = False) -> int:
    """List the keys that the settings have: as history and log name them, and shortened."""
    from weft.api.auth import fingerprint
    from weft.cli.table import table
    from weft.journal.contract import DEFAULT_NAMESPACE
    from weft.settings import read_settings

    settings, _ = read_settings()
    keys = [
        {
            "name": fingerprint(key),
            "key": f"{key[:_SHOWN]}…" if len(key) >= _LONG else "…",
            "namespace": DEFAULT_NAMESPACE,
        }
        for key in settings.api_keys
    ]
    if as_json:
        print_json({"items": keys})
    elif keys:
        print_text(table(("NAME", "KEY", "NAMESPACE"), [tuple(key.values()) for key in keys]))
    else:
        say("no key is set: the API is open to this machine alone; make one with `weft keys new`")
    return 0
