"""Changes to nodes: the end of an avoidance, and repaired, restored and additional nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.model.job import Path, TopologyMode
from arranger.model.node import NodeFacts, Taint
from arranger.model.pod import PodShape
from arranger.model.quantity import amount_text
from arranger.model.taints import kept_off_by_cordon, taint_text, untolerated
from arranger.projections.cluster.openness import open_to
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, Family, Join, join_all, names_text
from arranger.replay.explain.candidate_changes.late_pods import with_kept_room
from arranger.replay.explain.candidate_changes.node_labels import (
    domain_keys,
    facts_before,
    may_run_on,
    missing_labels,
    restored,
    selected,
)
from arranger.replay.explain.candidate_changes.unknown_resources import respelt, unknown_text
from arranger.replay.explain.cluster_context import Turn
from arranger.replay.reading.describe import amounts_text, label
from arranger.replay.what_if import hypothesis
from arranger.scheduling import ClusterView

#: Kubernetes itself sets these taints while a node is cordoned or unhealthy, and removes them afterwards.
_CORDON_TAINTS = ("node.kubernetes.io/unschedulable",)
_HEALTH_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
#: The maximum number of added nodes.
_NODES_MORE = 1024
#: The maximum number of jobs whose end is supposed beside the repair of their node.
_EMPTIED = 4
_HOSTNAME = "kubernetes.io/hostname"
#: The kinds of changes that open a node to a pod.
NODE_KINDS = ("uncordon", "taint", "label", "ready")
_NODES_TOGETHER = {
    "uncordon": "uncordon ",
    "taint": "remove the taints of ",
    "label": "label ",
    "ready": "these nodes ready again: ",
    "node": "these nodes back: ",
    "capacity": "these nodes as large as they were: ",
}


def refusals(case: WaitingCase) -> Iterator[Change]:
    """Wait until the job no longer avoids a node: its kubelet refused one of its pods, or workers failed there."""
    now_ms, avoid_ms = case.state.time_ms, case.config.refusal_avoid_ms
    ends = [(since_ms + avoid_ms, node, "") for node, since_ms in case.job.refusals.items()]
    sets = case.job.sets.items()
    ends += [(since_ms + avoid_ms, node, name) for name, of in sets for node, since_ms in of.avoids.items()]
    for end_ms, node, of_set in sorted(ends):
        if end_ms <= now_ms:
            continue
        cause = case.story.pod_histories.refused_by.get(node) if not of_set else None
        why = f"where workers of {of_set} failed repeatedly" if of_set else "which refused one of its pods"
        yield Change(
            "wait",
            f"in {(end_ms - now_ms) / 1000:g} s, when it no longer avoids {node}, {why}",
            (),
            cause.offset if cause is not None else 0,
            cause.text if cause is not None else "",
            node,
            time_ms=end_ms,
        )


def node_families(case: WaitingCase) -> Iterator[Family]:
    """Repair nodes, one family per kind of problem, and restore nodes that were deleted or have shrunk. The kinds that
    need only one step on some node come first."""
    mended: dict[str, list[tuple[tuple[int, bool, int, str], Change]]] = {}
    keys = domain_keys(case)
    for of in _large_enough(case):
        repair = _mended(of.name, of.facts, case)
        first = _first_step(case, repair, of, keys)
        if first is not None:
            steps = len(repair.words) or 1
            mended.setdefault(first.kind, []).append(((steps, not of.free, -first.undoes, of.name), first))
    for of_kind in mended.values():
        of_kind.sort(key=lambda one: one[0])
    for kind in sorted(mended, key=lambda kind: (mended[kind][0][0][0], NODE_KINDS.index(kind))):
        yield Family([change for _, change in mended[kind]], _nodes_together(case, kind), feasible=True)
    yield Family(_latest_first(_lost_nodes(case)), _nodes_together(case, "node"), feasible=True)
    yield Family(_latest_first(_shrunk_nodes(case)), _nodes_together(case, "capacity"), feasible=True)


def _first_step(case: WaitingCase, repair: "_Repair", of: "_Node", keys: Iterable[str]) -> Change | None:
    """The repair of a node; where that isn't enough, with the node back in its former domain, and then also with the
    end of jobs on a full one. None for a node that needs no repair."""
    if not of.free and any(kind == "label" for kind, _ in repair.words):
        return None
    repaired = [repair.change(case), _in_former_domain(repair, keys).change(case)]
    steps = [with_kept_room(one, case.state, [of.name]) if of.kept else one for one in repaired if one is not None]
    if not steps:
        return None
    first, further = steps[0], steps[-1]
    emptied = _emptied(first, case) if not of.free else None
    return replace(first, further=replace(further, further=emptied) if further != first else emptied)


def _emptied(repaired: Change, case: WaitingCase) -> Change | None:
    """The repair of a full node, with the end of one, two … of the jobs there, the latest first. None where pods could
    go to other nodes once these are less full: their jobs' ends are tried alone."""
    assert case.lack is not None
    if case.lack.candidates:
        return None
    jobs = [job for job in case.state.jobs.values() if repaired.subject in job.placements.values()]
    jobs = sorted(jobs, key=lambda job: (-job.began_ms, job.uid))[:_EMPTIED]
    change: Change | None = None
    for count in range(len(jobs), 0, -1):
        gone = [event for job in jobs[:count] for event in hypothesis.job_ended(job, case.state, case.config)]
        ends = f"{names_text([label(job) for job in jobs[:count]])} {'ends' if count == 1 else 'end'}"
        text = f"{repaired.text}, and when {ends}, which {'has' if count == 1 else 'have'} pods there"
        change = Change(repaired.kind, text, (*repaired.events, *gone), subject=repaired.subject, further=change)
    return change


