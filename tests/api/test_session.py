"""Sessions of browsers: signed in by a key, known by a cookie, ended by the key that is taken away."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.sse import Stream
from tests.api.test_auth import KEYS, call

from weft.api.app import create_app
from weft.api.auth import ApiKeys
from weft.api.session_token import SESSION_SECONDS, SessionTokens
from weft.settings import RateLimit

if TYPE_CHECKING:
    import logging

    from fastapi import FastAPI
    from tests.api.conftest import Answer, Serve, Server

FLOW = {"name": "flow", "nodes": [{"id": "a", "handler": "echo"}]}
NOW = 1_800_000_000


class Browser:
    """Keeps the cookie that a server sets, and the CSRF token of its answers, as a page of ours does."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cookie = ""
        self.csrf = ""

    async def sign_in(self, key: str = KEYS[0], **headers: str) -> Answer:
        signed = await self.server.post("/v1/session", json={"key": key}, headers=headers)
        if signed.status == 200:
            self.cookie = f"weft_session={morsel_of(signed).value}"
            self.csrf = signed.json["csrf"]
        return signed

    async def call(self, method: str, path: str, **kwargs: Any) -> Answer:
        headers = {"Cookie": self.cookie, **kwargs.pop("headers", {})}
        return await self.server.call(method, path, headers=headers, **kwargs)


def morsel_of(answer: Answer) -> Morsel[str]:
    cookies = SimpleCookie(answer.headers["Set-Cookie"])
    return cookies["weft_session"]


