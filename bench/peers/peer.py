"""The peers: what each needs, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDED, SERVERS = "embedded", "servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One row of the table. How it is configured, and why, stands in its program."""

    name: str
    title: str
    # The module of its program, in ``bench.peers.programs``.
    program: str
    # Its environment, in the folder ``.peers``; several peers may share one. None: this project's own.
    environment: str | None = None
    # What pip installs there, and npm.
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    # The servers that are started for it: redis, postgres.
    needs: tuple[str, ...] = ()
    # ``embedded``: a library within the program. ``servers``: with a server to talk to.
    kind: str
    # Whether a step that is said to be done stays done after the end of any of its processes.
    durable: bool
    # What is on disk when a step is said to be done.
    durability: str


WEFT = Peer(
    name="weft",
    title="weft, embedded",
    program="on_weft",
    kind=EMBEDDED,
    durable=True,
    durability="its row, synced (SQLite)",
)
FLEET = Peer(
    name="weft-fleet",
    title="weft, a fleet",
    program="on_weft_fleet",
    kind=SERVERS,
    durable=True,
    durability="its row, synced (PostgreSQL)",
)
CELERY = Peer(
    name="celery",
    title="Celery, Redis",
    program="on_celery",
    environment="celery",
    requirements=("celery[redis]>=5,<6",),
    needs=("redis",),
    kind=SERVERS,
    durable=False,
    durability="nothing for sure (Redis syncs every second)",
)
DBOS_POSTGRES = Peer(
    name="dbos",
    title="DBOS, PostgreSQL",
    program="on_dbos",
    environment="dbos",
    requirements=("dbos", "psycopg[binary]"),
    needs=("postgres",),
    kind=SERVERS,
    durable=True,
    durability="its row, synced (PostgreSQL)",
)
DBOS_SQLITE = Peer(
    name="dbos-sqlite",
    title="DBOS, SQLite",
    program="on_dbos",
    environment="dbos",
    requirements=("dbos", "psycopg[binary]"),
    kind=EMBEDDED,
    durable=True,
    durability="its row, synced (SQLite)",
)
LANGGRAPH = Peer(
    name="langgraph",
    title="LangGraph, SQLite",
    program="on_langgraph",
    environment="langgraph",
    requirements=("langgraph", "langgraph-checkpoint-sqlite"),
    kind=EMBEDDED,
    durable=True,
    durability="writes and checkpoint, synced (SQLite)",
)
PREFECT = Peer(
    name="prefect",
    title="Prefect, SQLite",
    program="on_prefect",
    environment="prefect",
    requirements=("prefect>=3,<4", "fastapi<0.150"),
    kind=SERVERS,
    durable=True,
    durability="its result's file, not synced; its state later",
)
RESTATE = Peer(
    name="restate",
    title="Restate",
    program="on_restate",
    environment="restate",
    requirements=("restate-sdk[serde]", "hypercorn", "aiohttp"),
    packages=("@restatedev/restate-server",),
    kind=SERVERS,
    durable=True,
    durability="its journal entry, synced (RocksDB)",
)

PEERS = {
    peer.name: peer for peer in (WEFT, FLEET, CELERY, RESTATE, DBOS_POSTGRES, LANGGRAPH, DBOS_SQLITE, PREFECT)
}


def weft_of_the_same_kind(peer: Peer) -> Peer:
    return WEFT if peer.kind == EMBEDDED else FLEET
