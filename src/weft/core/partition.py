"""Which partition of the store an execution lies in."""

from __future__ import annotations

from binascii import crc32


def partition_of(execution_id: str, partitions: int) -> int:
    """Draw the partition of a new execution. It is kept on its row: the number of partitions may change."""
    return crc32(execution_id.encode()) % partitions if partitions > 1 else 0
