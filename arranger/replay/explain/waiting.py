"""Why a job waits: a cycle is taken at the point asked about, with a witness that looks where the job falls short."""

from typing import Any

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec, ScheduleState
from arranger.model.pod import PodShape
from arranger.model.quota import QuotaLack
from arranger.projections.jobs import JobRecord, expand, holds
from arranger.projections.ownership import has_earlier_pods
from arranger.projections.state import State
from arranger.replay.explain.changes import Case, Lack
from arranger.replay.explain.remedies import Blocker, Remedy, Sought, blockers, remedies
from arranger.replay.explain.story import Story, waits_for
from arranger.replay.explain.surroundings import Placement
from arranger.replay.reading.describe import label
from arranger.scheduling import queue
from arranger.scheduling.attempt import Attempt, Shortage, Witness
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.filters import NO_SELECTED, Filters, amount
from arranger.scheduling.neighbours import Neighbour, neighbour_of
from arranger.scheduling.quotas import never_text, quota_text
from arranger.scheduling.registry import BUILT_IN, Policies
from arranger.scheduling.shares import WHOLE, Shares
from arranger.scheduling.view import ClusterView

#: Why a job goes behind another of its priority, or of its share.
_HELD_BACK = "the API server refused the pods of the latter when it last began to start"

#: Nodes of which it is looked at whether the same rules them out as the closest one.
_COMPARED = 1000


class Ahead(msgspec.Struct, frozen=True):
    """A job before this one in the queue, the key that put it there, and what a cycle would give it now."""

    place: int
    job: str
    priority: int
    created_ms: int
    decided_by: str
    gets: str


class Closest(msgspec.Struct, frozen=True):
    """The node that lacks least for the next pod, and what it lacks: resource, needed, free. So many more are `alike`
    in that; it is the first of them by name."""

    node: str
    lacks: tuple[tuple[str, int, int], ...]
    text: str
    alike: int = 0


class NodeAnswer(msgspec.Struct, frozen=True):
    """The node that was asked about, and why it doesn't take the next pod."""

    node: str
    refused: str


class Shortfall(msgspec.Struct, frozen=True):
    """Where placing stops: `found` of `asked` pods find room together, and the next one, of `group`, finds none.

    `reasons` count every node once; `resources` are those that nodes lack which nothing else rules out, and
    `candidates` are those nodes. `further`: the quorum has room, and these are the pods beyond it. `others` pods of
    other jobs got room in the same cycle before. `selector` is the nodeSelector of that pod, empty unless it keeps it
    from a node. With `quota` no node was looked at: a quota of the namespace doesn't leave enough.
    """

    group: str
    found: int
    asked: int
    nodes: int
    reasons: tuple[tuple[str, int], ...]
    closest: Closest | None
    resources: tuple[str, ...]
    candidates: tuple[str, ...]
    group_number: int = 0
    node: NodeAnswer | None = None
    selector: str = ""
    further: bool = False
    others: int = 0
    quota: QuotaLack | None = None


class Taker(msgspec.Struct, frozen=True):
    """A decision that gave capacity of the kind that the job lacks to another job. `since_created`: it was taken
    after the job came. `holds`: the other job still has it, or its pods of then do (`leaving`); `held` is how much of
    it. `freed_at` is the offset at which the last of those pods went, 0 if that wasn't read."""

    offset: int
    told_ms: int
    job: str
    amounts: dict[str, int]
    nodes: tuple[str, ...]
    since_created: bool
    holds: bool
    leaving: bool = False
    freed_at: int = 0
    held: dict[str, int] = {}


