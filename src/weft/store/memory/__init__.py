"""Hot state in this process's memory."""

from weft.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
