"""What the Redis that holds the log says of itself, as far as it tells why nobody can write to it."""

from typing import Any

import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from arranger.errors import LogUnavailable


class StoreStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Memory in bytes (`max_bytes` 0: no bound), whether it is a replica, and whether it fails to save to its disk."""

    used_bytes: int = 0
    max_bytes: int = 0
    replica: bool = False
    disk_failing: bool = False

    @property
    def full(self) -> bool:
        """Whether writes are refused for want of memory: what connections hold comes and goes, hence the hundredth."""
        return self.max_bytes > 0 and self.used_bytes * 100 >= self.max_bytes * 99


async def read_store(client: redis.asyncio.Redis) -> StoreStatus:
    """Ask the server. Raises `LogUnavailable`."""
    try:
        info: dict[str, Any] = {}
        for section in ("memory", "replication", "persistence"):
            info |= await client.info(section)
    except (RedisError, OSError) as problem:
        raise LogUnavailable(f"Redis doesn't tell how it is: {problem}") from problem
    return StoreStatus(
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        replica=info.get("role") == "slave",
        disk_failing="err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")),
    )
