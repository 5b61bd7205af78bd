"""Changes to the jobs and pods that use what the job lacks: jobs that end, or may give room, and pods that are deleted
or come back."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from arranger.events import kinds as k
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand, holds
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves
from arranger.replay.explain.candidate_changes.case import LEAVING, Lack, WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, names_text
from arranger.replay.explain.candidate_changes.other_nodes import lacks
from arranger.replay.explain.holders import Amounts, amounts_on
from arranger.replay.reading.describe import amounts_text, label
from arranger.replay.what_if import hypothesis
from arranger.scheduling import attracts, keeps_away

#: So many jobs that aren't preemptible are tried.
_MOST_NON_PREEMPTIBLE = 8


def other_pods(case: WaitingCase) -> list[Change]:
    """Remove pods that keep this one off by anti-affinity, spread or host ports, the newest first."""
    lack = case.lack
    assert lack is not None
    if case.shape.rules is None and not case.state.repelling:
        return []
    in_the_way = keeps_away(case.state, case.job, lack.group)
    of_jobs: dict[str, int] = {}
    found: list[Change] = []
    for other in case.state.pods.values():
        owner = other.owner
        if not holds(other) or (owner is not None and owner.job_uid == case.job.uid) or not in_the_way(other):
            continue
        if owner is not None and owner.job_uid in case.state.jobs:
            of_jobs[owner.job_uid] = 0
            continue
        offset = case.around.came.get(other.uid, 0)
        name = f"pod {other.namespace}/{other.name}"
        gone = hypothesis.pods_gone(case.state, [other])
        said = f"{name} appeared on {other.node}"
        found.append(Change("pod", f"when {name} is gone from {other.node}", gone, offset, said, name))
    found += [_ending(case, case.state.jobs[uid], lambda _: "its pods keep this one away") for uid in of_jobs]
    return sorted(found, key=lambda change: -change.undoes)


def departed(case: WaitingCase) -> Iterator[Change]:
    """Restore deleted pods that attracted this one by affinity, or that balanced its spread."""
    sought = attracts(case.state, case.job, case.lack.group) if case.lack is not None else None
    if sought is None:
        return
    for offset, pod in islice((one for one in reversed(case.around.departed) if sought(one[1])), 4):
        name = f"pod {pod.namespace}/{pod.name}"
        back = hypothesis.pod_back(case.state, pod)
        yield Change("pod", f"{name} back on {pod.node}", (back,), offset, f"{name} was deleted", name)


def leaving(case: WaitingCase) -> Iterator[Change]:
    """Wait for pods that leave and use the lacking resources: those in deletion, and those of jobs that have ended.
    Pods that fill a slot don't count: the slot remains."""
    now = case.after or case.state  # the jobs that a recorded cycle still had may have ended since
    changes, known = list[Change](), 0
    for lack in lacks(case):
        pods = [pod for pod in now.pods.values() if _leaves(now, pod, lack)]
        if len(pods) > known:
            known = len(pods)
            changes.append(_once_gone(case, pods, lack))
    if changes:
        yield replace(changes[0], further=changes[1] if len(changes) > 1 else None)


def _once_gone(case: WaitingCase, pods: Sequence[k.PodSeen], lack: Lack) -> Change:
    origins = {pod.uid: _origin(case, pod) for pod in pods}
    newest = max(origins.values())
    hold = _held_by([pod for pod in pods if origins[pod.uid] == newest], lack)
    names = names_text([f"{pod.namespace}/{pod.name}" for pod in pods])
    who = "pod that leaves is" if len(pods) == 1 else "pods that leave are"
    return Change(
        LEAVING,
        f"when the {who} gone: {names} ({_held_by(pods, lack)})",
        _all_gone(case, pods),
        newest[0],
        f"{newest[1]} (pods that leave hold {hold})",
        several=len(set(origins.values())) > 1,
    )


def _all_gone(case: WaitingCase, pods: Iterable[k.PodSeen]) -> tuple[k.Event, ...]:
    """The end of these pods, and of the jobs that have ended since the recorded cycle."""
    state = case.state
    ended = [state.jobs[uid] for uid in _ended_since(case)]
    gone_with = {uid for job in ended for uid in state.pods_of.get(job.uid, {})}
    left = [pod for pod in pods if pod.uid in state.pods and pod.uid not in gone_with]
    return (*(of for job in ended for of in hypothesis.job_gone(job, state)), *hypothesis.pods_gone(state, left))


