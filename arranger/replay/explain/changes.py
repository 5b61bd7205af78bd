"""Changes that may give a waiting job its nodes: what could be otherwise about nodes, other jobs, other pods, the
queue, the configuration and the job itself. Here they are only thought of, likeliest first; `remedies` tries them.

A change names the event that it would undo, where this reading of the log saw it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import msgspec
import numpy as np

from arranger.events import kinds as k
from arranger.model.config import CycleConfig
from arranger.model.job import GANG, JobSpec, PodGroup, Stage
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape
from arranger.model.quota import QuotaLack, unit_of
from arranger.model.taints import taint_text, untolerated
from arranger.model.tyjob import refused_change
from arranger.projections.jobs import JobRecord, PlaceKey, expand, holds
from arranger.projections.ownership import has_earlier_pods
from arranger.projections.state import State
from arranger.replay.explain.story import Story
from arranger.replay.explain.surroundings import Edit, Surroundings, Turn
from arranger.replay.reading.describe import amounts_text, label
from arranger.replay.reading.edits import shown, told_from_before
from arranger.replay.what_if import hypothesis
from arranger.scheduling.filters import amount
from arranger.scheduling.needs import quorum_needs
from arranger.scheduling.neighbours import Neighbour, Selected, Taking, neighbour_of, of_pod, selected_by, within
from arranger.scheduling.placer import pod_policy
from arranger.scheduling.quotas import Quotas
from arranger.scheduling.registry import Policies
from arranger.scheduling.view import ClusterView

#: What Kubernetes itself taints a node with while it is cordoned or unhealthy: it goes with the state.
_CORDON_TAINTS = ("node.kubernetes.io/unschedulable",)
_HEALTH_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
#: Priorities that a TYJob may have.
_HIGHEST = 10
#: Nodes that are added at most.
_NODES_MORE = 1024


@dataclass(frozen=True)
class Lack:
    """What a waiting job lacks: the group whose next pod finds no node, and what of its requests nodes lack that
    nothing else rules out; or what a quota doesn't leave, and then no node was looked at."""

    group: int
    resources: tuple[str, ...]
    candidates: frozenset[str]
    lacks: tuple[tuple[str, int, int], ...]
    missing: int
    quota: QuotaLack | None = None


@dataclass(frozen=True)
class Case:
    """A waiting job at the end of its story, and by what cycles are taken there."""

    story: Story
    job: JobRecord
    config: CycleConfig
    policies: Policies
    lack: Lack | None
    ahead: tuple[JobRecord, ...]

    @property
    def state(self) -> State:
        """The state asked about."""
        return self.story.state

    @property
    def around(self) -> Surroundings:
        """What happened around it."""
        return self.story.around

    @property
    def spec(self) -> JobSpec:
        """The job's spec."""
        return self.job.valid_spec

    @property
    def shape(self) -> PodShape:
        """The pod that finds no node."""
        return self.spec.groups[self.lack.group if self.lack is not None else 0].shape


@dataclass(frozen=True)
class Change:
    """Something that could be otherwise. `undoes` is the offset of the event that it takes back, 0 if none is known,
    and `undone` says what that was. `several`: it is the newest of several events that are taken back; `alone` takes
    back no other, and is empty where that was tried as another change."""

    kind: str
    text: str
    events: tuple[k.Event, ...] = ()
    undoes: int = 0
    undone: str = ""
    subject: str = ""
    config: CycleConfig | None = None
    told_ms: int | None = None
    several: bool = False
    alone: tuple[k.Event, ...] = ()


Join = Callable[[Sequence[Change]], Change]


class Steps(Sequence[Change]):
    """Ordered changes, each made when it is looked at."""

    def __init__(self, count: int, make: Callable[[int], Change]) -> None:
        self._count = max(count, 0)
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Change]: ...

    def __getitem__(self, at: int | slice) -> Change | Sequence[Change]:
        if isinstance(at, slice):
            return [self._make(number) for number in range(*at.indices(self._count))]
        return self._make(range(self._count)[at])


@dataclass(frozen=True)
class Family:
    """Changes of one kind, the likeliest first. Each is tried alone; where none of them is enough and `together` is
    given, as many of them as it takes, from the first on."""

    alone: Sequence[Change]
    together: Join | None = None
    #: The search for the least of an ordered list: the first that is enough ends it.
    least: bool = False


