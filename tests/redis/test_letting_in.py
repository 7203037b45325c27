"""What a URL says: where the server is, and how to be let in. No message ever has a password in it."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest
from tests.redis.certificates import make_certificates, server_context
from tests.redis.listener import listening, tls_in_front_of
from tests.support.servers.redis import RedisServer

from weft.errors import StoreError
from weft.redis.address import Address, read_url
from weft.redis.connection import Redis

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "s3cr3t pass/wörd@x"
QUOTED = "s3cr3t%20pass%2Fw%C3%B6rd%40x"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server that lets in who knows its password, and a user of its own with another."""
    with RedisServer() as server:
        server.execute("ACL", "SETUSER", "weft", "on", f">{PASSWORD}", "~*", "+@all")
        server.execute("ACL", "SETUSER", "guest", "on", f">{PASSWORD}", "~*", "+ping")
        server.execute("CONFIG", "SET", "requirepass", PASSWORD)
        yield server


def url_of(server: RedisServer, account: str, database: int = 0) -> str:
    return f"redis://{account}@127.0.0.1:{server.port}/{database}"


@pytest.mark.parametrize("account", [f":{QUOTED}", f"weft:{QUOTED}", f"default:{QUOTED}"])
async def test_who_knows_the_password_is_let_in(guarded: RedisServer, account: str) -> None:
    redis = Redis(url_of(guarded, account))
    await redis.open()
    assert await redis.call("ACL", "WHOAMI") == (b"weft" if account.startswith("weft") else b"default")
    await redis.close()


@pytest.mark.parametrize(
    ("account", "told"),
    [
        (f":{QUOTED}no", r"\(AUTH\): WRONGPASS"),
        (f"weft:{QUOTED}no", r"\(AUTH\): WRONGPASS"),
        (f"nobody:{QUOTED}", r"\(AUTH\): WRONGPASS"),
        ("", r"\(CLIENT\): NOAUTH"),
        (f"guest:{QUOTED}", r"\(CLIENT\): NOPERM"),
    ],
)
async def test_who_is_not_let_in_is_told_why_and_not_what_he_said(
    guarded: RedisServer, account: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    redis = Redis(url_of(guarded, account))
    for _ in range(2):
        with pytest.raises(StoreError, match=f"the store does not let weft in {told}") as caught:
            await redis.open()
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value)) + caplog.text
    await redis.close()


async def test_a_server_that_does_not_know_the_command_cannot_repeat_the_password() -> None:
    async def unknowing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        said = f"-ERR unknown command `AUTH`, with args beginning with: `weft`, `{PASSWORD}`, \r\n"
        writer.write(said.encode() + b"+OK\r\n" * 5)

    async with listening(unknowing) as url:
        redis = Redis(url.replace("redis://", f"redis://weft:{QUOTED}@"))
        with pytest.raises(StoreError, match="unknown command") as caught:
            await redis.open()
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
        await redis.close()


async def test_a_password_that_no_longer_counts_is_a_store_error(guarded: RedisServer) -> None:
    admin = Redis(url_of(guarded, f":{QUOTED}"))
    redis = Redis(url_of(guarded, f"other:{QUOTED}"))
    await admin.call("ACL", "SETUSER", "other", "on", f">{PASSWORD}", "~*", "+@all")
    await redis.open()
    await admin.call("ACL", "SETUSER", "other", "-get")
    with pytest.raises(StoreError, match="NOPERM"):
        await redis.call("GET", "a")
    await admin.call("ACL", "DELUSER", "other")
    with pytest.raises(StoreError):
        await redis.call("PING")
    with pytest.raises(StoreError, match="WRONGPASS"):
        await redis.call("PING")
    await redis.close()
    await admin.close()


async def test_each_numbered_database_is_apart(redis_server: RedisServer) -> None:
    three, four = Redis(redis_server.url_of(3)), Redis(redis_server.url_of(4))
    await three.call("SET", "a", "in three")
    assert await four.call("GET", "a") is None
    assert await three.block("BLPOP", "nothing", 0.01, wait_seconds=1) is None
    assert await three.call("GET", "a") == b"in three"
    await three.call("FLUSHDB")
    await three.close()
    await four.close()


async def test_a_database_that_is_not_there_is_said_so(redis_server: RedisServer) -> None:
    redis = Redis(redis_server.url_of(4096))
    with pytest.raises(StoreError, match=r"does not let weft in \(SELECT\): ERR DB index is out of range"):
        await redis.open()
    await redis.close()