def _latest_first(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: -change.undoes)


def _steps_text(words: Sequence[tuple[str, str]]) -> str:
    """The steps for one node in words; if there are several, a step with a choice is put in brackets."""
    if len(words) == 1:
        return words[0][1]
    return " and ".join(f"({word})" if ", or " in word else word for _, word in words).replace(", or ", " or ")


def _nodes_together(case: WaitingCase, kind: str) -> Join:
    def together(parts: Sequence[Change]) -> Change:
        names = [part.subject for part in parts]
        whole = replace(join_all(kind, "")(parts), text=_NODES_TOGETHER[kind] + names_text(names))
        late = [part.subject for part in parts if part.time_ms is not None]
        return with_kept_room(whole, case.state, late)

    return together


class _Node(NamedTuple):
    """A present node that could hold the pod, and whether enough of it is free: only on the others, the job may be
    entitled to take room. `kept`: it is free once no room is kept there any more for pods that may still appear."""

    name: str
    facts: NodeFacts
    free: bool
    kept: bool


def _large_enough(case: WaitingCase) -> list[_Node]:
    view = ClusterView(case.state.nodes)
    request = view.request(case.shape)
    asked = np.flatnonzero(request)

    def free() -> npt.NDArray[np.bool_]:
        return np.asarray((view.free[:, asked] >= request[asked]).all(axis=1))

    now = free()
    for pod in case.state.assumed.values():
        view.count_free(pod.node, pod.requests)
    later = free()
    rows = np.flatnonzero(later | (view.allocatable[:, asked] >= request[asked]).all(axis=1))
    return [
        _Node(view.names[row], view.facts[row], bool(later[row]), bool(later[row] and not now[row]))
        for row in rows.tolist()
    ]


class _Repair:
    """A node without the properties that keep the pod off: its new facts, and the steps to them, in words by kind."""

    def __init__(self, name: str, facts: NodeFacts, turns: Sequence[Turn]) -> None:
        self.name, self.facts, self.turns = name, facts, turns
        self.words: list[tuple[str, str]] = []
        self._undone: list[tuple[Turn | None, str]] = []

    def copy(self) -> "_Repair":
        again = _Repair(self.name, self.facts, self.turns)
        again.words, again._undone = list(self.words), list(self._undone)
        return again

    def step(self, kind: str, words: str, turn: Turn | None, said: str, facts: NodeFacts) -> None:
        """One step more. `turn` is the one that it reverts, None if none is known, and `said` describes that."""
        self.words.append((kind, words))
        self._undone.append((turn, said))
        self.facts = facts

    def change(self, case: WaitingCase) -> Change | None:
        """All steps as one change; None without any. It reverts no event unless the log shows the cause of each."""
        if not self.words:
            return None
        offsets = [(turn.offset, said) for turn, said in self._undone if turn is not None]
        offset, said = max(offsets) if len(offsets) == len(self._undone) else (0, "")
        seen = (hypothesis.node_seen(case.state, self.name, self.facts),)
        several = offset > 0 and len({at for at, _ in offsets}) > 1
        return Change(self.words[0][0], _steps_text(self.words), seen, offset, said, self.name, several=several)