def families(case: Case) -> Iterator[Family]:
    """Everything thought of, in the order in which it is tried: the cheapest for who asks comes first."""
    if case.lack is None:
        yield Family(list(_out_of_queue(case)))
        return
    if case.lack.quota is not None:
        yield from _beyond_quota(case)
        return
    yield Family(list(_refusals(case)), least=True)
    yield Family(list(_leaving(case)))
    yield from _nodes(case)
    yield Family(list(_own_edits(case)))
    yield Family(list(_edits_ahead(case)))
    yield Family(list(_configurations(case)))
    yield Family(list(_other_pods(case)), _all_of("pod", "when these are gone: "))
    yield Family(list(_departed(case)))
    yield Family(_capacity(case), _all_of("capacity", "when these end: "))
    yield Family(list(_priorities(case)), least=True)
    yield Family(_ahead(case))
    yield Family(_fewer_workers(case), least=True)
    yield Family(list(_smaller_requests(case)))
    yield Family(_more_nodes(case), least=True)


def _beyond_quota(case: Case) -> Iterator[Family]:
    """No node would help: a larger quota, less that is used of it, or less that is asked for."""
    yield Family(list(_raised(case)))
    yield Family(list(_own_edits(case)))
    yield Family(list(_edits_ahead(case)))
    yield Family(list(_users_of_quota(case)), _all_of("capacity", "when these end: "))
    yield Family(list(_priorities(case)), least=True)
    yield Family(_ahead(case))
    yield Family(_fewer_workers(case), least=True)


def _raised(case: Case) -> Iterator[Change]:
    """All the namespace's quotas raised by what they don't leave for the quorum, or for one pod more."""
    assert case.lack is not None and case.lack.quota is not None
    job, told = case.job, case.lack.quota
    quorum = quorum_needs(job, pod_policy(job, case.config, case.policies))
    pods = {group: len(indices) for group, indices in quorum.items()} or {case.lack.group: 1}
    missing: dict[tuple[str, str], int] = {(told.quota, told.resource): told.needed - told.left}
    for quota, lack in Quotas(case.state, case.state.told_ms).lacks(job, pods):
        key = (quota.name, lack.resource)
        missing[key] = max(missing.get(key, 0), lack.needed - lack.left)
    events: list[k.Event] = []
    words = []
    for name, quota in sorted(case.state.quotas.get(job.seen.namespace, {}).items()):
        hard = {resource: limit + missing.get((name, resource), 0) for resource, limit in quota.hard}
        if hard != dict(quota.hard):
            events.append(msgspec.structs.replace(quota, hard=tuple(sorted(hard.items()))))
            words += [
                f"raise {resource} of quota {name} by {_of_quota(resource, hard[resource] - limit)}"
                f" to {_of_quota(resource, hard[resource])}"
                for resource, limit in quota.hard
                if hard[resource] != limit
            ]
    if events:
        yield Change("quota", " and ".join(words), tuple(events))


def _of_quota(resource: str, value: int) -> str:
    return amount(unit_of(resource), value)


def _users_of_quota(case: Case) -> Iterator[Change]:
    """Jobs of the same namespace that hold places, those that count most first."""
    namespace, uid = case.job.seen.namespace, case.job.uid
    there = [job for job in case.state.jobs.values() if job.seen.namespace == namespace and job.uid != uid]
    for job in sorted((job for job in there if job.placements), key=lambda job: (-len(job.placements), job.uid)):
        gone = hypothesis.job_gone(job, case.state)
        yield Change("capacity", f"when {label(job)} ends", gone, subject=label(job))


def _all_of(kind: str, words: str) -> Join:
    def together(parts: Sequence[Change]) -> Change:
        newest = max(parts, key=lambda part: part.undoes)
        return Change(
            kind,
            words + "; ".join(part.subject for part in parts),
            tuple(event for part in parts for event in part.events),
            newest.undoes,
            newest.undone,
            several=len({part.undoes for part in parts}) > 1,
        )

    return together


# --- out of the queue ---------------------------------------------------------------------------------------


