"""The complete explanation of one job at a point of the log: its story, why it waits, and why its pods got their nodes.
This module joins the results of `story`, `waiting` and `placement_explanations`.
"""

from collections.abc import Iterable

import msgspec

from arranger.events.facts import ShortageFacts
from arranger.model.names import pod_name
from arranger.model.pods_to_place import pod_of
from arranger.projections.jobs.records import JobRecord, compact, expand
from arranger.projections.state import State
from arranger.projections.verdicts.ownership import earlier_pods
from arranger.replay.explain.awaited import given_up
from arranger.replay.explain.causes import Consequence, budget_text, restarts_used
from arranger.replay.explain.expected import Start, start_of
from arranger.replay.explain.failed_pods import FailedPod, failed_pods
from arranger.replay.explain.job_history import Retaken
from arranger.replay.explain.outlook import below_quorum, gives_up, remedy, stuck
from arranger.replay.explain.past_waits import Spent, Waited, spent, waited
from arranger.replay.explain.placement_explanations import PlacementExplanation
from arranger.replay.explain.story import Deletion, Interval, Story, StoryEvent
from arranger.replay.explain.taken_room import Giving, KeptReservation, LimitForIt, RoomTaking, kept, limit_for
from arranger.replay.explain.waiting import Helped, Waiting, explain_waiting
from arranger.replay.reading.describe import (
    label,
    labels_of,
    pod_counts,
    pods_text,
    told_of,
    unset_of,
    why_it_waits,
)
from arranger.replay.reading.verdicts import REJECTED
from arranger.scheduling import BUILT_IN, Policies


class JobStanding(msgspec.Struct, frozen=True):
    """A job's present condition. `pods_seen` counts placed pods that were seen: of these, `pods_running` run, and
    `pods_failed` failed and aren't replaced yet. `pods_present` counts all its pods that exist, including those of
    earlier attempts and of an ended job. `pods_earlier` are the names of those of an earlier
    attempt that have to go before this one begins. Times are in milliseconds since 1970."""

    job: str
    uid: str
    stage: str
    stage_since_ms: int
    schedule_state: str
    scheduled_since_ms: int
    message: str
    attempt: int
    restarts: int
    priority: int | None
    created_ms: int
    created_at: int
    version: int
    leader_address: str
    pods_desired: int | None
    pods_placed: int
    pods_seen: int
    min_workers: int
    allocation: str
    ended: bool = False
    pods_running: int = 0
    pods_failed: int = 0
    pods_present: int = 0
    pods_earlier: tuple[str, ...] = ()
    #: Who created the TYJob, as the API server recorded it, and a hash of that user's groups; "" if it didn't.
    created_by: str = ""
    created_by_groups: str = ""
    #: Restarts that count against the limit, by group: the leader's, and of each set those of the worker with the most.
    restarts_used: dict[str, int] = {}
    restart_limit: int = 0
    #: The used restarts in words.
    budget: str = ""
    #: Offset of the decision that gave `message`, 0 if it wasn't read.
    message_at: int = 0
    #: The facts of `message` if it explains why the job has no nodes.
    shortage: ShortageFacts | None = None
    #: Why the job entered its stage (`StageReason`); "" if no decision on it was read.
    reason: str = ""
    #: What can be done about a failure, or about pods that can't start, in words; "" for neither.
    remedy: str = ""
    #: When a job whose pods can't start fails or gives its nodes up if that lasts, in words; "" for neither, and where
    #: the log doesn't have these bounds.
    gives_up: str = ""
    #: Which pods of its quorum a running job lacks, in words; "" for a job that has it.
    below_quorum: str = ""
    #: The first of its pods that a kubelet can't start, or that isn't ready after a failure, and the failed workers
    #: that come again, in words; "" for none.
    stuck: str = ""
    #: The references of its templates to variables that its pods won't have, in words; "" for none.
    unset: str = ""
    #: Its labels that only another scheduler reads, in words; "" for none.
    labels: str = ""
    #: Its pods whose containers failed last, the newest first; none of an ended job.
    failed: tuple[FailedPod, ...] = ()
    #: Whether it has had nodes in any attempt.
    had_nodes: bool = False


