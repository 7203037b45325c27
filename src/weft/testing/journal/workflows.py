"""The contract of workflows: a part of ``JournalContract``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.errors import JournalError
from weft.journal.contract import Version
from weft.testing.recording import Recording, node, submission

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter, Submission


def content(number: int) -> Submission:
    """Make a definition unlike the others: a workflow's versions are told apart by it."""
    return submission("unused", node("a", config={"n": number}))


async def put(journal: JournalAdapter, name: str, number: int = 1, *, namespace: str = "default") -> int:
    """Post content, and give the version it is."""
    new = content(number)
    version, _ = await journal.put_version(name, new.plan, new.document, namespace=namespace)
    return version.version


class WorkflowsContract:
    async def test_the_schema_of_a_new_journal_is_the_one_that_is_wanted(
        self, journal: JournalAdapter
    ) -> None:
        schema = await journal.schema()
        assert schema.have == schema.want
        assert (schema.want is None) == (schema.database == "memory")

    async def test_versions_are_numbered_from_1_and_the_last_is_the_latest(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        one, two = content(1), content(2)
        first = await journal.put_version("w", one.plan, one.document)
        expected = Version(workflow="w", version=1, digest=one.plan.digest, created_at=clock.now())
        assert first == (expected, True)
        clock.advance(1)
        second, is_new = await journal.put_version("w", two.plan, two.document)
        assert (second.version, second.created_at, is_new) == (2, clock.now(), True)
        assert await journal.version("w") == second == await journal.version("w", "latest")
        assert await journal.version("w", 1) == first[0]
        assert await journal.version("w", 3) is None
        assert await journal.version("stranger") is None

    async def test_content_that_is_stored_already_is_its_version_and_the_latest_again(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        one = content(1)
        first, _ = await journal.put_version("w", one.plan, one.document)
        await put(journal, "w", 2)
        clock.advance(1)
        assert await journal.put_version("w", one.plan, one.document) == (first, False)
        assert await journal.version("w") == first
        assert [version.version for version in await journal.versions("w")] == [2, 1]
        assert await put(journal, "w", 3) == 3

    async def test_the_same_content_is_a_version_of_each_workflow(self, journal: JournalAdapter) -> None:
        assert [await put(journal, name) for name in ("v", "w")] == [1, 1]
        assert await put(journal, "w", namespace="other") == 1

    async def test_versions_posted_at_once_have_numbers_of_their_own(self, journal: JournalAdapter) -> None:
        numbers = await asyncio.gather(*(put(journal, "w", number % 20) for number in range(40)))
        assert sorted(numbers) == sorted([*range(1, 21), *range(1, 21)])

    async def test_a_version_is_stored_with_its_definition(self, journal: JournalAdapter) -> None:
        new = content(1)
        await journal.put_version("w", new.plan, new.document)
        assert await journal.document(new.plan.digest) == new.document
        plan = await journal.plan(new.plan.digest)
        assert plan is not None
        assert plan.definition == new.plan.definition
        assert await journal.document("0" * 64) is None

    async def test_an_execution_of_a_version_may_leave_the_document_out(
        self, journal: JournalAdapter
    ) -> None:
        new = replace(content(1), document=b"")
        with pytest.raises(JournalError, match=new.plan.digest):
            await journal.submit([new])
        assert await journal.execution(new.id) is None
        await put(journal, "w", 1)
        await journal.submit([new])
        assert await journal.execution(new.id) is not None
        assert await journal.document(new.plan.digest) == content(1).document

    async def test_an_alias_means_a_version_until_it_is_moved_or_removed(
        self, journal: JournalAdapter
    ) -> None:
        for number in (1, 2, 3):
            await put(journal, "w", number)
        assert await journal.put_alias("w", "live", 1)
        assert await journal.put_alias("w", "next", 3)
        live = await journal.version("w", "live")
        assert live is not None
        assert live.version == 1
        assert await journal.put_alias("w", "live", 2)
        workflow = await journal.workflow("w")
        assert workflow is not None
        assert (workflow.latest.version, workflow.aliases) == (3, {"live": 2, "next": 3})
        assert await journal.delete_alias("w", "live")
        assert not await journal.delete_alias("w", "live")
        assert await journal.version("w", "live") is None

    async def test_an_alias_of_nothing_is_refused(self, journal: JournalAdapter) -> None:
        await put(journal, "w")
        assert not await journal.put_alias("w", "live", 2)
        assert not await journal.put_alias("stranger", "live", 1)
        assert await journal.version("w", "live") is None

    async def test_workflows_are_listed_by_name_in_pages(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        created = {}
        for name in ("c", "a", "e", "b", "d"):
            await put(journal, name)
            created[name] = clock.now()
            clock.advance(1)
        await put(journal, "a", 2)
        await journal.delete_workflow("d")
        names: list[str] = []
        while page := await journal.workflows(after=names[-1] if names else "", limit=2):
            assert len(page) <= 2
            assert [workflow.created_at for workflow in page] == [created[each.name] for each in page]
            names += [workflow.name for workflow in page]
        assert names == ["a", "b", "c", "e"]
        (first,) = await journal.workflows(limit=1)
        assert first == await journal.workflow("a")
        assert first.latest.version == 2

    async def test_a_page_is_so_many_workflows_however_many_aliases_they_have(
        self, journal: JournalAdapter
    ) -> None:
        for name in ("a", "b", "c"):
            await put(journal, name)
        for alias in ("next", "live", "last"):
            await journal.put_alias("a", alias, 1)
        await journal.put_alias("c", "live", 1)
        page = await journal.workflows(limit=2)
        assert [(workflow.name, workflow.aliases) for workflow in page] == [
            ("a", {"last": 1, "live": 1, "next": 1}),
            ("b", {}),
        ]

    async def test_versions_are_listed_newest_first_in_pages(self, journal: JournalAdapter) -> None:
        for number in range(5):
            await put(journal, "w", number)
        assert [version.version for version in await journal.versions("w", limit=2)] == [5, 4]
        assert [version.version for version in await journal.versions("w", before=4, limit=2)] == [3, 2]
        assert [version.version for version in await journal.versions("w", before=2)] == [1]
        assert await journal.versions("stranger") == []

    async def test_of_a_deleted_workflow_nothing_is_found(self, journal: JournalAdapter) -> None:
        await put(journal, "w")
        await journal.put_alias("w", "live", 1)
        assert await journal.delete_workflow("w")
        for wanted in (1, "live", "latest"):
            assert await journal.version("w", wanted) is None
        assert await journal.workflow("w") is None
        assert (await journal.workflows(), await journal.versions("w")) == ([], [])
        assert not await journal.put_alias("w", "live", 1)
        assert not await journal.delete_workflow("w")
        assert not await journal.delete_workflow("stranger")

    async def test_a_deleted_workflow_that_is_posted_again_goes_on_with_the_next_number(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await put(journal, "w", 1)
        await put(journal, "w", 2)
        await journal.put_alias("w", "live", 1)
        await journal.delete_workflow("w")
        clock.advance(1)
        assert await put(journal, "w", 1) == 3, "all it is given is new"
        assert await journal.version("w", 1) is None
        workflow = await journal.workflow("w")
        assert workflow is not None
        assert (workflow.latest.version, workflow.aliases) == (3, {})
        assert workflow.created_at == clock.now()
        assert await put(journal, "w", 2) == 4
        assert [version.version for version in await journal.versions("w")] == [4, 3]

    async def test_executions_outlive_the_workflow_they_are_of(self, journal: JournalAdapter) -> None:
        await put(journal, "w")
        run = await Recording.start(journal, node("a"), workflow="w", version=1)
        await journal.delete_workflow("w")
        await run.completed("a")
        row = await run.row()
        assert (row.state, row.workflow, row.version) == (ExecutionState.COMPLETED, "w", 1)

    async def test_workflows_of_a_namespace_are_its_own(self, journal: JournalAdapter) -> None:
        await put(journal, "w", 1)
        await put(journal, "w", 2, namespace="other")
        await put(journal, "w", 3, namespace="other")
        await journal.put_alias("w", "live", 2, namespace="other")
        assert await journal.version("w", "live") is None
        ours = await journal.workflow("w")
        assert ours is not None
        assert (ours.latest.version, ours.aliases) == (1, {})
        assert not await journal.delete_alias("w", "live")
        await journal.delete_workflow("w")
        assert [version.version for version in await journal.versions("w", namespace="other")] == [2, 1]
        assert [workflow.name for workflow in await journal.workflows(namespace="other")] == ["w"]
        assert await journal.workflows() == []

    async def test_every_change_is_listed_with_its_actor_newest_first(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        new = content(1)
        for _ in range(2):
            await journal.put_version("w", new.plan, new.document, actor="ann")
        await journal.put_alias("w", "live", 1, actor="ben")
        clock.advance(1)
        await journal.delete_alias("w", "live", actor="ann")
        await journal.delete_workflow("w", actor="ben")
        await journal.put_version("w", new.plan, new.document, namespace="other", actor="eve")
        found = list(await journal.changes())
        assert [(change.action, change.actor, change.version, change.alias) for change in found] == [
            ("workflow.deleted", "ben", None, None),
            ("alias.deleted", "ann", None, "live"),
            ("alias.set", "ben", 1, "live"),
            ("workflow.stored", "ann", 1, None),
            ("workflow.stored", "ann", 1, None),
        ]
        assert {change.workflow for change in found} == {"w"}
        assert (found[0].at, found[-1].at) == (clock.now(), clock.now() - 1_000_000)
        assert list(await journal.changes(limit=2)) == found[:2]
        assert list(await journal.changes(before=found[1].number, limit=2)) == found[2:4]
        assert [change.actor for change in await journal.changes(namespace="other")] == ["eve"]

    async def test_what_changed_nothing_is_no_change(self, journal: JournalAdapter) -> None:
        await put(journal, "w")
        before = await journal.changes()
        await journal.put_alias("w", "live", 7, actor="ann")
        await journal.delete_alias("w", "live", actor="ann")
        await journal.delete_workflow("stranger", actor="ann")
        await journal.drop_letter("stranger", actor="ann")
        assert await journal.changes() == before

    async def test_changes_from_before_the_retention_are_purged(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        await put(journal, "old")
        clock.advance(10)
        await put(journal, "new")
        await journal.purge(finished_before=clock.now(), limit=10)
        assert [change.workflow for change in await journal.changes()] == ["new"]
