"""``weft up`` killed again and again while it works for a service that writes down every call.

``./dev chaos [--kills N] [--seed S]`` runs it for longer than the tests do; ``./dev chaos --fleet`` is
``tests/fleet/chaos.py``. Three witnesses are held against each other, after every death and at the end: the
service (what was called, and with which token each call was answered), the journal (what was accepted; read
while no server lives) and the API (what a user sees).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.operation.calling import calling, layered
from tests.operation.serving import Api, Server, serving
from tests.tracecheck import check, merkle

from weft.clock import new_id
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.recording_service import RecordingService
from weft.views.history_check import check as check_trace
from weft.views.history_state import stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from weft.core.rows import History, NodeRow
    from weft.testing.recording_service import RecordedCall

SETTINGS = {"WEFT_HTTP_ALLOW": "127.0.0.1", "WEFT_WORKER_HEARTBEAT_TIMEOUT": "300"}
_START_SECONDS = 1.0


class Chaos:
    """A service, a data folder, and the servers that one after the other work on it."""

    def __init__(self, folder: Path, *, seed: int, layers: int = 4, width: int = 5) -> None:
        self.draw = random.Random(seed)
        self.data = folder / "data"
        self.service = RecordingService()
        self.graph = layered(layers, width)
        self.kills = 0
        # Idempotency key → execution, once a server has said so.
        self.accepted: dict[str, str] = {}
        self.submitted: list[str] = []
        # What the journal had at the last death.
        self._events: dict[str, Sequence[History]] = {}
        self._rows: dict[str, Mapping[str, NodeRow]] = {}
        self._calls_seen = 0
        # How often a node was under way when its server died: so many of its calls may be in vain.
        self._in_vain: Counter[str] = Counter()

    # -- the work --------------------------------------------------------------------------------------

    def definition(self) -> dict[str, Any]:
        """Every node posts its parents' tokens to the service, and gives the token it is answered with."""
        return {"name": "chaos", "nodes": calling(self.graph, self.service.url)}

    async def submit(self, api: Api, count: int) -> None:
        """Submit new executions, and first those of which no answer came."""
        self.submitted += [f"key-{len(self.submitted) + i}" for i in range(count)]
        definition = self.definition()

        async def one(key: str) -> None:
            execution_id = await api.start(definition, key=key)
            assert self.accepted.setdefault(key, execution_id) == execution_id

        missing = [key for key in self.submitted if key not in self.accepted]
        outcomes = await asyncio.gather(*map(one, missing), return_exceptions=True)
        for outcome in outcomes:
            # A connection that breaks is what a killed server leaves; anything else is a fault.
            if outcome is not None and not isinstance(outcome, aiohttp.ClientError):
                raise outcome

    # -- killing ---------------------------------------------------------------------------------------

    async def kill(self, *, submits: int) -> None:
        """Start a server, give it work, and kill it at a random moment."""
        server = await Server.start(self.data, settings=SETTINGS)
        try:
            if self.draw.random() < 0.15:
                # Somewhere in its start, or its recovery.
                await asyncio.sleep(self.draw.uniform(0, 2 * _START_SECONDS))
            else:
                async with Api(await server.ready()) as api:
                    submitting = asyncio.create_task(self.submit(api, submits))
                    await self._some_calls()
                    await server.kill()
                    await submitting
        finally:
            await server.kill()
        self.kills += 1
        await self.look()

    async def _some_calls(self) -> None:
        self.service.delay_seconds = self.draw.choice((0, 0, 0.005, 0.05))
        wanted = len(self.service.calls) + self.draw.randrange(40)
        while len(self.service.calls) < wanted and not self._all_called():  # noqa: ASYNC110 - it runs in a thread
            await asyncio.sleep(0.001)
        await asyncio.sleep(self.draw.uniform(0, 0.01))

    def _all_called(self) -> bool:
        return len(self.service.calls) >= len(self.submitted) * len(self.graph)

    async def look(self) -> None:
        """Read the journal, now that no server lives, and hold it against what it had at the last death."""
        if not self.data.exists():
            return
        journal = SqliteJournal(self.data, now=lambda: 0, new_id=new_id)
        await journal.open()
        try:
            rows = await journal.executions(limit=100_000)
            events = {row.id: await journal.events(row.id, limit=100_000) for row in rows}
            nodes = {row.id: await journal.nodes(row.id) for row in rows}
            for execution in rows:
                plan = await journal.plan(execution.digest)
                assert plan is not None
                stored = stored_rows(execution, nodes[execution.id])
                assert check_trace(plan, events[execution.id], stored) == []
        finally:
            await journal.close()
        for execution_id in self.accepted.values():
            assert execution_id in events, f"accepted, and lost: {execution_id}"
        settled = set()
        for execution_id, before in self._events.items():
            assert list(events[execution_id][: len(before)]) == list(before), "history was rewritten"
            for node_id, row in self._rows[execution_id].items():
                if row.is_settled:
                    assert nodes[execution_id][node_id] == row, "an accepted result was lost or replaced"
                    settled.add((execution_id, node_id))
        calls = self.service.calls[self._calls_seen :]
        for call in calls:
            assert (call.execution, call.node) not in settled, f"settled, and called again: {call.key}"
            called = nodes[call.execution].get(call.node)
            if called is None or not called.is_settled:
                self._in_vain[call.key] += 1
        self._calls_seen += len(calls)
        self._events, self._rows = events, nodes

    # -- the end ---------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Let one more server take everything to its end, and check that it is the right one."""
        self.service.delay_seconds = 0
        async with serving(self.data, settings=SETTINGS) as (server, api):
            await self.submit(api, 0)
            executions = [await api.terminal(execution_id) for execution_id in self.accepted.values()]
            histories = [await api.history(shown["id"]) for shown in executions]
            listed = await api.executions()
            assert await server.stop() == 0
        await self.look()
        assert len(set(self.accepted.values())) == len(self.submitted)
        assert sorted(listed) == sorted(self.accepted.values()), "an execution that nobody asked for"
        calls: dict[str, list[RecordedCall]] = {}
        for call in self.service.calls:
            calls.setdefault(call.key, []).append(call)
        for shown, history in zip(executions, histories, strict=True):
            self._check(shown, history, calls)

    def _check(
        self,
        shown: Mapping[str, Any],
        history: Sequence[Mapping[str, Any]],
        calls: Mapping[str, Sequence[RecordedCall]],
    ) -> None:
        assert shown["state"] == "COMPLETED", shown["error"]
        completed = Counter(event["node"] for event in history if event["type"] == "node.completed")
        assert completed == Counter(node.id for node in self.graph), "a node settled more or less than once"
        tokens: dict[str, str] = {}
        hashes: dict[str, str] = {}
        trace = []
        for node, seen in zip(self.graph, shown["nodes"], strict=True):
            key = f"{shown['id']}/{node.id}/1"
            made = calls[key]
            # Nothing is called once a result is accepted: what was accepted is the answer to the last call.
            tokens[node.id] = seen["output"]["body"]["token"]
            assert tokens[node.id] == made[-1].token, f"{key}: not the answer that was given last"
            assert len(made) <= 1 + self._in_vain[key], f"{key}: called {len(made)} times"
            assert seen["attempt"] <= 1 + self.kills
            for call in made:
                parents = call.request.json()["parents"]
                assert parents == [tokens[parent] for parent in node.parents], f"{key}: another's output"
            hashes[node.id] = merkle(node.id, [hashes[parent] for parent in node.parents])
            trace.append({**seen, "attempts": seen["attempt"], "output": hashes[node.id]})
        assert check(self.graph, trace, max_attempts=1 + self.kills) == []


