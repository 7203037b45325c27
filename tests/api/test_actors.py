"""Every write has its actor: in the history of its execution, or among the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.api.auth import fingerprint

if TYPE_CHECKING:
    from tests.api.conftest import Serve, Server

KEYS = ("first-key-of-this-server", "second-key-of-this-server")
FAILS = {"id": "a", "handler": "echo", "config": "{{ input.x }}"}


def sent_with(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


async def write_all(server: Server, **first: Any) -> tuple[str, str]:
    """Make every kind of write; return an execution and the id of its dead letter."""
    stored = await server.post("/v1/workflows", json={"name": "w", "nodes": [FAILS]}, **first)
    assert stored.status == 201
    alias = "/v1/workflows/w/aliases/live"
    assert (await server.call("PUT", alias, json={"version": 1}, **first)).status == 200
    failed = await server.post("/v1/workflows/w/executions?wait=20", json={}, **first)
    letters = await server.get("/v1/dead-letters", **first)
    letter = letters.json["items"][0]["id"]
    assert (await server.call("DELETE", f"/v1/dead-letters/{letter}", **first)).status == 204
    assert (await server.call("DELETE", alias, **first)).status == 204
    assert (await server.call("DELETE", "/v1/workflows/w", **first)).status == 204
    return failed.json["id"], letter


async def test_each_write_names_the_key_it_came_with(serve: Serve) -> None:
    async with serve(api_keys=KEYS, api_rate_limit=None) as server:
        execution, letter = await write_all(server, **sent_with(KEYS[0]))
        second = await server.post(
            "/v1/executions", json={"definition": {"nodes": [FAILS]}}, **sent_with(KEYS[1])
        )
        batch = {"workflow": "b", "inputs": [{"x": 1}]}
        await server.post("/v1/workflows", json={"name": "b", "nodes": [FAILS]}, **sent_with(KEYS[1]))
        started = await server.post("/v1/batches", json=batch, **sent_with(KEYS[1]))
        results = await server.get(f"/v1/batches/{started.json['id']}/results", **sent_with(KEYS[1]))
        of_batch = results.json["items"][0]["execution"]
        for id_, key in ((execution, KEYS[0]), (second.json["id"], KEYS[1]), (of_batch, KEYS[1])):
            events = (await server.get(f"/v1/executions/{id_}/events", **sent_with(key))).json["items"]
            assert (events[0]["type"], events[0]["actor"]) == ("execution.created", fingerprint(key))
        changes = (await server.get("/v1/changes", **sent_with(KEYS[1]))).json["items"]
        assert [(change["action"], change["actor"]) for change in changes] == [
            ("workflow.stored", fingerprint(KEYS[1])),
            ("workflow.deleted", fingerprint(KEYS[0])),
            ("alias.deleted", fingerprint(KEYS[0])),
            ("dead_letter.dropped", fingerprint(KEYS[0])),
            ("alias.set", fingerprint(KEYS[0])),
            ("workflow.stored", fingerprint(KEYS[0])),
        ]
        assert changes[3]["dead_letter"] == letter
        # The names of keys are in it, and nothing of the keys.
        assert not any(key in str(changes) for key in KEYS)


async def test_without_keys_the_actor_is_local(server: Server) -> None:
    execution, _ = await write_all(server)
    events = (await server.get(f"/v1/executions/{execution}/events")).json["items"]
    assert events[0]["actor"] == "local"
    page = (await server.get("/v1/changes?limit=3")).json
    rest = (await server.get(f"/v1/changes?limit=3&cursor={page['next_cursor']}")).json
    assert {change["actor"] for change in page["items"] + rest["items"]} == {"local"}
    assert [change["number"] for change in page["items"] + rest["items"]] == [5, 4, 3, 2, 1]
    assert rest["next_cursor"] is None
