"""A Redis Cluster on loopback."""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING, Self

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.errors import NoServerError
from weft.testing.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SLOTS = 16384
_AGREE_SECONDS = 30
_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "1000",
    "cluster-require-full-coverage": "no",
    "cluster-replica-validity-factor": "0",
    "repl-ping-replica-period": "1",
}


def _started(stack: ExitStack) -> RedisServer:
    for _ in range(20):
        try:
            return stack.enter_context(RedisServer(options=_OPTIONS))
        except NoServerError as error:
            # Its second port, for the other servers, is 10,000 higher, and may be somebody's.
            if "(cluster)" not in str(error):
                raise
    raise NoServerError("no server of a cluster found two free ports")


class Cluster:
    """Servers that share the slots evenly, and ``replicas`` of the first of them."""

    def __init__(self, *, servers: int, replicas: int = 0) -> None:
        self._counts = servers, replicas
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []
        self.replicas: list[RedisServer] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            servers, replicas = self._counts
            self.servers = [_started(stack) for _ in range(servers)]
            self.replicas = [_started(stack) for _ in range(replicas)]
            self._join()
            self._stack = stack.pop_all()
        return self

    def _join(self) -> None:
        everybody = [*self.servers, *self.replicas]
        first = everybody[0]
        share = -(-_SLOTS // len(self.servers))
        for number, server in enumerate(self.servers):
            slots = range(number * share, min(_SLOTS, (number + 1) * share))
            server.execute("CLUSTER", "ADDSLOTS", *slots)
            # Two that come up with the same epoch would have to agree first.
            server.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in everybody[1:]:
            first.execute("CLUSTER", "MEET", "127.0.0.1", server.port)
        self.wait_until_all_agree(len(self.servers))
        for replica in self.replicas:
            replica.execute("CLUSTER", "REPLICATE", self.id_of(first))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return self.servers[0].url

    def id_of(self, server: RedisServer) -> str:
        said = server.execute("CLUSTER", "MYID")
        return said.decode() if isinstance(said, bytes) else str(said)

    def at(self, port: int) -> RedisServer:
        return next(server for server in [*self.servers, *self.replicas] if server.port == port)

    def move(self, slot: int, *, to: RedisServer) -> None:
        """Give a slot, with its keys, to another server."""
        owner = next(s for s in self.servers if s is not to and self._has(s, slot))
        owner.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        to.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(owner))
        while keys := owner.execute("CLUSTER", "GETKEYSINSLOT", slot, 100):
            for key in keys:
                owner.execute("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        for server in (to, owner, *self.servers):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    def wait_until_all_agree(self, owners: int) -> None:
        """Return when every server that runs knows so many owners of slots, and that all is well."""
        self._wait(
            lambda: all(
                "cluster_state:ok" in self._text(server, "INFO")
                and len(self._owners(server)) == owners
                and self._known(server) == len(self.servers) + len(self.replicas)
                for server in [*self.servers, *self.replicas]
                if server.is_running
            )
        )

    def wait_until_taken_over(self, replica: RedisServer) -> None:
        self._wait(lambda: replica.port in self._owners(replica))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = RealClock().now() + _AGREE_SECONDS * MICROSECONDS
        while not is_so():
            assert RealClock().now() < deadline, "the cluster did not come to an agreement"
            sleep(0.02)

    def _has(self, server: RedisServer, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self._ranges(server).get(server.port, []))

    def _owners(self, server: RedisServer) -> set[int]:
        return set(self._ranges(server))

    def _ranges(self, server: RedisServer) -> dict[int, list[tuple[int, int]]]:
        """Ask a server which ports have which slots."""
        found: dict[int, list[tuple[int, int]]] = {}
        for line in self._text(server, "NODES").splitlines():
            _, address, flags, _, _, _, _, _, *slots = line.split()
            if "master" in flags and "fail" not in flags.replace("fail?", ""):
                ranges = [part.partition("-") for part in slots if not part.startswith("[")]
                port = int(address.partition("@")[0].rpartition(":")[2])
                if ranges:
                    found[port] = [(int(first), int(last or first)) for first, _, last in ranges]
        return found

    def _known(self, server: RedisServer) -> int:
        return len(self._text(server, "NODES").splitlines())

    def _text(self, server: RedisServer, what: str) -> str:
        from redis import Redis

        with Redis.from_url(server.url, socket_timeout=10) as client:
            client.response_callbacks.clear()
            said = client.execute_command(f"CLUSTER {what}")
        return said.decode() if isinstance(said, bytes) else str(said)
