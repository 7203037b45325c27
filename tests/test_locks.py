"""The locks are in step with pyproject.toml: after a change there, ``./dev lock`` writes them again."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUN: list[str] = PROJECT["project"]["dependencies"]
DEV: list[str] = PROJECT["dependency-groups"]["dev"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]

PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9a-z.]+)(?P<marker> ; .+)?")
NEED = re.compile(r"(?P<name>[a-z0-9-]+)>=(?P<version>[0-9.]+)(?P<marker>; .+)?")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def pins(name: str) -> dict[str, str]:
    """Read a lock; every line of it is an exact version, from no place in particular."""
    read: dict[str, str] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        pin = PIN.fullmatch(line)
        assert pin is not None, line
        read[pin["name"]] = pin["version"]
    return read


@pytest.mark.parametrize(
    ("lock", "needs"), [("requirements-run.lock", RUN), ("requirements.lock", RUN + DEV)]
)
def test_a_lock_has_every_dependency_and_none_too_old(lock: str, needs: list[str]) -> None:
    locked = pins(lock)
    for text in needs:
        need = NEED.fullmatch(text)
        assert need is not None, text
        assert numbers(locked[need["name"]]) >= numbers(need["version"]), text


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_brings_is_tested(extra: str) -> None:
    names = {re.split(r"[^a-z0-9-]", need, maxsplit=1)[0] for need in EXTRAS[extra]}
    assert names <= pins("requirements.lock").keys()


def test_what_runs_is_what_is_tested() -> None:
    tested = pins("requirements.lock")
    assert {name: tested[name] for name in pins("requirements-run.lock")} == pins("requirements-run.lock")
