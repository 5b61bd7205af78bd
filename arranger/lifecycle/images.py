"""Records since when pods wait for images that can't be pulled; the image grace starts then.

The projection doesn't have this time, so each controller records its own, and one that takes over a job starts again. A
grace period that is too long does no harm, while one that is too short fails a job because of a brief registry outage.
"""

from arranger.lifecycle.stages import pod_without_image
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State


class ImageWaits:
    """The waiting pods that one controller has observed."""

    def __init__(self) -> None:
        #: Job → its waiting pod, and when that was first observed to wait, in milliseconds.
        self._since: dict[str, tuple[str, int]] = {}

    def since_ms(self, state: State, job: JobRecord, time_ms: int) -> int | None:
        """Since when such a pod was continuously observed to wait, in milliseconds; None if none waits."""
        pod = pod_without_image(state, job)
        if pod is None:
            self.forget(job.uid)
            return None
        known = self._since.get(job.uid)
        if known is None or known[0] != pod.uid:
            known = self._since[job.uid] = (pod.uid, time_ms)
        return known[1]

    def forget(self, uid: str) -> None:
        """Drop a job that was deleted or belongs to another controller."""
        self._since.pop(uid, None)

    def clear(self) -> None:
        self._since.clear()
