"""Section C of the fault catalogue on a fleet: a PostgreSQL that dies, restarts or refuses.

The rest of the catalogue: docs/faults.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.fleet.harness import RunningFleet
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.tracecheck import DrawnNode

from weft.envelope import unpack_all
from weft.journal.postgres.schema import migrate
from weft.testing.http_server import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Several of them go by while the database is away.
LEASE_SECONDS = 3.0
SLOTS = 64
RESULTS = "weft:{p0}:results"
MIXED = layered(4, 6)
MAX_PAYLOAD_BYTES = 65_536


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Return a PostgreSQL that may be stopped at any time."""
    with PostgresServer() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningFleet]:
    """One of each role."""
    database_url = server.create_database("fleet")
    await migrate(database_url)
    with RedisServer() as redis:
        settings = {
            "WEFT_MAX_PAYLOAD_BYTES": str(MAX_PAYLOAD_BYTES),
            "WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LEASE_SECONDS),
        }
        folder = tmp_path_factory.mktemp("fleet")
        async with RunningFleet(redis.url, database_url, folder, settings=settings) as running:
            await running.start("--concurrency", str(SLOTS))
            yield running


def definition(fleet: RunningFleet, graph: Sequence[DrawnNode], **fields: Any) -> dict[str, Any]:
    return {"nodes": calling(graph, fleet.service.url, **fields)}


def waiting_results(fleet: RunningFleet) -> int:
    """Return how many results are in the stream: those of one report are one entry."""
    entries: list[tuple[bytes, dict[bytes, bytes]]] = fleet.redis.xrange(RESULTS)  # type: ignore[assignment]
    return sum([len(unpack_all(fields[b"m"])) for _, fields in entries])


