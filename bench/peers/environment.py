"""A virtual environment for each peer, made once and kept in ``.peers``.

pip and npm take whatever index this machine is set up for. Scripts of npm packages are not run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.peer import Peer

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".peers"
_INSTALL_SECONDS = 900


class CannotInstallError(Exception):
    """A peer's environment could not be made; the message says why in a line."""


def python_of(peer: Peer) -> Path:
    """Return the Python that runs a peer's program, with what it needs installed."""
    if peer.environment is None:
        return Path(sys.executable)
    folder = CACHE / peer.environment
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = "\n".join((*peer.requirements, *peer.packages))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    CACHE.mkdir(exist_ok=True)
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "-q", "--upgrade", *peer.requirements])
    if peer.packages:
        npm = shutil.which("npm")
        if npm is None:
            raise CannotInstallError("there is no npm, which its server comes from")
        _run([npm, "install", "--ignore-scripts", "--prefix", str(folder / "npm"), *peer.packages])
    stamp.write_text(wanted)
    return python


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS, cwd=CACHE
        )
    except subprocess.TimeoutExpired:
        raise CannotInstallError(f"{_name(command)} took more than {_INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "npm err"))]
        raise CannotInstallError(f"{_name(command)}: {(errors or lines or ['failed'])[0]}")


def _name(command: Sequence[str]) -> str:
    return "pip" if "pip" in command else Path(command[0]).name
