"""What is let in, and what is told to come again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.faults.raw import Connection, request

from weft.api.admission import admitted
from weft.api.load import TURN_SECONDS, Load, OverloadedError, RefusedCallers, RequestLoad, Share
from weft.api.problem import ProblemError
from weft.core.time import micros
from weft.handlers.contract import Handler, HandlerContext, HandlerKind

if TYPE_CHECKING:
    from tests.api.conftest import Answer, Serve, Server

    from weft.core.payload import Json
    from weft.handlers.registry import Registry

WIDE = {"nodes": [{"id": f"n{number}", "handler": "gate"} for number in range(10)]}


@pytest.fixture
def gate(registry: Registry) -> asyncio.Event:
    """Keep the nodes of the handler ``gate`` from ending until it is set."""
    opened = asyncio.Event()

    async def wait(config: Json, context: HandlerContext) -> None:
        await opened.wait()

    registry.add(Handler("gate", HandlerKind.USER, wait))
    return opened


async def start(server: Server) -> Answer:
    return await server.post("/v1/executions", json={"definition": WIDE})


async def until_waiting(server: Server, count: int) -> None:
    async with asyncio.timeout(10):
        while server.service.load.waiting.in_use < count:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


def in_hand(load: Load) -> tuple[int, ...]:
    shares = (load.requests, load.waiting, load.held_bytes)
    return (*(share.in_use for share in shares), load.coming)


class TestBacklog:
    async def test_over_the_bound_a_submit_is_refused_and_nothing_is_stored(
        self, serve: Serve, gate: asyncio.Event
    ) -> None:
        async with serve(max_backlog=25) as server:
            accepted = [await start(server) for _ in range(2)]
            refused = await start(server)
            assert [answer.status for answer in accepted] == [202, 202]
            assert (refused.status, refused.json["code"]) == (503, "overloaded")
            assert int(refused.headers["Retry-After"]) > 0
            assert len((await server.get("/v1/executions")).json["items"]) == 2
            gate.set()
            for answer in accepted:
                await server.engine.wait(answer.json["id"])
            assert (await start(server)).status == 202

    async def test_an_idle_server_takes_up_anything(self, serve: Serve, gate: asyncio.Event) -> None:
        async with serve(max_backlog=3) as server:
            assert (await start(server)).status == 202
            assert (await start(server)).status == 503
            gate.set()

    async def test_a_server_that_stops_takes_up_nothing(self, server: Server) -> None:
        server.service.stopping.set()
        with pytest.raises(ProblemError) as caught:
            async with admitted(server.service, 1, caller="anybody"):
                pass
        assert (caught.value.status, caught.value.code) == (503, "unavailable")


class TestRequests:
    async def test_over_the_bound_a_request_is_refused_and_liveness_is_not(self, server: Server) -> None:
        server.service.load.requests.limit = 0
        refused = await server.get("/v1/workflows")
        assert (refused.status, refused.json["code"]) == (503, "overloaded")
        assert refused.headers["Retry-After"] == "1"
        assert (await server.get("/healthz")).status == 200

    async def test_every_place_is_given_back(self, server: Server) -> None:
        async def one(number: int) -> None:
            path = ("/v1/workflows", "/nosuch", "/v1/workflows?limit=0", "/v1/workflows/x")[number % 4]
            await server.get(path)
            await server.post("/v1/workflows/validate", json={"x": "y" * 1000})

        await asyncio.gather(*[one(number) for number in range(40)])
        assert in_hand(server.service.load) == (0, 0, 0, 0)

    async def test_calls_that_wait_for_an_execution_take_no_place_of_others(
        self, serve: Serve, gate: asyncio.Event
    ) -> None:
        async with serve() as server:
            server.service.load.requests.limit = 2
            execution = (await start(server)).json["id"]
            waiting = []
            for number in range(5):
                waiting.append(asyncio.create_task(server.get(f"/v1/executions/{execution}?wait=20")))
                await until_waiting(server, number + 1)
            assert (await server.get("/v1/workflows")).status == 200
            gate.set()
            assert {answer.json["state"] for answer in await asyncio.gather(*waiting)} == {"COMPLETED"}
            assert in_hand(server.service.load) == (0, 0, 0, 0)


class TestPlaces:
    def test_a_place_that_waits_counts_apart(self) -> None:
        load = Load(connections=2)
        load.requests.limit = 10
        first, second = RequestLoad(load, "a"), RequestLoad(load, "b")
        first.wait()
        assert in_hand(load) == (1, 1, 0, 0)
        with pytest.raises(OverloadedError):
            second.wait()
        first.leave()
        second.wait()
        second.leave()
        assert in_hand(load) == (0, 0, 0, 0)

    def test_bodies_are_bounded_together_and_one_alone_is_not(self) -> None:
        load = Load(connections=1000)
        load.held_bytes.limit = 100
        alone = RequestLoad(load, "a")
        alone.hold(80)
        alone.hold(80)
        other = RequestLoad(load, "b")
        with pytest.raises(OverloadedError):
            other.hold(1)
        alone.leave()
        other.hold(90)
        other.leave()
        assert in_hand(load) == (0, 0, 0, 0)

    def test_requests_and_waits_leave_a_quarter_of_the_connections_free(self) -> None:
        load = Load(connections=600)
        assert load.requests.limit + load.waiting.limit <= 600 * 3 // 4
        assert load.streams.limit <= load.waiting.limit


class TestShares:
    def test_one_caller_has_half_and_the_next_finds_room(self) -> None:
        share = Share(1000)
        assert taken(share, "greedy") == 500
        assert taken(share, "second") == 250
        assert share.take("third")

    def test_what_a_caller_gives_back_is_there_for_all(self) -> None:
        share = Share(9)
        assert (taken(share, "a"), taken(share, "b"), taken(share, "c")) == (5, 2, 1)
        for _ in range(5):
            share.give_back("a")
        assert (taken(share, "c"), taken(share, "a"), share.in_use) == (3, 2, 8)

    def test_many_callers_get_all_of_it(self) -> None:
        share = Share(100)
        assert sum(share.take(str(number)) for number in range(200)) == 100

    def test_bytes_of_a_caller_are_bounded_by_what_is_left(self) -> None:
        load = Load(connections=1000)
        load.held_bytes.limit = 100
        first, second, other = RequestLoad(load, "a"), RequestLoad(load, "a"), RequestLoad(load, "b")
        first.hold(40)
        with pytest.raises(OverloadedError):
            second.hold(30)
        other.hold(30)
        for one in (first, second, other):
            one.leave()
        assert in_hand(load) == (0, 0, 0, 0)

    async def test_a_body_is_refused_before_it_is_sent_where_there_is_no_room(self, serve: Serve) -> None:
        async with serve() as server, Connection.open(server.url) as holder:
            server.service.load.held_bytes.limit = 1000
            # All of the first is declared, and nothing of it comes.
            await holder.send(request("POST", "/v1/workflows", b"x" * 600)[:-600])
            async with asyncio.timeout(10):
                while server.service.load.held_bytes.in_use < 600:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0)
            async with Connection.open(server.url) as late:
                answer = await late.ask(request("POST", "/v1/workflows", b"x" * 600)[:-600])
                assert (answer.status, answer.json["code"]) == (503, "overloaded")


def taken(share: Share, caller: str) -> int:
    """Take as many as a caller gets."""
    count = 0
    while share.take(caller):
        count += 1
    return count


class TestTheLine:
    def test_whoever_was_turned_away_first_is_ahead_of_those_who_came_later(self) -> None:
        refused = RefusedCallers()
        refused.join("a", 3, now=0)
        refused.join("b", 5, now=0)
        assert [refused.ahead_of(caller, now=1) for caller in ("a", "b", "c")] == [0, 3, 8]

    def test_asking_again_keeps_the_place_and_being_let_in_gives_it_up(self) -> None:
        refused = RefusedCallers()
        refused.join("a", 3, now=0)
        refused.join("b", 5, now=0)
        refused.join("a", 4, now=1)
        assert refused.ahead_of("b", now=1) == 4
        refused.leave("a")
        refused.join("a", 4, now=2)
        assert (refused.ahead_of("a", now=2), refused.ahead_of("b", now=2)) == (5, 0)

    def test_a_turn_that_is_not_taken_is_over_after_a_while(self) -> None:
        refused = RefusedCallers()
        refused.join("a", 3, now=0)
        later = micros(TURN_SECONDS) + 1
        assert refused.ahead_of("b", now=later) == 0
        refused.join("b", 5, now=later)
        refused.join("a", 3, now=later)
        assert (refused.ahead_of("a", now=later), refused.ahead_of("b", now=later)) == (5, 0)

    async def test_calls_side_by_side_do_not_pass_the_bound_together(
        self, serve: Serve, gate: asyncio.Event
    ) -> None:
        async with serve(max_backlog=25) as server:
            answers = await asyncio.gather(*[start(server) for _ in range(20)])
            accepted = [answer for answer in answers if answer.status == 202]
            # One that is in the store and not answered yet counts twice for that moment.
            assert 1 <= len(accepted) <= 2
            assert {answer.status for answer in answers} == {202, 503}
            assert await server.engine.ports.store.backlog() == 10 * len(accepted)
            assert in_hand(server.service.load) == (0, 0, 0, 0)
            gate.set()