async def test_a_socket_of_the_file_system(tmp_path: Path) -> None:
    path = tmp_path / "a b.sock"
    with RedisServer(options={"unixsocket": str(path)}) as server:
        server.execute("CONFIG", "SET", "requirepass", PASSWORD)
        redis = Redis(f"unix://:{QUOTED}@{str(path).replace(' ', '%20')}?db=2")
        await redis.call("SET", "a", 1)
        assert server.execute("GET", "a", url=url_of(server, f":{QUOTED}", 2)) == b"1"
        await redis.close()
    redis = Redis(f"unix://{tmp_path}/nobody")
    with pytest.raises(StoreError, match="the store cannot be reached"):
        await redis.open()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    return folder


async def test_over_tls_only_a_server_that_can_be_trusted(redis_url: str, certificates: Path) -> None:
    behind = read_url(redis_url).address
    authorities = f"ssl_ca_certs={certificates / 'server.pem'}"
    async with tls_in_front_of(behind, server_context(certificates)) as port:
        redis = Redis(f"rediss://localhost:{port}/0?{authorities}")
        assert await redis.call("SET", "k", b"x" * 3_000_000) == b"OK"
        assert await redis.call("GET", "k") == b"x" * 3_000_000
        await redis.close()

        for lax in ("ssl_cert_reqs=none", f"{authorities}&ssl_check_hostname=false"):
            redis = Redis(f"rediss://127.0.0.1:{port}/0?{lax}")
            assert await redis.call("PING") == b"PONG"
            await redis.close()

        # Not known to anybody; another's name; and one who does not speak TLS.
        for url in (
            f"rediss://:{QUOTED}@localhost:{port}/0",
            f"rediss://:{QUOTED}@127.0.0.1:{port}/0?{authorities}",
            f"rediss://:{QUOTED}@{behind.host}:{behind.port}/0",
        ):
            redis = Redis(url, answer_seconds=1)
            with pytest.raises(StoreError, match="the store cannot be reached") as caught:
                await redis.open()
            assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
            await redis.close()


async def test_a_server_that_demands_a_certificate_is_shown_the_one_of_the_url(
    redis_url: str, certificates: Path
) -> None:
    context = server_context(certificates, clients="client")
    async with tls_in_front_of(read_url(redis_url).address, context) as port:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={certificates / 'server.pem'}"
        redis = Redis(f"{url}&ssl_certfile={certificates}/client.pem&ssl_keyfile={certificates}/client.key")
        assert await redis.call("PING") == b"PONG"
        assert await redis.block("BLPOP", "nothing", 0.01, wait_seconds=1) is None
        await redis.close()

        stranger = f"ssl_certfile={certificates}/stranger.pem&ssl_keyfile={certificates}/stranger.key"
        for refused in (url, f"{url}&{stranger}"):
            redis = Redis(refused, answer_seconds=1)
            with pytest.raises(StoreError, match="the store cannot be reached"):
                await redis.open()
            await redis.close()


def test_a_file_of_the_url_that_cannot_be_used_is_named(certificates: Path) -> None:
    for missing in (
        "ssl_ca_certs=/nowhere",
        "ssl_certfile=/nowhere",
        f"ssl_certfile={certificates}/client.pem",
    ):
        with pytest.raises(StoreError, match=missing):
            read_url(f"rediss://localhost?{missing}")


# -- URLs ------------------------------------------------------------------------------------------


def test_what_a_url_leaves_out_has_a_default() -> None:
    target = read_url("redis://")
    assert (target.address, target.username, target.password) == (Address("127.0.0.1", 6379), None, None)
    assert (target.database, target.tls, target.path) == (0, None, None)
    target = read_url("rediss://u%40:p%3A@[::1]:7000/5")
    assert (target.address, target.username, target.password) == (Address("::1", 7000), "u@", "p:")
    assert target.database == 5
    assert target.tls is not None
    assert target.tls.check_hostname
    assert read_url("redis://h?db=3").database == 3
    assert read_url("unix:///a/b?db=3").path == "/a/b"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t/pass@host:6379/0",
        "redis://:s3cr3t#pass@host:6379/0",
        "redis://:s3cr3t?pass@host:6379/0",
        "redis://:x@host:s3cr3t/0",
        "redis://:x@host:70000/s3cr3t",
        "redis://:x@host/s3cr3t",
        "redis://:x@host/²",
        "redis://:x@[s3cr3t/0",
        "http://:s3cr3t@host",
        "s3cr3t",
        "unix://:s3cr3t@",
        "rediss://:s3cr3t@host?ssl_ca_certs=/nowhere",
    ],
)
def test_a_url_that_cannot_be_used_is_not_shown(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        read_url(url)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize("user", ["", "weft"])
async def test_nothing_that_can_be_printed_shows_the_password(user: str) -> None:
    redis = Redis(f"redis://{user}:{QUOTED}@127.0.0.1:1/0")
    with pytest.raises(StoreError) as caught:
        await redis.open()
    shown = repr(redis) + repr(redis._target) + "".join(traceback.format_exception(caught.value))
    assert "s3cr3t" not in shown
