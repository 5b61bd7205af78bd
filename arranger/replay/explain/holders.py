"""The jobs and pods that use what a waiting job lacks or got it since the job's creation, by decisions or without."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.model.job import JobSpec
from arranger.projections.cluster.nodes import PODS
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import expand, holds
from arranger.projections.state import State
from arranger.replay.explain.cluster_context import Placement
from arranger.replay.explain.shortfall import Shortfall
from arranger.replay.explain.story import Story
from arranger.replay.reading.describe import label

#: Resources with their amounts, units as in `PodShape`.
Amounts = tuple[tuple[str, int], ...]


class Taker(msgspec.Struct, frozen=True):
    """A decision that gave another job capacity of the kind that this job lacks. `since_created`: it was made after
    this job's creation. `holds`: the other job still uses it, or pods that fill no slot of it any more, and `held` is
    the amount. `leaving`: only such pods do. `freed_at` is the offset at which the last of its pods ended, 0 if it
    wasn't read."""

    offset: int
    time_ms: int
    job: str
    amounts: dict[str, int]
    nodes: tuple[str, ...]
    since_created: bool
    holds: bool
    leaving: bool = False
    freed_at: int = 0
    held: dict[str, int] = {}


class CapacityHolder(msgspec.Struct, frozen=True):
    """Capacity of that kind that is used without a decision in the part that was read: by a foreign pod, an adopted job
    or assumed pods. `since` is the offset of its first event, 0 if it wasn't read."""

    who: str
    amounts: dict[str, int]
    nodes: tuple[str, ...]
    since: int = 0


def who_has_it(story: Story, shortfall: Shortfall | None) -> tuple[tuple[Taker, ...], tuple[CapacityHolder, ...]]:
    """The jobs and pods that use what the job lacks on its candidate nodes, or got it since the job's creation. Nobody
    has what an infeasible job lacks."""
    if shortfall is None or shortfall.infeasible or not shortfall.resources:
        return (), ()
    resources, nodes = shortfall.resources, frozenset(shortfall.candidates)
    takers: list[Taker] = []
    decided: dict[str, set[tuple[int, int]]] = {}
    leaving = _leaving(story)
    # A slot that lost its node may have the same node by a later decision, which counts it.
    latest = {(one.job_uid, one.attempt, slot): one.offset for one in story.others for slot in expand(one.pods)}
    for other in story.others:
        there, given = _held(story.state, other), expand(other.pods)
        decided.setdefault(other.job_uid, set()).update(there)
        last = [slot for slot in given if latest[other.job_uid, other.attempt, slot] == other.offset]
        taker = _taker(story, other, {slot: slot in there for slot in last}, leaving.get(other.offset, []), shortfall)
        if taker is not None:
            takers.append(taker)
    gone = {pod.uid for pods in leaving.values() for pod in pods}
    return tuple(takers), tuple(_undecided(story, decided, gone, resources, nodes))


def _taker(
    story: Story, other: Placement, last: dict[SlotKey, bool], left: Sequence[k.PodSeen], shortfall: Shortfall
) -> Taker | None:
    """A decision that gave another job what this one lacks; None if that was freed before this job came. `last` has the
    slots that no later decision placed in that attempt, and whether they still have the node. `left` are pods that it
    placed and that fill no slot any more."""
    resources, nodes = shortfall.resources, frozenset(shortfall.candidates)
    given = expand(other.pods)
    amounts, where = _amounts(other.spec, given, resources, nodes)
    held = {slot: given[slot] for slot, holds_it in last.items() if holds_it}
    since = bool(story.created_at) and other.offset > story.created_at
    freed_at = 0 if held or left else _freed_at(story, other, last)
    if not amounts or not (since or held or left or (story.created_at and freed_at > story.created_at)):
        return None
    return Taker(
        other.offset,
        other.time_ms,
        other.job,
        amounts,
        where,
        since,
        bool(held or left),
        leaving=bool(left) and not held,
        freed_at=freed_at,
        held=_still_used(other, held, left, resources, nodes),
    )


def _held(state: State, placement: Placement) -> dict[tuple[int, int], str]:
    """The slots of a placement that are still on their nodes, with these."""
    job = state.jobs.get(placement.job_uid)
    if job is None or job.attempt != placement.attempt:
        return {}
    return {slot: node for slot, node in expand(placement.pods).items() if job.placements.get(slot) == node}


def _leaving(story: Story) -> dict[int, list[k.PodSeen]]:
    """Offset of a decision → the pods that still use the nodes that it gave them and fill no slot of their job."""
    state, found = story.state, dict[int, list[k.PodSeen]]()
    rest: dict[str, list[k.PodSeen]] = {}
    for other in reversed(story.others):  # a slot may have had the node more than once: its pod is of the last time
        if other.job_uid not in rest:
            job = state.jobs.get(other.job_uid)
            filling = set(job.bound.values()) if job is not None else set()
            pods = state.pods_of.get(other.job_uid, {}).values()
            rest[other.job_uid] = [pod for pod in pods if holds(pod) and pod.uid not in filling]
        if not rest[other.job_uid]:
            continue
        there, given = _held(state, other), expand(other.pods)
        for pod in list(rest[other.job_uid]):
            slot = other.slot_of(pod)
            if slot is not None and slot not in there and given.get(slot) == pod.node:
                found.setdefault(other.offset, []).append(pod)
                rest[other.job_uid].remove(pod)
    return found