def _out_of_queue(case: Case) -> Iterator[Change]:
    job, state, spec = case.job, case.state, case.spec
    pods = [p for p in state.pods_of.get(job.uid, {}).values() if p.owner is not None and p.owner.attempt < job.attempt]
    stay = job.stage in (Stage.PENDING, Stage.RESCHEDULING) and has_earlier_pods(state, job)
    when = f"when the pods of its earlier attempt are gone: {_names([pod.name for pod in pods])}" if stay else ""
    gone = hypothesis.pods_gone(state, pods) if stay else ()
    left_ms = job.not_before_ms - state.told_ms
    if left_ms > 0:
        when = f"in {left_ms / 1000:g} s, when its back-off is over" + (f", and {when}" if when else "")
    if spec.suspend:
        edit = next((e for e in reversed(_edits(case, job)) if e.before is None or not e.before.suspend), None)
        offset = edit.offset if edit is not None else case.story.created_at
        yield Change(
            "spec",
            "spec.suspend false" + (f", {when}" if when else ""),
            (hypothesis.job_seen(job, state, msgspec.structs.replace(spec, suspend=False)), *gone),
            offset,
            "it was suspended" if edit is not None else "it came suspended",
        )
    elif stay or left_ms > 0:
        began = next((one for one in reversed(case.story.consequences) if one.what != "Replaced"), None)
        yield Change(
            "pod" if stay else "wait",
            when,
            gone,
            began.offset if began is not None else 0,
            began.message if began is not None else "",
            told_ms=job.not_before_ms if left_ms > 0 else None,
        )


# --- nodes --------------------------------------------------------------------------------------------------


def _refusals(case: Case) -> Iterator[Change]:
    """Nodes that the job avoids because their kubelet refused a pod of it: time mends that."""
    now_ms, avoid_ms = case.state.told_ms, case.config.refusal_avoid_ms
    ends = sorted((since_ms + avoid_ms, node) for node, since_ms in case.job.refusals.items())
    for end_ms, node in ends:
        if end_ms <= now_ms:
            continue
        cause = case.story.fates.refused_by.get(node)
        yield Change(
            "wait",
            f"in {(end_ms - now_ms) / 1000:g} s, when it no longer avoids {node}, whose kubelet refused a pod of it",
            (),
            cause.offset if cause is not None else 0,
            cause.text if cause is not None else "",
            node,
            told_ms=end_ms,
        )


def _nodes(case: Case) -> Iterator[Family]:
    """Nodes that could be mended, by what is wrong with them first, and those that are gone or have shrunk. Kinds of
    which one step is enough somewhere come first."""
    mended: dict[str, list[tuple[tuple[int, int, str], Change]]] = {}
    for name, facts in _with_room(case):
        fixed, words, undone = _mended(name, facts, case)
        if not words:
            continue
        offset, said = max(undone, default=(0, ""))
        seen, several = (hypothesis.node_seen(case.state, name, fixed),), len({at for at, _ in undone}) > 1
        change = Change(words[0][0], _steps_text(words), seen, offset, said, name, several=several)
        mended.setdefault(words[0][0], []).append(((len(words), -offset, name), change))
    for of_kind in mended.values():
        of_kind.sort(key=lambda one: one[0])
    for kind in sorted(mended, key=lambda kind: (mended[kind][0][0][0], _NODE_KINDS.index(kind))):
        yield Family([change for _, change in mended[kind]], _nodes_together(kind))
    yield Family(list(_lost_nodes(case)), _nodes_together("node"))
    yield Family(list(_shrunk_nodes(case)), _nodes_together("capacity"))


_NODE_KINDS = ("uncordon", "taint", "label", "ready")
_NODES_TOGETHER = {
    "uncordon": "uncordon ",
    "taint": "remove the taints of ",
    "label": "label ",
    "ready": "these nodes ready again: ",
    "node": "these nodes back: ",
    "capacity": "these nodes as large as they were: ",
}


def _steps_text(words: Sequence[tuple[str, str]]) -> str:
    """What has to be done to one node; a choice within one of several steps stands in brackets."""
    if len(words) == 1:
        return words[0][1]
    return " and ".join(f"({word})" if ", or " in word else word for _, word in words).replace(", or ", " or ")


def _nodes_together(kind: str) -> Join:
    def together(parts: Sequence[Change]) -> Change:
        whole = _all_of(kind, "")(parts)
        return replace(whole, text=_NODES_TOGETHER[kind] + _names([part.subject for part in parts]))

    return together


def _with_room(case: Case) -> list[tuple[str, NodeFacts]]:
    """Present nodes with room for the pod, as far as amounts go."""
    view = ClusterView(case.state.nodes)
    request = view.request(case.shape)
    asked = np.flatnonzero(request)
    rows = np.flatnonzero((view.free[:, asked] >= request[asked]).all(axis=1))
    return [(view.names[row], view.facts[row]) for row in rows.tolist()]


