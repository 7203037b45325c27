"""The names of weft's keys on Redis.

All keys of one partition share a hash tag, so that a script may touch them together, also on a cluster.
"""

from __future__ import annotations

from weft.core.rows import partition_of

__all__ = ["CROWDED", "PREFIX", "Keys", "bucket_key", "partition_of"]

PREFIX = "weft"
# The end of the name of a crowded lane.
CROWDED = "|crowded"


class Keys:
    """The keys of one partition."""

    def __init__(self, partition: int = 0, *, prefix: str = PREFIX) -> None:
        self.partition = partition
        self.tag = f"p{partition}"
        base = f"{prefix}:{{{self.tag}}}:"
        # Which server the state was written to, and which incarnation of the state this is.
        self.server = base + "server"
        self.incarnation_id = base + "token"
        # Which incarnation of the database the state follows.
        self.incarnation = base + "incarnation"
        # Sorted sets: executions by the time of their last change, leases, timers and executions with free
        # nodes by their time.
        self.active = base + "active"
        self.leases = base + "leases"
        self.timers = base + "timers"
        self.free = base + "free"
        # When leases were last swept, and until when none expires.
        self.swept = base + "swept"
        # How many nodes of all executions are not settled.
        self.unsettled = base + "unsettled"
        # Workers as they announce themselves, and when each was last heard of.
        self.workers = base + "workers"
        self.beats = base + "beats"
        # The result stream, what was put aside from it, and the lanes that tasks travel on.
        self.results = base + "results"
        self.quarantine = base + "quarantine"
        self.lanes = base + "lanes"
        # What the keys of an execution's hash and of a lane's stream begin with.
        self.executions = base + "x:"
        self.tasks = base + "tasks:"
        # What every script of the store is given first, in the order of ``CONSTANTS`` in its layout.
        self.shared = (
            *(
                self.incarnation_id,
                self.leases,
                self.timers,
                self.free,
                self.active,
                self.unsettled,
                self.lanes,
            ),
        )

    def execution(self, execution_id: str) -> str:
        """Name the hash that holds all hot state of an execution."""
        return self.executions + execution_id

    def lane(self, queue: str, handler: str, priority: int, *, is_crowded: bool = False) -> str:
        """Name the stream of one queue's tasks for one handler, of one priority.

        ``is_crowded``: the stream beside it, for executions that have many tasks in flight.
        """
        return self.lane_of(f"{queue}|{handler}|{priority}{CROWDED if is_crowded else ''}")

    def lane_of(self, member: str) -> str:
        """Name the stream of a lane by its member in the set of lanes."""
        return self.tasks + member


def bucket_key(tag: str, *, prefix: str = PREFIX) -> str:
    """Name the token bucket of a resource tag: a hash slot of its own."""
    return f"{prefix}:{{t:{tag}}}:bucket"


def window_key(key: str, *, prefix: str = PREFIX) -> str:
    """Name the sliding window of a caller: a hash slot of its own."""
    return f"{prefix}:{{w:{key}}}:window"
