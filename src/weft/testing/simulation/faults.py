"""Ports that may fail: each call is a step before and a step after, and some calls go wrong.

A crash at the step before means that nothing happened; at the step after, that it happened and nobody
was told. That is all that a process can tell of a call to another one.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from weft.errors import JournalError, OutcomeUnknownError
from weft.testing.simulation.scheduler import Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from weft.testing.simulation.profiles import Profile

_COMMITS = frozenset({"submit", "record", "rebuild"})


class Faulty:
    """One actor's view of a port."""

    def __init__(
        self,
        target: Any,
        name: str,
        *,
        rng: Random,
        profile: Profile,
        faults_on: Callable[[], bool],
        is_down: Callable[[], bool],
        watch: Callable[[str, tuple[Any, ...], Any], None],
    ) -> None:
        self._target = target
        self._name = name
        self._rng = rng
        self._profile = profile
        self._faults_on = faults_on
        self._is_down = is_down
        self._watch = watch

    def __getattr__(self, method: str) -> Any:
        inner = getattr(self._target, method)
        if not inspect.iscoroutinefunction(inner):
            return inner
        step = f"{self._name}.{method}"

        async def call(*args: Any, **kwargs: Any) -> Any:
            await Step(f"{step}:before")
            if self._name == "journal" and self._is_down():
                raise JournalError("the journal is away")
            if self._name == "journal" and method in _COMMITS and self._faults_on():
                draw = self._rng.random()
                if draw < self._profile.commit_fails:
                    raise JournalError("the commit failed")
                if draw < self._profile.commit_fails + self._profile.commit_unknown:
                    result = await inner(*args, **kwargs)
                    self._watch(step, args, result)
                    raise OutcomeUnknownError("the answer was lost")
            result = await inner(*args, **kwargs)
            self._watch(step, args, result)
            await Step(f"{step}:after")
            return result

        return call