def _mended(name: str, facts: NodeFacts, case: WaitingCase) -> _Repair:
    """The node open to the pod, with the labels by which the pod selects nodes."""
    shape, turns = case.shape, case.around.turns.get(name, [])
    repair = _Repair(name, facts, turns)
    if not facts.ready:
        facts = msgspec.structs.replace(facts, ready=True, taints=_without(facts, _HEALTH_TAINTS))
        repair.step("ready", f"{name} ready again", _since(turns, "ready"), f"{name} became not ready", facts)
    if facts.cordoned and kept_off_by_cordon(shape):
        facts = msgspec.structs.replace(facts, cordoned=False, taints=_without(facts, _CORDON_TAINTS))
        repair.step("uncordon", f"uncordon {name}", _since(turns, "cordoned"), f"{name} was cordoned", facts)
    while (taint := untolerated(facts.taints, shape)) is not None:
        facts = msgspec.structs.replace(facts, taints=tuple(one for one in facts.taints if one != taint))
        said, turn = taint_text(taint), _since(turns, "taints")
        words = f"remove taint {said} from {name}, or tolerate it"
        repair.step("taint", words, turn, f"{name} was given the taint {said}", facts)
    facts, steps = selected(name, facts, shape, turns)
    for words, turn, said in steps:
        repair.step("label", words, turn, said, facts)
    return repair


def _in_former_domain(repair: _Repair, keys: Iterable[str]) -> _Repair:
    """The same with the node back in the domain that it was in before these labels changed."""
    again = repair.copy()
    facts, steps = restored(again.name, again.facts, again.turns, keys)
    for words, turn, said in steps:
        again.step("label", words, turn, said, facts)
    return again


def _without(facts: NodeFacts, keys: tuple[str, ...]) -> tuple[Taint, ...]:
    return tuple(taint for taint in facts.taints if taint.key not in keys)


def _since(turns: Sequence[Turn], aspect: str) -> Turn | None:
    """The last turn that changed one aspect of a node; None if no known turn did."""
    for number in range(len(turns) - 1, -1, -1):
        before, after = facts_before(turns, number), turns[number].after
        if before is not None and after is not None and getattr(before, aspect) != getattr(after, aspect):
            return turns[number]
    return None


def _lost_nodes(case: WaitingCase) -> Iterator[Change]:
    """Restore nodes that were deleted."""
    for name, (*_, turn) in case.around.turns.items():
        if turn.after is None and turn.before is not None and not case.state.nodes.has(name):
            facts = msgspec.structs.replace(turn.before, ready=True, cordoned=False)
            seen = hypothesis.node_seen(case.state, name, facts)
            yield Change("node", f"node {name} back", (seen,), turn.offset, f"node {name} was deleted", name)


def _shrunk_nodes(case: WaitingCase) -> Iterator[Change]:
    """Restore the capacity of nodes that now have less of a requested resource."""
    asked = [name for name, _ in case.shape.requests] + ["pods"]
    for name, turns in case.around.turns.items():
        turn = _since(turns, "allocatable")
        if turn is None or turn.before is None or turn.after is None or not case.state.nodes.has(name):
            continue
        before, after = dict(turn.before.allocatable), dict(turn.after.allocatable)
        amounts = [(of, before.get(of, 0), after.get(of, 0)) for of in asked]
        less = [(of, amount_text(of, had), amount_text(of, has)) for of, had, has in amounts if has < had]
        if less:
            row = case.state.nodes.rows[name]
            facts = msgspec.structs.replace(case.state.nodes.facts[row], allocatable=turn.before.allocatable)
            had = ", ".join(f"{was} {of} instead of {now}" for of, was, now in less)
            said = ", ".join(f"from {was} to {now} {of}" for of, was, now in less)
            seen = hypothesis.node_seen(case.state, name, facts)
            yield Change("capacity", f"{had} on {name}", (seen,), turn.offset, f"{name} shrank {said}", name)


def _alike(case: WaitingCase) -> list[str]:
    """The nodes that the pod may run on but for other pods there, by name; if there are none, those that it could
    select if they had the labels that it asks for."""
    nodes, shape = case.state.nodes, case.shape
    there = [
        (nodes.names[row], nodes.facts[row]) for row in nodes.by_name().tolist() if open_to(nodes.facts[row], shape)
    ]
    found = [name for name, facts in there if may_run_on(shape, name, dict(facts.labels))]
    for name, facts in there if not found else ():
        labels = dict(facts.labels)
        desired = missing_labels(shape, name, labels)
        if _HOSTNAME not in desired and may_run_on(shape, name, labels | desired):
            found.append(name)
    return found


