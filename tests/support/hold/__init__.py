"""The handler ``hold``: work that takes its time in a worker's slot, as a call to a slow service does.

A process finds it as it finds every installed handler, by the entry point of a distribution on its path: the
servers of ``tests/operation/serving.py`` have this folder on it. In this process: ``Registry([HANDLER])``.
"""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).parent
# For the environment of a process that is to have it.
PYTHONPATH = os.pathsep.join((str(_FOLDER.parents[2]), str(_FOLDER)))
