"""The devices of a cycle's nodes: which are free, and which claims get which of them as the cycle places pods.

A claim gets its devices with its first pod; all other pods that name it must go where these can be reached. The devices
of a row are tried in the order of their drivers, pools and names, and the requests of the claims in the pod's order. If
devices for all requests exist, they are found: each request takes what another one can do without (augmenting paths,
as for a matching in a bipartite graph). A claim that each pod has for itself gets devices with every pod.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arranger.model.devices import AllocatedDevice, Allocation, DecidedDevices, DeviceId, on_node
from arranger.model.pod import DeviceNeeds, DevicesAsked, NodeTerms
from arranger.model.selectors import node_satisfies
from arranger.projections.cluster.device_table import Holding
from arranger.projections.cluster.remembered import remembered
from arranger.projections.observed.devices import held
from arranger.projections.state import State

#: By row: the number of the first claim for which devices lack, or this if there are enough for all.
ENOUGH = -1
Numbers = npt.NDArray[np.int64]
Claim = tuple[str, str]
Needs = tuple[DeviceNeeds, ...]
Requests = tuple[tuple[DevicesAsked, ...], ...]
#: More pods than any node takes.
_MANY = 1 << 31


class Device(NamedTuple):
    """A device that a row reaches: the nodes that do, and the selectors that select it. `unknown` stands for those of a
    pool of which slices are missing: no claim gets one, and none gets all devices. No claim gets one that is not
    `whole` either (`DeviceFacts`), so none gets all of some among which it is."""

    id: DeviceId
    terms: NodeTerms | None
    selected_by: frozenset[str]
    unknown: bool = False
    whole: bool = True

    def matches(self, asked: DevicesAsked) -> bool:
        return self.whole and not self.unknown and self.selected_by.issuperset(asked.selectors)


class _Unit(NamedTuple):
    """One device that a claim (by its number) asks for."""

    claim: int
    asked: DevicesAsked


def match(
    devices: Sequence[Device], claims: Sequence[Sequence[DevicesAsked]], taken: Container[DeviceId]
) -> list[list[AllocatedDevice]] | int:
    """Devices for each claim, or the number of the first one for which there aren't enough. A request for all devices
    gets none if one of them is taken or tainted, or if it isn't known which there are."""
    owners: dict[int, _Unit] = {}
    fixed = {at for at, device in enumerate(devices) if device.id in taken}
    for number, asked in enumerate(claims):
        for one in asked:
            if not one.count:
                mine = _all_of(devices, one, fixed)
                if not mine:
                    return number
                owners.update(dict.fromkeys(mine, _Unit(number, one)))
                fixed |= mine
    for number, asked in enumerate(claims):
        for one in asked:
            for _ in range(one.count):
                if not _augment(devices, _Unit(number, one), owners, set(fixed)):
                    return number
    found: list[list[AllocatedDevice]] = [[] for _ in claims]
    for number, asked in enumerate(claims):
        for one in asked:
            own = [at for at, unit in sorted(owners.items()) if unit.claim == number and unit.asked is one]
            found[number] += [AllocatedDevice(one.request, devices[at].id) for at in own]
    return found


def _all_of(devices: Sequence[Device], asked: DevicesAsked, fixed: set[int]) -> set[int]:
    """All devices that a request selects; none if it can't have one of them, or it isn't known which there are."""
    selected = {at for at, device in enumerate(devices) if device.selected_by.issuperset(asked.selectors)}
    if any([device.unknown for device in devices]) or not all([devices[at].whole for at in selected]):
        return set()
    return selected if selected.isdisjoint(fixed) else set()


def how_many(devices: Sequence[Device], claims: Sequence[Sequence[DevicesAsked]], taken: Container[DeviceId]) -> int:
    """For how many pods the free devices are enough, if each of them has such claims for itself."""
    units = [_Unit(number, one) for number, asked in enumerate(claims) for one in asked for _ in range(one.count)]
    if not units or any(not one.count for asked in claims for one in asked):
        return int(not isinstance(match(devices, claims, taken), int)) if any(claims) else _MANY
    owners: dict[int, _Unit] = {}
    fixed, pods = {at for at, device in enumerate(devices) if device.id in taken}, 0
    while all(_augment(devices, unit, owners, set(fixed)) for unit in units):
        pods += 1
    return pods


def _augment(devices: Sequence[Device], unit: _Unit, owners: dict[int, _Unit], tried: set[int]) -> bool:
    for at, device in enumerate(devices):
        if at in tried or not device.matches(unit.asked):
            continue
        tried.add(at)
        if at not in owners or _augment(devices, owners[at], owners, tried):
            owners[at] = unit
            return True
    return False


@dataclass(slots=True)
class _Known:
    """The rows' answers for the requests of some claims, up to a position in the journal."""

    numbers: Numbers
    position: int


@dataclass(slots=True)
class _Chosen:
    """The devices of a claim that this cycle decides, and how many pods that it placed name it."""

    allocation: Allocation | None = None
    pods: int = 0


