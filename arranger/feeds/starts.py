"""How a job's attempt started, as spans by role, from the events of the log alone.

An attempt's spans are complete when the job runs, or when the attempt ends before that. Pods that become ready later
have theirs when they do. Times are those of the entries: when the log had it, not when a process did it.
"""

from collections.abc import Iterator

import msgspec

from arranger.events.kinds import PodSeen
from arranger.events.log import Entry
from arranger.feeds.stage_changes import StageChange, StageChanges
from arranger.model.job import Stage
from arranger.model.pod import PodOwner
from arranger.projections.jobs.parts import is_ready
from arranger.projections.state import Changes, State

#: The name of the span that has all others of an attempt as its children.
WHOLE = "start"
#: Of how many pods an attempt has spans; a job may have 10,000.
PODS_MOST = 100


class StartSpan(msgspec.Struct, frozen=True):
    """A part of an attempt's start, from `begin_ms` to `end_ms` (milliseconds since 1970).

    `since_ms` is when the attempt began, by which attempts of one number differ after a suspension.
    `role` is the role whose work it is, "job" for the whole, and "kubelet" for what Arranger only observes. `pod` is ""
    for what isn't about one pod. `error` says why the attempt ended instead of running.
    """

    uid: str
    namespace: str
    job: str
    attempt: int
    since_ms: int
    name: str
    role: str
    begin_ms: int
    end_ms: int
    pod: str = ""
    node: str = ""
    error: str = ""


class _Pod(msgspec.Struct):
    name: str
    node: str
    seen_ms: int
    ready_ms: int = 0


class _Start(msgspec.Struct):
    """What is known of an attempt. Times are in milliseconds since 1970, 0 for unknown. `whole`: its end was told."""

    namespace: str
    job: str
    number: int
    begin_ms: int
    observed_ms: int = 0
    placed_ms: int = 0
    whole: bool = False
    suspended: bool = False
    pods: dict[PodOwner, _Pod] = {}


class Starts:
    """Follows the attempts of all jobs that begin while the log is read."""

    def __init__(self, state: State) -> None:
        self._changes = StageChanges(state)
        self._attempts: dict[str, _Start] = {}

    def after(self, state: State, entry: Entry, changes: Changes) -> Iterator[StartSpan]:
        """The spans that an entry completes; `state` is the state after it."""
        for event in entry.batch.events:
            if isinstance(event, PodSeen) and event.owner is not None:
                yield from self._pod(event.owner, event, state.time_ms)
        for change in self._changes.after(state, changes.jobs):
            yield from self._stage(state, change)
        for uid in changes.jobs:
            self._note_suspension(state, uid)

    def _stage(self, state: State, change: StageChange) -> Iterator[StartSpan]:
        attempt = self._attempts.get(change.uid)
        if change.deleted:
            self._attempts.pop(change.uid, None)
        elif not change.before:
            self._appear(state, change)
        elif attempt is None:
            pass
        elif change.stage == Stage.STARTING:
            attempt.placed_ms = change.time_ms
        elif change.stage == Stage.RUNNING:
            yield from self._ended(change.uid, attempt, change.time_ms)
        elif not attempt.whole and change.stage != Stage.PENDING:  # not suspended before it started
            error = "" if change.stage == Stage.SUCCEEDED else change.reason
            yield from self._ended(change.uid, attempt, change.time_ms, error=error)
        if attempt is not None and change.stage in (Stage.PENDING, Stage.RESCHEDULING):
            number = state.jobs[change.uid].attempt if change.uid in state.jobs else change.attempt
            self._attempts[change.uid] = _Start(change.namespace, change.name, number, change.time_ms, pods={})

    def _note_suspension(self, state: State, uid: str) -> None:
        """What is suspended waits for its user; its attempt begins when it is resumed."""
        attempt, job = self._attempts.get(uid), state.jobs.get(uid)
        if attempt is None or attempt.placed_ms or job is None or job.spec is None:
            return
        if attempt.suspended and not job.spec.suspend:
            attempt.begin_ms, attempt.observed_ms = state.time_ms, 0
        attempt.suspended = job.spec.suspend

    def _appear(self, state: State, change: StageChange) -> None:
        """A job that another epoch knew began at an unknown time."""
        job = state.jobs[change.uid]
        if not job.adopted_at and change.stage == Stage.PENDING:
            begin_ms = job.seen.created_ms or change.time_ms
            self._attempts[change.uid] = _Start(
                change.namespace, change.name, change.attempt, begin_ms, observed_ms=change.time_ms, pods={}
            )

    def _pod(self, owner: PodOwner, seen: PodSeen, time_ms: int) -> Iterator[StartSpan]:
        attempt = self._attempts.get(owner.job_uid)
        if attempt is None or owner.attempt != attempt.number or not attempt.placed_ms:
            return
        pod = attempt.pods.get(owner)
        if pod is None:
            if len(attempt.pods) >= PODS_MOST:
                return
            pod = attempt.pods[owner] = _Pod(seen.name, seen.node, time_ms)
        if is_ready(seen) and not pod.ready_ms:
            pod.ready_ms = time_ms
            if attempt.whole:
                yield from _of_pod(owner.job_uid, attempt, pod)

    def _ended(self, uid: str, attempt: _Start, time_ms: int, *, error: str = "") -> Iterator[StartSpan]:
        """The spans of an attempt that runs, or that ends with an error before that."""
        attempt.whole = True
        yield _span(uid, attempt, WHOLE, "job", (attempt.begin_ms, time_ms), error=error)
        if attempt.observed_ms:
            yield _span(uid, attempt, "observe the TYJob", "watcher", (attempt.begin_ms, attempt.observed_ms))
        waited_ms = (attempt.observed_ms or attempt.begin_ms, attempt.placed_ms or time_ms)
        yield _span(uid, attempt, "wait for nodes", "scheduler", waited_ms)
        ready = [pod for pod in attempt.pods.values() if pod.ready_ms]
        for pod in ready:
            yield from _of_pod(uid, attempt, pod)
        if ready and not error:
            last_ms = max(pod.ready_ms for pod in ready)
            yield _span(uid, attempt, "decide that it runs", "controller", (min(last_ms, time_ms), time_ms))


def _of_pod(uid: str, attempt: _Start, pod: _Pod) -> Iterator[StartSpan]:
    yield _span(uid, attempt, "create the pod", "applier", (attempt.placed_ms, pod.seen_ms), pod=pod)
    yield _span(uid, attempt, "start the pod", "kubelet", (pod.seen_ms, pod.ready_ms), pod=pod)


def _span(
    uid: str,
    attempt: _Start,
    name: str,
    role: str,
    times_ms: tuple[int, int],
    *,
    pod: _Pod | None = None,
    error: str = "",
) -> StartSpan:
    begin_ms, end_ms = times_ms
    return StartSpan(
        uid=uid,
        namespace=attempt.namespace,
        job=attempt.job,
        attempt=attempt.number,
        since_ms=attempt.begin_ms,
        name=name,
        role=role,
        # The API server's clock may be ahead of that of the log's writers.
        begin_ms=min(begin_ms, end_ms),
        end_ms=end_ms,
        pod=pod.name if pod is not None else "",
        node=pod.node if pod is not None else "",
        error=error,
    )
