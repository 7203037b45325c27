"""Ways to make a Redis refuse writes while it goes on to answer, and to make it take them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.servers.redis import RedisServer


def fill_the_memory(server: RedisServer) -> None:
    server.execute("CONFIG", "SET", "maxmemory", 1)


def empty_the_memory(server: RedisServer) -> None:
    server.execute("CONFIG", "SET", "maxmemory", 0)


def break_the_disk(server: RedisServer) -> None:
    # A snapshot cannot take the place of a folder.
    (server.controlled.folder / "dump.rdb").mkdir()
    server.execute("CONFIG", "SET", "save", "3600 1")
    _save(server)
    assert server.execute("INFO", "persistence")["rdb_last_bgsave_status"] == "err"


def mend_the_disk(server: RedisServer) -> None:
    (server.controlled.folder / "dump.rdb").rmdir()
    _save(server)


def _save(server: RedisServer) -> None:
    server.execute("BGSAVE")
    while server.execute("INFO", "persistence")["rdb_bgsave_in_progress"]:
        pass


def make_a_replica(server: RedisServer) -> None:
    # Of a server that nobody can reach: what it has stays.
    server.execute("REPLICAOF", "127.0.0.1", 1)


def make_a_primary(server: RedisServer) -> None:
    server.execute("REPLICAOF", "NO", "ONE")


REFUSALS = {
    "OOM": (fill_the_memory, empty_the_memory),
    "MISCONF": (break_the_disk, mend_the_disk),
    "READONLY": (make_a_replica, make_a_primary),
}