def _largest(case: WaitingCase, asked: Mapping[str, int]) -> str:
    """The largest node that the pod may run on, for these amounts; "" for none. Of equal ones, one in the domain of the
    job's topology with most nodes. Where other pods bind it to a domain, only nodes there are of use."""
    lack, nodes = case.lack, case.state.nodes
    names = (sorted(lack.candidates) if lack is not None else ()) or _alike(case)
    names = _bound_to(case, names) or names
    domains = {name: _domain(case, name) for name in names}
    sizes = Counter(domain for domain in domains.values() if domain)
    best = ((-1, 0.0, 0), "")
    for name in names:
        there = dict(nodes.facts[nodes.rows[name]].allocatable)
        parts = [there.get(of, 0) / value for of, value in asked.items()]
        best = max(best, ((sum(part >= 1 for part in parts), sum(parts), sizes[domains[name]]), name))
    return best[1]


def _bound_to(case: WaitingCase, names: Iterable[str]) -> list[str]:
    """The nodes, of these and of those of its pods, in the domains of a required topology in which the pods are that
    the next one joins; empty if it joins none."""
    spec, nodes, number = case.spec, case.state.nodes, case.lack.group if case.lack is not None else 0
    of_group = spec.groups[number].topology
    topology = of_group or spec.topology
    if topology is None or topology.mode != TopologyMode.REQUIRED:
        return []
    own = {node for (of, _), node in case.job.placements.items() if of_group is None or of == number}
    own = {node for node in own if nodes.has(node)}
    domains = {_domain(case, node) for node in own} - {()}
    return [name for name in sorted({*names, *own}) if _domain(case, name) in domains]


def _domain(case: WaitingCase, name: str) -> Path:
    """The smallest domain of the topology of the job's next pod that a node is in; empty for none."""
    spec, nodes = case.spec, case.state.nodes
    group = spec.groups[case.lack.group if case.lack is not None else 0]
    topology, labels = group.topology or spec.topology, dict(nodes.facts[nodes.rows[name]].labels)
    paths = topology.paths() if topology is not None else ()
    return next((tuple(labels[key] for key in path) for path in paths if labels.keys() >= set(path)), ())


def _for_pod(case: WaitingCase, like: str, asked: Mapping[str, int], shape: PodShape) -> tuple[NodeFacts, str]:
    """The facts of a node like this one that would take a pod, and it in words."""
    facts = case.state.nodes.facts[case.state.nodes.rows[like]]
    there, labels = dict(facts.allocatable), dict(facts.labels)
    more_of = tuple((of, value) for of, value in asked.items() if there.get(of, 0) < value)
    desired = missing_labels(shape, like, labels)
    larger = msgspec.structs.replace(
        facts,
        allocatable=tuple(sorted({**there, **dict(more_of)}.items())),
        labels=tuple(sorted({**labels, **desired}.items())),
    )
    parts = [amounts_text(more_of)] if more_of else []
    if desired:
        named = ",".join(f"{key}={value}" for key, value in desired.items())
        parts.append(f"the label{'s' if len(desired) > 1 else ''} {named}")
    words = f"like {like}{' with ' if parts else ''}{' and '.join(parts)}"
    return larger, words + unknown_text(case, [of for of, _ in more_of if "/" in of])


def more_nodes(case: WaitingCase) -> Sequence[Change]:
    """Add one, two, three … nodes like the largest one that the pod may run on, enlarged if even that is too small. If
    the job asks for resources that no node has, first ask for those that it probably means."""
    lack, state = case.lack, case.state
    assert lack is not None
    spec, words = respelt(case)
    changed = (hypothesis.job_seen(case.job, state, spec),) if words else ()
    shape = spec.groups[lack.group].shape
    asked = {**dict(shape.requests), "pods": 1}
    like = _largest(case, asked)
    if not like:
        return ()
    larger, kind = _for_pod(case, like, asked, shape)

    def more(count: int) -> Change:
        names = [f"supposed-{one}" for one in range(count)]
        seen = tuple(hypothesis.node_seen(state, name, hypothesis.renamed(larger, like, name)) for name in names)
        nodes = f"{'one more node' if count == 1 else f'{count} more nodes'} {kind}" if count else ""
        text = ", and ".join(part for part in (words, nodes) if part)
        return Change("node" if nodes else "spec", text, (*changed, *seen), added=frozenset(names))

    # Each pod may need a node of its own, and those of the jobs ahead go first.
    most = min(sum(_without_node(of) for of in (case.job, *case.ahead)), _NODES_MORE)
    return ChangeSteps(most + 1, more) if words else ChangeSteps(most, lambda number: more(number + 1))


def _without_node(job: JobRecord) -> int:
    return sum(group.count for group in job.valid_spec.groups) - len(job.placements)