@dataclass(slots=True)
class DeviceRoom:
    """The devices that each row reaches, by row, which of them are taken, and the claims that have some by decision.
    `apart`: no device is reached from two rows."""

    names: Sequence[str]
    rows: dict[int, list[Device]] = field(default_factory=dict)
    reached_by: dict[DeviceId, list[int]] = field(default_factory=dict)
    apart: bool = True
    taken: dict[DeviceId, None] = field(default_factory=dict)
    uids: dict[Claim, str] = field(default_factory=dict)
    decided: dict[Claim, Holding] = field(default_factory=dict)
    #: The devices of slots that a decision gives, or gave until a moment ago.
    _of_slots: list[Holding] = field(default_factory=list)
    _chosen: dict[Claim, _Chosen] = field(default_factory=dict)
    #: The namespace and claims of pods, and a row → the devices of each such pod that this cycle placed there, for the
    #: claims that it has for itself.
    _own: dict[tuple[str, Needs, int], list[tuple[Allocation, ...]]] = field(default_factory=dict)
    _known: dict[tuple[bool, Requests], _Known] = field(default_factory=dict)
    #: The rows of which devices were taken or released, in order.
    _journal: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, state: State, rows: Mapping[str, int]) -> "DeviceRoom | None":
        """The devices of these nodes (name → row); None if none are allocated."""
        table = state.devices
        if not state.with_devices or not (table.claims or table.templates):
            return None
        key = ("devices", table.version)
        by_row, reached_by, apart = remembered(state.nodes.facts_version, key, lambda: _inventory(state, rows))
        found = cls([*rows], by_row, reached_by, apart, dict.fromkeys(table.holders))
        found.uids = {key: of.uid for key, of in table.claims.items()}
        for holding in table.decided.values():
            found._hold(holding)
        return found

    def _hold(self, holding: Holding) -> None:
        if holding.decided.slot is None:
            self.decided[holding.namespace, holding.decided.claim] = holding
        else:
            self._of_slots.append(holding)
        self.taken.update((one.device, None) for one in holding.decided.allocation.devices)

    def lapse(self, state: State, time_ms: int) -> None:
        """Release the decided devices that nobody holds any more at this time."""
        for key, holding in [*self.decided.items()]:
            if not held(state, holding, time_ms):
                del self.decided[key]
                self._release(holding.decided.allocation)
        lapsed = [of for of in self._of_slots if not held(state, of, time_ms)]
        self._of_slots = []
        for holding in lapsed:
            self._release(holding.decided.allocation)
        self.taken |= dict.fromkeys(state.devices.holders)  # the claim of a slot may have its devices

    # --- queries -------------------------------------------------------------------------------------------

    def of_claim(self, namespace: str, need: DeviceNeeds) -> Allocation | None:
        """The devices that a claim which pods share gets by a decision, also by one of this cycle."""
        if need.allocated or need.own:
            return None
        return self._of_shared(namespace, need.claim)

    def _of_shared(self, namespace: str, claim: str) -> Allocation | None:
        chosen, holding = self._chosen.get((namespace, claim)), self.decided.get((namespace, claim))
        if holding is not None:
            return holding.decided.allocation
        return chosen.allocation if chosen is not None else None

    def decision(self, namespace: str, claim: str) -> DecidedDevices | None:
        """The same as a decision records it."""
        found = self._of_shared(namespace, claim)
        return DecidedDevices(claim, self.uids[namespace, claim], found) if found is not None else None

    def lacking(self, claims: Sequence[DeviceNeeds]) -> Numbers:
        """By row, the number of the first of these claims for which the row lacks devices, or `ENOUGH`."""
        return self._by_row(tuple(of.asked for of in claims), pods=False)

    def most(self, claims: Sequence[DeviceNeeds]) -> Numbers:
        """For how many pods each row has devices, if each of them has such claims for itself."""
        return self._by_row(tuple(of.asked for of in claims), pods=True)

    def _by_row(self, asked: Requests, *, pods: bool) -> Numbers:
        def number(devices: Sequence[Device]) -> int:
            if pods:
                return how_many(devices, asked, self.taken)
            found = match(devices, asked, self.taken)
            return found if isinstance(found, int) else ENOUGH

        known = self._known.get((pods, asked))
        if known is None:
            known = _Known(np.full(len(self.names), number(()), np.int64), len(self._journal))
            self._known[pods, asked], changed = known, [*self.rows]
        else:
            changed = [*dict.fromkeys(self._journal[known.position :])]
            known.position = len(self._journal)
        for row in changed:
            known.numbers[row] = number(self.rows.get(row, ()))
        return known.numbers

    def given(self, namespace: str, needs: Needs, row: int, pods: int) -> list[tuple[Allocation, ...]]:
        """The devices of so many pods with these claims that this cycle placed last on a row, of each for the claims
        that it has for itself. No pod gets them again."""
        stack = self._own.get((namespace, needs, row), [])
        found = stack[len(stack) - min(pods, len(stack)) :]
        del stack[len(stack) - len(found) :]
        return found

    # --- changes -------------------------------------------------------------------------------------------

    def add(self, namespace: str, needs: Needs, row: int, count: int, *, placed: bool) -> None:
        """Add so many pods with these claims on a row, or with a negative count remove them. The claims without devices
        get some with their first pod, and lose them with the last. The claims that pods have for themselves count only
        for pods that this cycle has `placed`: the decisions on the others hold their devices."""
        shared = [of for of in needs if not of.own]
        undecided = [of for of in shared if not of.allocated and (namespace, of.claim) not in self.decided]
        begun: list[DeviceNeeds] = []
        for of in undecided:
            chosen = self._chosen.setdefault((namespace, of.claim), _Chosen())
            chosen.pods += count
            if chosen.pods > 0 and chosen.allocation is None and of.lack is None:
                begun.append(of)
            elif chosen.pods <= 0 and chosen.allocation is not None:
                self._release(chosen.allocation)
                chosen.allocation = None
        own = [of for of in needs if of.own] if placed else []
        stack = self._own.setdefault((namespace, needs, row), []) if own else []
        if count > 0 and (begun or own):
            stack += self._choose(namespace, begun, own, row, count)
        for _ in range(min(-count, len(stack))):
            for allocation in stack.pop():
                self._release(allocation)

    def _choose(
        self, namespace: str, shared: list[DeviceNeeds], own: list[DeviceNeeds], row: int, pods: int
    ) -> list[tuple[Allocation, ...]]:
        """Take devices for claims that so many pods share, and for those that each of them has for itself; returns the
        latter by pod."""
        devices = self.rows.get(row, [])
        terms = {of.id: of.terms for of in devices}
        found = match(devices, [of.asked for of in (*shared, *(own * pods))], self.taken)
        if isinstance(found, int):
            return [()] * pods  # another pod's end is only supposed, and its devices are still taken
        allocations = []
        for chosen in found:
            reached = _reached([terms[one.device] for one in chosen], self.names[row])
            allocations.append(Allocation(tuple(chosen), reached))
            for one in chosen:
                self.taken[one.device] = None
                self._journal += self.reached_by.get(one.device, ())
        for of, allocation in zip(shared, allocations, strict=False):
            self._chosen[namespace, of.claim].allocation = allocation
        begin = len(shared)
        return [tuple(allocations[at : at + len(own)]) for at in range(begin, begin + pods * len(own), len(own) or 1)]

    def _release(self, allocation: Allocation) -> None:
        for one in allocation.devices:
            self.taken.pop(one.device, None)
            self._journal += self.reached_by.get(one.device, ())


