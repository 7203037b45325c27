"""A fleet runs with a database role that reads and writes rows and cannot change the schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from weft.api.service import serve_engine
from weft.api.waiting import wait_for_end
from weft.core.payload import encode
from weft.definition.plan import compile_plan
from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.journal.postgres.schema import migrate, pending
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, submit
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "fleet.md"
# Roles belong to the whole server, which other tests may share.
ROLE = f"weft_fleet_{os.getpid()}"


def statements() -> str:
    """Return what the page says the owner should run."""
    section = PAGE.read_text(encoding="utf-8").partition("### A database role with fewer rights")[2]
    return section.partition("```sql\n")[2].partition("```")[0].replace("weft_fleet", ROLE)


@pytest.fixture
async def role_url(postgres_url: str) -> AsyncIterator[str]:
    """The URL of a migrated database for the role of the page; the owner has run what the page says."""
    owner = await asyncpg.connect(postgres_url)
    try:
        await migrate(postgres_url)
        await owner.execute(statements())
        parts = urlsplit(postgres_url)
        address = f"{ROLE}:another%20secret@{parts.netloc.rpartition('@')[2]}"
        yield urlunsplit(parts._replace(netloc=address))
        await owner.execute(f"DROP OWNED BY {ROLE}")
        await owner.execute(f"DROP ROLE {ROLE}")
    finally:
        await owner.close()


async def test_a_fleet_runs_with_the_role_of_the_page(role_url: str, redis_url: str) -> None:
    document = {
        "name": "flow",
        "nodes": [
            {"id": "a", "handler": "echo", "config": "x" * 400_000},
            {"id": "b", "handler": "echo", "config": "{{ a.missing }}", "dependencies": ["a"]},
        ],
    }
    plan, body = compile_plan(document), encode(document, max_bytes=1_000_000)
    settings = Settings(database_url=role_url, redis_url=redis_url, worker_grace_seconds=0)
    async with Fleet(settings, registry=Registry()) as fleet:
        await fleet.started()
        catalog = fleet.ports.catalog
        await catalog.put_version("flow", plan, body, actor="ann")
        await catalog.put_alias("flow", "live", 1, actor="ann")
        source = ResolvedDefinition(plan=plan, document=body, workflow="flow", version=1)
        options = SubmitOptions(labels={"team": "blue"})
        (row,) = await submit([make_submission("e-1", source, b"{}", options)], fleet.ports)
        assert await wait_for_end(serve_engine(fleet, Registry(), is_shared=True), row.id, 60)
        ended = await catalog.execution(row.id)
        assert ended is not None
        assert ended.state == "FAILED"
        (letter,) = await catalog.dead_letters()
        assert await catalog.drop_letter(letter.id, actor="ann")
        assert len(await catalog.changes()) == 3
        await fleet.ports.journal.purge(finished_before=2**62, limit=10)
        await fleet.ports.journal.sweep_blobs(older_than=2**62)
        assert await catalog.execution("e-1") is None
        assert await catalog.delete_workflow("flow")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE weft.mine (id integer)",
        "ALTER TABLE weft.executions ADD COLUMN mine integer",
        "DROP TABLE weft.executions",
        "TRUNCATE weft.executions",
        "CREATE SCHEMA mine",
    ],
)
async def test_the_role_cannot_change_the_schema(role_url: str, statement: str) -> None:
    connection = await asyncpg.connect(role_url)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_the_role_sees_that_the_schema_is_up_to_date(role_url: str) -> None:
    assert await pending(role_url) == []
