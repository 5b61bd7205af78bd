"""The complete search for a quorum, after the ways that are tried one after the other have failed.

It first looks for a proof that nothing fits, which is cheap. Then it depends on the quorum:

- A leader and workers of one set: the leader's nodes beside which the workers fit are counted in one step.
- Pods without rules about other pods: `packing` finds how many pods of each group go to each node.
- Pods with rules about other pods: `rules_search` tries pod by pod.

A packing says only that the quorum fits. Its room is then kept for it, and group by group gives up its kept room and is
placed again by the job's policy. So the policy still chooses among the nodes, and the other groups surely fit after it.

Every search has a bound on its steps, and a cycle has one for all of its searches. Both are counted, not timed, so a
cycle that is run again finds the same.
"""

from collections.abc import Hashable, Sequence
from itertools import product

import numpy as np

from arranger.model.config import SEARCHES
from arranger.model.job import LEADER_GROUP, TopologyMode
from arranger.model.pod import PodShape
from arranger.model.reasons import REST_OF_QUORUM, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.view import Mask, fitting
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.filters.pods import domains_on, sums_of
from arranger.scheduling.placing.needs import Needs, Quorum, domains_too_small
from arranger.scheduling.placing.placement_try import NOT_SEARCHED, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.placing.topology import unit_pods
from arranger.scheduling.search.packing import Amounts, Packing, pack
from arranger.scheduling.search.rules_question import Rules, interact
from arranger.scheduling.search.rules_search import place_by_rules

#: How many domains are tried for a quorum in a cycle without steps.
DOMAINS_WITHOUT_STEPS = 8
#: The steps of each further domain, and one more for each so many nodes, because each of them is looked at.
STEPS_A_DOMAIN = 200
NODES_A_STEP = 5