class Holder(msgspec.Struct, frozen=True):
    """Capacity of that kind held without a decision that was read: a stranger's pod, an adopted job, or pods that may
    still come. `since` is the offset of its first event, 0 if that wasn't read."""

    who: str
    amounts: dict[str, int]
    nodes: tuple[str, ...]
    since: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """Why a job, or the rest of it, has no nodes yet. `place` is that in the queue, from 1; 0 where it isn't in it,
    and then `why` says what keeps it out. `infeasible_since_ms`: since then not even an empty cluster of the nodes
    could hold its quorum, and the first cycle from `fails_at_ms` on gives it up; both 0 where one could. `gets` is how
    many of its pods a cycle would give nodes now. `blockers` are the events since it came without which it would have
    nodes, or more than those, newest first, and `earlier` those from before it came; `remedies` what would give it
    nodes: found among `tried` changes, each tried by a cycle. `untried` more are like one of those.
    """

    why: str
    place: int
    queue_length: int
    queue_policy: str
    priority: int
    created_ms: int
    ahead: tuple[Ahead, ...]
    shortfall: Shortfall | None
    takers: tuple[Taker, ...]
    holders: tuple[Holder, ...]
    infeasible_since_ms: int
    fails_at_ms: int
    blockers: tuple[Blocker, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tried: int = 0
    earlier: tuple[Blocker, ...] = ()
    gets: int = 0
    untried: int = 0


def explain_waiting(story: Story, job: JobRecord, policies: Policies = BUILT_IN, *, node: str = "") -> Waiting | None:
    """Why this job waits at the end of the story; None when it has all that it wants, or has ended.

    The cycle is taken by the policies of the last recorded one, or by all of these where some of those are missing.
    """
    state = story.state
    spec = job.spec
    if spec is None or job.ended or len(job.placements) >= job.pods_wanted():
        return None
    config = story.config or CycleConfig()
    policies = policies if policies.missing(config) else policies.recorded(config)
    config = policies.usable(config)
    waiting = queue.in_order(state, config, policies)
    place = next((number for number, other in enumerate(waiting, start=1) if other.uid == job.uid), 0)
    witness = _Witness(job.uid, node)
    events = take_cycle(state, config, state.told_ms, witness, policies=policies) if place else ()
    shortfall = witness.shortfall
    decided_by = _Keys(state, waiting, config, policies)
    case = Case(story, job, config, policies, _lack(shortfall), tuple(waiting[: max(place - 1, 0)]))
    sought = remedies(case) if state.synced and (shortfall is not None or not place) else Sought()
    takers, holders = _who_has_it(story, shortfall) if shortfall is not None else ((), ())
    since, before = blockers(case, sought.found)
    given = _given(events)
    return Waiting(
        why=_why(state, job, place, shortfall, given.get(job.uid, 0)),
        place=place,
        queue_length=len(waiting),
        queue_policy=queue.policy_name(job, config, policies),
        priority=spec.priority,
        created_ms=job.seen.created_ms,
        ahead=_ahead(waiting[: max(place - 1, 0)], job, given, decided_by),
        shortfall=shortfall,
        takers=takers,
        holders=holders,
        infeasible_since_ms=job.infeasible_since_ms,
        fails_at_ms=job.infeasible_since_ms and job.infeasible_since_ms + config.infeasible_grace_ms,
        blockers=since,
        remedies=sought.found,
        tried=sought.tried,
        earlier=before,
        gets=given.get(job.uid, 0),
        untried=sought.untried,
    )


def _lack(shortfall: Shortfall | None) -> Lack | None:
    if shortfall is None:
        return None
    closest = shortfall.closest
    return Lack(
        shortfall.group_number,
        shortfall.resources,
        frozenset(shortfall.candidates),
        closest.lacks if closest is not None and closest.node in shortfall.candidates else (),
        shortfall.asked - shortfall.found,
        shortfall.quota,
    )


def _given(events: tuple[k.Event, ...]) -> dict[str, int]:
    """Job UID → how many pods a cycle gives nodes."""
    given: dict[str, int] = {}
    for event in events:
        if isinstance(event, k.Placed):
            given[event.job_uid] = given.get(event.job_uid, 0) + len(expand(event.pods))
    return given


def _why(state: State, job: JobRecord, place: int, shortfall: Shortfall | None, gets: int) -> str:
    if shortfall is not None and shortfall.quota is not None:
        further = " further" if shortfall.further else ""
        head = f"{shortfall.found} of {shortfall.asked}{further} pods find room"
        first = _first(gets or shortfall.found, shortfall.others)
        lack = f"{quota_text(shortfall.quota)}{never_text(shortfall.quota)}"
        return f"{_room(job, gets) if gets else head}; {first}{lack}"
    if shortfall is not None:
        counted = ", ".join(f"{count} {_named(reason, shortfall.selector)}" for reason, count in shortfall.reasons)
        plural = "" if shortfall.nodes == 1 else "s"
        lack = f"no node for {shortfall.group}: {shortfall.nodes} node{plural}: {counted or 'there are none'}"
        further = " further" if shortfall.further else ""
        head = f"{shortfall.found} of {shortfall.asked}{further} pods find room"
        first = _first(gets or shortfall.found, shortfall.others)
        return f"{_room(job, gets) if gets else head}; {first}{lack}"
    if not state.synced:
        return "not everything has been listed in this epoch yet: nobody decides before that"
    if place:
        return _room(job, gets)
    if job.seen.invalid:
        return f"its spec is invalid: {job.seen.invalid}"
    if job.seen.deleting or job.valid_spec.terminating:
        return "it is being ended: no node is sought for it any more"
    if job.valid_spec.suspend:
        return "it is suspended: no node is sought for it until spec.suspend is false"
    return _why_not_now(state, job)


def _why_not_now(state: State, job: JobRecord) -> str:
    """Why a job that is wanted as it is isn't in the queue."""
    if job.schedule_state == ScheduleState.FAILED:
        return "it was given up: no empty cluster of these nodes could hold its quorum"
    left_ms = job.not_before_ms - state.told_ms
    if left_ms > 0 and not has_earlier_pods(state, job):
        return f"it backs off: no nodes are sought for it for {left_ms / 1000:g} s more"
    return f"it isn't in the queue: it waits for {waits_for(state, job) or 'nothing'}"


def _room(job: JobRecord, gets: int) -> str:
    """That a cycle would give it nodes now, and to how many of its pods."""
    lacks = job.pods_wanted() - len(job.placements)
    what = ("the rest of it" if job.placements else "it") + f" ({gets} pod{'' if gets == 1 else 's'})"
    if gets < lacks:
        what = f"{gets} of the {lacks} pods that have no node" if job.placements else f"{gets} of its {lacks} pods"
    return f"there is room for it now: the next scheduling cycle places {what}"


def _first(own: int, others: int) -> str:
    """Which pods hold room only in the cycle that asks what is left."""
    parts = [("it" if own == 1 else "them")] if own else []
    parts += [f"{others} pod{'' if others == 1 else 's'} of other jobs that get nodes first"] if others else []
    return f"beside {' and '.join(parts)}, " if parts else ""


def _named(reason: str, selector: str) -> str:
    """A reason with the nodeSelector that it is about: the recorded ones don't name it, so that jobs share them."""
    return f"{reason} ({selector})" if reason == NO_SELECTED and selector else reason


def _selector(shape: PodShape) -> str:
    """A pod's nodeSelector as people write it: "gpu-type=h100,zone=a"."""
    return ",".join(f"{key}={value}" for key, value in shape.node_selector)


class _Keys:
    """Why one waiting job goes before another: the first of the queue's keys in which they differ."""

    def __init__(self, state: State, waiting: list[JobRecord], config: CycleConfig, policies: Policies) -> None:
        self._shares = Shares(ClusterView(state.nodes))
        #: Job UID → the policy that gives it its turns, and the stretch of the line in which it does.
        self._stretches = {
            job.uid: (name, (number, place))
            for number, level in enumerate(queue.in_line(waiting, config, policies))
            for place, (name, jobs) in enumerate(level)
            for job in jobs
        }

    def between(self, other: JobRecord, job: JobRecord) -> str:
        """The key that puts `other` before `job`, with both values."""
        assert other.spec is not None and job.spec is not None
        (name, stretch), (_, of_job) = self._stretches[other.uid], self._stretches[job.uid]
        if stretch == of_job and name not in BUILT_IN.queue:
            return f"by the queue policy {name}"
        share = ""
        if stretch == of_job and name == "DRF":
            share = self._by_share("has", self._shares.allocated(other), self._shares.allocated(job))
            if not share and other.held_back != job.held_back:
                return _HELD_BACK
            share = share or self._by_share("asks for", self._shares.requested(other), self._shares.requested(job))
        if share:
            return share
        if other.spec.priority != job.spec.priority:
            return f"priority {other.spec.priority} against {job.spec.priority}"
        if other.held_back != job.held_back:
            return _HELD_BACK
        if other.seen.created_ms != job.seen.created_ms:
            return f"created {(job.seen.created_ms - other.seen.created_ms) / 1000:g} s earlier"
        return f"the lower UID, {other.uid} against {job.uid}"

    def _by_share(self, verb: str, of_other: int, of_job: int) -> str:
        if of_other == of_job:
            return ""
        return f"{verb} the lower dominant share, {of_other / WHOLE:.1%} against {of_job / WHOLE:.1%}"


def _ahead(others: list[JobRecord], job: JobRecord, gets: dict[str, int], keys: _Keys) -> tuple[Ahead, ...]:
    found = []
    for place, other in enumerate(others, start=1):
        now = f"{gets[other.uid]} pods now" if other.uid in gets else "waits too"
        decided = keys.between(other, job)
        found.append(Ahead(place, label(other), other.valid_spec.priority, other.seen.created_ms, decided, now))
    return tuple(found)


class _Witness(Witness):
    """Keeps where one job falls short."""

    def __init__(self, uid: str, node: str = "") -> None:
        self._uid = uid
        self._node = node
        self._attempt: Attempt | None = None
        self._found: list[tuple[Shortage, Shortfall]] = []
        #: Jobs that found room in this cycle so far.
        self._served: dict[str, Attempt] = {}

    @property
    def shortfall(self) -> Shortfall | None:
        """Where the job was left in the end: another split of its quorum may have come about after a first failed."""
        left = self._attempt.shortage if self._attempt is not None else None
        return next((shortfall for shortage, shortfall in self._found if shortage is left), None)

    def placing(self, attempt: Attempt, group: int, **_: Any) -> None:
        """Whoever is served now holds room when it is this job's turn."""
        self._served[attempt.job.uid] = attempt

    def fell_short(self, attempt: Attempt, shortage: Shortage, *, view: ClusterView, filters: Filters) -> None:
        """Look where the job stops, while what it found is still held."""
        if attempt.job.uid != self._uid:
            return
        self._attempt = attempt
        group = attempt.groups[shortage.group]
        if shortage.quota is not None:
            self._found.append((shortage, self._beyond_quota(attempt, shortage, len(view))))
            return
        shape = group.shape
        request = view.request(shape)
        short = np.maximum(request - view.free, 0) * (request > 0)
        asked = _by_column(view, shape)
        pod = neighbour_of(attempt.job, shortage.group)
        candidates = np.flatnonzero(filters.allowed(shape, pod))
        # What most candidates lack comes first.
        columns = [int(c) for c in np.argsort(-(short[candidates] > 0).sum(axis=0), kind="stable")]
        shortfall = Shortfall(
            group=group.name,
            found=shortage.found,
            asked=shortage.asked,
            nodes=len(view),
            reasons=shortage.reasons,
            closest=self._closest(attempt, view, filters, shape, pod),
            resources=tuple(name for c in columns if (short[candidates, c] > 0).any() for name, _ in asked[c]),
            candidates=tuple(view.names[row] for row in candidates.tolist()),
            group_number=shortage.group,
            node=self._asked(attempt, view, filters, shape, pod),
            selector=_selector(shape) if NO_SELECTED in dict(shortage.reasons) else "",
            further=attempt.quorum_stands,
            others=sum(other.pods for other in self._served.values() if other is not attempt),
        )
        self._found.append((shortage, shortfall))

    def _beyond_quota(self, attempt: Attempt, shortage: Shortage, nodes: int) -> Shortfall:
        """No node was looked at."""
        return Shortfall(
            group=attempt.groups[shortage.group].name,
            found=shortage.found,
            asked=shortage.asked,
            nodes=nodes,
            reasons=shortage.reasons,
            closest=None,
            resources=(),
            candidates=(),
            group_number=shortage.group,
            further=attempt.quorum_stands,
            others=sum(other.pods for other in self._served.values() if other is not attempt),
            quota=shortage.quota,
        )

    def _closest(
        self, attempt: Attempt, view: ClusterView, filters: Filters, shape: PodShape, pod: Neighbour
    ) -> Closest | None:
        """The node that lacks least, with who got room there before."""
        closest = _closest(view, filters, shape, pod)
        if closest is None:
            return None
        beside = self._beside(attempt, view.roster.rows()[closest.node])
        return msgspec.structs.replace(closest, text=closest.text + beside)

    def _beside(self, attempt: Attempt, row: int) -> str:
        """Which pods hold room on a node that only this cycle gives them: none of them is there."""
        own, others = 0, 0
        for other in self._served.values():
            pods = sum(len(piece.indices) for piece in other.pieces if piece.row == row)
            own, others = (own + pods, others) if other is attempt else (own, others + pods)
        told = [(own, "its own"), (others, "other jobs")]
        parts = [f"{pods} pod{'' if pods == 1 else 's'} of {whose}" for pods, whose in told if pods]
        return f", beside {' and '.join(parts)} that the same cycle puts there" if parts else ""

    def _asked(
        self, attempt: Attempt, view: ClusterView, filters: Filters, shape: PodShape, pod: Neighbour
    ) -> NodeAnswer | None:
        """Why the node asked about doesn't take the pod."""
        if not self._node:
            return None
        row = view.roster.rows().get(self._node)
        if row is None:
            return NodeAnswer(self._node, "there is no such node")
        refused = _named(filters.refusal(shape, row, pod), _selector(shape))
        return NodeAnswer(self._node, refused + self._beside(attempt, row))


def _by_column(view: ClusterView, shape: PodShape) -> dict[int, list[tuple[str, int]]]:
    """Column → what the pod asks for in it, with amounts: one resource, or all that no node has."""
    found: dict[int, list[tuple[str, int]]] = {}
    for name, column, need in view.needs(shape):
        found.setdefault(column, []).append((name, need))
    return found


def _closest(view: ClusterView, filters: Filters, shape: PodShape, pod: Neighbour) -> Closest | None:
    """Among the nodes that only lack resources, the one that lacks the fewest and then the smallest part of its need;
    if every node is ruled out by something else, the first of those with room, or else the first by name."""
    if not len(view):
        return None
    request = view.request(shape)
    short = np.maximum(request - view.free, 0) * (request > 0)
    part = (short / np.maximum(request, 1)).sum(axis=1)
    ruled_out = ~filters.allowed(shape, pod)
    kinds = (short > 0).sum(axis=1)
    row = int(np.lexsort((np.arange(len(view)), part, kinds, ruled_out))[0])
    alike = np.flatnonzero((short == short[row]).all(axis=1) & (ruled_out == ruled_out[row])).tolist()
    lacks = tuple(
        (name, need, max(int(view.free[row, c]), 0))
        for c in np.flatnonzero(short[row]).tolist()
        for name, need in _by_column(view, shape)[c]
    )
    if ruled_out[row]:
        refusal = filters.refusal(shape, row, pod)
        same = sum(filters.refusal(shape, other, pod) == refusal for other in alike[:_COMPARED])
        return Closest(view.names[row], lacks, _named(refusal, _selector(shape)), same - 1)
    missing = [
        f"{amount(name, need - free)} more {name} (needs {amount(name, need)}, has {amount(name, free)} free)"
        for name, need, free in lacks
    ]
    free = view.free[alike] == view.free[row]
    same = int((free | (request == 0)).all(axis=1).sum())
    return Closest(view.names[row], lacks, "would take it with " + " and ".join(missing), same - 1)


def _who_has_it(story: Story, shortfall: Shortfall) -> tuple[tuple[Taker, ...], tuple[Holder, ...]]:
    """Who holds, or has taken since the job came, what it lacks on nodes that it may run on."""
    resources, nodes = shortfall.resources, frozenset(shortfall.candidates)
    if not resources:
        return (), ()
    takers: list[Taker] = []
    decided: dict[str, set[tuple[int, int]]] = {}
    leaving: set[str] = set()
    for other in story.others:
        amounts, where = _amounts(other.spec, expand(other.pods), resources, nodes)
        held = _held(story.state, other)
        decided.setdefault(other.job_uid, set()).update(held)
        left = [] if held else _left(story.state, other)
        leaving.update(pod.uid for pod in left)
        since = bool(story.created_at) and other.offset > story.created_at
        freed_at = 0 if held or left else story.around.freed.get((other.job_uid, other.attempt), 0)
        if amounts and (since or held or left or (story.created_at and freed_at > story.created_at)):
            takers.append(
                Taker(
                    other.offset,
                    other.told_ms,
                    other.job,
                    amounts,
                    where,
                    since,
                    bool(held or left),
                    leaving=bool(left),
                    freed_at=freed_at,
                    held=_amounts(other.spec, held, resources, nodes)[0] or _of_pods(left, resources, nodes),
                )
            )
    return tuple(takers), tuple(_undecided(story, decided, leaving, resources, nodes))


def _held(state: State, placement: Placement) -> dict[tuple[int, int], str]:
    """The places of a placement that its job still has, with their nodes."""
    job = state.jobs.get(placement.job_uid)
    if job is None or job.attempt != placement.attempt:
        return {}
    return {place: node for place, node in expand(placement.pods).items() if job.placements.get(place) == node}


def _left(state: State, placement: Placement) -> list[k.PodSeen]:
    """The pods of a placement that is over which still hold their nodes."""
    return [
        pod
        for pod in state.pods_of.get(placement.job_uid, {}).values()
        if holds(pod) and pod.owner is not None and pod.owner.attempt == placement.attempt
    ]


def _of_pods(pods: list[k.PodSeen], resources: tuple[str, ...], nodes: frozenset[str]) -> dict[str, int]:
    """How much of the resources these pods hold on these nodes."""
    amounts: dict[str, int] = {}
    for pod in pods:
        for name, value in pod.requests:
            if name in resources and pod.node in nodes:
                amounts[name] = amounts.get(name, 0) + value
    return amounts


def _undecided(
    story: Story,
    decided: dict[str, set[tuple[int, int]]],
    leaving: set[str],
    resources: tuple[str, ...],
    nodes: frozenset[str],
) -> list[Holder]:
    """What is held there without a decision that this reading saw."""
    found: list[Holder] = []
    bound: set[str] = set()
    for job in story.state.jobs.values():
        bound.update(job.bound.values())
        if job.uid == story.uid or job.spec is None:
            continue
        known = decided.get(job.uid, set())
        rest = {place: node for place, node in job.placements.items() if place not in known}
        amounts, where = _amounts(job.spec, rest, resources, nodes)
        if amounts:
            origin = f"adopted at offset {job.adopted_at}" if job.adopted_at else f"placed before offset {story.began}"
            found.append(Holder(f"job {label(job)} ({origin})", amounts, where, job.adopted_at))
    for pod in story.state.pods.values():
        if not holds(pod) or pod.uid in bound or pod.uid in leaving or pod.node not in nodes:
            continue
        asked = dict(pod.requests)
        amounts = {name: asked[name] for name in resources if asked.get(name)}
        if amounts:
            since = story.around.came.get(pod.uid, 0)
            found.append(Holder(f"pod {pod.namespace}/{pod.name}", amounts, (pod.node,), since))
    found += _assumed(story.state, resources, nodes)
    return sorted(found, key=lambda holder: ([-holder.amounts.get(name, 0) for name in resources], holder.who))


def _assumed(state: State, resources: tuple[str, ...], nodes: frozenset[str]) -> list[Holder]:
    """What is kept for pods that may still come, by attempt of their jobs."""
    kept: dict[tuple[str, int], dict[str, int]] = {}
    where: dict[tuple[str, int], dict[str, None]] = {}
    for pod in state.assumed.values():
        asked = {name: amount for name, amount in pod.requests if name in resources and amount}
        if asked and pod.node in nodes:
            of = (pod.owner.job_uid, pod.owner.attempt)
            amounts = kept.setdefault(of, {})
            for name, amount in asked.items():
                amounts[name] = amounts.get(name, 0) + amount
            where.setdefault(of, {})[pod.node] = None
    return [
        Holder(
            f"pods of {_job_text(state, uid)}, attempt {attempt}, that may still come", amounts, (*where[uid, attempt],)
        )
        for (uid, attempt), amounts in kept.items()
    ]


def _job_text(state: State, uid: str) -> str:
    job = state.jobs.get(uid)
    return f"job {label(job)}" if job is not None else f"the deleted job {uid}"


def _amounts(
    spec: JobSpec, places: dict[tuple[int, int], str], resources: tuple[str, ...], nodes: frozenset[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """How much of the resources these places hold on these nodes, and on which."""
    amounts: dict[str, int] = {}
    where: dict[str, None] = {}
    for (group, _), node in places.items():
        if node not in nodes or group >= len(spec.groups):
            continue
        for name, value in spec.groups[group].shape.requests:
            if name in resources:
                amounts[name] = amounts.get(name, 0) + value
                where[node] = None
    return amounts, tuple(where)
