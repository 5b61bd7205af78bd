"""Whether Redis accepts this process's writes: known from its latest appends and heartbeats, and from its memory.

A server that is full, or a replica, still serves reads. So a process that only checked its reads would report itself
ready while none of its decisions is recorded.
"""

import logging
from collections.abc import Mapping
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from arranger.clock import Clock
from arranger.errors import LogUnavailable, WritesRefused
from arranger.logs import log_event
from arranger.metrics import Metrics

_log = logging.getLogger(__name__)

#: With less memory left than this, a server accepts one write and refuses the next one, above all a larger one: the
#: buffers of its clients come and go, and a command's own buffer counts. Later, twice as much must be left.
_LEAST_BYTES = 256 * 1024
#: The memory is looked at this often at most.
_APART_S = 1.0


def full(used_bytes: int, max_bytes: int) -> bool:
    """Whether a server with that maxmemory (0: none) is full. The margin of 1 % covers the varying memory of its
    connections."""
    return max_bytes > 0 and used_bytes * 100 >= max_bytes * 99


class Writes:
    """Whether this process's writes to Redis are accepted.

    At its limit a server accepts a write now and then, which proves nothing. So a refusal, or memory that is used up,
    counts until a write was accepted while there was memory left.
    """

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        #: Why writes are refused; None if they are accepted.
        self.problem: WritesRefused | None = None
        #: Whether the server had memory left when it was last looked at, after the last refusal.
        self._has_room = True
        self._looked_s = -_APART_S

    def taken(self) -> None:
        """A write was accepted."""
        if self.problem is not None and self._has_room:
            log_event(_log, "Redis takes writes again")
            self._note(None)

    def failed(self, problem: LogUnavailable) -> None:
        """A write failed. An unreachable server doesn't show whether it would accept writes, so only refusals count."""
        if isinstance(problem, WritesRefused):
            self._refused(problem)

    async def look(self, client: redis.asyncio.Redis) -> None:
        """Look at the server's memory, if it is time. A process that has nothing to append would learn of a full server
        only by chance."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _APART_S:
            return
        self._looked_s = now_s
        try:
            info: Mapping[str, Any] = await client.info("memory")
        except ResponseError:  # this user may not ask
            self._has_room = True
        except (RedisError, OSError):
            return
        else:
            self._judge(info)

    def _judge(self, info: Mapping[str, Any]) -> None:
        most = int(info.get("maxmemory", 0))
        used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
        # With another policy, what Redis evicts makes room, or its refusals tell.
        if most and most - used < _LEAST_BYTES and info.get("maxmemory_policy", "noeviction") == "noeviction":
            self._refused(WritesRefused(f"Redis is full: it uses {used} bytes of its maxmemory of {most}"))
        elif not most or (most - used >= 2 * _LEAST_BYTES and not full(used, most)):
            self._has_room = True

    def _refused(self, problem: WritesRefused) -> None:
        self._has_room = False
        if self.problem is None:
            log_event(_log, "Redis refuses writes", level=logging.WARNING, problem=problem)
            self._note(problem)

    def _note(self, problem: WritesRefused | None) -> None:
        self.problem = problem
        self._metrics.writes_refused.set(0 if problem is None else 1)