def _inventory(
    state: State, rows: Mapping[str, int]
) -> tuple[dict[int, list[Device]], dict[DeviceId, list[int]], bool]:
    """The devices by row, those of each in order, the rows that reach each of them, and whether that is one at most.
    A request for all devices knows of those that no claim gets, too."""
    by_row: dict[int, list[Device]] = {}
    reached_by: dict[DeviceId, list[int]] = {}
    slices, incomplete = state.devices.newest_slices()
    for of in slices:
        facts, known = of.facts, state.devices.matches.get(of.uid)
        there = _rows_of(state, facts.node, facts.terms, rows)
        by_device: dict[int, list[str]] = {}
        for selector, indices in known.selected.items() if known is not None else ():
            for at in indices:
                by_device.setdefault(at, []).append(selector)
        for at, device in enumerate(facts.devices):
            if there:
                one = DeviceId(facts.driver, facts.pool, device.name)
                reached_by[one] = there
                found = Device(one, facts.reached_from, frozenset(by_device.get(at, ())), whole=device.whole)
                for row in there:
                    by_row.setdefault(row, []).append(found)
    for of in incomplete:
        unknown = Device(DeviceId(of.facts.driver, of.facts.pool, ""), None, frozenset(), unknown=True)
        for row in _rows_of(state, of.facts.node, of.facts.terms, rows):
            by_row.setdefault(row, []).append(unknown)
    for devices in by_row.values():
        devices.sort(key=lambda device: device.id)
    return by_row, reached_by, all(len(of) == 1 for of in reached_by.values())


def _rows_of(state: State, node: str, terms: NodeTerms | None, rows: Mapping[str, int]) -> list[int]:
    """The rows that reach a slice's devices."""
    if node:
        return [rows[node]] if node in rows else []
    if terms is None:
        return [*rows.values()]
    table = state.nodes
    labels = ((name, row, dict(table.facts[table.rows[name]].labels)) for name, row in rows.items())
    return [row for name, row, of in labels if node_satisfies(terms, of, name)]


def _reached(terms: Iterable[NodeTerms | None], node: str) -> NodeTerms | None:
    """The nodes that reach all of some devices: the node itself, if one of them is that node's alone; else those that
    satisfy the terms of all (a slice has one term); None for all nodes."""
    found = [*dict.fromkeys(of for of in terms if of is not None)]
    if on_node(node) in found:
        return on_node(node)
    return (tuple(dict.fromkeys(one for of in found for term in of for one in term)),) if found else None