def _freed_at(story: Story, placement: Placement, slots: Collection[SlotKey]) -> int:
    """The offset at which the last pod of these slots of a placement ended, 0 if it wasn't read."""
    names = [group.name for group in placement.spec.groups]
    freed = story.around.freed.get((placement.job_uid, placement.attempt), {})
    return max((freed.get((names[group], index), 0) for group, index in slots), default=0)


def _still_used(
    placement: Placement,
    held: dict[SlotKey, str],
    left: Iterable[k.PodSeen],
    resources: tuple[str, ...],
    nodes: frozenset[str],
) -> dict[str, int]:
    """The amounts that the slots of a placement and its pods that leave use on these nodes."""
    amounts, _ = _amounts(placement.spec, held, resources, nodes)
    left_there, _ = amounts_on(((pod.node, pod.requests) for pod in left), resources, nodes)
    return {name: amounts.get(name, 0) + left_there.get(name, 0) for name in (*amounts, *left_there)}


def _undecided(
    story: Story,
    decided: dict[str, set[tuple[int, int]]],
    leaving: set[str],
    resources: tuple[str, ...],
    nodes: frozenset[str],
) -> list[CapacityHolder]:
    """The capacity that is used without a decision in the part that was read."""
    found: list[CapacityHolder] = []
    bound: set[str] = set()
    for job in story.state.jobs.values():
        bound.update(job.bound.values())
        if job.uid == story.uid or job.spec is None:
            continue
        known = decided.get(job.uid, set())
        rest = {slot: node for slot, node in job.placements.items() if slot not in known}
        amounts, where = _amounts(job.spec, rest, resources, nodes)
        if amounts:
            origin = f"adopted at offset {job.adopted_at}" if job.adopted_at else f"placed before offset {story.began}"
            found.append(CapacityHolder(f"job {label(job)} ({origin})", amounts, where, job.adopted_at))
    for pod in story.state.pods.values():
        if not holds(pod) or pod.uid in bound or pod.uid in leaving or pod.node not in nodes:
            continue
        asked = {**dict(pod.requests), PODS: 1}
        amounts = {name: asked[name] for name in resources if asked.get(name)}
        if amounts:
            since = story.around.came.get(pod.uid, 0)
            found.append(CapacityHolder(f"pod {pod.namespace}/{pod.name}", amounts, (pod.node,), since))
    found += _assumed(story.state, resources, nodes)
    return sorted(found, key=lambda holder: ([-holder.amounts.get(name, 0) for name in resources], holder.who))


def _assumed(state: State, resources: tuple[str, ...], nodes: frozenset[str]) -> list[CapacityHolder]:
    """The capacity kept for assumed pods, by attempt of their jobs."""
    kept: dict[tuple[str, int], list[tuple[str, Amounts]]] = {}
    for pod in state.assumed.values():
        asked = tuple((name, amount) for name, amount in pod.requests if amount)
        kept.setdefault((pod.owner.job_uid, pod.owner.attempt), []).append((pod.node, asked))
    found = []
    for (uid, attempt), pods in kept.items():
        amounts, where = amounts_on(pods, resources, nodes)
        if amounts:
            which = f"attempt r{attempt}" if attempt else "first attempt"
            who = f"pods of {_job_text(state, uid)}, {which}, that may still appear"
            found.append(CapacityHolder(who, amounts, where))
    return found


def _job_text(state: State, uid: str) -> str:
    job = state.jobs.get(uid)
    return f"job {label(job)}" if job is not None else f"the deleted job {uid}"


def _amounts(
    spec: JobSpec, slots: dict[tuple[int, int], str], resources: tuple[str, ...], nodes: frozenset[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The amounts of these resources that the slots use on these nodes, and the nodes with any."""
    groups = spec.groups
    asked = ((node, groups[group].shape.requests) for (group, _), node in slots.items() if group < len(groups))
    return amounts_on(asked, resources, nodes)


def amounts_on(
    asked: Iterable[tuple[str, Amounts]], resources: Collection[str], nodes: Collection[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The total requests for these resources on these nodes, and the nodes with any. `asked` has (node, requests). Each
    pod is one of `pods`, whatever it requests."""
    amounts: dict[str, int] = {}
    where: dict[str, None] = {}
    for node, requests in asked:
        for name, value in (*requests, (PODS, 1)) if node in nodes else ():
            if name in resources:
                amounts[name] = amounts.get(name, 0) + value
                where[node] = None
    return amounts, tuple(where)
