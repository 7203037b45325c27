"""What a workflow may reach, and that nothing else is even connected to (F89)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from tests.handlers.outside import caller, run_node

from weft.engine import Engine
from weft.errors import SettingsError
from weft.handlers.contract import BadConfig
from weft.handlers.http.address import BlockedAddress, Guard, is_public, read_host
from weft.handlers.http.failure import NetworkError
from weft.handlers.registry import Registry
from weft.settings import Settings
from weft.testing.http_server import Answer
from weft.testing.recording_service import RecordingService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


class Listener:
    """A port of this machine that counts who connects to it."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    # All of this machine's addresses, so that a call that slips through is seen.
    server = await asyncio.start_server(listener.accept, "0.0.0.0", 0)
    listener.port = server.sockets[0].getsockname()[1]
    yield listener
    server.close()
    await server.wait_closed()


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with RecordingService() as service:
        yield service


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_of_a_special_kind_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(BlockedAddress, match="WEFT_HTTP_ALLOW"):
        Guard().check_address(ip_address(address), 80)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "100.63.255.255",
        "172.32.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
    ],
)
def test_an_ordinary_address_is_public(address: str) -> None:
    assert is_public(ip_address(address))
    Guard().check_address(ip_address(address), 80)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1.",
        "2130706433",
        "0x7f000001",
        "0x7F.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "017700000001",
        "0x7f.0x0.0x0.0x1",
    ],
)
def test_every_way_to_write_an_ipv4_address_is_the_address(host: str) -> None:
    assert read_host(host) == ip_address("127.0.0.1")


@pytest.mark.parametrize(
    "host", ["", ".", "a..b", "256.1.1.1", "1.2.3.4.5", "a b", "%31.1", "fe80::1%eth0", "x" * 64]
)
def test_a_host_that_is_neither_name_nor_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_host(host)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:{port}/", BlockedAddress),
        ("http://localhost:{port}/", BlockedAddress),
        ("http://LOCALHOST.:{port}/", BlockedAddress),
        ("http://2130706433:{port}/", BlockedAddress),
        ("http://0x7f000001:{port}/", BlockedAddress),
        ("http://0177.0.0.1:{port}/", BlockedAddress),
        ("http://127.1:{port}/", BlockedAddress),
        ("http://0:{port}/", BlockedAddress),
        ("http://0.0.0.0:{port}/", BlockedAddress),
        ("http://[::1]:{port}/", BlockedAddress),
        ("http://[::]:{port}/", BlockedAddress),
        ("http://[::ffff:127.0.0.1]:{port}/", BlockedAddress),
        ("http://[::ffff:7f00:1]:{port}/", BlockedAddress),
        ("http://[64:ff9b::7f00:1]:{port}/", BlockedAddress),
        ("http://１２７.０.０.１:{port}/", BlockedAddress),
        ("http://127。0。0。1:{port}/", BlockedAddress),
        ("http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/", BlockedAddress),
        ("http://169.254.169.254/latest/meta-data/", BlockedAddress),
        ("http://10.0.0.1/", BlockedAddress),
        ("https://192.168.0.1/", BlockedAddress),
        ("http://user:password@127.0.0.1:{port}/", BlockedAddress),
        ("http://example.org@127.0.0.1:{port}/", BlockedAddress),
        ("http://user@example.org/", BlockedAddress),
        ("ftp://127.0.0.1:{port}/", BlockedAddress),
        ("file:///etc/passwd", BlockedAddress),
        ("gopher://127.0.0.1:{port}/_x", BlockedAddress),
        ("unix:///run/docker.sock", BlockedAddress),
        ("127.0.0.1:{port}/", BlockedAddress),
        ("//127.0.0.1:{port}/", BlockedAddress),
        ("http://%31%32%37.0.0.1:{port}/", BadConfig),
        ("http://[::1%25lo]:{port}/", BadConfig),
        ("http://example.org\\@127.0.0.1:{port}/", BadConfig),
        ("http://127.0.0.1:0/", BadConfig),
        ("http://127.0.0.1:65536/", BadConfig),
        ("http:///path", BadConfig),
    ],
)
async def test_a_url_that_leads_inside_is_refused_and_nobody_is_connected_to(
    url: str, error: type[Exception], listener: Listener
) -> None:
    async with caller(allow=()) as call:
        with pytest.raises(error):
            await call({"url": url.format(port=listener.port)})
    assert listener.connections == 0


async def test_a_call_that_is_allowed_is_seen_by_the_listener(listener: Listener) -> None:
    async with caller(allow=("*",)) as call:
        with pytest.raises(NetworkError):
            await call({"url": f"http://127.0.0.1:{listener.port}/"})
    assert listener.connections == 1


async def test_a_refused_call_is_a_failure_that_does_not_retry() -> None:
    node = await run_node({"url": "http://10.1.2.3/"}, fields={"max_retries": 3})
    assert (node["state"], node["attempt"]) == ("FAILED", 1)
    assert (node["error"]["code"], node["error"]["retryable"]) == ("blocked_address", False)


