"""Tests whether rules relate one pod to another, for explanations; cycles count pods instead (`neighbours`)."""

from collections.abc import Callable

from arranger.events.kinds import PodSeen
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.neighbours import (
    Neighbour,
    PortTakers,
    SelectedPods,
    neighbour_of,
    of_pod,
    selected_by,
    within,
)

Test = Callable[[PodSeen], bool]


def keeps_away(state: State, job: JobRecord, group: int) -> Test:
    """A test whether a pod keeps pods of the job's group off nodes, by its own rules or by theirs."""
    pod, rules = neighbour_of(job, group), job.valid_spec.groups[group].shape.rules
    questions: list[SelectedPods | PortTakers] = []
    if rules is not None:
        questions += [PortTakers(port) for port in rules.host_ports]
        questions += [selected_by(term, pod) for term in rules.anti_affinity]
        questions += [SelectedPods((((pod.namespace,), rule.selector),)) for rule in rules.spread]

    def test(other: PodSeen) -> bool:
        seen = of_pod(state, other)
        if seen.namespace == pod.namespace and not set(seen.exclusive).isdisjoint(pod.exclusive):
            return True
        return any(question.matches(seen) for question in questions) or _repels(seen, pod)

    return test


def attracts(state: State, job: JobRecord, group: int) -> Test | None:
    """A test whether pods of the job's group must join a pod or spread with it; None if they have no such rules."""
    pod, rules = neighbour_of(job, group), job.valid_spec.groups[group].shape.rules
    if rules is None or not (rules.affinity or rules.spread):
        return None
    selected = [SelectedPods(((within(term, pod.namespace), term.selector),)) for term in rules.affinity]
    selected += [SelectedPods((((pod.namespace,), rule.selector),)) for rule in rules.spread]
    return lambda other: any(of.matches(of_pod(state, other)) for of in selected)


def _repels(other: Neighbour, pod: Neighbour) -> bool:
    return any(selected_by(term, other).matches(pod) for term in other.anti_affinity)