class Explanation(msgspec.Struct, frozen=True):
    """The complete explanation as of `offset` of `epoch`. `began` is the offset before the first entry that was read;
    the timeline has no earlier events. `unexplained` counts placements decided on states that are too far back, and
    `other_versions` those decided by policy versions that aren't installed."""

    offset: int
    epoch: int
    time_ms: int
    began: int
    standing: JobStanding
    waiting: Waiting | None
    placement_explanations: tuple[PlacementExplanation, ...]
    unexplained: int
    other_versions: int
    rejected: tuple[StoryEvent, ...]
    intervals: tuple[Interval, ...]
    timeline: tuple[StoryEvent, ...]
    waited: tuple[Waited, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    spent: tuple[Spent, ...] = ()
    #: Room that others gave to it, that it gave to others, and that is kept for it.
    takings: tuple[RoomTaking, ...] = ()
    givings: tuple[Giving, ...] = ()
    kept: KeptReservation | None = None
    #: A limit of its queue that is kept for it.
    kept_limit: LimitForIt | None = None
    #: When a waiting job starts, and how sure that is; None if it doesn't wait to start.
    start: Start | None = None
    #: What would have helped a job that failed because it had no room.
    would_have_helped: Helped | None = None
    #: That the job is gone: all else is as it was just before. None while it is there.
    deleted: Deletion | None = None


def jobs_named(state: State, name: str, namespace: str | None) -> list[JobRecord]:
    """The jobs of that name, one in each namespace: the newest if the name was used again."""
    namespaces = sorted({job.seen.namespace for job in state.jobs.values() if job.seen.name == name})
    found = [state.find_job(each, name) for each in namespaces if namespace in (None, each)]
    return [job for job in found if job is not None]


def pod_names(story: Story, job: JobRecord) -> dict[str, None]:
    """The names of the job's pods: all that were ever placed and all that are desired now."""
    if job.of_group:
        placed = [placement.pod_name(slot) for placement in story.placements for slot in expand(placement.pods)]
        return dict.fromkeys([*placed, *job.slots.names.values()])
    if job.of_pods:
        return {pod_of(job.seen.name): None}
    name = job.seen.name
    found: dict[str, None] = {}
    for placement in story.placements:
        for group, index in expand(placement.pods):
            found[placement.pod_name((group, index))] = None
    if job.spec is not None:
        for number, of_group in enumerate(job.spec.groups):
            for index in range(of_group.count):
                for before in range(job.slots.failed_before.get((number, index), 0) + 1):
                    found[pod_name(name, of_group.name, index, job.attempt, before)] = None
    return found


def explanation(
    story: Story,
    job: JobRecord,
    retaken: Retaken,
    *,
    policies: Policies = BUILT_IN,
    node: str = "",
    recorded: State | None = None,
    deleted: Deletion | None = None,
) -> Explanation:
    """The explanation as of the end of the story. With `node`, it says why the job's next pod can't use that node. If
    the story ends with a recorded cycle, `recorded` is the state that this cycle was taken on, at its time."""
    state = story.state
    gone = deleted is not None or job.seen.deleting
    not_replaced = [] if gone else story.pod_histories.not_replaced(job, state)
    return Explanation(
        offset=state.offset,
        epoch=state.epoch,
        time_ms=state.time_ms,
        began=story.began,
        standing=_standing(story, job),
        waiting=explain_waiting(story, job, policies, node=node, recorded=recorded),
        placement_explanations=_with_present(retaken.placement_explanations, job),
        unexplained=retaken.out_of_reach,
        other_versions=retaken.other_versions,
        rejected=tuple(moment for moment in story.moments if moment.verdict == REJECTED),
        intervals=tuple(story.intervals),
        timeline=tuple(story.moments),
        waited=tuple(waited(story.intervals, failed=given_up(job))),
        consequences=tuple(sorted([*story.consequences, *not_replaced], key=lambda one: one.offset)),
        spent=spent(story.intervals),
        # Copies: the story goes on, and changes its own.
        takings=tuple(map(msgspec.structs.replace, story.takings)),
        givings=tuple(map(msgspec.structs.replace, story.givings)),
        kept=kept(state, job.uid, story.promises),
        kept_limit=limit_for(state, job.uid),
        start=start_of(state, job, story.around.config.reservation_refresh_ms),
        deleted=deleted,
    )


def _with_present(
    placement_explanations: Iterable[PlacementExplanation], job: JobRecord
) -> tuple[PlacementExplanation, ...]:
    """The explanations; `lasts` says whether the pod is still on its node."""
    there = {job.pod_name(slot): node for slot, node in job.placements.items()}
    return tuple(msgspec.structs.replace(one, lasts=there.get(one.pod) == one.node) for one in placement_explanations)


def _shortage(job: JobRecord) -> ShortageFacts | None:
    """The facts of the job's message if it explains why the job has no nodes."""
    waits = why_it_waits(job)
    if waits is not None:
        return waits.shortage
    return job.decided.shortage if job.decided is not None else None


def _present(story: Story, job: JobRecord) -> int:
    """How many pods of the job exist, or have a node if no TYJob owns them."""
    if job.of_pods:
        return len(job.bound)
    return sum(pod.owner is not None and pod.owner.job_uid == job.uid for pod in story.state.pods.values())


def _since_ms(story: Story, time_ms: int) -> int:
    """A time of the job; if it is that at which it was first seen, the one at which it began to wait."""
    return story.intervals[0].since_ms if story.seen_ms and time_ms == story.seen_ms else time_ms


def _standing(story: Story, job: JobRecord) -> JobStanding:
    spec, pods = job.spec, pod_counts(job)
    return JobStanding(
        job=label(job),
        uid=job.uid,
        stage=job.stage,
        stage_since_ms=_since_ms(story, job.times.stage_ms),
        schedule_state=job.schedule_state,
        scheduled_since_ms=_since_ms(story, job.times.scheduled_ms),
        message=told_of(story.state, job),
        attempt=job.attempt,
        restarts=job.leader.restarts,
        priority=spec.priority if spec is not None and spec.priority_known else None,
        created_ms=job.seen.created_ms,
        created_at=story.created_at,
        version=job.version,
        leader_address=job.leader.address,
        pods_desired=job.pods_told(),
        pods_placed=pods.placed,
        pods_seen=pods.seen,
        pods_running=pods.running,
        pods_failed=pods.failed,
        min_workers=spec.min_workers if spec is not None else 0,
        allocation=pods_text(compact(job.placements), spec, job.slots.names),
        restarts_used=restarts_used(job, story.state),
        restart_limit=spec.restart_limit if spec is not None else 0,
        budget=budget_text(job, story.state, None),
        message_at=story.waits_at if why_it_waits(job) is not None else story.decided_at,
        shortage=_shortage(job),
        ended=job.ended,
        created_by=job.seen.created_by,
        created_by_groups=job.seen.created_by_groups,
        pods_present=_present(story, job),
        pods_earlier=() if job.ended else tuple(sorted(pod.name for pod in earlier_pods(story.state, job))),
        reason=str(job.decided.reason) if job.decided is not None else "",
        remedy=remedy(story, job),
        gives_up=gives_up(story, job),
        below_quorum=below_quorum(story, job),
        stuck=stuck(story, job),
        unset=unset_of(job),
        labels=labels_of(job),
        failed=failed_pods(story.state, job, story.pod_histories.failures),
        had_nodes=bool(job.attempt or job.times.start_ms),
    )
