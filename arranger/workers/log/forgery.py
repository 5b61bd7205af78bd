"""Whether the log goes on with an entry that isn't authentic: then this process waits there, and says where.

Nothing after such an entry can be trusted, so nothing is folded, decided or changed in the cluster. The process doesn't
end, because a restart would stop at the same entry, and an operator should see which one it is.
"""

import logging

from arranger.clock import Clock
from arranger.errors import ForgedEntry
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.workers.flow.backoff import Backoff

_log = logging.getLogger(__name__)

#: How often a writer looks whether it may go on.
_LOOK_S = 0.5


class Forgery:
    """The entry at which the fold waits because it isn't authentic."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        #: The entry; None while the log is authentic as far as it was read.
        self.entry: ForgedEntry | None = None

    async def hold(self, entry: ForgedEntry, backoff: Backoff) -> None:
        """The log was read up to this entry: wait before it is read again."""
        if self.entry is None or self.entry.offset != entry.offset:
            log_event(_log, "an entry isn't authentic", level=logging.ERROR, offset=entry.offset, reason=entry.reason)
        self.entry = entry
        self._metrics.forged.set(entry.offset)
        await backoff.wait()

    def gone(self, offset: int) -> None:
        """The log was read at this offset without a refusal."""
        if self.entry is not None:
            log_event(_log, "the log is authentic again", offset=offset)
        self.entry = None
        self._metrics.forged.set(0)

    async def over(self) -> None:
        """Wait until it is gone: what would be written meanwhile would rest on nothing."""
        while self.entry is not None:
            await self._clock.sleep(_LOOK_S)