def _mended(name: str, facts: NodeFacts, case: Case) -> tuple[NodeFacts, list[tuple[str, str]], list[tuple[int, str]]]:
    """A node without what keeps the pod off it: its facts then, what was changed, and the events undone: offset and
    what it was of each, none unless the log has seen every part of it otherwise."""
    shape, turns = case.shape, case.around.turns.get(name, [])
    words: list[tuple[str, str]] = []
    undone: list[tuple[Turn | None, str]] = []
    if not facts.ready:
        facts = msgspec.structs.replace(facts, ready=True, taints=_without(facts, _HEALTH_TAINTS))
        words.append(("ready", f"{name} ready again"))
        undone.append((_since(turns, "ready"), f"{name} became not ready"))
    if facts.cordoned:
        facts = msgspec.structs.replace(facts, cordoned=False, taints=_without(facts, _CORDON_TAINTS))
        words.append(("uncordon", f"uncordon {name}"))
        undone.append((_since(turns, "cordoned"), f"{name} was cordoned"))
    while (taint := untolerated(facts.taints, shape)) is not None:
        facts = msgspec.structs.replace(facts, taints=tuple(one for one in facts.taints if one != taint))
        said = taint_text(taint)
        words.append(("taint", f"remove taint {said} from {name}, or tolerate it"))
        undone.append((_since(turns, "taints"), f"{name} was given the taint {said}"))
    facts = _labelled(name, facts, case, words, undone)
    offsets = [(turn.offset, said) for turn, said in undone if turn is not None]
    return facts, words, offsets if len(offsets) == len(undone) else []


def _labelled(
    name: str,
    facts: NodeFacts,
    case: Case,
    words: list[tuple[str, str]],
    undone: list[tuple[Turn | None, str]],
) -> NodeFacts:
    """The labels that the pod's nodeSelector wants; for required node affinity, those that the node had."""
    labels = dict(facts.labels)
    wanted = {key: value for key, value in case.shape.node_selector if labels.get(key) != value}
    turns = case.around.turns.get(name, [])
    if wanted:
        said = ",".join(f"{key}={value}" for key, value in wanted.items())
        words.append(("label", f"label {name} {said}"))
        undone.append((_lost_labels(turns, wanted), f"{name} lost the label {said}"))
        return msgspec.structs.replace(facts, labels=tuple(sorted({**labels, **wanted}.items())))
    turn = _since(turns, "labels")
    asks = case.shape.required_terms is not None or case.shape.rules is not None
    if asks and turn is not None and turn.before is not None:
        before = {key: value for key, value in turn.before.labels if labels.get(key) != value}
        said = ",".join(f"{key}={value}" for key, value in before.items()) or "fewer labels"
        words.append(("label", f"label {name} {said}"))
        undone.append((turn, f"the labels of {name} changed"))
        return msgspec.structs.replace(facts, labels=turn.before.labels)
    return facts


