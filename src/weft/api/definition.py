"""Checks the definition in a request, in a thread beside the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.api.cpu_budget import CpuBudget
from weft.definition.validation import Checked, check
from weft.errors import StoreError
from weft.store.contract import WorkerState

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.core.payload import Json
    from weft.errors import Problem
    from weft.handlers.registry import Registry


class _Handlers:
    """The handlers of this process, and those that living workers have announced."""

    def __init__(self, registry: Registry, announced: frozenset[str]) -> None:
        self._registry = registry
        self._announced = announced

    def knows(self, name: str) -> bool:
        return name in self._announced or self._registry.knows(name)

    def names(self) -> list[str]:
        return sorted({*self._announced, *self._registry.names()})

    def problems(self, name: str, config: Json) -> list[Problem]:
        # Only the worker that has it knows what such a handler can use: the attempt will tell.
        return self._registry.problems(name, config) if self._registry.knows(name) else []


async def check_definition(service: Service, document: Json, *, named: bool) -> Checked:
    """Find every problem of a definition that a body held. ``named=False`` lets it do without a name.

    The plan keeps the document: it is not to be changed afterwards.
    """
    announced = await _announced(service)
    return await service.run_in_thread(
        check,
        document,
        handlers=_Handlers(service.registry, announced),
        bounds=service.ports.bounds,
        named=named,
        resource_limits=service.settings.resource_limits,
        just_read=True,
        pace=CpuBudget(service.settings.max_compile_cpu_seconds),
    )


async def _announced(service: Service) -> frozenset[str]:
    """Return the handlers of living workers, or the last known ones while the store is away."""
    try:
        workers = await service.ports.store.workers()
    except StoreError:
        return service.announced
    service.announced = frozenset(
        handler for worker in workers if worker.state is not WorkerState.LOST for handler in worker.handlers
    )
    return service.announced


async def announced_functions(service: Service) -> frozenset[str] | None:
    """Return what living workers let ``python`` call; None if that is not known of every one of them."""
    try:
        workers = await service.ports.store.workers()
    except StoreError:
        return None
    living = [worker.functions for worker in workers if worker.state is not WorkerState.LOST]
    names: set[str] = set()
    for functions in living:
        if functions is None:
            return None
        names.update(functions)
    return frozenset(names)