async def kill_at_random(folder: Path, *, seed: int, kills: int, say: bool = False) -> Chaos:
    """Kill so many servers, a few executions for each, and check what came of it all."""
    chaos = Chaos(folder, seed=seed)
    async with chaos.service:
        for number in range(kills):
            await chaos.kill(submits=2)
            if say and (number + 1) % 20 == 0:
                _say(f"{number + 1} of {kills} kills: {len(chaos.service.calls):,} calls so far")
        await chaos.finish()
    return chaos


async def kill_all_at_once(folder: Path, *, seed: int, executions: int = 200) -> Chaos:
    """Kill a server that has so many executions in flight, and start another on what it left (F11)."""
    chaos = Chaos(folder, seed=seed, layers=1, width=2)
    async with chaos.service:
        chaos.service.hold()
        server = await Server.start(chaos.data, "--concurrency", str(2 * executions), settings=SETTINGS)
        try:
            async with Api(await server.ready()) as api:
                await chaos.submit(api, executions)
                # Each of them has its first call under way, and no answer.
                await chaos.service.came(executions)
        finally:
            await server.kill()
        chaos.kills += 1
        chaos.service.release()
        await chaos.look()
        await chaos.finish()
    return chaos


DESCRIPTION = """\
Kill and disturb real processes at random moments, and check that nothing is lost and nothing
counts twice. The same seed draws the same faults. Code 1: something is broken, and it is said what.

Without --fleet: servers of `weft up`, one after the other, each ended with kill -9.
With --fleet: two APIs, two orchestrators and two workers, under load. They are killed and stopped,
Redis is emptied, Redis and PostgreSQL are restarted, connections are slow, reset and silent.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev chaos", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="of everything that is drawn (1)")
    parser.add_argument(
        "--kills", metavar="N", type=int, help="without --fleet: so many servers are killed (200)"
    )
    parser.add_argument("--fleet", action="store_true", help="a whole fleet, and faults of all kinds")
    parser.add_argument(
        "--minutes", metavar="M", type=float, help="with --fleet: so long there are faults (5)"
    )
    parser.add_argument(
        "--executions", metavar="N", type=int, help="with --fleet: so many are submitted meanwhile (500)"
    )
    given = parser.parse_args(arguments)
    if given.fleet:
        if given.kills is not None:
            parser.error("--kills is for one server; a fleet has --minutes")
        # Only here: the other way needs none of its servers.
        from tests.fleet.chaos import command

        minutes = 5.0 if given.minutes is None else given.minutes
        executions = 500 if given.executions is None else given.executions
        if minutes <= 0 or executions < 1:
            parser.error("--minutes and --executions have to be above 0")
        return command(seed=given.seed, minutes=minutes, executions=executions)
    if given.minutes is not None or given.executions is not None:
        parser.error("--minutes and --executions are for a --fleet")
    try:
        _kill_one_server(seed=given.seed, kills=200 if given.kills is None else given.kills)
    except KeyboardInterrupt:
        _say(f"ended before its time; seed {given.seed}")
        return 130
    except AssertionError as error:
        traceback.print_exc()
        _say(f"broken, with --seed {given.seed}: {error}")
        return 1
    return 0


def _kill_one_server(*, seed: int, kills: int) -> None:
    begun = time.monotonic()
    runs: dict[str, Callable[[Path], Coroutine[Any, Any, Chaos]]] = {
        "200 executions in flight, all killed": lambda at: kill_all_at_once(at, seed=seed),
        f"{kills} kills at random moments": lambda at: kill_at_random(at, seed=seed, kills=kills, say=True),
    }
    for what, run in runs.items():
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            chaos = runner.run(run(Path(folder)))
        executions, calls = len(chaos.submitted), len(chaos.service.calls)
        nodes = executions * len(chaos.graph)
        _say(
            f"{what}: {executions:,} executions, {nodes:,} nodes, {calls:,} calls, {calls - nodes:,} of them "
            "repeated; nothing lost, nothing settled ran again"
        )
    _say(f"seed {seed}, {time.monotonic() - begun:.0f} s")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
