"""Who is let in: with keys by a key alone, without keys from this machine alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fastapi.routing import APIRoute
from yarl import URL

from weft.api import gateway
from weft.api.app import create_app
from weft.api.auth import ApiKeys, check_bind, is_open, is_this_machine, paths_of_open_routes, peer_of
from weft.api.console import ConsoleRoute
from weft.errors import SettingsError
from weft.settings import RateLimit, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI
    from tests.api.conftest import Serve, Server

KEYS = ("first-key-0123456789", "second-key-9876543210")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")

BAD_CREDENTIALS: dict[str, list[tuple[str, str]]] = {
    "none": [],
    "empty": [("Authorization", "")],
    "no key": [("Authorization", "Bearer")],
    "empty key": [("Authorization", "Bearer ")],
    "wrong": [("Authorization", "Bearer wrong")],
    "prefix": [("Authorization", f"Bearer {KEYS[0][:-1]}")],
    "more": [("Authorization", f"Bearer {KEYS[0]}x")],
    "both in one": [("Authorization", f"Bearer {KEYS[0]},{KEYS[1]}")],
    "list": [("Authorization", ",".join(f"Bearer {key}" for key in KEYS))],
    "twice": [("Authorization", f"Bearer {KEYS[0]}")] * 2,
    "one good one bad": [("Authorization", "Bearer x"), ("Authorization", f"Bearer {KEYS[0]}")],
    "other scheme": [("Authorization", f"Basic {KEYS[0]}")],
    "no scheme": [("Authorization", KEYS[0])],
    "oversized": [("Authorization", "Bearer " + "x" * 7000)],
    "other header": [("X-Api-Key", KEYS[0])],
    "query-like": [("Cookie", f"Authorization=Bearer {KEYS[0]}")],
}


def routes_of(app: FastAPI) -> list[APIRoute]:
    found = [route for route in app.router.routes if isinstance(route, APIRoute)]
    (files,) = (route for route in app.router.routes if isinstance(route, ConsoleRoute))
    assert len(found) + 1 == len(app.router.routes), "a route that no test enumerates"
    assert is_open(files)
    return found


@pytest.mark.parametrize("credentials", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
async def test_without_a_good_key_every_route_and_method_is_refused(
    serve: Serve, credentials: list[tuple[str, str]]
) -> None:
    async with serve(api_keys=KEYS) as server:
        app = create_app(server.service)
        paths = {path_of(route) for route in routes_of(app) if not is_open(route)}
        calls = [(method, path) for path in sorted({*paths, "/nosuch", "/docs/"}) for method in METHODS]
        for method, path in calls:
            answer = await server.call(method, path, headers=credentials)
            assert answer.status == 401, (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            if method != "HEAD":
                assert answer.json["code"] == "unauthenticated"
                assert not any(key.encode() in answer.body for key in KEYS)


def path_of(route: APIRoute) -> str:
    parts = route.path.split("/")
    return "/".join("x" if part.startswith("{") else part for part in parts)


OPEN_PATHS = {
    "/",
    "/docs",
    "/docs/docs.js",
    "/docs/key.js",
    "/docs/swagger-ui-5.34.1/LICENSE",
    "/docs/swagger-ui-5.34.1/NOTICE",
    "/docs/swagger-ui-5.34.1/swagger-ui-bundle.js",
    "/docs/swagger-ui-5.34.1/swagger-ui-bundle.js.LICENSE.txt",
    "/docs/swagger-ui-5.34.1/swagger-ui.css",
    "/healthz",
    "/openapi.json",
    "/readyz",
    "/v1/session",
}


async def test_only_health_pages_and_sign_in_are_open_and_only_by_their_exact_paths(serve: Serve) -> None:
    async with serve(api_keys=KEYS) as server:
        app = create_app(server.service)
        opened = paths_of_open_routes(app.router.routes)
        files = app.state.console.paths
        assert opened == OPEN_PATHS | files
        assert all(path.startswith("/console/checkout/") for path in files)
        assert not any("{" in path for path in opened)
        for path in opened:
            assert (await server.get(path)).status == 200, path
            assert (await server.call("HEAD", path)).status == 200, path
            own = {"POST", "DELETE"} if path == "/v1/session" else set()
            for method in {"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - own:
                assert (await server.call(method, path)).status == 401, (method, path)
        for path in (
            "/healthz/",
            "/healthz/x",
            "/HEALTHZ",
            "/x/healthz",
            "/healthz%2F..%2Fv1/workflows",
            "//healthz",
            "/docs/",
            "/docs/x",
            "/docs/key.html",
            "/docs%2F..%2Fv1/workflows",
            "/docs/../v1/workflows",
            "/docs/swagger-ui-5.34.1/",
            "/docs/swagger-ui-5.34.1/x",
            "/openapi.json/",
            "/openapi.jsonx",
            "/console",
            "/console/",
            "/console/checkout/",
            "/console/checkout/index.html",
            "/console/checkout/../../v1/workflows",
            "/console/checkout/styles",
            "/v1/session/",
            "/v1/session/x",
        ):
            assert (await server.session.get(URL(server.url + path, encoded=True))).status == 401, path


async def test_pages_opened_without_a_key_hold_no_data(serve: Serve) -> None:
    flow = {"name": "flow-of-a-secret-customer", "nodes": [{"id": "only-here", "handler": "echo"}]}
    async with serve(api_keys=KEYS) as server:
        key = {"Authorization": f"Bearer {KEYS[0]}"}
        before = {path: (await server.get(path)).body for path in ("/", "/docs", "/openapi.json")}
        assert (await server.post("/v1/workflows", json=flow, headers=key)).status == 201
        for path, body in before.items():
            # The same before and after, and for a caller with a key.
            assert (await server.get(path)).body == body
            assert (await server.get(path, headers=key)).body == body
            assert not any(known.encode() in body for known in KEYS)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_each_key_is_let_in(serve: Serve, key: str, scheme: str) -> None:
    async with serve(api_keys=KEYS) as server:
        assert (await server.get("/v1/workflows", headers={"Authorization": f"{scheme} {key}"})).status == 200


def test_a_caller_is_named_after_its_key_without_giving_it_away() -> None:
    keys = ApiKeys(KEYS)
    callers = [keys.identify([(b"authorization", b"Bearer " + key.encode())]) for key in KEYS]
    names = {caller.actor for caller in callers if caller is not None and caller.actor is not None}
    assert len(names) == 2
    assert all(caller is not None and caller.namespace == "default" for caller in callers)
    assert not any(key in name or name in key for key in KEYS for name in names)


async def test_the_keys_are_in_no_text_of_the_settings() -> None:
    assert KEYS[0] not in repr(Settings(api_keys=KEYS))


class TestBinding:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.5.5.5", "LOCALHOST"])
    def test_this_machine_needs_no_key(self, host: str) -> None:
        check_bind(host, Settings())

    @pytest.mark.parametrize(
        "host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "localhost.example.org"]
    )
    def test_others_need_one(self, host: str) -> None:
        with pytest.raises(SettingsError, match="WEFT_API_KEYS"):
            check_bind(host, Settings())
        check_bind(host, Settings(api_keys=KEYS))


class TestForeignPages:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:8700", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1", ""]
    )
    async def test_a_foreign_host_is_refused_without_keys(self, server: Server, host: str) -> None:
        for path in ("/v1/workflows", "/healthz", "/"):
            refused = await server.get(path, headers={"Host": host})
            assert (refused.status, refused.json["code"]) == (403, "forbidden")

    @pytest.mark.parametrize(
        "host", ["localhost", "localhost:1", "127.0.0.1:8700", "[::1]:8700", "app.localhost"]
    )
    async def test_this_machine_is_known_by_its_names(self, server: Server, host: str) -> None:
        assert (await server.get("/v1/workflows", headers={"Host": host})).status == 200

    async def test_with_keys_any_host_will_do(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            headers = {"Host": "weft.example.org", "Authorization": f"Bearer {KEYS[0]}"}
            assert (await server.get("/v1/workflows", headers=headers)).status == 200

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"]
    )
    async def test_a_page_of_another_origin_changes_nothing(self, server: Server, origin: str) -> None:
        body = {"name": "flow", "nodes": [{"id": "a", "handler": "echo"}]}
        refused = await server.post("/v1/workflows", json=body, headers={"Origin": origin})
        assert (refused.status, refused.json["code"]) == (403, "forbidden")
        assert (await server.get("/v1/workflows")).json["items"] == []

    async def test_a_page_of_this_server_may(self, server: Server) -> None:
        body = {"name": "flow", "nodes": [{"id": "a", "handler": "echo"}]}
        assert (await server.post("/v1/workflows", json=body, headers={"Origin": server.url})).status == 201


def test_loopback_is_known_in_every_spelling() -> None:
    assert all(map(is_this_machine, ["127.0.0.1", "::1", "[::1]", "::ffff:127.0.0.1", "localhost."]))
    assert not any(map(is_this_machine, ["0.0.0.0", "::", "8.8.8.8", "::ffff:8.8.8.8", "2130706433"]))


class TestRates:
    """Straight into the application: whoever calls over a socket of this machine is not limited."""

    @pytest.fixture
    async def limited(self, serve: Serve) -> AsyncIterator[FastAPI]:
        async with serve(api_rate_limit=RateLimit(3, 3600.0), api_keys=KEYS) as server:
            yield create_app(server.service)

    async def test_the_fourth_call_in_the_window_waits(self, limited: FastAPI) -> None:
        statuses = [(await call(limited))[0] for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        _, headers, body = await call(limited)
        assert 3500 < int(headers["retry-after"]) <= 3600
        assert b'"code":"rate_limited"' in body

    async def test_no_other_spelling_of_a_call_is_counted_apart(self, limited: FastAPI) -> None:
        await call(limited, path="/v1/workflows", method="HEAD")
        await call(limited, path="/V1/workflows", headers={"X-Forwarded-For": "1.2.3.4"})
        await call(limited, path="/v1/workflows/x", headers={"Forwarded": "for=1.2.3.4"})
        assert (await call(limited))[0] == 429
        assert (await call(limited, headers={"X-Real-IP": "127.0.0.1"}))[0] == 429
        assert (await call(limited, peer="198.51.100.9"))[0] == 429

    async def test_each_key_has_a_window_of_its_own(self, limited: FastAPI) -> None:
        for _ in range(4):
            await call(limited, key=KEYS[0])
        assert (await call(limited, key=KEYS[0]))[0] == 429
        assert (await call(limited, key=KEYS[1]))[0] == 200

    async def test_whoever_guesses_keys_is_counted_by_his_address(self, limited: FastAPI) -> None:
        statuses = [(await call(limited, key=f"guess-{number}"))[0] for number in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert (await call(limited, key="guess", peer="198.51.100.9"))[0] == 401

    async def test_liveness_and_this_machine_are_not_limited(self, limited: FastAPI) -> None:
        assert {(await call(limited, path="/healthz"))[0] for _ in range(6)} == {200}
        assert {(await call(limited, peer="127.0.0.1"))[0] for _ in range(6)} == {200}
        assert {(await call(limited, peer="::1"))[0] for _ in range(6)} == {200}

    async def test_open_routes_have_a_limit_of_their_own(
        self, limited: FastAPI, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gateway, "OPEN_RATE", RateLimit(10, 3600.0))
        statuses = [(await call(limited, path="/healthz", key="guess"))[0] for _ in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        assert (await call(limited, path="/healthz", peer="198.51.100.9"))[0] == 200
        assert {(await call(limited, path="/healthz", peer="127.0.0.1"))[0] for _ in range(20)} == {200}

    async def test_off_is_off(self, serve: Serve) -> None:
        async with serve(api_rate_limit=None) as server:
            app = create_app(server.service)
            assert {(await call(app))[0] for _ in range(100)} == {200}


async def test_a_refused_key_leaves_a_line_and_nothing_of_the_key(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(api_keys=KEYS, api_rate_limit=RateLimit(3, 3600.0)) as server:
        app = create_app(server.service)
        for number in range(8):
            await call(
                app, path="/v1/executions/e-1/cancel", method="POST", key=f"guess-{number}-{KEYS[0][:-1]}"
            )
        await call(app, headers={"authorization": "Basic Z3Vlc3M="}, peer="198.51.100.9", path="/nosuch")
        await call(app, key=KEYS[0])
        lines = [record for record in caplog.records if record.getMessage() == "api.key_refused"]
        # The rate limit answers most of them, and one line of a kind is enough for ten seconds.
        (line,) = lines
        assert (line.reason, line.address, line.method, line.route) == (  # type: ignore[attr-defined]
            "unknown",
            "203.0.113.7",
            "POST",
            "/v1/executions/{execution_id}/cancel",
        )
        assert "guess" not in str(vars(line))


def test_a_household_of_addresses_is_one_peer() -> None:
    def peer(address: str) -> str | None:
        return peer_of({"client": (address, 1)})

    assert peer("2001:db8::1") == peer("2001:db8::ffff:1")
    assert peer("2001:db8::1") != peer("2001:db8:0:1::1")
    assert peer("::ffff:192.0.2.1") == peer("192.0.2.1") == "192.0.2.1"


async def call(
    app: FastAPI,
    *,
    path: str = "/v1/workflows",
    method: str = "GET",
    key: str | None = KEYS[0],
    peer: str = "203.0.113.7",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    """Send a request as if it came from that address."""
    shown = {} if key is None else {"authorization": f"Bearer {key}"}
    given = {"host": "localhost", **shown, **(headers or {})}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": (peer, 50000),
        "server": ("localhost", 8700),
    }
    await app(scope, receive, send)
    return (
        sent[0]["status"],
        {name.decode(): value.decode() for name, value in sent[0]["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )
