"""Since when leaders wait for images that can't be pulled: what the image grace counts from.

The projection has no time of it, so each controller keeps its own. One that takes a job over counts again: a grace that
lasts longer than it was set to harms nobody, one that is over at the first hiccup of a registry fails a job for good.
"""

from arranger.lifecycle.stages import leader_without_image
from arranger.projections.jobs import JobRecord
from arranger.projections.state import State


class ImageWaits:
    """What one controller has seen of it."""

    def __init__(self) -> None:
        #: Job → its leader's pod, and when it was first seen to wait, told in milliseconds.
        self._since: dict[str, tuple[str, int]] = {}

    def since_ms(self, state: State, job: JobRecord, time_ms: int) -> int | None:
        """Since when the leader of a job waits without a break, as far as was seen; None if it doesn't."""
        pod = leader_without_image(state, job)
        if pod is None:
            self.forget(job.uid)
            return None
        known = self._since.get(job.uid)
        if known is None or known[0] != pod.uid:
            known = self._since[job.uid] = (pod.uid, time_ms)
        return known[1]

    def forget(self, uid: str) -> None:
        """A job that is gone, or somebody else's to decide on."""
        self._since.pop(uid, None)

    def clear(self) -> None:
        self._since.clear()