class TestSigningIn:
    async def test_a_key_becomes_a_cookie_that_no_script_reads(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            signed = await Browser(server).sign_in()
            assert signed.status == 200
            assert signed.json.keys() == {"keys", "signed_in", "csrf", "name"}
            assert (signed.json["keys"], signed.json["signed_in"]) == (True, True)
            assert signed.json["name"].startswith("key-")
            morsel = morsel_of(signed)
            assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "strict", "/")
            assert int(morsel["max-age"]) == SESSION_SECONDS
            assert (morsel["domain"], morsel["secure"]) == ("", "")
            assert KEYS[0] not in str(signed.headers) + signed.body.decode()

    async def test_over_https_the_cookie_is_for_https_alone(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            signed = await Browser(server).sign_in(Origin="https://weft.example.org")
            assert morsel_of(signed)["secure"] is True

    @pytest.mark.parametrize("key", ["wrong", KEYS[0][:-1], KEYS[0] + "x", " ", "ü" * 20])
    async def test_a_wrong_key_gets_no_cookie(self, serve: Serve, key: str) -> None:
        async with serve(api_keys=KEYS) as server:
            refused = await Browser(server).sign_in(key)
            assert (refused.status, refused.json["code"]) == (401, "unauthenticated")
            assert "Set-Cookie" not in refused.headers
            assert refused.headers["WWW-Authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("body", [{}, {"key": ""}, {"key": 3}, {"key": "x" * 1025}, {"key": "x", "y": 1}])
    async def test_a_body_of_another_shape_is_refused(self, serve: Serve, body: Any) -> None:
        async with serve(api_keys=KEYS) as server:
            refused = await server.post("/v1/session", json=body)
            assert (refused.status, refused.json["code"]) == (422, "invalid_request")

    async def test_who_has_no_key_can_send_no_large_body_and_no_yaml(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            large = await server.post("/v1/session", json={"key": "x" * 5000})
            assert (large.status, large.json["code"]) == (413, "too_large")
            yaml = await server.post(
                "/v1/session", data=b"key: x", headers={"Content-Type": "application/yaml"}
            )
            assert (yaml.status, yaml.json["code"]) == (415, "unsupported_media_type")

    async def test_a_page_of_another_site_signs_nobody_in(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            for site in ("cross-site", "same-site"):
                refused = await Browser(server).sign_in(**{"Sec-Fetch-Site": site})
                assert (refused.status, refused.json["code"]) == (403, "forbidden")
            assert (await Browser(server).sign_in(**{"Sec-Fetch-Site": "same-origin"})).status == 200

    async def test_a_server_without_keys_signs_nobody_in(self, server: Server) -> None:
        assert (await server.get("/v1/session")).json == {
            "keys": False,
            "signed_in": False,
            "csrf": None,
            "name": "anybody",
        }
        refused = await server.post("/v1/session", json={"key": "x"})
        assert (refused.status, refused.json["code"]) == (409, "not_allowed")

    async def test_guesses_count_as_wrong_keys_do_and_leave_a_line(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serve(api_keys=KEYS, api_rate_limit=RateLimit(3, 3600.0)) as server:
            app = create_app(server.service)
            assert [await try_key(app, "guess-17") for _ in range(2)] == [401, 401]
            assert (await call(app, key="guess"))[0] == 401
            assert await try_key(app, "guess-17") == 429
            # Also a good key is not tried any more, and others are not held up.
            assert await try_key(app, KEYS[0]) == 429
            assert await try_key(app, KEYS[0], peer="198.51.100.9") == 200
        refused = lines(caplog, "api.key_refused")
        assert (refused[0].reason, refused[0].route) == ("unknown", "/v1/session")
        assert "guess-17" not in str([vars(line) for line in refused])

    async def test_a_sign_in_is_logged_without_the_key(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        async with serve(api_keys=KEYS) as server:
            signed = await Browser(server).sign_in()
        (line,) = lines(caplog, "api.signed_in")
        assert (line.actor, line.address) == (signed.json["name"], "127.0.0.1")
        assert KEYS[0] not in str(vars(line))


async def try_key(app: FastAPI, key: str, *, peer: str = "203.0.113.7") -> int:
    body = b'{"key": "%s"}' % key.encode()
    status, _, _ = await call(app, path="/v1/session", method="POST", key=None, peer=peer, body=body)
    return status


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    found: list[logging.LogRecord] = [record for record in caplog.records if record.getMessage() == event]
    return found


class TestSignedIn:
    async def test_the_cookie_is_the_key_for_all_that_only_reads(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            assert (await browser.call("GET", "/v1/workflows")).status == 401
            await browser.sign_in()
            for method in ("GET", "HEAD"):
                assert (await browser.call(method, "/v1/workflows")).status == 200

    async def test_a_call_that_changes_something_needs_the_csrf_token(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser, other = Browser(server), Browser(server)
            await browser.sign_in()
            await other.sign_in()
            for token in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": other.csrf}):
                refused = await browser.call("POST", "/v1/workflows", json=FLOW, headers=token)
                assert (refused.status, refused.json["code"]) == (403, "forbidden"), token
                assert "X-CSRF-Token" in refused.json["detail"]
            assert (await browser.call("GET", "/v1/workflows")).json["items"] == []
            good = {"X-CSRF-Token": browser.csrf}
            assert (await browser.call("POST", "/v1/workflows", json=FLOW, headers=good)).status == 201
            for method in ("PUT", "DELETE"):
                refused = await browser.call(method, "/v1/workflows/flow/aliases/live", json={"version": 1})
                assert (refused.status, refused.json["code"]) == (403, "forbidden"), method

    async def test_a_page_that_is_loaded_again_learns_its_csrf_token(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            signed = await browser.sign_in()
            assert (await browser.call("GET", "/v1/session")).json == signed.json

    async def test_a_key_in_the_header_wins_over_the_cookie(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            await browser.sign_in()
            other = {"Authorization": f"Bearer {KEYS[1]}"}
            seen = await browser.call("GET", "/v1/session", headers=other)
            assert seen.json["signed_in"] is False
            assert seen.json["name"] == ApiKeys(KEYS[1:]).find(KEYS[1].encode()).name  # type: ignore[union-attr]
            # It is no cookie, so nobody else's page has sent it.
            assert (await browser.call("POST", "/v1/workflows", json=FLOW, headers=other)).status == 201
            wrong = {"Authorization": "Bearer wrong"}
            assert (await browser.call("GET", "/v1/workflows", headers=wrong)).status == 401

    async def test_what_the_browser_does_has_the_actor_of_its_key(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            signed = await browser.sign_in(KEYS[1])
            await browser.call("POST", "/v1/workflows", json=FLOW, headers={"X-CSRF-Token": browser.csrf})
            changes = (await browser.call("GET", "/v1/changes")).json["items"]
            assert [change["actor"] for change in changes] == [signed.json["name"]]

    async def test_live_events_come_with_the_cookie(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            await browser.sign_in()
            csrf = {"X-CSRF-Token": browser.csrf}
            await browser.call("POST", "/v1/workflows", json=FLOW, headers=csrf)
            started = await browser.call("POST", "/v1/workflows/flow/executions", headers=csrf)
            headers = {"Cookie": browser.cookie, "Accept": "text/event-stream"}
            url = f"{server.url}/v1/executions/{started.json['id']}/events"
            async with server.session.get(url, headers=headers) as stream:
                assert stream.status == 200
                assert (await Stream(stream).until("execution.completed")).data

    async def test_it_has_a_window_apart_from_the_programs_with_its_key(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS, api_rate_limit=RateLimit(3, 3600.0)) as server:
            browser = Browser(server)
            await browser.sign_in()
            app = create_app(server.service)
            assert [(await call(app))[0] for _ in range(4)] == [200, 200, 200, 429]
            looks = [await call(app, key=None, headers={"cookie": browser.cookie}) for _ in range(4)]
            assert [status for status, _, _ in looks] == [200, 200, 200, 429]

    async def test_signing_out_takes_the_cookie_away(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS) as server:
            browser = Browser(server)
            await browser.sign_in()
            assert (await browser.call("DELETE", "/v1/session")).status == 403
            out = await browser.call("DELETE", "/v1/session", headers={"X-CSRF-Token": browser.csrf})
            assert out.json == {"keys": True, "signed_in": False, "csrf": None, "name": None}
            morsel = morsel_of(out)
            assert (morsel.value, morsel["max-age"], morsel["path"]) == ("", "0", "/")
            # Without a session there is nothing to guard, and a cookie that is no good goes too.
            assert (await server.call("DELETE", "/v1/session")).status == 200


class TestOtherProcesses:
    async def test_every_api_process_with_the_key_accepts_the_session(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS, data=None) as one, serve(api_keys=KEYS[:1], data=None) as two:
            browser = Browser(one)
            await browser.sign_in()
            browser.server = two
            assert (await browser.call("GET", "/v1/workflows")).status == 200
            csrf = {"X-CSRF-Token": browser.csrf}
            assert (await browser.call("POST", "/v1/workflows", json=FLOW, headers=csrf)).status == 201

    async def test_a_key_that_is_taken_out_takes_its_sessions_with_it(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS, data=None) as before, serve(api_keys=KEYS[1:], data=None) as after:
            ended, kept = Browser(before), Browser(before)
            await ended.sign_in(KEYS[0])
            await kept.sign_in(KEYS[1])
            ended.server = kept.server = after
            assert (await ended.call("GET", "/v1/workflows")).status == 401
            assert (await kept.call("GET", "/v1/workflows")).status == 200

    async def test_without_keys_a_session_of_before_is_nothing(self, serve: Serve) -> None:
        async with serve(api_keys=KEYS, data=None) as closed, serve(data=None) as opened:
            browser = Browser(closed)
            await browser.sign_in()
            browser.server = opened
            assert (await browser.call("GET", "/v1/session")).json["signed_in"] is False
            # So it needs no token that nobody can have.
            assert (await browser.call("POST", "/v1/workflows", json=FLOW)).status == 201


class TestTokens:
    @pytest.fixture
    def tokens(self) -> SessionTokens:
        return ApiKeys(KEYS).sessions

    @pytest.fixture
    def token(self, tokens: SessionTokens) -> str:
        caller = ApiKeys(KEYS).find(KEYS[0].encode())
        assert caller is not None
        return tokens.sign(caller, now_seconds=NOW)[0]

    def test_it_is_good_for_twelve_hours(self, tokens: SessionTokens, token: str) -> None:
        assert tokens.read(token, now_seconds=NOW) is not None
        assert tokens.read(token, now_seconds=NOW + 12 * 3600 - 1) is not None
        assert tokens.read(token, now_seconds=NOW + 12 * 3600) is None

    def test_no_character_of_it_can_be_changed(self, tokens: SessionTokens, token: str) -> None:
        for place, old in enumerate(token):
            for new in "A9.":
                changed = token[:place] + new + token[place + 1 :]
                assert old == new or tokens.read(changed, now_seconds=NOW) is None, changed

    @pytest.mark.parametrize("text", ["", ".", "...", "1.2.3.4", "\xff" * 20, "x" * 100_000])
    def test_anything_else_is_no_token(self, tokens: SessionTokens, text: str) -> None:
        assert tokens.read(text, now_seconds=NOW) is None

    def test_two_sessions_of_a_key_have_nothing_in_common(self, tokens: SessionTokens, token: str) -> None:
        caller = ApiKeys(KEYS).find(KEYS[0].encode())
        assert caller is not None
        other, session = tokens.sign(caller, now_seconds=NOW)
        assert other != token
        assert session.csrf != tokens.read(token, now_seconds=NOW).csrf  # type: ignore[union-attr]

    def test_it_holds_nothing_of_the_key(self, token: str) -> None:
        assert KEYS[0] not in token
        assert len(token) < 128

    def test_two_cookies_of_the_name_are_none(self, token: str) -> None:
        keys = ApiKeys(KEYS)
        one = (b"cookie", f"a=b; weft_session={token}; c=d".encode())
        assert keys.session([one], now_seconds=NOW) is not None
        assert keys.session([one, one], now_seconds=NOW) is None
        twice = f"weft_session={token}; weft_session={token}".encode()
        assert keys.session([(b"cookie", twice)], now_seconds=NOW) is None