def _without(facts: NodeFacts, keys: tuple[str, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in facts.taints if taint.key not in keys)


def _since(turns: Sequence[Turn], aspect: str) -> Turn | None:
    """The turn with which a node came to be as it is in one aspect; None for one that was never seen otherwise."""
    for number in range(len(turns) - 1, -1, -1):
        before, after = _before(turns, number), turns[number].after
        if before is not None and after is not None and getattr(before, aspect) != getattr(after, aspect):
            return turns[number]
    return None


def _lost_labels(turns: Sequence[Turn], wanted: Mapping[str, str]) -> Turn | None:
    """The last turn with which a node lost any of these labels; None if it never had them all."""
    lost: dict[str, Turn] = {}
    for number, turn in enumerate(turns):
        before, after = _before(turns, number), turn.after
        if before is None or after is None:
            continue
        had, has = dict(before.labels), dict(after.labels)
        lost.update({key: turn for key, value in wanted.items() if had.get(key) == value != has.get(key)})
    return max(lost.values(), key=lambda turn: turn.offset) if lost and len(lost) == len(wanted) else None


def _before(turns: Sequence[Turn], number: int) -> NodeFacts | None:
    """A node's facts before a turn; where it came back, those that it went with."""
    if turns[number].before is None and number:
        return turns[number - 1].before
    return turns[number].before


def _lost_nodes(case: Case) -> Iterator[Change]:
    """Nodes that are gone, those that went last first."""
    lost = [
        (turns[-1], name)
        for name, turns in case.around.turns.items()
        if turns[-1].after is None and turns[-1].before is not None and not case.state.nodes.has(name)
    ]
    for turn, name in sorted(lost, key=lambda one: -one[0].offset):
        assert turn.before is not None
        facts = msgspec.structs.replace(turn.before, ready=True, cordoned=False)
        seen = hypothesis.node_seen(case.state, name, facts)
        yield Change("node", f"node {name} back", (seen,), turn.offset, f"node {name} went", name)


def _shrunk_nodes(case: Case) -> Iterator[Change]:
    """Nodes that have less of what is asked for than they had, those that shrank last first."""
    asked = [name for name, _ in case.shape.requests] + ["pods"]
    found = []
    for name, turns in case.around.turns.items():
        turn = _since(turns, "allocatable")
        if turn is None or turn.before is None or turn.after is None or not case.state.nodes.has(name):
            continue
        before, after = dict(turn.before.allocatable), dict(turn.after.allocatable)
        less = [of for of in asked if after.get(of, 0) < before.get(of, 0)]
        if less:
            row = case.state.nodes.rows[name]
            facts = msgspec.structs.replace(case.state.nodes.facts[row], allocatable=turn.before.allocatable)
            had = ", ".join(f"{amount(of, before[of])} {of} instead of {amount(of, after.get(of, 0))}" for of in less)
            said = ", ".join(f"from {amount(of, before[of])} to {amount(of, after.get(of, 0))} {of}" for of in less)
            change = Change(
                "capacity",
                f"{had} on {name}",
                (hypothesis.node_seen(case.state, name, facts),),
                turn.offset,
                f"{name} shrank {said}",
                name,
            )
            found.append((-turn.offset, change))
    yield from (change for _, change in sorted(found, key=lambda one: one[0]))


def _more_nodes(case: Case) -> Sequence[Change]:
    """One, two, three … more of the largest node that the pod may run on, made larger where none is large enough."""
    lack, state = case.lack, case.state
    assert lack is not None
    asked = {**dict(case.shape.requests), "pods": 1}
    best = ((-1, 0.0), "")
    for name in sorted(lack.candidates):
        there = dict(state.nodes.facts[state.nodes.rows[name]].allocatable)
        parts = [there.get(of, 0) / value for of, value in asked.items()]
        best = max(best, ((sum(part >= 1 for part in parts), sum(parts)), name))
    like = best[1]
    if not like:
        return ()
    facts = state.nodes.facts[state.nodes.rows[like]]
    there = dict(facts.allocatable)
    more_of = tuple((of, value) for of, value in asked.items() if there.get(of, 0) < value)
    larger = msgspec.structs.replace(facts, allocatable=tuple(sorted({**there, **dict(more_of)}.items())))
    kind = f"like {like}" + (f" with {amounts_text(more_of)}" if more_of else "")

    def more(number: int) -> Change:
        count = number + 1
        names = [f"supposed-{one}" for one in range(count)]
        seen = tuple(hypothesis.node_seen(state, name, _renamed(larger, like, name)) for name in names)
        return Change("node", f"{'one more node' if count == 1 else f'{count} more nodes'} {kind}", seen)

    return Steps(min(lack.missing * (1 + len(case.ahead)), _NODES_MORE), more)


def _renamed(facts: NodeFacts, old: str, new: str) -> NodeFacts:
    """The facts of a node of another name: labels that hold the name hold the other."""
    labels = tuple((key, new if value == old else value) for key, value in facts.labels)
    return msgspec.structs.replace(facts, labels=labels)


# --- edits and configuration --------------------------------------------------------------------------------


def _edits(case: Case, job: JobRecord) -> list[Edit]:
    return case.around.edits.get(job.uid, [])


def _own_edits(case: Case) -> Iterator[Change]:
    """The job's spec as it was before an edit of it."""
    for edit in reversed(_edits(case, case.job)[-4:]):
        if edit.before is not None and edit.after is not None:
            what = told_from_before(edit.before, edit.after)
            seen = hypothesis.job_seen(case.job, case.state, edit.before)
            yield Change("spec", f"{what}, as before its edit", (seen,), edit.offset, f"its spec was edited: {what}")


def _edits_ahead(case: Case) -> Iterator[Change]:
    """The spec of a job ahead as it was before an edit."""
    edits = [(edit, other) for other in case.ahead for edit in _edits(case, other)]
    for edit, other in sorted(edits, key=lambda one: -one[0].offset):
        if edit.before is not None and edit.after is not None:
            what = f"{label(other)}: {told_from_before(edit.before, edit.after)}"
            seen = hypothesis.job_seen(other, case.state, edit.before)
            yield Change("queue", f"{what}, as before its edit", (seen,), edit.offset, f"{what} (edited)", label(other))


def _configurations(case: Case) -> Iterator[Change]:
    """The configuration of earlier cycles."""
    for configured in reversed(case.around.configured[-3:]):
        before, after = configured.before, configured.after
        said = [
            f"{name} {shown(getattr(before, name))} instead of {shown(getattr(after, name))}"
            for name in ("queue_policy", "pod_policy", "weights")
            if getattr(before, name) != getattr(after, name)
        ]
        if said:
            what = ", ".join(said)
            usable = case.policies.usable(before)
            yield Change(
                "config", what, (), configured.offset, f"cycles are taken otherwise since: {what}", config=usable
            )


# --- other pods and jobs ------------------------------------------------------------------------------------


def _other_pods(case: Case) -> list[Change]:
    """Pods of others that keep this one away by what pods ask of each other, the newest first."""
    lack = case.lack
    assert lack is not None
    pod = neighbour_of(case.job, lack.group)
    of_jobs: dict[str, int] = {}
    found: list[tuple[int, Change]] = []
    matches = _in_the_way(case.shape, pod)
    if matches is None and not case.state.repelling:
        return []
    for other in case.state.pods.values():
        owner = other.owner
        if not holds(other) or (owner is not None and owner.job_uid == case.job.uid):
            continue
        seen = of_pod(other)
        if not ((matches is not None and matches(seen)) or _repels(seen, pod)):
            continue
        if owner is not None and owner.job_uid in case.state.jobs:
            of_jobs[owner.job_uid] = 0
            continue
        offset = case.around.came.get(other.uid, 0)
        name = f"pod {other.namespace}/{other.name}"
        gone = hypothesis.pods_gone(case.state, [other])
        said = f"{name} came onto {other.node}"
        found.append((-offset, Change("pod", f"when {name} is gone from {other.node}", gone, offset, said, name)))
    for uid in of_jobs:
        ending = _ending(case, case.state.jobs[uid], lambda _: "its pods keep this one away")
        found.append((-ending.undoes, ending))
    return [change for _, change in sorted(found, key=lambda one: one[0])]


def _in_the_way(shape: PodShape, pod: Neighbour) -> Callable[[Neighbour], bool] | None:
    """Which pods are in the way of this one by its own rules."""
    rules = shape.rules
    if rules is None:
        return None
    questions: list[Selected | Taking] = [Taking(port) for port in rules.host_ports]
    questions += [selected_by(term, pod) for term in rules.anti_affinity]
    questions += [Selected((((pod.namespace,), rule.selector),)) for rule in rules.spread]
    return (lambda other: any(question.matches(other) for question in questions)) if questions else None


def _repels(other: Neighbour, pod: Neighbour) -> bool:
    return any(selected_by(term, other).matches(pod) for term in other.anti_affinity)


def _departed(case: Case) -> Iterator[Change]:
    """Pods that this one has to join, or that balanced its spread, and that are gone."""
    rules = case.shape.rules
    lack = case.lack
    if rules is None or lack is None or not (rules.affinity or rules.spread):
        return
    pod = neighbour_of(case.job, lack.group)
    wanted = [Selected(((within(term.namespaces, pod.namespace), term.selector),)) for term in rules.affinity]
    wanted += [Selected((((pod.namespace,), rule.selector),)) for rule in rules.spread]
    tried = 0
    for gone in reversed(case.around.departed):
        if tried < 4 and any(of.matches(of_pod(gone.pod)) for of in wanted):
            tried += 1
            name = f"pod {gone.pod.namespace}/{gone.pod.name}"
            back = hypothesis.pod_back(case.state, gone.pod)
            yield Change("pod", f"{name} back on {gone.pod.node}", (back,), gone.offset, f"{name} went", name)


def _leaving(case: Case) -> Iterator[Change]:
    """Pods that are being deleted hold what is lacking until they are gone, but for those of which the place stays."""
    lack, state = case.lack, case.state
    assert lack is not None
    filling = {uid: None for job in state.jobs.values() for uid in job.bound.values()}
    pods = [
        pod
        for pod in state.pods.values()
        if pod.deleting and holds(pod) and pod.node in lack.candidates
        and any(name in lack.resources for name, _ in pod.requests)
        and pod.uid not in filling
    ]  # fmt: skip
    if not pods:
        return
    origins = {pod.uid: _origin(case, pod) for pod in pods}
    newest = max(origins.values())
    held: dict[str, int] = {}
    nodes: dict[str, None] = {}
    for pod in pods:
        for name, value in pod.requests if origins[pod.uid] == newest else ():
            if name in lack.resources:
                held[name] = held.get(name, 0) + value
                nodes[pod.node] = None
    hold = f"hold {amounts_text(tuple(sorted(held.items())))} on {_names(sorted(nodes))}"
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    yield Change(
        "pod",
        f"when what is being deleted is gone: pod{'s' if len(pods) > 1 else ''} {_names(names)}",
        hypothesis.pods_gone(state, pods),
        newest[0],
        f"{newest[1]} (pods that are being deleted {hold})",
        several=len(set(origins.values())) > 1,
    )


def _origin(case: Case, pod: k.PodSeen) -> tuple[int, str]:
    """The event that gave a pod its node, 0 where it wasn't read, and what it was."""
    owner = pod.owner
    if owner is None:
        return case.around.came.get(pod.uid, 0), f"pod {pod.namespace}/{pod.name} came onto {pod.node}"
    for one in reversed(case.around.placements.get(owner.job_uid, [])):
        if one.attempt == owner.attempt and any(placed.node == pod.node for placed in one.pods):
            return one.offset, f"{one.job} was placed"
    return 0, ""


def _capacity(case: Case) -> Sequence[Change]:
    """Jobs and pods that hold what is lacking on nodes that the pod may run on, those that took it last first."""
    lack, state, came = case.lack, case.state, case.around.came
    assert lack is not None
    if not lack.resources:
        return []
    found: list[tuple[int, str]] = []
    bound: dict[str, None] = {}
    for other in state.jobs.values():
        bound.update(dict.fromkeys(other.bound.values()))
        if other.uid != case.job.uid and other.spec is not None and _holds_any(other, lack):
            found.append((-_decided_at(case, other), other.uid))
    for pod in state.pods.values():
        elsewhere = pod.node not in lack.candidates or pod.uid in bound or not holds(pod)
        if not elsewhere and any(name in lack.resources for name, _ in pod.requests):
            found.append((-came.get(pod.uid, 0), pod.uid))
    found.sort()
    return Steps(len(found), lambda number: _without_holder(case, found[number][1], lack))


def _without_holder(case: Case, uid: str, lack: Lack) -> Change:
    """A job that ends, or a pod of others that is gone."""
    if uid in case.state.jobs:
        other = case.state.jobs[uid]
        return _ending(case, other, lambda places: _amounts(other, lack, places))
    pod = case.state.pods[uid]
    held = amounts_text(tuple((name, value) for name, value in pod.requests if name in lack.resources))
    name = f"pod {pod.namespace}/{pod.name}"
    gone = hypothesis.pods_gone(case.state, [pod])
    said, what = f"{name} took {held} on {pod.node}", f"{name} ({held} on {pod.node})"
    return Change("capacity", f"when {what} is gone", gone, case.around.came.get(uid, 0), said, what)


def _holds_any(job: JobRecord, lack: Lack) -> bool:
    groups = [any(name in lack.resources for name, _ in group.shape.requests) for group in job.valid_spec.groups]
    return any(groups[group] and node in lack.candidates for (group, _), node in job.placements.items())


def _amounts(job: JobRecord, lack: Lack, places: Collection[PlaceKey]) -> str:
    """What a job holds of what is lacking in these places: "3 nvidia.com/gpu on n5"."""
    held: dict[str, int] = {}
    nodes: dict[str, None] = {}
    for (group, index), node in job.placements.items():
        for name, value in job.valid_spec.groups[group].shape.requests:
            if (group, index) in places and node in lack.candidates and name in lack.resources:
                held[name] = held.get(name, 0) + value
                nodes[node] = None
    return (
        f"{amounts_text(tuple(sorted(held.items())))} on {_names(sorted(nodes))}" if held else "nothing that it lacks"
    )


def _ending(case: Case, other: JobRecord, what: Callable[[Collection[PlaceKey]], str]) -> Change:
    """A job that ends, and its newest decision: that is what would be undone. `what` says what places mean."""
    present = what(other.placements)
    subject = f"{label(other)} ({present})"
    gone = hypothesis.job_gone(other, case.state)
    offset, places, gave = _decided(case, other)
    several = bool(offset) and len(places) < len(other.placements)
    alone = hypothesis.places_gone(other, case.state, places) if several else ()
    of_it = what(places) if several else present
    left = "what is left: " if gave > len(places) else ""
    said = f"{label(other)} was placed ({left}{of_it}{f'; it holds {present}' if of_it != present else ''})"
    return Change("capacity", f"when {subject} ends", gone, offset, said, subject, several=several, alone=alone)


def _decided_at(case: Case, other: JobRecord) -> int:
    """The offset of the newest decision that gave a job nodes that it still has; 0 where it wasn't read."""
    return _decided(case, other)[0]


def _decided(case: Case, other: JobRecord) -> tuple[int, list[PlaceKey], int]:
    """The newest decision that gave a job nodes that it still has, 0 where it wasn't read; its places there, and how
    many it gave."""
    present = other.placements
    for one in reversed(case.around.placements.get(other.uid, [])):
        given = expand(one.pods)
        places = [place for place, node in given.items() if present.get(place) == node]
        if places and one.attempt == other.attempt:
            return one.offset, places, len(given)
    return 0, [], 0


# --- the queue, and asking for less -------------------------------------------------------------------------


def _priorities(case: Case) -> Iterator[Change]:
    """A higher priority: the least that goes before some of those ahead."""
    spec = case.spec
    levels = sorted({other.spec.priority for other in case.ahead if other.spec is not None})
    for level in levels:
        if spec.priority <= level < _HIGHEST:
            before = next(o for o in case.ahead if o.spec is not None and o.spec.priority == level)
            seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(spec, priority=level + 1))
            yield Change("queue", f"priority {level + 1} would put it before {label(before)}", (seen,))


