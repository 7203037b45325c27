"""The engine holds in every profile, and the simulation would notice if it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core import ledger as ledger_module
from weft.core.ledger import Ledger, Verdict
from weft.limits import memory
from weft.orchestrator import advance, collect, control, dispatch, recover
from weft.store.contract import Answer, Started
from weft.store.memory import MemoryStore
from weft.testing.simulation.profiles import PROFILES
from weft.testing.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.row import NodeRow

SEEDS = 25


@pytest.mark.parametrize("profile", PROFILES)
def test_no_seed_breaks_an_invariant(profile: str) -> None:
    for seed in range(SEEDS):
        outcome = World(profile, seed).run()
        assert outcome.violation is None, f"./dev sim --profile {profile} --seed {seed}: {outcome.violation}"


def test_one_seed_is_one_run() -> None:
    first, second = (World("all", 7, trace=True).run() for _ in range(2))
    assert first.trace == second.trace
    assert first.steps == second.steps


# -- planted bugs: each must be found by a profile within its seeds ------------------------------------


def _ack_first(patch: pytest.MonkeyPatch) -> None:
    async def take(deliveries: Any, orchestrator: Any) -> None:
        ids = [delivery.id for delivery in deliveries]
        await orchestrator.ports.transport.ack(orchestrator.name, ids)
        await real(deliveries, orchestrator)

    real = collect.take
    patch.setattr(collect, "take", take)


def _known_not_applied(patch: pytest.MonkeyPatch) -> None:
    async def apply(standings: Any, orchestrator: Any) -> Any:
        accepted = [standing for standing in standings if standing.verdict is Verdict.ACCEPTED]
        return await real(accepted, orchestrator)

    real = advance.apply
    patch.setattr(advance, "apply", apply)


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    def fence(self: Any, event: Any, execution: Any, row: NodeRow) -> Verdict:
        verdict = real(self, event, execution, row)
        stale = verdict is Verdict.STALE and row.state is None and not execution.is_terminal
        return Verdict.ACCEPTED if stale and event.generation == execution.generation else verdict

    real = Ledger._fence
    patch.setattr(Ledger, "_fence", fence)


def _no_limbo(patch: pytest.MonkeyPatch) -> None:
    async def install(self: Any, snapshot: Any, *, token: str, fresh: bool) -> Answer:
        return await real(self, snapshot, token=token, fresh=True)

    real = MemoryStore.install
    patch.setattr(MemoryStore, "install", install)


def _cancel_does_not_close(patch: pytest.MonkeyPatch) -> None:
    async def cancel(execution_id: str, ports: Any, *, actor: str | None = None) -> Any:
        without: Any = _Without(ports, "close")
        return await real(execution_id, without, actor=actor)

    real = control.cancel
    patch.setattr(control, "cancel", cancel)


class _Without:
    """Ports whose store does not do one thing."""

    def __init__(self, ports: Any, method: str) -> None:
        self._ports = ports
        self.store = _Store(ports.store, method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports, name)


class _Store:
    def __init__(self, store: Any, method: str) -> None:
        self._store, self._method = store, method

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._store, name)

        async def nothing(*_: Any, **__: Any) -> Answer:
            return Answer.YES

        return nothing


def _start_any_attempt(patch: pytest.MonkeyPatch) -> None:
    def start(self: Any, request: Any, now: int) -> Started:
        answer = real(self, request, now)
        execution = self._executions.get(request.execution_id)
        known = execution is not None and request.node_id in execution.nodes
        return Started(Answer.YES, now) if known else answer

    real = MemoryStore._start
    patch.setattr(MemoryStore, "_start", start)


def _report_keeps_the_lease(patch: pytest.MonkeyPatch) -> None:
    async def report(self: Any, results: Any, nonces: Any) -> None:
        self._publish(results)

    patch.setattr(MemoryStore, "report", report)


def _retry_resets_attempts(patch: pytest.MonkeyPatch) -> None:
    def put(self: Any, execution: Any, row: NodeRow) -> None:
        real(self, execution, replace(row, attempt=1) if row.attempt > 1 and not row.failures else row)

    real = Ledger._put
    patch.setattr(Ledger, "_put", put)


def _rebuild_without_an_epoch(patch: pytest.MonkeyPatch) -> None:
    async def rebuild(execution_id: str, ports: Any) -> Answer:
        row = await ports.journal.execution(execution_id)
        return Answer.UNKNOWN if row is None else Answer.REFUSED

    for module in (recover, advance, control, dispatch):
        patch.setattr(module, "rebuild", rebuild)


def _release_is_final(patch: pytest.MonkeyPatch) -> None:
    def take_back(self: Any, now: int) -> None:
        pass

    patch.setattr(memory._Line, "take_back", take_back)


def _finish_apart(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: Any, execution: Any, plan: Any) -> None:
        pass

    patch.setattr(Ledger, "_finish_if_settled", nothing)


def _skip_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    def skip(self: Any, skips: Any, execution: Any) -> Any:
        return real(self, skips[:1], execution)

    real = Ledger._skip
    patch.setattr(ledger_module.Ledger, "_skip", skip)


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = {
    "ack_first": (_ack_first, "orchestrator_crash", 60),
    "known_not_applied": (_known_not_applied, "orchestrator_crash", 60),
    "no_fence": (_no_fence, "frozen_worker", 60),
    "no_limbo": (_no_limbo, "flush", 60),
    "cancel_does_not_close": (_cancel_does_not_close, "calm_control", 60),
    "start_any_attempt": (_start_any_attempt, "doubled", 60),
    "report_keeps_the_lease": (_report_keeps_the_lease, "journal_away", 60),
    "retry_resets_attempts": (_retry_resets_attempts, "calm_control", 60),
    "no_rebuild": (_rebuild_without_an_epoch, "flush", 60),
    "release_is_final": (_release_is_final, "sweeper_crash", 60),
    "finish_apart": (_finish_apart, "calm", 60),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, profile, seeds = MUTANTS[mutant]
    plant(monkeypatch)
    assert any(_breaks(profile, seed) for seed in range(seeds)), f"{mutant} survived {profile}"


def _breaks(profile: str, seed: int) -> bool:
    try:
        return World(profile, seed).run().violation is not None
    except AssertionError:  # the planted bug broke the engine's own assertions
        return True
