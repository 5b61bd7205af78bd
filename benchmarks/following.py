"""`python -m benchmarks.following FILE [ROLE]...`: one worker process that also notes when it had folded what.

Settings come from ARRANGER_ variables. On SIGTERM it ends as every worker does, and FILE gets a JSON list of
`[wall clock in seconds, offset folded up to]`, ascending.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from arranger.logs import configure_logging
from arranger.projections.state import Changes
from arranger.settings import load_settings
from arranger.workers.log.follower import Follower
from arranger.workers.process import Process, checked_roles


class _Notes:
    """Listens to the fold as a role does."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.folded: list[tuple[float, int]] = []

    def changed(self, changes: Changes) -> None:
        """Note it."""
        self.folded.append((time.time(), self._follower.state.offset))

    def epoch_began(self) -> None:
        """What was noted of another epoch is of no use."""
        self.folded.clear()


def main(path: Path, roles: list[str]) -> None:
    settings = load_settings({}, os.environ)
    configure_logging(settings.log_level, settings.log_format)

    async def work() -> _Notes:
        process = Process(settings, checked_roles(roles))
        notes = _Notes(process.follower)
        process.follower.listen(notes)
        await process.run()
        return notes

    path.write_bytes(msgspec.json.encode(asyncio.run(work()).folded))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