def _held_by(pods: Iterable[k.PodSeen], lack: Lack) -> str:
    return _held_text(((pod.node, pod.requests) for pod in pods), lack)


def _leaves(state: State, pod: k.PodSeen, lack: Lack) -> bool:
    """Whether a pod that uses the lacking resources leaves, and nothing takes its place."""
    owner = pod.owner
    job = state.jobs.get(owner.job_uid) if owner is not None else None
    asks = holds(pod) and pod.node in lack.candidates and any(name in lack.resources for name, _ in pod.requests)
    fills = job is not None and pod.uid in job.bound.values()
    return asks and not fills and (pod.deleting or leaves(state, pod))


def _ended_since(case: WaitingCase) -> list[str]:
    """The jobs with nodes in a recorded cycle that is taken again, and that have ended since."""
    if case.after is None:
        return []
    now = case.after.jobs
    return [uid for uid, job in case.state.jobs.items() if job.placements and uid in now and now[uid].ended]


def _origin(case: WaitingCase, pod: k.PodSeen) -> tuple[int, str]:
    """The offset of the event that gave a pod its node, 0 if it wasn't read, and its description."""
    owner = pod.owner
    if owner is None:
        return case.around.came.get(pod.uid, 0), f"pod {pod.namespace}/{pod.name} appeared on {pod.node}"
    for one in reversed(case.around.placements.get(owner.job_uid, [])):
        slot = one.slot_of(pod)
        if slot is not None and expand(one.pods).get(slot) == pod.node:
            return one.offset, f"{one.job} was placed"
    return 0, ""


def capacity(case: WaitingCase) -> Sequence[Change]:
    """End jobs and pods that use the lacking resources on candidate nodes, the latest first; then those elsewhere whose
    end may help because the job's pods keep each other from nodes."""
    known = set[str]()
    found: list[tuple[str, Lack]] = []
    for lack in lacks(case):
        holders = sorted(holder for holder in _holders(case, lack) if holder[1] not in known)
        known.update(uid for _, uid in holders)
        found += [(uid, lack) for _, uid in holders]
    return ChangeSteps(len(found), lambda number: _without_holder(case, *found[number]))


def _holders(case: WaitingCase, lack: Lack) -> Iterator[tuple[int, str]]:
    """The UIDs of other jobs, and of pods that are of no job, which use the lacking resources on candidate nodes; each
    with the offset of its newest decision, negative."""
    state, came = case.state, case.around.came
    if not lack.resources:
        return
    bound: dict[str, None] = {}
    ended = _ended_since(case)
    for other in state.jobs.values():
        bound.update(dict.fromkeys(other.bound.values()))
        if other.uid not in (case.job.uid, *ended) and other.spec is not None and _holds_any(other, lack):
            yield -_decided(case, other)[0], other.uid
    for pod in state.pods.values():
        elsewhere = pod.node not in lack.candidates or pod.uid in bound or not holds(pod) or leaves(state, pod)
        if not elsewhere and any(name in lack.resources for name, _ in pod.requests):
            yield -came.get(pod.uid, 0), pod.uid


def users_of_quota(case: WaitingCase) -> Iterator[Change]:
    """End jobs that have placements and use the same quota or queue, those with the most first."""
    state, uid, namespace = case.state, case.job.uid, case.job.seen.namespace
    told = case.lack.quota if case.lack is not None else None
    there = [job for job in state.jobs.values() if job.seen.namespace == namespace and job.uid != uid]
    if told is not None and told.queue:
        paths = state.queue_tree.paths
        there = [
            job for job in state.jobs.values() if job.uid != uid and told.queue in paths.get(queue_of(state, job), ())
        ]
    counted = [job for job in there if _counts(job, told)]
    for job in sorted(counted, key=lambda job: (-len(job.placements), job.uid)):
        gone = hypothesis.job_ended(job, case.state, case.config)
        offset, slots, _ = _decided(case, job)
        several = bool(offset) and len(slots) < len(job.placements)
        alone = hypothesis.slots_gone(job, case.state, slots) if several else ()
        undone = f"{label(job)} was placed"
        yield Change(
            "capacity", f"when {label(job)} ends", gone, offset, undone, label(job), several=several, alone=alone
        )


