"""The status that a PodGroup of Volcano or Kubernetes should have, as the scheduler of its pods writes it."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from arranger.events.kinds import PodGroupSeen
from arranger.messages.prerequisites import prerequisites_text
from arranger.messages.shortages import waits_text
from arranger.model.job import Stage
from arranger.model.pod import GroupKind, Phase, PodGroupStatus
from arranger.model.pods_to_place import group_uid
from arranger.model.text import one_line
from arranger.projections.jobs.records import JobRecord, asked_record
from arranger.projections.state import State

#: The phases of Volcano's PodGroups. Volcano makes no pods of its Jobs before Inqueue.
PENDING, INQUEUE, RUNNING, COMPLETED = "Pending", "Inqueue", "Running", "Completed"
#: The limit of a message, in characters.
_LONGEST = 1000

#: How many pods are in each phase, by the UID of their group's record.
Phases = Mapping[str, Counter[str]]


def pods_by_phase(state: State) -> Phases:
    """The pods of Volcano's PodGroups, whose statuses count them. This looks at all pods."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in state.pods.values():
        if pod.asks is not None and pod.asks.group is not None and pod.asks.group.kind == GroupKind.VOLCANO:
            found[asked_record(pod)][pod.phase] += 1
    return found


def desired_group_status(state: State, group: PodGroupSeen, phases: Phases) -> PodGroupStatus | None:
    """None if nothing is known that its status should say: whether its pods are Arranger's to place."""
    uid = group_uid(group.namespace, group.name, group.group_kind)
    job = state.jobs.get(uid)
    if group.group_kind == GroupKind.NATIVE:
        return _of_kubernetes(state, job, group.phase) if job is not None else None
    return _of_volcano(state, job, group, phases[uid]) if uid in phases else None


def _of_kubernetes(state: State, job: JobRecord, scheduled: str) -> PodGroupStatus | None:
    """A group that was scheduled once stays so, as with kube-scheduler: what follows is about further pods."""
    if job.stage == Stage.RUNNING:
        return PodGroupStatus(conditions=(("PodGroupScheduled", "True", "Scheduled", ""),))
    if scheduled == "True" or not (words := _why_it_waits(state, job)):
        return None
    return PodGroupStatus(conditions=(("PodGroupScheduled", "False", "Unschedulable", words),))


def _of_volcano(state: State, job: JobRecord | None, group: PodGroupSeen, pods: Counter[str]) -> PodGroupStatus:
    counts = (pods[Phase.RUNNING], pods[Phase.SUCCEEDED], pods[Phase.FAILED])
    if job is None:  # all of its pods have ended
        enough = counts[1] + counts[2] >= group.facts.min_count
        return PodGroupStatus(COMPLETED if enough else INQUEUE, counts)
    if job.stage == Stage.RUNNING:
        return PodGroupStatus(RUNNING, counts, (("Scheduled", "True", "Scheduled", ""),))
    if not (words := _why_it_waits(state, job)):
        return PodGroupStatus(INQUEUE, counts)
    lacking = "NotEnoughPodsOfTask" if job.tasks_lacking else "NotEnoughTasks"
    reason = lacking if job.pods_lacking else "NotEnoughResources"
    return PodGroupStatus(INQUEUE, counts, (("Unschedulable", "True", reason, words),))


def _why_it_waits(state: State, job: JobRecord) -> str:
    """Why a group has no nodes; empty if it has some, or if the next cycle says so."""
    if job.placements:
        return ""
    words = prerequisites_text(state, job) or waits_text(job)
    return one_line(words)[:_LONGEST]
