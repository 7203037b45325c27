"""The entries of a stream, and what they are read as. Anybody may have written them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from weft.core.envelope import unpack_all, unpack_message
from weft.redis.connection import ReplyError
from weft.transport.contract import MessageDelivery, TaskDelivery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from weft.redis.connection import Redis
    from weft.transport.contract import DeliveryId

WORKERS = "workers"
ORCHESTRATORS = "orchestrators"
_PAGE = 256

# [id, [name, value, …]]; no values where the entry was deleted while somebody had it.
Entry: TypeAlias = "list[Any]"
Delivery = TypeVar("Delivery", bound=TaskDelivery | MessageDelivery)
Given = TypeVar("Given", bound=TaskDelivery | MessageDelivery, covariant=True)


class Source(Protocol[Given]):
    """A stream, the group that reads it, and what its entries are."""

    @property
    def partition(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def group(self) -> str: ...

    def messages(self, fields: Mapping[bytes, bytes]) -> Sequence[bytes]:
        """Return the messages of an entry; raises ValueError or KeyError where it is none."""

    def read(self, identity: DeliveryId, wire: bytes, fields: Mapping[bytes, bytes]) -> Given:
        """Read a message of an entry; raises ValueError or KeyError where it does not belong here."""


class Results:
    """The result stream of a partition."""

    group = ORCHESTRATORS

    def __init__(self, partition: int, stream: str) -> None:
        self.partition = partition
        self.stream = stream

    def messages(self, fields: Mapping[bytes, bytes]) -> Sequence[bytes]:
        return unpack_all(fields[b"m"])

    def read(self, identity: DeliveryId, wire: bytes, fields: Mapping[bytes, bytes]) -> MessageDelivery:
        return MessageDelivery(identity, unpack_message(wire))


def identity_of(source: Source[Any], entry: Entry) -> str:
    """Name an entry so that its acknowledgement finds the way."""
    return f"{source.partition}|{source.stream}|{entry[0].decode()}"


def place_of(identity: str) -> tuple[int, str, str]:
    """Return the partition and the stream of an entry, and its id there."""
    partition, _, rest = identity.partition("|")
    stream, _, entry = rest.rpartition("|")
    return int(partition), stream, entry


async def own_entries(redis: Redis, source: Source[Any], consumer: str) -> AsyncIterator[list[Entry]]:
    """Go through what a consumer was given and has not acknowledged, also what never reached it."""
    after = b"0"
    while True:
        reading = ("XREADGROUP", "GROUP", source.group, consumer, "COUNT", _PAGE)
        (reply,) = await redis.run([(*reading, "STREAMS", source.stream, after)], partition=source.partition)
        # There is no such group yet, or no stream: then there is nothing of its own.
        entries = [] if reply is None or isinstance(reply, ReplyError) else reply[0][1]
        if not entries:
            return
        yield entries
        after = entries[-1][0]