class CompleteSearch:
    """The complete searches of one cycle, and the number of their steps."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        #: Steps of all searches so far.
        self.steps = 0
        #: The filters for the nodes of the present search.
        self._base = placing.filters
        #: Key of a quorum that wasn't found → the view's content, and the bound that ended the search or 0.
        self._failed: dict[Hashable, tuple[int, int]] = {}

    def may_try(self, filters: Filters, number: int, since: int) -> bool:
        """Whether a quorum may be tried in the domain of this number (the first is 0), since so many steps of this
        cycle. All domains of a quorum together have the bound of one search. Counts the steps of the domain itself."""
        if not self.bound:
            return number < DOMAINS_WITHOUT_STEPS
        if number and (not self._limit() or self.steps - since >= self.bound):
            return False
        if number:
            nodes = len(filters.rows) if filters.rows is not None else 0
            self.steps += STEPS_A_DOMAIN + nodes // NODES_A_STEP
        return True

    def may_count(self, job: JobRecord) -> bool:
        """Whether a complete search for this job's quorum could use up steps, where each group by itself has room. If
        not, leaving the search out changes no recorded `search_steps`."""
        spec = job.valid_spec
        return len(spec.groups) > 2 or spec.has_topology or self._placing.view.neighbours is not None

    def place(self, base: Filters, tried: PlacementTry, needs: Needs, shortage: Shortage, key: Hashable) -> bool:
        """Place the quorum on the nodes that these filters are for, if it fits. If not, `shortage.searched` says
        whether the search ended at its bound."""
        view = self._placing.view
        if not self._placing.config.search_steps or not len(view) or _leader_fits_nowhere(tried, shortage):
            return False
        known = self._failed.get(key) if key is not None else None
        if known is not None and known[0] == view.content:
            shortage.searched = known[1]
            return False
        mark, self._base = self._placing.mark(), base
        tried.by_search = True
        quorum = Quorum.of(tried, needs)
        if self._place(tried, quorum, shortage):
            return True
        tried.by_search = False
        if tried.taken:  # placed only in part: a policy or filter of another package may leave room unused
            self._placing.undo(tried, mark)
        if key is not None:
            self._failed[key] = (view.content, shortage.searched)
        return False

    def _place(self, tried: PlacementTry, quorum: Quorum, shortage: Shortage) -> bool:
        placing = self._placing
        if self._may_share(tried, quorum):
            return False
        by_rules = interact(placing, tried, quorum)
        rooms = self._rooms(tried, quorum, shortage.group, ever=by_rules)
        if rooms is None:
            return False
        spec = tried.job.valid_spec
        if any(spec.topology_of(group) is not None for group in quorum.indices):
            return self._place_units(tried, quorum, rooms, shortage)
        return self._place_free(tried, quorum, rooms, shortage, by_rules=by_rules)

    def _may_share(self, tried: PlacementTry, quorum: Quorum) -> bool:
        """Whether pods of the quorum may share volumes or devices, of which the search knows nothing. One pod alone has
        its own, such as a leader with a volume for its checkpoints, and the room of nodes for it tells of them."""
        holders = [group for group in quorum.indices if holds_volumes_or_devices(tried.groups[group].shape)]
        return sum(len(quorum.indices[group]) for group in holders) > 1

    def _rooms(self, tried: PlacementTry, quorum: Quorum, first: int, *, ever: bool) -> dict[int, Amounts] | None:
        """The room for each group by node; None if a group surely finds too little, which is mostly the `first` one."""
        rooms: dict[int, Amounts] = {}
        for group in sorted(quorum.indices, key=lambda group: group != first):
            pod = self._placing.pod(tried.job, group)
            rooms[group] = self._base.room(tried.groups[group].shape, pod, ever=ever)
            if not quorum.may_fit(rooms):
                return None
        return rooms

    def _place_free(
        self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts], shortage: Shortage, *, by_rules: bool
    ) -> bool:
        """Place groups that have no topology of their own."""
        groups = list(quorum.indices)
        if not by_rules and len(groups) < 3 and groups[0] == LEADER_GROUP:
            return len(groups) == 2 and self._place_leader(tried, quorum, rooms)
        if not by_rules and len(groups) == 1:
            return False  # equal pods find room one after the other, in whatever order
        limit = self._limit()
        if not limit:
            shortage.searched = NOT_SEARCHED  # what the cycle can't search for, it can't rule out
            return False
        self.steps += len(self._placing.view) // NODES_A_STEP
        if by_rules:
            return self._place_by_rules(tried, quorum, rooms, shortage, limit)
        return self._place_packed(tried, quorum, rooms, shortage, limit)

    @property
    def bound(self) -> int:
        """The bound of one search; 0 where the cycle has none."""
        return self._placing.config.search_bound(len(self._placing.view))

    def _limit(self) -> int:
        """The bound of the next search."""
        return max(min(self.bound, SEARCHES * self.bound - self.steps), 0)

    # --- worker sets with a topology -----------------------------------------------------------------------

    def _place_units(self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts], shortage: Shortage) -> bool:
        """Place first the units of topologies, in some orders and in domains with little or much room, then search for
        the other groups. If that misses the way, search with each choice of domains for the sets."""
        spec, placing = tried.job.valid_spec, self._placing
        least = [quorum.least.get(group, 0) for group in range(len(spec.groups))]
        limit = self._limit()
        if not limit or (not tried.job.placements and domains_too_small(placing.view, spec, rooms, least)):
            shortage.searched = 0 if limit else NOT_SEARCHED
            return False
        units = [group for group in quorum.indices if spec.topology_of(group) is not None]
        orders = [sorted(units, key=lambda group: -spec.unit_size(group)), units[::-1], units]
        mark = placing.mark()
        for order in orders[: 1 if len(units) == 1 else len(orders)]:
            for spacious in (False, True):
                self.steps += STEPS_A_DOMAIN + len(placing.view) // NODES_A_STEP
                tried.spacious = spacious
                found = self._place_in_order(tried, quorum, order, shortage)
                tried.spacious = False
                if found:
                    return True
                placing.undo(tried, mark)
        return self._place_by_choice(tried, quorum, rooms, shortage, units)

    def _place_by_choice(
        self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts], shortage: Shortage, units: list[int]
    ) -> bool:
        """Search with the room of each worker set in one domain, for all choices of domains."""
        spec, mark, since, ended = tried.job.valid_spec, self._placing.mark(), self.steps, 0
        if any(spec.unit_size(group) < spec.groups[group].count for group in units):
            shortage.searched = self.bound  # one domain for a set says nothing of a set with several units
            return False
        choices = [self._choices(tried, group, rooms[group], quorum.least.get(group, 0)) for group in units]
        for chosen in product(*choices):
            if not self._limit() or self.steps - since >= self.bound:
                ended = self.bound
                break
            self.steps += STEPS_A_DOMAIN
            narrowed = rooms | {group: rooms[group] * mask for group, mask in zip(units, chosen, strict=True)}
            if not quorum.may_fit(narrowed):
                continue
            shortage.searched = 0
            by_rules = interact(self._placing, tried, quorum)
            if self._place_free(tried, quorum, narrowed, shortage, by_rules=by_rules):
                return True
            ended = max(ended, shortage.searched, self.bound * bool(tried.taken))
            if tried.taken:
                self._placing.undo(tried, mark)
        shortage.searched = ended
        return False

    def _choices(self, tried: PlacementTry, group: int, room: Amounts, least: int) -> list[Mask]:
        """The nodes of each domain that may take the pods of a set, beside those that it has."""
        view, topology = self._placing.view, tried.job.valid_spec.topology_of(group)
        assert topology is not None
        there = unit_pods(tried, view).of(group)
        found: list[Mask] = []
        for level, path in enumerate(topology.paths()):
            domains = np.flatnonzero(sums_of(view, path, room) >= max(least, 1)).tolist()
            if there is not None and there.codes is not None:
                domains = [domain for domain in domains if domain == there.codes[level]]
            found += [domains_on(view, path) == domain for domain in domains]
        return found if topology.mode == TopologyMode.REQUIRED else [*found, np.ones(len(view), bool)]

    def _place_in_order(self, tried: PlacementTry, quorum: Quorum, order: list[int], shortage: Shortage) -> bool:
        """Place the units of these groups, then the others."""
        placing = self._placing
        spare = quorum.asked - sum(quorum.least.values())
        for group in order:
            needed = quorum.least.get(group, 0)
            placed = placing.place(self._base, tried, group, quorum.indices[group][: needed + spare])
            if placed < needed:
                return False
            spare -= placed - needed
        rest = {group: indices for group, indices in quorum.indices.items() if group not in order}
        if not rest:
            return not spare
        least = {group: quorum.least.get(group, 0) for group in rest}
        left = Quorum(rest, spare + sum(least.values()), quorum.exact, least)
        by_rules = interact(placing, tried, left)
        rooms = self._rooms(tried, left, shortage.group, ever=by_rules)
        if rooms is None:
            return False
        if len(rest) == 1:
            ((group, indices),) = rest.items()
            return placing.place(self._base, tried, group, indices[: left.asked]) == left.asked
        return self._place_free(tried, left, rooms, shortage, by_rules=by_rules)

    # --- a leader and workers of one set -------------------------------------------------------------------

    def _place_leader(self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts]) -> bool:
        """Place the leader where the policy likes it best among the nodes beside which the workers fit."""
        placing, (leader, workers) = self._placing, quorum.indices
        nodes = self._beside(tried.groups[leader].shape, tried.groups[workers].shape, rooms, workers, quorum.asked - 1)
        if not nodes.any():
            return False
        inside = self._base.inside(only=nodes, outside=REST_OF_QUORUM)
        if not placing.place(inside, tried, leader, quorum.indices[leader]):
            return False
        desired = quorum.indices[workers][: quorum.asked - 1]
        return placing.place(self._base, tried, workers, desired) == len(desired)

    def _beside(self, leader: PodShape, worker: PodShape, rooms: dict[int, Amounts], group: int, workers: int) -> Mask:
        """The nodes that take the leader and leave room for the workers: the room everywhere, less what the leader
        takes of it on its node."""
        view, room = self._placing.view, rooms[group]
        kept = np.zeros_like(view.free)
        kept += view.request(leader)
        beside = np.minimum(fitting(view, worker, kept), room)
        found: Mask = (rooms[LEADER_GROUP] > 0) & (room.sum() - room + beside >= workers)
        return found

    # --- several groups ------------------------------------------------------------------------------------

    def _place_packed(
        self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts], shortage: Shortage, limit: int
    ) -> bool:
        question = PackingQuestion(self._placing, tried, quorum, rooms)
        outcome = pack(question.packing, limit)
        self.steps += outcome.steps
        if outcome.counts is None:
            shortage.searched = 0 if outcome.complete else limit
            return False
        return self._place_again(tried, quorum, question.counts_by_group(outcome.counts))

    def _place_again(self, tried: PlacementTry, quorum: Quorum, counts: dict[int, Amounts]) -> bool:
        """Place each group as the policy likes it best, while the room that was found for the groups after it is kept.
        The found room of the group itself is free again, so all of its pods find room."""
        placing = self._placing
        amounts = {group: placing.view.request(tried.groups[group].shape) for group in counts}
        kept = np.zeros_like(placing.view.free)
        for group, pods in counts.items():
            kept += pods[:, None] * amounts[group]
        for group, pods in counts.items():
            kept = kept - pods[:, None] * amounts[group]
            desired = quorum.indices[group][: int(pods.sum())]
            inside = self._base.inside(kept=kept, outside=REST_OF_QUORUM)
            if placing.place(inside, tried, group, desired) < len(desired):
                return False
        return True

    # --- rules among the pods ------------------------------------------------------------------------------

    def _place_by_rules(
        self, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts], shortage: Shortage, limit: int
    ) -> bool:
        """Place pod by pod. If the pods don't fit even without rules among them, no such search is needed."""
        placing = self._placing
        relaxed = pack(PackingQuestion(placing, tried, quorum, rooms).packing, limit)
        self.steps += relaxed.steps
        if relaxed.counts is None and relaxed.complete:
            return False
        self.steps += sum(int((room > 0).sum()) for room in rooms.values())
        rules = Rules(placing, tried, quorum, rooms)
        answer = place_by_rules(rules.question(), limit - relaxed.steps)
        self.steps += answer.steps
        if answer.pods is None:
            shortage.searched = 0 if answer.complete else limit
            return False
        if not self._place_each(tried, quorum, rules.placed(answer)):
            shortage.searched = limit  # a filter of another package refused a pod, and there may be another way
            return False
        return True

    def _place_each(self, tried: PlacementTry, quorum: Quorum, found: list[tuple[int, int]]) -> bool:
        """Place pods, given as group and row, in this order."""
        placing = self._placing
        indices = {group: iter(of_group) for group, of_group in quorum.indices.items()}
        for group, row in found:
            only = np.zeros(len(placing.view), bool)
            only[row] = True
            inside = self._base.inside(only=only, outside=REST_OF_QUORUM)
            if not placing.place(inside, tried, group, [next(indices[group])]):
                return False
        return True


