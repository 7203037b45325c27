"""The user a PostgreSQL server runs as: it refuses to run as root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int

    def as_user(self) -> dict[str, Any]:
        """Return the arguments with which a subprocess runs as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


@cache
def unprivileged() -> Account | None:
    """Return the account for a server where this process is root; ``None``: it runs as who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_uid, found.pw_gid)
    return Account(65534, 65534)
