"""``python -m tests.operation.crashing up``: ``weft up`` that dies at the crash point of its environment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from tests.support.crash import VARIABLE, crashing

from weft.cli import roles
from weft.cli.main import main

if TYPE_CHECKING:
    from weft.engine import Engine
    from weft.handlers.registry import Registry
    from weft.settings import Settings

_open_engine = roles.open_engine


def open_engine(settings: Settings, registry: Registry, **options: Any) -> Engine:
    engine = _open_engine(settings, registry, **options)
    crashing(engine.ports, os.environ[VARIABLE])
    return engine


if __name__ == "__main__":
    roles.open_engine = open_engine
    sys.exit(main())