class PackingQuestion:
    """A quorum as a packing: only nodes with room, groups with equal requests and nodes as one, and the amounts in
    units and up to limits that matter. So a change that doesn't matter leads to the same question."""

    def __init__(self, placing: Placing, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Amounts]) -> None:
        self._groups = list(quorum.indices)
        self._caps = [len(quorum.indices[group]) for group in self._groups]
        self._least = [quorum.least.get(group, 0) for group in self._groups]
        self._nodes = len(placing.view)
        room = np.stack([np.minimum(rooms[group], cap) for group, cap in zip(self._groups, self._caps, strict=True)], 1)
        self._rows = np.flatnonzero(room.any(axis=1))
        room = room[self._rows]
        every = np.stack([placing.view.request(tried.groups[group].shape) for group in self._groups])
        columns = np.flatnonzero(every.any(axis=0))
        requests, free = every[:, columns], placing.view.free[self._rows][:, columns].astype(np.int64)
        units = np.gcd.reduce(requests, axis=0)
        requests, free = requests // units, np.maximum(free, 0) // units
        uses: list[list[int]] = []
        left: list[int] = []
        if placing.quotas.limits(tried.job) and not quorum.exact:
            uses, left = placing.quotas.remainders(tried.job, self._groups)
        used = np.array(uses, np.int64).reshape(len(uses), len(self._groups)).T
        #: The number of the packing's group for each group of the quorum.
        self._class, first = _classes(np.concatenate([requests, used, room.T > 0], axis=1))
        caps = np.bincount(self._class, weights=self._caps).astype(np.int64)
        room = np.minimum(_room_of(free, requests[first]) * (room[:, first] > 0), caps)
        self.packing = Packing(
            requests=requests[first],
            caps=caps,
            free=np.minimum(free, room @ requests[first]),
            room=room,
            asked=quorum.asked,
            least=np.bincount(self._class, weights=self._least).astype(np.int64),
            uses=used[first],
            left=np.array(left, np.int64),
        )

    def counts_by_group(self, counts: Amounts) -> dict[int, Amounts]:
        """The pods of each of the quorum's groups by row of the view: the least of each, then more of the first."""
        left = counts.copy()
        found: dict[int, Amounts] = {}
        for number, group in enumerate(self._groups):
            of_class = left[:, self._class[number]]
            later = sum(self._least[at] for at in range(number + 1, len(self._groups)) if self._equal(at, number))
            before = np.cumsum(of_class) - of_class
            taken = np.clip(min(self._caps[number], int(of_class.sum()) - later) - before, 0, of_class)
            left[:, self._class[number]] -= taken
            if taken.any():
                found[group] = np.zeros(self._nodes, np.int64)
                found[group][self._rows] = taken
        return found

    def _equal(self, one: int, other: int) -> bool:
        return bool(self._class[one] == self._class[other])


