"""The part of a journal that asks a database what both databases understand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from weft.journal import pages, queries
from weft.journal.contract import (
    DEFAULT_NAMESPACE,
    EVERY_EXECUTION,
    EVERY_LETTER,
    LATEST,
    ActiveExecution,
    Batch,
    Census,
    Claim,
    ExecutionQuery,
    LetterQuery,
    Version,
    Workflow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.row import DeadLetter, ExecutionRow
    from weft.journal.queries import Query

T = TypeVar("T")


class SqlCatalog:
    async def _query(self, query: Callable[..., Query[T]], *args: Any, nothing: T) -> T:
        """Read what is committed; ``nothing``: the answer to values that the database cannot hold."""
        raise NotImplementedError

    async def _transact(self, query: Callable[..., Query[T]], *args: Any) -> T:
        """Change something in a transaction."""
        raise NotImplementedError

    async def _clock(self) -> int:
        """Return the time that the journal writes down."""
        raise NotImplementedError

    @staticmethod
    def _stored_label(text: str) -> bytes | str:
        """Return a key or a value of a label as the database holds it."""
        return text

    async def active(self, *, not_updated_since: int) -> Sequence[ActiveExecution]:
        return await self._query(queries.active, not_updated_since, nothing=[])

    async def execution(self, execution_id: str, *, namespace: str | None = None) -> ExecutionRow | None:
        found = await self._query(queries.execution, execution_id, nothing=None)
        return found[1] if found is not None and namespace in (None, found[1].namespace) else None

    async def executions(
        self,
        query: ExecutionQuery = EVERY_EXECUTION,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[ExecutionRow]:
        labels: Any = tuple(tuple(map(self._stored_label, label)) for label in query.labels)
        query = replace(query, labels=labels)
        return await self._query(pages.executions, query, namespace, before, limit, nothing=[])

    async def census(self) -> Census:
        return await self._query(queries.census, nothing=Census(executions={}, open_letters=0))

    async def claim(self, key: str, *, namespace: str = DEFAULT_NAMESPACE) -> Claim | None:
        return await self._query(queries.claim, key, namespace, nothing=None)

    async def batch(self, batch_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Batch | None:
        return await self._query(queries.batch, batch_id, namespace, nothing=None)

    async def dead_letter(self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> DeadLetter | None:
        return await self._query(queries.dead_letter, letter_id, namespace, nothing=None)

    async def dead_letters(
        self,
        query: LetterQuery = EVERY_LETTER,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[DeadLetter]:
        return await self._query(pages.dead_letters, query, namespace, before, limit, nothing=[])

    async def drop_letter(self, letter_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        return await self._transact(queries.drop_letter, letter_id, namespace)

    async def version(
        self, name: str, version: int | str = LATEST, *, namespace: str = DEFAULT_NAMESPACE
    ) -> Version | None:
        return await self._query(queries.version, namespace, name, version, nothing=None)

    async def document(self, digest: str) -> bytes | None:
        return await self._query(queries.document, digest, nothing=None)

    async def workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> Workflow | None:
        return await self._query(queries.workflow, namespace, name, nothing=None)

    async def workflows(
        self, *, namespace: str = DEFAULT_NAMESPACE, after: str = "", limit: int = 50
    ) -> Sequence[Workflow]:
        return await self._query(queries.workflows, namespace, after, limit, nothing=[])

    async def versions(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, before: int | None = None, limit: int = 50
    ) -> Sequence[Version]:
        return await self._query(queries.versions, namespace, name, before, limit, nothing=[])

    async def put_alias(
        self, name: str, alias: str, version: int, *, namespace: str = DEFAULT_NAMESPACE
    ) -> bool:
        return await self._transact(queries.put_alias, namespace, name, alias, version)

    async def delete_alias(self, name: str, alias: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        return await self._transact(queries.delete_alias, namespace, name, alias)

    async def delete_workflow(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> bool:
        return await self._transact(queries.delete_workflow, namespace, name, await self._clock())