def _counts(job: JobRecord, told: QuotaLack | None) -> bool:
    """Whether a job has nodes that count within the limit, which may be one for jobs that can't be preempted."""
    of_all = told is None or told.limit != LimitKind.NON_PREEMPTIBLE
    return bool(job.placements) and (of_all or not job.valid_spec.preemptible)


def preemptible(case: WaitingCase, non_preemptible: Iterable[str]) -> Iterator[Change]:
    """Let jobs give room that nothing else forbids to, those that began last first."""
    state, every = case.state, list(lacks(case))
    jobs = [state.jobs[uid] for uid in non_preemptible]
    jobs = [of for of in jobs if not of.of_pods and any(lack.quota or _holds_any(of, lack) for lack in every)]
    for other in sorted(jobs, key=lambda of: (-of.began_ms, of.uid))[:_MOST_NON_PREEMPTIBLE]:
        seen = hypothesis.job_seen(other, state, msgspec.structs.replace(other.valid_spec, preemptible=True))
        text = f"preemptible true of {label(other)}"
        yield Change("occupant", text, (seen,), subject=label(other), taking=f"{text} would let it")


def _without_holder(case: WaitingCase, uid: str, lack: Lack) -> Change:
    """End a job, or delete a foreign pod."""
    if uid in case.state.jobs:
        other = case.state.jobs[uid]
        return _ending(case, other, lambda slots: _amounts(other, lack, slots))
    pod = case.state.pods[uid]
    held = amounts_text(tuple((name, value) for name, value in pod.requests if name in lack.resources))
    name = f"pod {pod.namespace}/{pod.name}"
    gone = hypothesis.pods_gone(case.state, [pod])
    said, what = f"{name} took {held} on {pod.node}", f"{name} ({held} on {pod.node})"
    return Change("capacity", f"when {what} is gone", gone, case.around.came.get(uid, 0), said, what)


def _holds_any(job: JobRecord, lack: Lack) -> bool:
    groups = [any(name in lack.resources for name, _ in group.shape.requests) for group in job.valid_spec.groups]
    return any(groups[group] and node in lack.candidates for (group, _), node in job.placements.items())


def _amounts(job: JobRecord, lack: Lack, slots: Collection[SlotKey]) -> str:
    """The lacking resources that a job uses in these slots, in words: "3 nvidia.com/gpu on n5"."""
    groups = job.valid_spec.groups
    placed = ((node, groups[slot[0]].shape.requests) for slot, node in job.placements.items() if slot in slots)
    return _held_text(placed, lack)


def _held_text(asked: Iterable[tuple[str, Amounts]], lack: Lack) -> str:
    """The same for pods, given by node and requests."""
    held, nodes = amounts_on(asked, lack.resources, lack.candidates)
    if not held:
        return "nothing that it lacks"
    return f"{amounts_text(tuple(sorted(held.items())))} on {names_text(sorted(nodes))}"


def _ending(case: WaitingCase, other: JobRecord, what: Callable[[Collection[SlotKey]], str]) -> Change:
    """End a job: the change reverts the job's newest placement decision. `what` puts the use of slots in words."""
    present = what(other.placements)
    subject = f"{label(other)} ({present})"
    gone = hypothesis.job_ended(other, case.state, case.config)
    offset, slots, gave = _decided(case, other)
    several = bool(offset) and len(slots) < len(other.placements)
    alone = hypothesis.slots_gone(other, case.state, slots) if several else ()
    of_it = what(slots) if several else present
    left = "what is left: " if gave > len(slots) else ""
    said = f"{label(other)} was placed ({left}{of_it}{f'; it holds {present}' if of_it != present else ''})"
    return Change("capacity", f"when {subject} ends", gone, offset, said, subject, several=several, alone=alone)


def _decided(case: WaitingCase, other: JobRecord) -> tuple[int, list[SlotKey], int]:
    """The newest decision that gave a job nodes that it still has: its offset, 0 if it wasn't read, those slots, and
    the number of slots that it placed."""
    present = other.placements
    for one in reversed(case.around.placements.get(other.uid, [])):
        given = expand(one.pods)
        slots = [slot for slot, node in given.items() if present.get(slot) == node]
        if slots and one.attempt == other.attempt:
            return one.offset, slots, len(given)
    return 0, [], 0
