"""Hot state on Redis."""

from weft.store.redis.store import RedisStore

__all__ = ["RedisStore"]
