"""The members writer: keeps the ConfigMap with the members file of a job as the projection shows the job's pods.

The ConfigMap exists before any pod of an attempt, because a kubelet starts no pod without it. Afterwards it is written
at intervals, and not at all while nothing changes: each write goes to the kubelets of all nodes with a pod of the job.
A ConfigMap of this name that isn't the job's is never changed.
"""

import hashlib
import logging

from arranger.kube.cluster import CONFIG_MAPS, ApiError, Object, Withdrawn
from arranger.kube.owners import identity_of
from arranger.kube.rendezvous import MEMBERS_KEY, members_map
from arranger.kube.translate import owned_by
from arranger.lifecycle.members import has_members_file, members_text
from arranger.logs import log_event
from arranger.model.names import members_name
from arranger.workers.applying.effects.carrying_out import STALE_S
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.effects.job_writer import JobWriter, Means
from arranger.workers.applying.effects.progress import Look

_log = logging.getLogger(__name__)

#: The file is compared, and written if it differs, at most this often: for any job, and longer for each of its pods. A
#: file of 5,000 workers has 150 KB or more, and each of their nodes gets it.
_LEAST_S, _S_A_POD = 1.0, 0.002
#: A file that didn't change is read this often: it may have been changed or deleted.
_CHECK_S = 60.0
#: A refused write is tried again after this time.
_REFUSED_S = 60.0


class MembersWriter(JobWriter):
    """Writes the members files of jobs that request one."""

    def __init__(self, means: Means, creation: Creation) -> None:
        super().__init__(means)
        self._creation = creation

    async def ensure(self, look: Look) -> bool:
        """Create this attempt's file, if it is requested; returns whether it exists, and nothing was decided on the job
        meanwhile."""
        job, file = look.job, look.progress.members
        if not has_members_file(job) or file.attempt == job.attempt:
            return True
        body = members_map(identity_of(job.seen), members_text(self._follower.state, job))
        if not await self._creation.create(look, min(job.placements), CONFIG_MAPS, body):
            return False
        file.attempt = job.attempt
        file.version = ""
        if look.current():
            await self._bring_up_to_date(look)  # it may be that of an earlier attempt
        return look.current()

    async def keep(self, look: Look) -> None:
        """Write the file if it is due and differs; else look at the job again when it is due."""
        job, file = look.job, look.progress.members
        if not (has_members_file(job) and job.bound and look.current()):
            return
        if not self._waits(look, file.due_s - self._clock.monotonic_s()):
            await self._bring_up_to_date(look)

    async def _bring_up_to_date(self, look: Look) -> None:
        job, file, now_s = look.job, look.progress.members, self._clock.monotonic_s()
        file.due_s = now_s + max(_LEAST_S, _S_A_POD * len(job.placements))
        content = members_text(self._follower.state, job)
        if file.version and _digest(content) == file.digest and now_s - file.checked_s < _CHECK_S:
            return
        await self._effects.carry_out("members", look.job.seen.namespace, lambda: self._write(look, content))

    async def _write(self, look: Look, content: str) -> bool:
        job, file = look.job, look.progress.members
        if not self._counts(look):  # changed while this effect was queued
            return self._later(look)
        try:
            return await self._store(look, content)
        except Withdrawn:
            return self._later(look)
        except ApiError as refused:
            file.version = ""
            if refused.busy:
                raise
            if refused.code in (404, 409):  # deleted or changed meanwhile
                self._queue.look_again(job.uid, max(file.due_s - self._clock.monotonic_s(), STALE_S))
                return False
            file.due_s = self._clock.monotonic_s() + _REFUSED_S
            log_event(_log, "a members file is refused", level=logging.WARNING, job=job.seen.name, problem=refused)
            return False

    async def _store(self, look: Look, content: str) -> bool:
        """Store the content, only if nobody has changed the ConfigMap since it was last read or written here."""
        job, file, now_s = look.job, look.progress.members, self._clock.monotonic_s()
        namespace, name = job.seen.namespace, members_name(job.seen.name)
        stored: Object | None = {"metadata": {"uid": file.uid, "resourceVersion": file.version}}
        if not file.version or now_s - file.checked_s >= _CHECK_S:
            stored, file.checked_s = await self._there(namespace, name), now_s
            if stored is not None and not owned_by(stored, job.uid):
                file.due_s = now_s + _REFUSED_S
                log_event(_log, "a ConfigMap isn't the job's", level=logging.WARNING, job=job.seen.name, name=name)
                return False
        if stored is None:
            body = members_map(identity_of(job.seen), content)
            stored = await self._effects.cluster.create(CONFIG_MAPS, namespace, body, still=look.current)
        elif (stored.get("data") or {}).get(MEMBERS_KEY) != content:
            known = {field: stored["metadata"][field] for field in ("uid", "resourceVersion")}
            body = {"metadata": known, "data": {MEMBERS_KEY: content}}
            stored = await self._effects.cluster.patch(CONFIG_MAPS, namespace, name, body)
        file.uid, file.version = stored["metadata"]["uid"], stored["metadata"]["resourceVersion"]
        file.digest = _digest(content)
        return True

    async def _there(self, namespace: str, name: str) -> Object | None:
        try:
            return await self._effects.cluster.get(CONFIG_MAPS, namespace, name)
        except ApiError as refused:
            if refused.code == 404:
                return None
            raise


def _digest(content: str) -> bytes:
    return hashlib.blake2b(content.encode(), digest_size=16).digest()