def holds_volumes_or_devices(shape: PodShape) -> bool:
    """Whether a pod has volumes, or devices, that count on its node or that others can't use beside it."""
    rules = shape.rules
    return rules is not None and bool(rules.exclusive or rules.attachments or rules.devices)


def _leader_fits_nowhere(tried: PlacementTry, shortage: Shortage) -> bool:
    """Whether the leader fits no node although no pod of the quorum has one yet, and no such pod could change that."""
    if shortage.group != LEADER_GROUP or shortage.found or shortage.quota is not None:
        return False
    rules = tried.groups[LEADER_GROUP].shape.rules
    eased = rules is not None and bool(rules.affinity or rules.spread)
    return (
        not eased and bool(shortage.reasons) and all(reason.kind != ReasonKind.FITS for reason, _ in shortage.reasons)
    )


def _classes(rows: Amounts) -> tuple[Amounts, Amounts]:
    """For each row the number of its class of equal rows, in the order of their first rows; and these first rows."""
    numbers: dict[bytes, int] = {}
    found = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in np.ascontiguousarray(rows)], np.int64)
    return found, np.unique(found, return_index=True)[1]


def _room_of(free: Amounts, requests: Sequence[Amounts] | Amounts) -> Amounts:
    """How many pods of each request fit each node, nodes × requests."""
    rooms = [(free[:, asked] // one[asked]).min(axis=1) for one in requests for asked in [np.flatnonzero(one)]]
    return np.stack(rooms, axis=1)
