"""What the writers of the objects of jobs have in common: what they act by, and when they repeat an effect."""

from typing import NamedTuple

from arranger.kube.cluster import ApiError
from arranger.model.text import one_line
from arranger.workers.applying.effects.carrying_out import SETTLE_S, STALE_S, Effects
from arranger.workers.applying.effects.progress import Look
from arranger.workers.flow.work_queue import KeyQueue
from arranger.workers.log.writer import Writer

#: Limits of a refusal's texts in the log, in characters: webhooks return arbitrary text.
_LONGEST_REASON, _LONGEST_DETAIL = 100, 500


class Means(NamedTuple):
    """What writers act by: their effects, the queue of the jobs to look at again, and what appends to the log."""

    effects: Effects
    queue: KeyQueue
    writer: Writer


class JobWriter:
    """Keeps one kind of objects of jobs in line with the accepted decisions."""

    def __init__(self, means: Means) -> None:
        self._effects, self._queue, self._writer = means
        self._follower = self._effects.parts.follower
        self._clock = self._effects.parts.time

    def _counts(self, look: Look) -> bool:
        """Whether the decision behind a look counts now."""
        return look.current() and self._effects.allowed()

    def _later(self, look: Look) -> bool:
        """The projection has changed or isn't fresh: look again soon."""
        self._queue.look_again(look.job.uid, STALE_S)
        return False

    def _may_repeat(self, look: Look, key: object) -> bool:
        """Whether the effect of this key was not carried out just now; else the job is looked at again."""
        return not self._waits(look, look.progress.settling.get(key, 0.0) - self._clock.monotonic_s())

    def _waits(self, look: Look, rest_s: float) -> bool:
        """Whether something rests for so long; the job is looked at again after that."""
        if rest_s > 0:
            self._queue.look_again(look.job.uid, rest_s)
        return rest_s > 0

    def _settle(self, look: Look, key: object, for_s: float = SETTLE_S) -> None:
        """Don't repeat an effect for a while: the watch is to show it first."""
        look.progress.settling[key] = self._clock.monotonic_s() + for_s
        self._queue.look_again(look.job.uid, for_s)


def texts_of(refused: ApiError) -> tuple[str, str]:
    """The reason and the message of a refusal, as the log has them."""
    return one_line(refused.reason)[:_LONGEST_REASON], one_line(refused.detail)[:_LONGEST_DETAIL]