async def until(is_true: Callable[[], bool]) -> None:
    """Return once something is true that nobody tells of."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110 - it is Redis that is looked at, and nobody tells
            await asyncio.sleep(0.01)


# -- F30: it is away -------------------------------------------------------------------------------------

AWAY_SECONDS = 10.0


async def test_without_the_database_nothing_is_acknowledged_and_no_attempt_is_lost(
    fleet: RunningFleet, server: PostgresServer
) -> None:
    """F30: for several leases; results wait, what runs goes on, and afterwards all of it counts."""
    parents = [DrawnNode(f"n{number}", ()) for number in range(20)]
    graph = [*parents, *(DrawnNode(f"{node.id}_child", (node.id,)) for node in parents)]
    before = len(fleet.service.calls)
    fleet.service.hold()
    execution = await fleet.api.start(definition(fleet, graph))
    through = {"id": "through", "handler": "hold", "config": {"seconds": AWAY_SECONDS + 1}}
    long = await fleet.api.start({"nodes": [through]})
    await fleet.running_on(long, "through")
    await fleet.service.came(before + len(parents))
    await asyncio.to_thread(server.stop, immediate=True)
    loop = asyncio.get_running_loop()
    down_at = loop.time()
    fleet.service.release()
    await until(lambda: waiting_results(fleet) == len(parents))

    for method, path, body in (
        ("POST", "/v1/executions", {"definition": definition(fleet, MIXED)}),
        ("POST", f"/v1/executions/{execution}/cancel", None),
        ("POST", "/v1/workflows", {"name": "any", **definition(fleet, MIXED)}),
        ("GET", f"/v1/executions/{execution}", None),
    ):
        status, problem, headers = await fleet.api.call(method, path, body)
        assert (status, problem["code"]) == (503, "unavailable"), path
        assert int(headers["Retry-After"]) > 0
        assert "127.0.0.1" not in str(problem)
    assert (await fleet.api.call("GET", "/healthz"))[0] == 200
    status, readiness, _ = await fleet.api.call("GET", "/readyz")
    assert (status, readiness["checks"]["journal"]["ok"]) == (503, False)
    assert readiness["checks"]["store"]["ok"]

    await asyncio.sleep(AWAY_SECONDS - (loop.time() - down_at))
    assert AWAY_SECONDS > 3 * LEASE_SECONDS
    # Nothing was acknowledged, and nothing was sent that follows from what is not committed.
    assert waiting_results(fleet) == len(parents)
    assert len(fleet.service.calls) == before + len(parents)
    await asyncio.to_thread(server.start)
    await fleet.check(execution, graph=graph)
    await fleet.check(long)
    assert len(fleet.service.calls) == before + len(graph)


# -- F31: it is restarted again and again ----------------------------------------------------------------

RESTARTS, UP_SECONDS = 5, 3.0


async def test_a_database_that_is_restarted_again_and_again_only_delays(
    fleet: RunningFleet, server: PostgresServer
) -> None:
    """F31: as in a crash and in good order; every submit that was answered is there, once, and ends."""
    fleet.service.delay_seconds = 0.05
    restarting = True
    executions: dict[str, str] = {}

    async def submit(name: str) -> None:
        """Submit one after the other, and each as often as it takes."""
        number = 0
        while restarting:
            number += 1
            key = f"{name}-{number}"
            while key not in executions:
                status, body, _ = await fleet.api.call(
                    "POST", "/v1/executions", {"definition": definition(fleet, MIXED)}, key=key
                )
                if status in (200, 202):
                    executions[key] = body["id"]
                else:
                    assert status == 503, body
                await asyncio.sleep(0.2)

    submitting = asyncio.gather(*(submit(name) for name in "ab"))
    for number in range(RESTARTS):
        await asyncio.sleep(UP_SECONDS)
        await asyncio.to_thread(server.stop, immediate=number % 2 == 0)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
    restarting = False
    await submitting
    fleet.service.delay_seconds = 0
    assert len(set(executions.values())) == len(executions) > 2 * RESTARTS
    shown = await fleet.check(*executions.values(), graph=MIXED)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}


# -- F33: transactions in each other's way ---------------------------------------------------------------


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_transactions_that_are_undone_at_random_are_made_again(
    sqlstate: str, fleet: RunningFleet, server: PostgresServer
) -> None:
    """F33: at every place where rows are written, and no part of one that was undone is left."""
    tables = ("executions", "progress", "nodes", "recorded_events")
    refused = refusing(server, fleet, "random() < 0.1", sqlstate, tables, each="STATEMENT")
    with refused:
        executions = [await fleet.api.start(definition(fleet, MIXED)) for _ in range(20)]
        await fleet.settle(*executions)
    assert refused.count > 10
    await fleet.check(*executions, graph=MIXED)


class refusing:  # noqa: N801 - it reads as what it does
    """Let a trigger refuse rows, for the time of a ``with``; ``count``: how many it has refused."""

    def __init__(
        self,
        server: PostgresServer,
        fleet: RunningFleet,
        condition: str,
        sqlstate: str,
        tables: Sequence[str],
        *,
        each: str = "ROW",
    ) -> None:
        self._server = server
        self._url = fleet.database_url
        self._condition = condition
        self._sqlstate = sqlstate
        self._tables = tables
        self._each = each
        self.count = 0

    def _execute(self, statement: str) -> Any:
        return self._server.execute(statement, url=self._url)

    def __enter__(self) -> None:
        # A sequence does not go back with the transaction.
        self._execute("CREATE SEQUENCE public.refused")
        self._execute(
            f"""
            CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF {self._condition} THEN
                    PERFORM nextval('public.refused');
                    RAISE EXCEPTION 'not this one' USING ERRCODE = '{self._sqlstate}';
                END IF;
                RETURN NEW;
            END $$
            """
        )
        for table in self._tables:
            self._execute(
                f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON weft.{table}"
                f" FOR EACH {self._each} EXECUTE FUNCTION public.refuse()"
            )

    def __exit__(self, *_: object) -> None:
        self.count = self._execute("SELECT last_value FROM public.refused WHERE is_called") or 0
        self._execute("DROP FUNCTION public.refuse() CASCADE")
        self._execute("DROP SEQUENCE public.refused")


# -- F34: one that cannot be stored ----------------------------------------------------------------------

TOGETHER = 50


async def test_one_result_that_cannot_be_stored_fails_its_node_and_no_other(
    fleet: RunningFleet, server: PostgresServer
) -> None:
    """F34: in one batch with 49 others, which are stored at once."""
    graph = [DrawnNode(f"n{number}", ()) for number in range(TOGETHER)]
    before = len(fleet.service.calls)
    fleet.service.hold()
    document = {"failure_policy": "continue", **definition(fleet, graph, max_retries=0)}
    execution = await fleet.api.start(document)
    await fleet.service.came(before + TOGETHER)
    (orchestrator,) = fleet.having("orchestrator")
    assert await orchestrator.stop() == 0
    # Whoever is answered first is answered at too great a length.
    fleet.service.script(Answer(200, b"x" * (MAX_PAYLOAD_BYTES + 1)))
    fleet.service.release()
    await until(lambda: waiting_results(fleet) == TOGETHER)
    refused = "NEW.node_id = 'n13' AND NEW.state = 'COMPLETED'"
    with refusing(server, fleet, refused, "P0001", ["nodes"]):
        await fleet.add("orchestrator")
        (shown,) = await fleet.check(execution)
    errors = {node["id"]: node["error"]["code"] for node in shown["nodes"] if node["state"] == "FAILED"}
    long = next(node_id for node_id in errors if node_id != "n13")
    assert errors == {"n13": "output_not_json", long: "output_too_large"}
    assert Counter(node["state"] for node in shown["nodes"]) == {"COMPLETED": TOGETHER - 2, "FAILED": 2}
    assert {node["attempt"] for node in shown["nodes"]} == {1}
    # Those beside them did not wait for anything but a few more commits.
    history = await fleet.api.history(execution)
    times = [at(event) for event in history if event["type"].startswith("node.")]
    assert max(times) - min(times) < 2.0


def at(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()
