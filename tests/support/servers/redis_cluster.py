"""A Redis Cluster of a test's own, on loopback: its servers can be killed, and its slots moved."""

from __future__ import annotations

from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING, Self

from tests.support.servers.process import NoServerError
from tests.support.servers.redis import RedisServer

from weft.clock import RealClock
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SLOTS = 16384
_AGREE_SECONDS = 30
_LOOK_SECONDS = 0.02
_MOVED_AT_ONCE = 100
_OPTIONS = {
    "cluster-enabled": "yes",
    # One that does not answer for so long is dead, and its replica takes over.
    "cluster-node-timeout": "1000",
    # The others go on without it.
    "cluster-require-full-coverage": "no",
    # A replica takes over whatever it has missed.
    "cluster-replica-validity-factor": "0",
    "repl-ping-replica-period": "1",
}


class RedisCluster:
    """Servers that share the slots evenly, as a context manager; the first ``replicas`` have one each.

    A server is killed and started again as any other: ``cluster.servers[0].kill()``.
    """

    def __init__(self, *, servers: int = 3, replicas: int = 0) -> None:
        assert replicas <= servers, "a server has one replica at most"
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _join(self) -> None:
        first = self.servers[0]
        share = -(-_SLOTS // len(self.servers))
        for number, server in enumerate(self.servers):
            slots = range(number * share, min(_SLOTS, (number + 1) * share))
            server.execute("CLUSTER", "ADDSLOTS", *slots)
            # Two that come up with the same epoch would have to agree first.
            server.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.everybody[1:]:
            first.execute("CLUSTER", "MEET", "127.0.0.1", server.port)
        self.wait_until_all_agree()
        for server, replica in zip(self.servers, self.replicas, strict=False):
            replica.execute("CLUSTER", "REPLICATE", self.id_of(server))
            self.wait_until_followed(server)

    @property
    def url(self) -> str:
        return self.servers[0].url

    @property
    def everybody(self) -> list[RedisServer]:
        return [*self.servers, *self.replicas]

    @property
    def owners(self) -> list[RedisServer]:
        """Those that run and have slots."""
        running = [server for server in self.everybody if server.is_running]
        return [server for server in running if server.port in self._ranges(server)]

    def owner_of(self, slot: int) -> RedisServer:
        """Return the server that says of itself that it has a slot."""
        return next(
            server
            for server in self.owners
            if any(first <= slot <= last for first, last in self._ranges(server)[server.port])
        )

    def id_of(self, server: RedisServer) -> str:
        said = server.execute("CLUSTER", "MYID")
        return said.decode() if isinstance(said, bytes) else str(said)

    def at(self, port: int) -> RedisServer:
        return next(server for server in self.everybody if server.port == port)

    def flush(self) -> None:
        """Remove every key of every server."""
        for server in self.owners:
            server.execute("FLUSHALL")

    def begin_move(self, slot: int, *, to: RedisServer) -> RedisServer:
        """Let a slot be on its way to another server, with its keys where they are; give its owner."""
        owner = self.owner_of(slot)
        to.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(owner))
        owner.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        return owner

    def move(self, slot: int, *, to: RedisServer) -> None:
        """Move a slot, with its keys, to another server, as ``redis-cli --cluster reshard`` does."""
        owner = self.begin_move(slot, to=to)
        while keys := owner.execute("CLUSTER", "GETKEYSINSLOT", slot, _MOVED_AT_ONCE):
            for key in keys:
                owner.execute("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        others = [server for server in self.owners if server not in (to, owner)]
        for server in (to, owner, *others):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    def replicas_of(self, server: RedisServer) -> list[RedisServer]:
        """Return those that run and follow a server."""
        running = [one for one in self.everybody if one.is_running]
        return [one for one in running if f"master_port:{server.port}\r" in _said(one, "INFO", "replication")]

    def cut_off(self, server: RedisServer) -> None:
        """Let a server's replicas hear nothing more from it, and fall behind."""
        server.execute("ACL", "SETUSER", "default", "-psync", "-sync")
        server.execute("CLIENT", "KILL", "TYPE", "replica")

    def wait_until_all_agree(self) -> None:
        """Return when every server that runs knows all others, who has slots, and that all is well."""
        self._wait(
            lambda: all(
                "cluster_state:ok" in self._text(server, "INFO")
                and len(self._ranges(server)) == len(self.servers)
                and len(self._text(server, "NODES").splitlines()) == len(self.everybody)
                for server in self.everybody
                if server.is_running
            )
        )

    def wait_until_followed(self, server: RedisServer) -> None:
        """Return when a replica has all that a server has."""
        self._wait(
            lambda: any(
                "master_link_status:up" in _said(one, "INFO", "replication")
                for one in self.replicas_of(server)
            )
        )

    def wait_until_taken_over(self, replica: RedisServer) -> None:
        self._wait(lambda: replica.port in self._ranges(replica))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = RealClock().now() + _AGREE_SECONDS * MICROSECONDS
        while not is_so():
            assert RealClock().now() < deadline, "the cluster did not come to an agreement"
            sleep(_LOOK_SECONDS)

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

    def _text(self, server: RedisServer, what: str) -> str:
        return _said(server, f"CLUSTER {what}")


def _started(stack: ExitStack) -> RedisServer:
    for _ in range(20):
        try:
            return stack.enter_context(RedisServer(options=_OPTIONS))
        except NoServerError as error:
            # Its second port, for the other servers, is 10,000 higher, and may be somebody's.
            if "(cluster)" not in str(error):
                raise
    raise NoServerError("no server of a cluster found two free ports")


def _said(server: RedisServer, *command: str) -> str:
    """Return an answer as it was written: the client would read it into something else."""
    from redis import Redis

    with Redis.from_url(server.url, socket_timeout=10) as client:
        client.response_callbacks.clear()
        said = client.execute_command(*command)
    return said.decode() if isinstance(said, bytes) else str(said)
