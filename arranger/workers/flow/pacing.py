"""The pace of what can wait: by lane, such as a namespace, and the rests in long work that nobody waits for.

A lane has some turns at once, and further ones a while apart. While several lanes are ahead of their time, each waits
as many times as long: so all of them together do as much as one alone, and one with much to do delays none with little.
"""

import math
from collections.abc import Hashable

from arranger.clock import Clock
from arranger.model.job import Stage
from arranger.projections.jobs.records import JobRecord

#: The least distance of two turns.
_LEAST_APART_S = 0.0001
#: A rest is this many times as long as the step before it, up to a second.
_REST_TIMES, _REST_S = 4.0, 1.0


def only_waits(job: JobRecord) -> bool:
    """Whether a job waits for its first nodes: no pod is created after its status."""
    return job.active and job.stage == Stage.PENDING and not job.placements and not job.bound


class Pace:
    """When each lane has its next turn, after `at_once` of them."""

    def __init__(self, at_once: int = 0) -> None:
        self._at_once = at_once
        #: Lane → how many turns it is ahead of its time, and when that was so.
        self._ahead: dict[Hashable, tuple[float, float]] = {}

    def next_s(self, lane: Hashable, now_s: float, apart_s: float) -> float:
        """Give a lane a turn; returns when it is. A lane alone has turns that are `apart_s` from each other, which may
        differ from call to call."""
        apart_s = max(apart_s, _LEAST_APART_S) * max(len(self._ahead), 1)
        left = {of: ahead - (now_s - at_s) / apart_s for of, (ahead, at_s) in self._ahead.items()}
        self._ahead = {of: (ahead, now_s) for of, ahead in left.items() if ahead > 0}
        ahead = max(left.get(lane, 0.0), 0.0)
        self._ahead[lane] = (ahead + 1, now_s)
        return now_s + max(ahead - self._at_once, 0.0) * apart_s


class Rests:
    """The rests between the steps of long work, such as a look at all jobs. With them, the work takes a fifth of a
    processor, and what somebody waits for comes in between. In all they are `in_all_s` seconds long at most."""

    def __init__(self, clock: Clock, in_all_s: float = math.inf) -> None:
        self._clock = clock
        self._in_all_s = in_all_s
        self._began_s = self._step_s = clock.monotonic_s()
        self._taken_s = 0.0

    @property
    def worked_s(self) -> float:
        """How long the work has taken, without the rests, in seconds."""
        return self._clock.monotonic_s() - self._began_s - self._taken_s

    async def after_step(self) -> None:
        """Rest after a step."""
        now_s = self._clock.monotonic_s()
        left_s = max(self._in_all_s - self._taken_s, 0.0)
        await self._clock.sleep(min(_REST_TIMES * (now_s - self._step_s), _REST_S, left_s))
        self._step_s = self._clock.monotonic_s()
        self._taken_s += self._step_s - now_s