def _ahead(case: Case) -> Sequence[Change]:
    """Jobs ahead, should they not be there: those that came last first."""
    arrived = case.around.arrived
    others = [other for other in case.ahead if not other.placements]
    others.sort(key=lambda one: -arrived.get(one.uid, 0))

    def without(number: int) -> Change:
        other = others[number]
        name = label(other)
        gone = hypothesis.job_gone(other, case.state)
        return Change("queue", f"if {name} weren't ahead of it", gone, arrived.get(other.uid, 0), f"{name} came", name)

    return Steps(len(others), without)


def _fewer_workers(case: Case) -> Sequence[Change]:
    """Less to start with: another policy than Gang, fewer workers in the quorum."""
    spec, state, job = case.spec, case.state, case.job
    policy = spec.pod_policy or case.config.pod_policy
    if policy == GANG:
        edited = msgspec.structs.replace(spec, pod_policy="BinPack")
        if spec.min_workers < spec.total_workers and (job.stage == Stage.PENDING or not refused_change(spec, edited)):
            return [Change("spec", "pod policy BinPack instead of Gang", (hypothesis.job_seen(job, state, edited),))]
        return ()
    most = spec.min_workers

    def with_fewer(number: int) -> Change:
        fewer = most - 1 - number
        seen = hypothesis.job_seen(job, state, msgspec.structs.replace(spec, min_workers=fewer))
        return Change("spec", f"minWorkersNum {fewer} instead of {most}", (seen,))

    return Steps(most, with_fewer)


def _smaller_requests(case: Case) -> Iterator[Change]:
    """Pods that ask for no more than the closest node has."""
    spec, lack = case.spec, case.lack
    if lack is None or not lack.lacks or case.job.stage != Stage.PENDING or any(not free for _, _, free in lack.lacks):
        return
    group = spec.groups[lack.group]
    less = {name: free for name, _, free in lack.lacks}
    requests = tuple((name, less.get(name, value)) for name, value in group.shape.requests)
    smaller = PodGroup(group.name, group.count, msgspec.structs.replace(group.shape, requests=requests))
    groups = (*spec.groups[: lack.group], smaller, *spec.groups[lack.group + 1 :])
    said = ", ".join(f"{amount(name, free)} {name} instead of {amount(name, need)}" for name, need, free in lack.lacks)
    seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(spec, groups=groups))
    yield Change("spec", f"{group.name} asking for {said}", (seen,))


def _names(names: Iterable[str]) -> str:
    """A few names in words."""
    listed = list(names)
    if len(listed) > 4:
        return f"{', '.join(listed[:3])} and {len(listed) - 3} more"
    return " and ".join(part for part in (", ".join(listed[:-1]), listed[-1]) if part) if listed else ""
