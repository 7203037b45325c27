"""Workflows in this process's memory: versions, the names given to them, and their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import JournalError
from weft.journal.contract import DEFAULT_NAMESPACE, LATEST, Version, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.plan import Plan


class _Shelf:
    """One workflow's versions by their numbers. A deleted one has none, and remembers the last number."""

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.aliases: dict[str, int] = {}
        self.last = self.latest = self.created_at = 0


class MemoryWorkflows:
    """The part of a journal that is about workflows."""

    def __init__(self, *, now: Callable[[], int]) -> None:
        self._now = now
        self._shelves: dict[tuple[str, str], _Shelf] = {}
        # digest → the definition, ready to run and as it was given
        self._plans: dict[str, Plan] = {}
        self._documents: dict[str, bytes] = {}

    async def put_version(
        self, name: str, plan: Plan, document: bytes, *, namespace: str = DEFAULT_NAMESPACE
    ) -> tuple[Version, bool]:
        self._put_definition(plan, document)
        shelf = self._shelves.setdefault((namespace, name), _Shelf())
        known = next((each for each in shelf.versions.values() if each.digest == plan.digest), None)
        if known is not None:
            shelf.latest = known.version
            return known, False
        now = self._now()
        if not shelf.versions:
            shelf.created_at = now
        shelf.last = shelf.latest = number = shelf.last + 1
        shelf.versions[number] = new = Version(
            workflow=name, version=number, digest=plan.digest, created_at=now
        )
        return new, True

    async def version(
        self, name: str, version: int | str = LATEST, *, namespace: str = DEFAULT_NAMESPACE
    ) -> Version | None:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if isinstance(version, str):
            version = shelf.latest if version == LATEST else shelf.aliases.get(version, 0)
        return shelf.versions.get(version)

    async def document(self, digest: str) -> bytes | None:
        return self._documents.get(digest)

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest)

    async def workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> Workflow | None:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if not shelf.versions:
            return None
        latest = shelf.versions[shelf.latest]
        return Workflow(name=name, latest=latest, aliases=dict(shelf.aliases), created_at=shelf.created_at)

    async def workflows(
        self, *, namespace: str = DEFAULT_NAMESPACE, after: str = "", limit: int = 50
    ) -> Sequence[Workflow]:
        names = sorted(name for place, name in self._shelves if place == namespace and name > after)
        found = [await self.workflow(name, namespace=namespace) for name in names]
        return [workflow for workflow in found if workflow is not None][:limit]

    async def versions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[Version]:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        numbers = sorted((n for n in shelf.versions if before is None or n < before), reverse=True)
        return [shelf.versions[number] for number in numbers[:limit]]

    async def put_alias(
        self, name: str, alias: str, version: int, *, namespace: str = DEFAULT_NAMESPACE
    ) -> bool:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        if version not in shelf.versions:
            return False
        shelf.aliases[alias] = version
        return True

    async def delete_alias(self, name: str, alias: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        return self._shelves.get((namespace, name), _NOTHING).aliases.pop(alias, None) is not None

    async def delete_workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        shelf = self._shelves.get((namespace, name), _NOTHING)
        existed = bool(shelf.versions)
        shelf.versions.clear()
        shelf.aliases.clear()
        return existed

    def _put_definition(self, plan: Plan, document: bytes) -> None:
        if not document and plan.digest not in self._documents:
            raise JournalError(f"the journal has no definition {plan.digest}")
        self._plans.setdefault(plan.digest, plan)
        self._documents.setdefault(plan.digest, document)

    def _named_digests(self) -> set[str]:
        """Give the definitions that are versions of something."""
        return {version.digest for shelf in self._shelves.values() for version in shelf.versions.values()}


_NOTHING = _Shelf()
