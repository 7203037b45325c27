"""The fixtures for pytest, found by the entry point group ``pytest11`` wherever weft is installed.

Every run of pytest loads this module, also those that have nothing to do with weft: it imports nothing of
weft before a test asks for a fixture, has no hooks, and every fixture's name starts with ``weft_``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from weft.testing.workflows import WeftRun


@pytest.fixture
def weft_run() -> WeftRun:
    """Run a workflow to its end in virtual time: ``weft_run(flow, input={…}, mocks={node_id: …})``."""
    from weft.testing.workflows import run

    return run
