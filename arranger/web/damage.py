"""What a server does at an entry that it can't read: it waits until that entry is gone."""

import asyncio

from arranger.errors import DamagedEntry, LogError
from arranger.events.log import Log

#: How often the log is looked at, in seconds.
LOOK_S = 2.0


async def until_gone(log: Log, epoch: int, damage: DamagedEntry) -> None:
    """Wait until the log has another epoch, or ends before the entry. It isn't read again before that, because the
    entry may have changed a state in part."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            end = await log.end()
        except LogError:
            continue
        if end.epoch != epoch or end.offset < damage.offset:
            return
