"""The pods on the nodes as other pods see them: namespace, labels, host ports and required anti-affinity.

Only cycles in which some pod has rules about other pods use this (host ports, pod affinity and anti-affinity, topology
spread); for all other cycles `around` returns None. Identical pods are counted together, by row of the view. A question
is counted once; the cycle then updates the count as it places pods and undoes placements.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from arranger.events.kinds import PodSeen
from arranger.model.job import LEADER_GROUP, JobSpec
from arranger.model.names import job_name, known_labels
from arranger.model.pod import OWN_NAMESPACE, Attachment, DeviceNeeds, HostPort, Labels, PodRules, PodTerm, Selector
from arranger.model.selectors import selects
from arranger.projections.jobs.records import JobRecord, holds
from arranger.projections.observed.volumes import of_claims
from arranger.projections.state import State
from arranger.scheduling.cluster.attached_volumes import AttachedVolumes
from arranger.scheduling.cluster.device_room import DeviceRoom

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Names of namespaces; None for all of them.
Namespaces = tuple[str, ...] | None

#: The limit of questions kept up to date: each costs a check for every pod that the cycle places.
_TALLIES = 64
#: The result for pods with more labels isn't cached.
_LABELS_REMEMBERED = 64
_NO_RULES = PodRules()


class Neighbour(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A pod as other pods see it. `labels` are those that selectors may match, without Arranger's index and attempt.
    `exclusive`, `attachments` and `devices` as in `PodRules`."""

    namespace: str
    labels: Labels
    host_ports: tuple[HostPort, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    exclusive: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    devices: tuple[DeviceNeeds, ...] = ()


class SelectedPods(msgspec.Struct, frozen=True, gc=False):
    """Pods that every part selects, by namespaces and labels. `staying`: pods being deleted don't count."""

    parts: tuple[tuple[Namespaces, Selector], ...]
    staying: bool = False

    def matches(self, pod: Neighbour) -> bool:
        """Whether every part selects the pod; without parts no pod is selected."""
        labels = dict(pod.labels)
        return bool(self.parts) and all(
            _selects(namespaces, selector, pod.namespace, labels) for namespaces, selector in self.parts
        )


class PortTakers(msgspec.Struct, frozen=True, gc=False):
    """Pods that take a host port on the same address; a port without an address conflicts with every address."""

    port: HostPort
    staying: bool = False

    def matches(self, pod: Neighbour) -> bool:
        return _first_taken((self.port,), pod.host_ports) is not None


def _first_taken(desired: tuple[HostPort, ...], taken: tuple[HostPort, ...]) -> int | None:
    """The index of the first desired port that conflicts with a taken one; None without a conflict."""
    ports: dict[tuple[int, str], list[int]] = {}
    for at, port in enumerate(desired):
        ports.setdefault((port.port, port.protocol), []).append(at)
    return min(
        (
            at
            for port in taken
            for at in ports.get((port.port, port.protocol), ())
            if "" in (port.address, desired[at].address) or port.address == desired[at].address
        ),
        default=None,
    )


Question = SelectedPods | PortTakers


def selected_by(term: PodTerm, pod: Neighbour) -> SelectedPods:
    """The pods that a term of this pod selects."""
    return SelectedPods(((within(term, pod.namespace), term.selector),))


def within(term: PodTerm, own: str) -> Namespaces:
    """The namespaces of a term of a pod in the namespace `own`."""
    if term.namespaces is None:
        return None
    return (*(own if one == OWN_NAMESPACE else one for one in term.namespaces), *term.selected)


def _selects(namespaces: Namespaces, selector: Selector, namespace: str, labels: Mapping[str, str]) -> bool:
    return (namespaces is None or namespace in namespaces) and selects(selector, labels)


def neighbour_of(job: JobRecord, group: int) -> Neighbour:
    """A pod of this group as other pods will see it."""
    of = job.valid_spec.groups[group]
    labels = of.shape.labels
    if not job.of_pods:
        labels = _with_known(labels, job.seen.name, of.name, group == LEADER_GROUP)
    rules = of.shape.rules or _NO_RULES
    volumes = (rules.exclusive, rules.attachments)
    return Neighbour(job.seen.namespace, labels, rules.host_ports, rules.anti_affinity, *volumes, rules.devices)


def of_pod(state: State, pod: PodSeen) -> Neighbour:
    """An observed pod as other pods see it."""
    labels, owner = pod.traits.labels, pod.owner
    if owner is not None:
        labels = _with_known(labels, job_name(pod.name, owner), owner.group_name, owner.leader)
    exclusive, attachments = of_claims(state, pod.namespace, pod.traits.claims)
    return Neighbour(pod.namespace, labels, pod.traits.host_ports, pod.traits.anti_affinity, exclusive, attachments)


def _with_known(labels: Labels, job: str, group: str, leader: bool) -> Labels:
    few = len(labels) <= _LABELS_REMEMBERED
    return _remembered(labels, job, group, leader) if few else _known_too(labels, job, group, leader)


@lru_cache(maxsize=16384)
def _remembered(labels: Labels, job: str, group: str, leader: bool) -> Labels:
    return _known_too(labels, job, group, leader)


def _known_too(labels: Labels, job: str, group: str, leader: bool) -> Labels:
    return tuple(sorted({**dict(labels), **known_labels(job, group, leader=leader)}.items()))


@dataclass(slots=True)
class _Kind:
    """Pods that other pods can't distinguish: their number by row, and how many of them are being deleted."""

    pod: Neighbour
    rows: dict[int, int] = field(default_factory=dict)
    leaving: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Repeller:
    """A term of required anti-affinity of pods in one namespace: the rows of these pods, and whether the term repels
    each known kind of pod."""

    namespace: str
    term: PodTerm
    rows: dict[int, int] = field(default_factory=dict)
    refuses: dict[Neighbour, bool] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    """The counts for a question by row, and whether each known kind of pod matches it."""

    question: Question
    counts: Counts
    takes: dict[Neighbour, bool] = field(default_factory=dict)


def alone_in(pod: Neighbour) -> tuple[str, ...]:
    """The topologies in which such pods avoid each other."""
    return tuple(term.topology_key for term in pod.anti_affinity if selected_by(term, pod).matches(pod))


class Neighbours:
    """The pods on a cycle's nodes. `complete` is false if only pods that repel other pods are included."""

    def __init__(
        self,
        nodes: int,
        *,
        complete: bool,
        volumes: AttachedVolumes | None = None,
        devices: DeviceRoom | None = None,
    ) -> None:
        self.complete = complete
        self._nodes = nodes
        self._kinds: dict[Neighbour, _Kind] = {}
        self._by_label: dict[tuple[str, str], list[_Kind]] = {}
        self._repellers: dict[tuple[str, PodTerm], _Repeller] = {}
        self._repellers_by_label: dict[tuple[str, str] | None, list[_Repeller]] = {}
        self._tallies: dict[Hashable, _Tally] = {}
        #: The kinds of pods that take host ports, and the cached results of `_first_taken`.
        self._with_ports: list[_Kind] = []
        self._first_taken: dict[tuple[tuple[HostPort, ...], tuple[HostPort, ...]], int | None] = {}
        self._alone: dict[Neighbour, tuple[str, ...]] = {}
        self._journal: list[tuple[int, Neighbour, list[tuple[int, int]]]] = []
        #: The volumes of the pods.
        self.volumes = volumes if volumes is not None else AttachedVolumes(nodes)
        #: The devices of the nodes; None if none are allocated.
        self.devices = devices

    def emptied(self) -> "Neighbours":
        """The same nodes without pods."""
        return Neighbours(self._nodes, complete=self.complete, volumes=self.volumes.emptied())

    # --- queries -------------------------------------------------------------------------------------------

    def count(self, question: Question) -> Counts:
        """The number of matching pods on each row. Don't modify the array."""
        tally = self._tallies.get(question)
        if tally is None:
            if len(self._tallies) >= _TALLIES:
                self._tallies.clear()
            tally = self._tallies[question] = _Tally(question, np.zeros(self._nodes, np.int64))
            for kind in self._candidates(question):
                if question.matches(kind.pod):
                    self._count_in(tally, kind)
        return tally.counts

    def _candidates(self, question: Question) -> Iterable[_Kind]:
        """The kinds that may match: those with one of the labels, if the question names some."""
        if isinstance(question, SelectedPods):
            named = [asked for _, selector in question.parts for asked in selector or () if asked.operator == "In"]
            if named:
                values = dict.fromkeys(named[0].values)
                return (kind for value in values for kind in self._by_label.get((named[0].key, value), ()))
        return self._kinds.values()

    def _count_in(self, tally: _Tally, kind: _Kind) -> None:
        for row, count in kind.rows.items():
            tally.counts[row] += count - (kind.leaving.get(row, 0) if tally.question.staying else 0)

    def repelling(self, pod: Neighbour) -> dict[str, list[int]]:
        """Topology key → rows of pods whose required anti-affinity selects this pod."""
        found: dict[str, list[int]] = {}
        if not self._repellers:
            return found
        for pair in (None, *pod.labels):
            for one in self._repellers_by_label.get(pair, ()):
                if one.rows and self._refuses(one, pod):
                    found.setdefault(one.term.topology_key, []).extend(one.rows)
        return found

    def _refuses(self, one: _Repeller, pod: Neighbour) -> bool:
        known = one.refuses.get(pod)
        if known is None:
            namespaces = within(one.term, one.namespace)
            known = one.refuses[pod] = _selects(namespaces, one.term.selector, pod.namespace, dict(pod.labels))
        return known

    def ports_taken(self, pod: Neighbour) -> Iterator[tuple[HostPort, Mask]]:
        """The pod's taken ports, in order, each with its nodes; a node counts under the first port taken there."""
        found: dict[int, Mask] = {}
        for kind in self._with_ports if pod.host_ports else ():
            pair = (pod.host_ports, kind.pod.host_ports)
            if pair not in self._first_taken:
                self._first_taken[pair] = _first_taken(*pair)
            at = self._first_taken[pair]
            if at is not None and kind.rows:
                found.setdefault(at, np.zeros(self._nodes, bool))[list(kind.rows)] = True
        return ((pod.host_ports[at], found[at]) for at in sorted(found))

    def alone_in(self, pod: Neighbour) -> tuple[str, ...]:
        """The topologies in which such pods avoid each other."""
        known = self._alone.get(pod)
        if known is None:
            known = self._alone[pod] = alone_in(pod)
        return known

    # --- changes -------------------------------------------------------------------------------------------

    def see(self, pod: Neighbour, row: int, *, leaving: bool = False) -> None:
        """Add a pod on a node; `leaving` if it is being deleted. All calls must precede the first query."""
        kind = self._kind(pod)
        kind.rows[row] = kind.rows.get(row, 0) + 1
        if leaving:
            kind.leaving[row] = kind.leaving.get(row, 0) + 1
        for term in pod.anti_affinity:
            self._add_to_term(pod.namespace, term, row, 1)
        self._add_claims(pod, row, 1, placed=False)

    def place(self, pod: Neighbour, chosen: list[tuple[int, int]], content: int) -> None:
        """Add pods placed by the cycle, as (row, pods); the view then has this `content`."""
        if self.complete:
            self._journal.append((content, pod, chosen))
            self._add(pod, chosen, 1, placed=True)

    def knows(self, pod: Neighbour) -> bool:
        """Whether such pods are counted."""
        return self.complete or bool(pod.anti_affinity)

    def shift(self, pod: Neighbour, row: int, count: int) -> None:
        """Count a pod on a row that is there again (1), or that leaves it (-1)."""
        self._add(pod, [(row, 1)], count, placed=False)

    def give_back(self, content: int) -> None:
        """Undo all placements since the view had this content."""
        while self._journal and self._journal[-1][0] > content:
            _, pod, chosen = self._journal.pop()
            self._add(pod, chosen, -1, placed=True)

    def _add(self, pod: Neighbour, chosen: list[tuple[int, int]], sign: int, *, placed: bool) -> None:
        kind = self._kind(pod)
        tallies = [tally for tally in self._tallies.values() if self._takes(tally, pod)]
        for row, count in chosen:
            _change(kind.rows, row, sign * count)
            for tally in tallies:
                tally.counts[row] += sign * count
            for term in pod.anti_affinity:
                self._add_to_term(pod.namespace, term, row, sign * count)
            self._add_claims(pod, row, sign * count, placed=placed)

    def _add_claims(self, pod: Neighbour, row: int, count: int, *, placed: bool) -> None:
        self.volumes.add(pod.namespace, pod.exclusive, pod.attachments, row, count)
        if pod.devices and self.devices is not None:
            self.devices.add(pod.namespace, pod.devices, row, count, placed=placed)

    def _takes(self, tally: _Tally, pod: Neighbour) -> bool:
        known = tally.takes.get(pod)
        if known is None:
            known = tally.takes[pod] = tally.question.matches(pod)
        return known

    def _kind(self, pod: Neighbour) -> _Kind:
        kind = self._kinds.get(pod)
        if kind is None:
            kind = self._kinds[pod] = _Kind(pod)
            for pair in pod.labels:
                self._by_label.setdefault(pair, []).append(kind)
            if pod.host_ports:
                self._with_ports.append(kind)
        return kind

    def _add_to_term(self, namespace: str, term: PodTerm, row: int, count: int) -> None:
        one = self._repellers.get((namespace, term))
        if one is None:
            one = self._repellers[namespace, term] = _Repeller(namespace, term)
            for pair in _pairs(term.selector):
                self._repellers_by_label.setdefault(pair, []).append(one)
        _change(one.rows, row, count)


def _change(rows: dict[int, int], row: int, count: int) -> None:
    left = rows.get(row, 0) + count
    if left:
        rows[row] = left
    else:
        rows.pop(row, None)


def _pairs(selector: Selector) -> Iterator[tuple[str, str] | None]:
    """Labels of which every selected pod has one; a single None if the selector names no such labels."""
    named = next((asked for asked in selector or () if asked.operator == "In"), None)
    if named is None:
        yield None
    else:
        for value in dict.fromkeys(named.values):
            yield (named.key, value)


def around(state: State, rows: Mapping[str, int]) -> Neighbours | None:
    """The pods on these nodes (name → row), including placements without a pod; None if no pod has rules about others.

    All pods are included if a waiting job has such rules, else only those that repel other pods.
    """
    asking = [job for job in map(state.jobs.__getitem__, state.with_rules) if _asks(job.valid_spec)]
    complete = any(not job.ended and len(job.placements) < job.pods_desired() for job in asking)
    if not complete and not state.repelling and all(len(job.bound) == len(job.placements) for job in asking):
        return None
    volumes = AttachedVolumes.of(state.volumes, rows)
    devices = DeviceRoom.of(state, rows) if complete else None
    found = Neighbours(len(rows), complete=complete, volumes=volumes, devices=devices)
    for pod in (state.pods if complete else state.repelling).values():
        row = rows.get(pod.node)
        if row is not None and holds(pod):
            found.see(of_pod(state, pod), row, leaving=pod.deleting)
    for job in state.jobs.values() if complete else asking:
        if len(job.bound) < len(job.placements):
            alike: dict[int, Neighbour] = {}
            for slot, node in job.placements.items():
                row = rows.get(node)
                if slot not in job.bound and row is not None:
                    if slot[0] not in alike:
                        alike[slot[0]] = neighbour_of(job, slot[0])
                    found.see(alike[slot[0]], row)
    return found


def _asks(spec: JobSpec) -> bool:
    return any([group.shape.rules is not None for group in spec.groups])
