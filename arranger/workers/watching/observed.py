"""Compares objects of the API server with the projection: their observations, the news in them, and deletions.

These functions read and write nothing: the observer does, under its term.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arranger.events import devices as d
from arranger.events import kinds as k
from arranger.events import volumes as v
from arranger.kube.cluster import Object, WatchEvent
from arranger.kube.sources import SOURCES
from arranger.kube.translate import LOG, job_seen, job_status_seen, pod_seen
from arranger.model.checks import Check
from arranger.model.job import ENDED, CleanPodPolicy, Stage
from arranger.projections.observed import objects
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import attributed

#: Stages in the order in which an attempt reaches them.
_ORDER: dict[str, int] = {
    Stage.PENDING: 0,
    Stage.RESCHEDULING: 0,
    Stage.STARTING: 1,
    Stage.RUNNING: 2,
    Stage.SUCCEEDED: 3,
    Stage.FAILED: 3,
}

Seen = k.NodeSeen | k.PodSeen | k.JobSeen | k.ObjectSeen
#: Claims are changed by appliers, each in the version that was observed: an outdated one would be refused without end.
_WRITTEN = (v.ClaimSeen, d.ResourceClaimSeen, d.ResourceClaimTemplateSeen)
#: The fields in which two observations may differ that say the same.
_UNINFORMATIVE = ("term", "resource_version")


class Translation(NamedTuple):
    """What the API server's objects of one kind say, as observations under one term. `checks` are those of a valid
    TYJob. `clean` as in `job_spec`; `schedulers`, `with_volumes` and `with_devices` as in `pod_seen`."""

    kind: k.Watched
    term: int
    checks: Check
    clean: CleanPodPolicy = CleanPodPolicy.ALL
    schedulers: tuple[str, ...] = ()
    with_volumes: bool = False
    with_devices: bool = False

    def seen(self, item: Object, state: State, *, with_status: bool = True) -> Seen:
        """The observation of an object, by default of one in a listing. The status of a TYJob counts only
        `with_status`: if the job may be new."""
        if self.kind == k.Watched.JOB:
            last = self._last(item, state)
            return job_seen(item, self.term, with_status=with_status, checks=self.checks, clean=self.clean, last=last)
        if self.kind == k.Watched.POD:
            return pod_seen(
                item, self.term, self.schedulers, with_volumes=self.with_volumes, with_devices=self.with_devices
            )
        seen: Seen = SOURCES[self.kind].observe(item, self.term)
        return seen

    def news(self, changes: Sequence[WatchEvent], state: State) -> list[k.Event]:
        """The observations in some changes of a watch, without those that repeat what the projection has."""
        events: list[k.Event] = []
        touched: set[str] = set()
        for change in changes:
            if change.type == "BOOKMARK":
                continue
            seen = self.seen(change.object, state, with_status=change.type == "ADDED")
            if change.type == "DELETED":
                if not isinstance(seen, k.ProvisioningSeen) or seen.job_uid:
                    events.append(k.gone(seen, self.term))
            elif seen.uid in touched or not known(state, seen):
                events.append(seen)
            touched.add(seen.uid)
        return events if self.kind != k.Watched.QUOTA else _latest(events, state)

    def _last(self, item: Object, state: State) -> k.JobSeen | None:
        """The projection's observation of a TYJob, if it is of this term: another version may check specs otherwise."""
        job = state.jobs.get(item["metadata"]["uid"])
        return job.seen if job is not None and job.seen.term == self.term else None


def known(state: State, event: Seen) -> bool:
    """Whether the projection has this observation already, apart from the term and an uninformative resourceVersion."""
    if isinstance(event, k.NodeSeen):
        row = state.nodes.rows.get(event.name)
        return row is not None and (state.nodes.uids[row], state.nodes.facts[row]) == (event.uid, event.facts)
    if isinstance(event, k.PodSeen):
        pod = state.pods.get(event.uid)
        return pod is not None and _same(pod, attributed(state, event), _UNINFORMATIVE)
    if isinstance(event, k.JobSeen):
        job = state.jobs.get(event.uid)
        # A writer of a status needs the TYJob's latest resourceVersion.
        return job is not None and _same(job.seen, event, ("term", "status"))
    if isinstance(event, k.ProvisioningSeen) and not event.job_uid:
        return True  # the log has only those of jobs
    there = objects.find(state, event)
    return there is not None and _same(there, event, ("term",) if isinstance(event, _WRITTEN) else _UNINFORMATIVE)


def _latest(events: list[k.Event], state: State) -> list[k.Event]:
    """Drop observations of a quota that a later one in `events` replaces, or that repeat the projection: a quota's
    usage changes with each of many pods."""
    last = {event.uid: number for number, event in enumerate(events) if isinstance(event, k.QuotaSeen)}
    gone = any(k.is_gone(event, k.Watched.QUOTA) for event in events)
    return [
        event
        for number, event in enumerate(events)
        if not isinstance(event, k.QuotaSeen) or (last[event.uid] == number and (gone or not known(state, event)))
    ]


def ahead_of_log(item: Object, state: State, *, adopts: bool, log: str = "") -> bool:
    """Whether a TYJob's status shows a stage or an attempt that the projection hasn't reached.

    A job that isn't in the projection is adopted with its status from a listing; otherwise it can't have one yet. What
    another log than `log` wrote says nothing of ours.
    """
    job = state.jobs.get(item["metadata"]["uid"])
    status = item.get("status")
    shown = job_status_seen(status, None) if isinstance(status, dict) else None
    if status is None or shown is None or shown.stage not in _ORDER or (log and status.get(LOG, log) != log):
        return False
    if job is None:
        return not adopts
    if shown.stage in ENDED:
        return shown.stage != job.stage  # an ended stage is final, whatever was decided since
    return (shown.attempt, _ORDER[shown.stage]) > (job.attempt, _ORDER[job.stage])


def _same(old: Seen, new: Seen, aside: tuple[str, ...]) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in old.__struct_fields__ if name not in aside)


def projected(state: State, kind: k.Watched, term: int) -> list[tuple[str, k.Event]]:
    """UID and "gone" event of everything of a kind in the projection, in a fixed order."""
    if kind == k.Watched.NODE:
        nodes = state.nodes
        rows = [(name, nodes.uids[row]) for name, row in sorted(nodes.rows.items()) if nodes.present(row)]
        return [(uid, k.ObjectGone(kind, term, "", name, uid)) for name, uid in rows]
    seen: Iterable[Seen]
    if kind == k.Watched.POD:
        seen = [state.pods[uid] for uid in sorted(state.pods)]
    elif kind == k.Watched.JOB:
        seen = [state.jobs[uid].seen for uid in sorted(state.jobs) if not state.jobs[uid].of_pods]
    else:
        seen = objects.every(state, kind)
    return [(each.uid, k.gone(each, term)) for each in seen]
