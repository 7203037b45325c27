"""Tools for users' tests that ship with weft; each name is loaded when it is first used.

The contract suites of the ports, for adapters: the modules ``*_contract``, ``journal`` and ``store``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from weft.testing.fake_llm import FakeLLM
    from weft.testing.mocks import sequence
    from weft.testing.recording_service import RecordingService
    from weft.testing.workflows import MockedResult, WeftRun, run

__all__ = [
    "FakeLLM",
    "MockedResult",
    "RecordingService",
    "WeftRun",
    "run",
    "sequence",
]

_MODULES = {
    "FakeLLM": "weft.testing.fake_llm",
    "MockedResult": "weft.testing.workflows",
    "RecordingService": "weft.testing.recording_service",
    "WeftRun": "weft.testing.workflows",
    "run": "weft.testing.workflows",
    "sequence": "weft.testing.mocks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'weft.testing' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
