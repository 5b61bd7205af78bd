"""The labels of nodes that a job reads: those that it asks for, and former ones that a node lost."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from arranger.model.node import NodeFacts
from arranger.model.pod import NodeTerms, PodShape
from arranger.model.selectors import node_satisfies
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.cluster_context import Turn

#: Labels that say what a node is: another value would be false.
_TELLS_WHAT_IT_IS = re.compile(r"(beta\.|node\.|topology\.|failure-domain\.beta\.)?kubernetes\.io/")

#: A step in words, and the turn that it reverts (None if none is known) with that turn in words.
LabelStep = tuple[str, Turn | None, str]


def may_run_on(shape: PodShape, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a pod's nodeSelector and required node affinity select a node."""
    if any(labels.get(key) != value for key, value in shape.node_selector):
        return False
    return shape.required_terms is None or node_satisfies(shape.required_terms, labels, name)


def missing_labels(shape: PodShape, name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a node lacks for the pod's nodeSelector and required node affinity. Of the affinity, they are
    those of the first term that needs nothing but further labels or other values; of several values, it is the first.
    """
    desired = {key: value for key, value in shape.node_selector if labels.get(key) != value}
    if may_run_on(shape, name, {**labels, **desired}):
        return desired
    for term in shape.required_terms or ():
        unmet = [one for one in term if not node_satisfies(((one,),), {**labels, **desired}, name)]
        if unmet and all(one.operator in ("In", "Exists") and not one.field for one in unmet):
            return desired | {one.key: (*one.values, "true")[0] for one in unmet}
    return desired


def domain_keys(case: WaitingCase) -> frozenset[str]:
    """The keys of the labels whose values put nodes into domains for the job's next pod: those of its rules about
    other pods, and of its topologies."""
    rules, group = case.shape.rules, case.lack.group if case.lack is not None else 0
    topologies = [of for of in (case.spec.topology, case.spec.groups[group].topology) if of is not None]
    found = {key for of in topologies for key in of.levels}
    if rules is not None:
        found |= {term.topology_key for term in (*rules.affinity, *rules.anti_affinity)}
        found |= {one.topology_key for one in rules.spread}
    return frozenset(found)


def selected(name: str, facts: NodeFacts, shape: PodShape, turns: Sequence[Turn]) -> tuple[NodeFacts, list[LabelStep]]:
    """The node with the labels that the pod's nodeSelector asks for; and, where its node affinity doesn't select the
    node, with the former values of the labels that this reads if it did before, else with those that it asks for."""
    selector = msgspec.structs.replace(shape, required_terms=None)
    facts, steps = _labelled(name, facts, selector, turns)
    if shape.required_terms is not None and not may_run_on(shape, name, dict(facts.labels)):
        before, more = restored(name, facts, turns, _keys(shape.required_terms))
        if not may_run_on(shape, name, dict(before.labels)):
            before, more = _labelled(name, facts, shape, turns)
        if may_run_on(shape, name, dict(before.labels)):
            return before, steps + more
    return facts, steps


def _labelled(name: str, facts: NodeFacts, shape: PodShape, turns: Sequence[Turn]) -> tuple[NodeFacts, list[LabelStep]]:
    """The node with the labels that it lacks for the pod, if it had them or nothing speaks against them."""
    labels = dict(facts.labels)
    desired = missing_labels(shape, name, labels)
    lost = _lost(turns, desired)
    if not desired or (lost is None and any(key in labels or _TELLS_WHAT_IT_IS.match(key) for key in desired)):
        return facts, []
    said = ",".join(f"{key}={value}" for key, value in desired.items())
    facts = msgspec.structs.replace(facts, labels=tuple(sorted({**labels, **desired}.items())))
    return facts, [(f"label {name} {said}", lost, f"{name} lost the label {said}")]


def restored(
    name: str, facts: NodeFacts, turns: Sequence[Turn], keys: Iterable[str]
) -> tuple[NodeFacts, list[LabelStep]]:
    """The node with the values that these labels had before the last turn that changed any of them."""
    keys, labels = frozenset(keys), dict(facts.labels)
    for turn, had, has in reversed(list(_changes(turns))):
        former = {key: had.get(key) for key in sorted(keys) if had.get(key) != has.get(key)}
        former = {key: value for key, value in former.items() if labels.get(key) != value}
        if former:
            kept = {key: value for key, value in {**labels, **former}.items() if value is not None}
            steps: list[LabelStep] = [
                (words, turn, f"the labels of {name} changed") for words in _relabelling(name, former)
            ]
            return msgspec.structs.replace(facts, labels=tuple(sorted(kept.items()))), steps
    return facts, []


def _relabelling(name: str, labels: Mapping[str, str | None]) -> Iterator[str]:
    """Give a node these labels, and take those without a value away, in words."""
    given = ",".join(f"{key}={value}" for key, value in labels.items() if value is not None)
    taken = ", ".join(key for key, value in labels.items() if value is None)
    if given:
        yield f"label {name} {given}"
    if taken:
        yield f"remove label {taken} from {name}"


def _keys(terms: NodeTerms) -> frozenset[str]:
    return frozenset(one.key for term in terms for one in term if not one.field)


def _changes(turns: Sequence[Turn]) -> Iterator[tuple[Turn, dict[str, str], dict[str, str]]]:
    """The turns in which a node's facts changed, with its labels before and after each."""
    for number, turn in enumerate(turns):
        before, after = facts_before(turns, number), turn.after
        if before is not None and after is not None:
            yield turn, dict(before.labels), dict(after.labels)


def _lost(turns: Sequence[Turn], desired: Mapping[str, str]) -> Turn | None:
    """The last turn in which a node lost any of these labels; None if the node didn't lose them all."""
    lost: dict[str, Turn] = {}
    for turn, had, has in _changes(turns):
        lost.update({key: turn for key, value in desired.items() if had.get(key) == value != has.get(key)})
    return max(lost.values(), key=lambda turn: turn.offset) if lost and len(lost) == len(desired) else None


def facts_before(turns: Sequence[Turn], number: int) -> NodeFacts | None:
    """A node's facts before a turn; if the node was created again, its facts before the deletion."""
    if turns[number].before is None and number:
        return turns[number - 1].before
    return turns[number].before