class Names:
    """A toy resolver: each lookup of a name gives the next of its answers, and the last one for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        answers = self.answers[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["10.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["::1"], ["2606:4700::1", "fe80::1"]]
)
async def test_a_name_with_any_address_inside_is_refused(addresses: list[str], listener: Listener) -> None:
    names = Names(inside_example=[addresses])
    async with caller(allow=(), lookup=names) as call:
        with pytest.raises(BlockedAddress, match=r"inside\.example resolves to"):
            await call({"url": f"http://inside.example:{listener.port}/"})
    assert listener.connections == 0


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_connected_to(
    service: RecordingService, listener: Listener
) -> None:
    # An address of this machine stands for a public one: the first answer may be reached, the second not.
    names = Names(rebinding_example=[["127.0.0.1"], ["127.0.0.2"]])
    async with caller(allow=("127.0.0.1",), lookup=names) as call:
        output = await call({"url": f"http://rebinding.example:{service.port}/"})
        assert output["status"] == 200
        assert names.asked == ["rebinding.example"]
        # Another port is another connection, so the name is asked for again: now it leads inside.
        with pytest.raises(BlockedAddress):
            await call({"url": f"http://rebinding.example:{listener.port}/"})
    assert service.calls[0].request.headers["host"] == f"rebinding.example:{service.port}"
    assert listener.connections == 0


async def test_a_name_that_was_public_and_turns_inside_is_refused(listener: Listener) -> None:
    names = Names(turning_example=[["192.0.2.1"], ["127.0.0.1"]])
    async with caller(allow=("192.0.2.1",), lookup=names) as call:
        call.outbound.guarded()
        for port in (1, listener.port):
            with pytest.raises((BlockedAddress, NetworkError, TimeoutError)):
                async with asyncio.timeout(0.2):
                    await call({"url": f"http://turning.example:{port}/"})
    assert names.asked == ["turning.example", "turning.example"]
    assert listener.connections == 0


@pytest.mark.parametrize(
    "location", ["http://127.0.0.2:{port}/", "http://inside.example:{port}/", "file:///etc/passwd"]
)
async def test_every_redirect_is_checked_again(
    location: str, service: RecordingService, listener: Listener
) -> None:
    service.script(Answer(302, headers={"Location": location.format(port=listener.port)}))
    names = Names(inside_example=[["127.0.0.2"]])
    async with caller(allow=("127.0.0.1",), lookup=names) as call:
        with pytest.raises(BlockedAddress):
            await call({"url": service.url})
    assert listener.connections == 0


@pytest.mark.parametrize(
    ("allow", "url", "allowed"),
    [
        (("127.0.0.1",), "http://127.0.0.1:{port}/", True),
        (("127.0.0.1",), "http://127.1:{port}/", True),
        (("127.0.0.1",), "http://[::ffff:127.0.0.1]:{port}/", True),
        (("127.0.0.0/8",), "http://127.0.0.1:{port}/", True),
        (("127.0.0.1:{port}",), "http://127.0.0.1:{port}/", True),
        (("127.0.0.1:1",), "http://127.0.0.1:{port}/", False),
        (("127.0.0.1",), "http://service.example:{port}/", True),
        (("service.example",), "http://service.example:{port}/", True),
        (("Service.Example.",), "http://service.example:{port}/", True),
        (("service.example:{port}",), "http://SERVICE.example.:{port}/", True),
        (("service.example:1",), "http://service.example:{port}/", False),
        (("service.example",), "http://127.0.0.1:{port}/", False),
        (("other.example", "10.0.0.0/8", "::1"), "http://service.example:{port}/", False),
        (("bücher.example",), "http://bücher.example:{port}/", True),
        (("xn--bcher-kva.example",), "http://BÜCHER.example:{port}/", True),
        (("*",), "http://127.0.0.1:{port}/", True),
        (("*",), "http://service.example:{port}/", True),
    ],
)
async def test_the_operator_may_allow_hosts_ports_and_networks(
    allow: tuple[str, ...], url: str, allowed: bool, service: RecordingService
) -> None:
    names = Names(service_example=[["127.0.0.1"]])
    names.answers["xn--bcher-kva.example"] = [["127.0.0.1"]]
    given = tuple(entry.format(port=service.port) for entry in allow)
    async with caller(allow=given, lookup=names) as call:
        if allowed:
            assert (await call({"url": url.format(port=service.port)}))["status"] == 200
        else:
            with pytest.raises(BlockedAddress):
                await call({"url": url.format(port=service.port)})
    assert len(service.calls) == allowed


async def test_of_the_addresses_of_a_name_only_those_that_are_allowed_are_connected_to(
    service: RecordingService,
) -> None:
    names = Names(both_example=[["127.0.0.2", "127.0.0.1"]])
    async with caller(allow=("127.0.0.1",), lookup=names) as call:
        assert (await call({"url": f"http://both.example:{service.port}/"}))["status"] == 200


@pytest.mark.parametrize(
    "entry", ["http://x", "a b", "a:b:c", "10.0.0.1/8", "host:0", "host:99999", "[::1", ":80"]
)
def test_an_entry_that_cannot_be_read_stops_the_engine(entry: str) -> None:
    with pytest.raises(SettingsError, match="WEFT_HTTP_ALLOW needs"):
        Engine(registry=Registry(), settings=Settings(http_allow=(entry,)))


async def test_no_proxy_of_the_environment_is_asked(
    service: RecordingService, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.port}")
    async with caller() as call:
        assert (await call({"url": service.url}))["status"] == 200
    assert listener.connections == 0


def test_the_library_for_calls_is_not_loaded_before_the_first() -> None:
    program = (
        "import sys, weft, weft.cli.main\n"
        "from weft.engine import Engine\n"
        "from weft.handlers.registry import Registry\n"
        "Engine(registry=Registry())\n"
        "sys.exit(int('aiohttp' in sys.modules or 'yarl' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
