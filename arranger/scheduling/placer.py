"""Placing one job after another on one cycle's view: quorums whole or not at all, further pods as room allows.

Nothing here knows the order among jobs; see `cycle`. What is placed is held in the view at once, and what a failed
quorum held is free again at once.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arranger.model.config import CycleConfig
from arranger.model.job import LEADER_GROUP, JobSpec, PlacedPods
from arranger.model.pod import PodShape
from arranger.model.quota import QuotaLack
from arranger.projections.jobs import JobRecord, runs
from arranger.projections.nodes import Amounts
from arranger.projections.state import State
from arranger.scheduling.attempt import Attempt, Piece, Shortage, Witness
from arranger.scheduling.filters import Filters
from arranger.scheduling.mix import cluster_mix
from arranger.scheduling.needs import Needs, free_indices, joining, lacks_room, quorum_needs
from arranger.scheduling.neighbours import Neighbour, neighbour_of
from arranger.scheduling.placement import Scores
from arranger.scheduling.pod_filters import places_of
from arranger.scheduling.policies.base import Ask, PodPolicy, Typical, Unplaced, weight_of
from arranger.scheduling.quotas import Quotas, quota_text
from arranger.scheduling.ranking import Ranking
from arranger.scheduling.refusals import wary_groups
from arranger.scheduling.registry import Policies
from arranger.scheduling.shares import Shares
from arranger.scheduling.view import Chosen, ClusterView, Mask

#: How many shapes' rankings are kept at once.
RANKINGS = 64

#: How many places of a topology are tried for a quorum whose pods must be together.
PLACES = 8

#: How many splits of a quorum over its worker sets are tried when the order given doesn't fit.
SPLITS = 8


@dataclass(slots=True)
class _Repeat:
    """The last quorum, when all of it went to one node by a rule that would choose the same again."""

    spec: JobSpec
    row: int
    total: Amounts
    pieces: list[Piece]
    content: int


class Placer:
    """One cycle's view and what is remembered on the way. `told_ms` is the state's time unless it is given."""

    def __init__(
        self,
        state: State,
        config: CycleConfig,
        policies: Policies,
        *,
        told_ms: int | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._told_ms = state.told_ms if told_ms is None else told_ms
        self.view = ClusterView.of(state)
        for pod in state.assumed_until(self._told_ms):
            self.view.count_free(pod.node, pod.requests)
        self.quotas = Quotas(state, self._told_ms)
        self._state = state
        self._mix: tuple[Typical, ...] | None = None
        self.shares = Shares(self.view)
        self._filters = Filters(self.view, policies.filters)
        self._config = config
        self._policies = policies
        self._witness = witness
        self._empty: tuple[ClusterView, Filters] | None = None
        self._infeasible: dict[Hashable, bool] = {}
        self._failed: dict[Hashable, tuple[int, Shortage]] = {}
        self._repeat: _Repeat | None = None
        self._met: set[tuple[str, PodShape]] = set()
        self._rankings: dict[tuple[str, PodShape], Ranking] = {}

    # --- quorums -------------------------------------------------------------------------------------------

    def quorum(self, job: JobRecord) -> Attempt:
        """Place what the job's quorum still lacks, whole or not at all."""
        groups = wary_groups(job, self._config, self._told_ms)
        attempt = Attempt(job, self._policies.pod_policy(job, self._config), groups)
        if self._again(attempt):
            return attempt
        needs = quorum_needs(job, attempt.policy)
        attempt.shortage = self._beyond_quota(attempt, needs)
        if attempt.shortage is not None:
            return attempt
        # A quota is its namespace's, and what it leaves changes only together with what the view holds.
        alike = (self._alike(job), job.seen.namespace) if self.quotas.limits(job) else self._alike(job)
        known = self._failed.get(alike) if not job.placements and self._witness is None else None
        if known is not None and known[0] == self.view.content:
            attempt.shortage = known[1]
            return attempt
        shortage = self._place_quorum(self.view, self._filters, attempt, needs)
        attempt.quorum_stands = shortage is None
        if shortage is None:
            self._remember(attempt)
            return attempt
        # A job that has nodes ran on them: whatever its quorum has grown to since, it can wait for more.
        shortage.infeasible = not shortage.quota and not job.placements and self._never_fits(job, attempt.policy)
        attempt.shortage = shortage
        if not job.placements:
            self._failed[alike] = (self.view.content, shortage)
        return attempt

    def fits(self, job: JobRecord) -> bool:
        """Whether the job's quorum would find room now. Nothing is held afterwards."""
        groups = wary_groups(job, self._config, self._told_ms)
        attempt = Attempt(job, self._policies.pod_policy(job, self._config), groups)
        needs = quorum_needs(job, attempt.policy)
        if self._beyond_quota(attempt, needs) is not None:
            return False
        mark, quota_mark = self.view.mark(), self.quotas.mark()
        found = self._place_quorum(self.view, self._filters, attempt, needs) is None
        self.view.give_back(mark, attempt.taken)
        self.quotas.give_back(quota_mark)
        return found

    def _beyond_quota(self, attempt: Attempt, needs: Needs) -> Shortage | None:
        """What the namespace's quotas don't leave for a quorum, whichever workers make it up: no node is looked at."""
        job = attempt.job
        if not self.quotas.limits(job):
            return None
        pods = {group: len(indices) for group, indices in needs.items()}
        free = free_indices(job, range(1, len(attempt.groups)))
        any_set = not attempt.policy.whole and len(free) > 1
        lack = self.quotas.least(job, pods, free) if any_set else self.quotas.lack(job, pods)
        if lack is None:
            return None
        return self._short_of_quota(attempt, min(pods), lack, found=0, asked=sum(pods.values()))

    def _short_of_quota(self, attempt: Attempt, group: int, lack: QuotaLack, *, found: int, asked: int) -> Shortage:
        shortage = Shortage(group, ((quota_text(lack), 1),), found, asked, quota=lack)
        if self._witness is not None:
            self._witness.fell_short(attempt, shortage, view=self.view, filters=self._filters)
        return shortage

    def _place_quorum(self, view: ClusterView, filters: Filters, attempt: Attempt, needs: Needs) -> Shortage | None:
        """All of the needs, or another split of as many workers over the sets, or nothing."""
        mark, quota_mark = view.mark(), self.quotas.mark()
        shortage = None
        for tried, split in self._ways(view, filters, attempt, needs):
            if shortage is not None and 0 < self._config.tried_pods <= attempt.steps:
                break  # in every cycle, for as long as the job waits
            failed = self._place_all(view, tried, attempt, needs, split)
            if failed is None:
                attempt.as_given = split is None and tried is filters
                return None
            shortage = shortage or failed
            view.give_back(mark, attempt.taken)
            self.quotas.give_back(quota_mark)
            attempt.undo()
            if self._witness is not None and view is self.view:
                self._witness.undone(attempt)
        return shortage

    def _ways(
        self, view: ClusterView, filters: Filters, attempt: Attempt, needs: Needs
    ) -> Iterator[tuple[Filters, Sequence[int] | None]]:
        """Every split on all nodes, then, for pods that must be together, in one place of their topology at a time.

        The first pod chooses its node without regard to those that must join it, so its place may be too small.
        """
        for split in self._splits(attempt, needs):
            yield filters, split
        if view is self.view and view.neighbours is not None and not attempt.job.placements:
            asked = sum(len(indices) for indices in needs.values())
            for place in self._places_together(filters, attempt, asked):
                narrowed = Filters(view, self._policies.filters, only=place)
                for split in self._splits(attempt, needs):
                    yield narrowed, split

    def _places_together(self, filters: Filters, attempt: Attempt, asked: int) -> Iterator[Mask]:
        """Where a quorum of which pods must join others could be: places that hold so many of the job's pods counted
        shape by shape, at most `PLACES`, the roomiest for those pods first."""
        found = joining(attempt.job)
        if found is None:
            return
        number, key = found
        places = places_of(self.view, key)
        groups = attempt.groups
        rooms = np.array(
            [
                np.bincount(places, weights=np.minimum(filters.room(group.shape), group.count), minlength=1)
                for group in groups
            ]
        )
        enough = np.minimum(rooms, [[group.count] for group in groups]).sum(axis=0) >= asked
        enough[0] = False  # nodes in no place
        ranked = np.argsort(-rooms[number], kind="stable")
        for place in ranked[enough[ranked]][:PLACES].tolist():
            yield places == place

    def _splits(self, attempt: Attempt, needs: Needs) -> Iterator[Sequence[int] | None]:
        """Ways to find the workers: None is exactly the needs; else an order of sets, each giving what it can.

        By the smallest pods first, by the largest first, and by the order given begun at each set: at most `SPLITS`.
        """
        yield None
        spec = attempt.job.valid_spec
        sets = range(1, len(spec.groups))
        if attempt.policy.whole or len(sets) < 2:
            return
        by_size = sorted(sets, key=lambda group: (self._size(spec, group), group))
        orders = [by_size, by_size[::-1], *([*sets[at:], *sets[:at]] for at in range(len(sets)))]
        yield from orders[:SPLITS]

    def _size(self, spec: JobSpec, group: int) -> int:
        """A worker's weighted part of the whole cluster: how much of it one pod takes, to order sets by."""
        total = self.view.allocatable.sum(axis=0)
        size = 0
        for resource, amount in spec.groups[group].shape.requests:
            column = self.view.column(resource)
            there = int(total[column]) if column is not None else 0
            size += max(weight_of(resource, self._config), 1) * (amount * 1_000_000_000 // there if there else 1 << 40)
        return size

    def _place_all(
        self, view: ClusterView, filters: Filters, attempt: Attempt, needs: Needs, order: Sequence[int] | None
    ) -> Shortage | None:
        """Group by group; with an `order` the workers needed may come from any sets, in that order."""
        asked = sum(len(indices) for indices in needs.values())
        if order is None:
            turns: Iterable[tuple[int, Sequence[int]]] = needs.items()
        else:
            free = free_indices(attempt.job, order)
            turns = [(group, needs[group]) for group in (LEADER_GROUP,) if group in needs]
            turns += [(group, free[group]) for group in order if group in free]
        found = 0
        shortage = None
        for group, indices in turns:
            wanted = indices[: asked - found]
            placed = self._place(view, filters, attempt, group, wanted)
            found += placed
            if placed < len(wanted):
                shortage = shortage or self._short(view, filters, attempt, group, found=found, asked=asked)
                if order is None or group == LEADER_GROUP:
                    return shortage
            if found == asked:
                return None
        return shortage if found < asked else None

    def _never_fits(self, job: JobRecord, policy: PodPolicy) -> bool:
        """Whether the quorum would not even fit the present nodes with nothing on them and all of them healthy."""
        alike = self._alike(job)
        known = self._infeasible.get(alike)
        if known is None:
            known = self._infeasible[alike] = self._judged_on_facts(job, policy, alike)
        return known

    def _judged_on_facts(self, job: JobRecord, policy: PodPolicy, alike: Hashable) -> bool:
        """Without other pods that have a say in it, this follows from the nodes' facts: a job that waits for long is
        asked about in every cycle."""
        if self.view.neighbours is not None:
            return self._lacks_room(job, policy)
        filters = tuple((of.name, of.version) for of in self._policies.filters)
        return self.view.derived(("lacks room", filters, policy.whole, alike), lambda: self._lacks_room(job, policy))

    def _lacks_room(self, job: JobRecord, policy: PodPolicy) -> bool:
        if self._empty is None:
            view = self.view.emptied()
            self._empty = (view, Filters(view, self._policies.filters, ignore_health=True))
        return lacks_room(*self._empty, job, policy)

    # --- further pods --------------------------------------------------------------------------------------

    def further(self, attempt: Attempt, pods: int | None) -> bool:
        """Place up to `pods` pods beyond a standing quorum (None: all), one set after the other.

        True if some were placed and there are more to try.
        """
        if attempt.left is None:
            free = free_indices(attempt.job, range(len(attempt.groups)), attempt.pieces)
            attempt.left = {group: (indices, len(indices)) for group, indices in free.items()}
        while attempt.left:
            group, (indices, asked) = next(iter(attempt.left.items()))
            wanted = indices if pods is None else indices[:pods]
            placed = self._place(self.view, self._filters, attempt, group, wanted)
            rest = indices[placed:]
            if placed < len(wanted):
                found = asked - len(rest)
                short = self._short(self.view, self._filters, attempt, group, found=found, asked=asked)
                attempt.shortage = attempt.shortage or short
            if placed == len(wanted) and rest:
                attempt.left[group] = (rest, asked)
            else:
                del attempt.left[group]
            if pods is not None and placed:
                return bool(attempt.left)
        return False

    # --- parts ---------------------------------------------------------------------------------------------

    def _place(self, view: ClusterView, filters: Filters, attempt: Attempt, group: int, indices: Sequence[int]) -> int:
        """Place as many of these equal pods as the quotas leave and as find a node; answers how many."""
        if not self.quotas.limits(attempt.job):
            return self._place_on_nodes(view, filters, attempt, group, indices)
        indices = indices[: self.quotas.room(attempt.job, group, len(indices))]
        placed = self._place_on_nodes(view, filters, attempt, group, indices) if indices else 0
        self.quotas.take(attempt.job, group, placed)
        return placed

    def _place_on_nodes(
        self, view: ClusterView, filters: Filters, attempt: Attempt, group: int, indices: Sequence[int]
    ) -> int:
        if not self._one_by_one(attempt, group):
            return self._place_equal(view, filters, attempt, group, indices)
        for at in range(len(indices)):
            if not self._place_equal(view, filters, attempt, group, indices[at : at + 1]):
                return at
            attempt.steps += 1
        return len(indices)

    def _one_by_one(self, attempt: Attempt, group: int) -> bool:
        """Whether each pod placed may change where the next one of its group may go, or what a policy sees of that.

        Host ports alone don't ask for it: they only keep a second pod off a node.
        """
        if self.view.neighbours is None:
            return False
        groups = attempt.groups
        asking = groups if not attempt.policy.local else groups[group : group + 1]
        rules = [of.shape.rules for of in asking]
        return any(of is not None and (of.affinity or of.anti_affinity or of.spread) for of in rules)

    def _place_equal(
        self, view: ClusterView, filters: Filters, attempt: Attempt, group: int, indices: Sequence[int]
    ) -> int:
        """The same for pods that ask nothing of each other: all at once."""
        ask = self._ask(view, filters, attempt, group, len(indices))
        ours = view is self.view
        known = ours and filters is self._filters
        chosen = self._choose(attempt.policy, ask) if known else self._fill(view, filters, attempt.policy, ask)
        if ours and self._witness is not None:
            self._witness.placing(attempt, group, ask=ask, indices=indices, chosen=chosen, view=view, filters=filters)
        request = view.request(ask.shape)
        view.take(chosen, request, ask.pod)
        attempt.taken.append((chosen, request))
        begin = 0
        for row, count in chosen:
            attempt.pieces.append(Piece(row, group, indices[begin : begin + count]))
            begin += count
            if attempt.of_job is not None:
                attempt.of_job[row] += count
        return begin

    def _fill(self, view: ClusterView, filters: Filters, policy: PodPolicy, ask: Ask) -> Chosen:
        room = filters.room(ask.shape, ask.pod)
        return policy.fill(view, ask, room, self._config) if room.any() else []

    def _choose(self, policy: PodPolicy, ask: Ask) -> Chosen:
        """Nodes on this cycle's view; shapes that come again are ranked once and kept up to date."""
        if not (policy.local and policy.rising) or self._concerned(ask.shape, ask.pod):
            return self._fill(self.view, self._filters, policy, ask)
        key = (policy.name, ask.shape)
        ranking = self._rankings.get(key)
        if ranking is None:
            if key not in self._met:
                self._met.add(key)
                return self._fill(self.view, self._filters, policy, ask)
            ranking = self._rankings[key] = Ranking(self.view, self._filters, policy, ask, self._config)
            if len(self._rankings) > RANKINGS:
                del self._rankings[next(iter(self._rankings))]
        return ranking.choose(self._filters, ask.count)

    def _ask(self, view: ClusterView, filters: Filters, attempt: Attempt, group: int, count: int) -> Ask:
        shape = attempt.groups[group].shape
        unplaced: tuple[Unplaced, ...] = ()
        if not attempt.policy.local:
            if attempt.of_job is None:
                attempt.of_job = self._count(view, attempt)
            unplaced = self._unplaced(filters, attempt, group)
        leader, typical = group == LEADER_GROUP, self._typical(attempt.policy)
        pod, preference = self._pod(attempt.job, group), filters.preference(shape)
        return Ask(shape, count, leader, attempt.of_job, unplaced, typical, pod, preference)

    def _pod(self, job: JobRecord, group: int) -> Neighbour | None:
        """A pod of the group as other pods see it, where that matters."""
        return neighbour_of(job, group) if self.view.neighbours is not None else None

    def _concerned(self, shape: PodShape, pod: Neighbour | None) -> bool:
        """Whether other pods have a say in where such a pod may go."""
        neighbours = self.view.neighbours
        if neighbours is None or pod is None:
            return False
        return shape.rules is not None or bool(neighbours.repelling(pod))

    def _typical(self, policy: PodPolicy) -> tuple[Typical, ...]:
        """The cluster's mix, for policies that weigh it; made when the first of them asks."""
        if not policy.weighs_mix:
            return ()
        if self._mix is None:
            mix = cluster_mix(self._state)
            self._mix = tuple(Typical(shape, pods, self._filters.static(shape)) for shape, pods in mix)
        return self._mix

    def _count(self, view: ClusterView, attempt: Attempt) -> Scores:
        """The job's pods by row, those placed in this cycle included."""
        counts = np.zeros(len(view), np.int64)
        rows = view.roster.rows()
        for node in attempt.job.placements.values():
            if node in rows:
                counts[rows[node]] += 1
        for piece in attempt.pieces:
            counts[piece.row] += len(piece.indices)
        return counts

    def _unplaced(self, filters: Filters, attempt: Attempt, group: int) -> tuple[Unplaced, ...]:
        """What of the job has no node yet, the pods of this group first."""
        groups = attempt.groups
        free = free_indices(attempt.job, range(len(groups)), attempt.pieces)
        in_turn = sorted(free, key=lambda other: other != group)
        return tuple(
            Unplaced(groups[of].shape, len(free[of]), filters.room(groups[of].shape, pod), pod)
            for of in in_turn
            for pod in [self._pod(attempt.job, of)]
        )

    def _short(
        self, view: ClusterView, filters: Filters, attempt: Attempt, group: int, *, found: int, asked: int
    ) -> Shortage:
        if view is not self.view or filters is not self._filters:
            # The reasons of an empty cluster, or of one place among others, are told to nobody.
            return Shortage(group, (), found, asked)
        lack = self.quotas.lack(attempt.job, {group: 1})
        if lack is not None:
            return self._short_of_quota(attempt, group, lack, found=found, asked=asked)
        reasons = filters.reasons(attempt.groups[group].shape, self._pod(attempt.job, group))
        shortage = Shortage(group, reasons, found, asked)
        if self._witness is not None:
            self._witness.fell_short(attempt, shortage, view=view, filters=filters)
        return shortage

    # --- jobs alike ----------------------------------------------------------------------------------------

    def _alike(self, job: JobRecord) -> Hashable:
        """What decides where a job's pods may go: the spec, and who they are where other pods have a say in it."""
        groups = wary_groups(job, self._config, self._told_ms)
        if job.given_up or groups is not job.valid_spec.groups:
            return (job.valid_spec, groups, tuple(sorted(job.given_up)), job.seen.namespace, job.seen.name)
        if self.view.neighbours is not None:
            for number, group in enumerate(job.valid_spec.groups):
                if self._concerned(group.shape, neighbour_of(job, number)):
                    return (job.valid_spec, job.seen.namespace, job.seen.name)
        return job.valid_spec

    def _remember(self, attempt: Attempt) -> None:
        """Keep a quorum that went to one node by a local, rising score: an equal job's would go there too.

        Its node has only risen since in the scores of all its pods, and no other node has changed: while the whole
        quorum fits there, one by one would choose that node again for each of its pods.
        """
        policy = attempt.policy
        rows = {piece.row for piece in attempt.pieces}
        self._repeat = None
        if not (policy.local and policy.rising) or len(rows) != 1 or attempt.job.placements or self._witness:
            return
        if not attempt.as_given:
            return
        if self._alike(attempt.job) is not attempt.job.valid_spec:
            return
        total = np.zeros(self.view.free.shape[1], np.int64)
        for chosen, amounts in attempt.taken:
            total += amounts * sum(count for _, count in chosen)
        self._repeat = _Repeat(attempt.job.valid_spec, rows.pop(), total, attempt.pieces, self.view.content)

    def _again(self, attempt: Attempt) -> bool:
        """Place an equal job's quorum where the last one went, if all of it fits there."""
        repeat = self._repeat
        if repeat is None or repeat.content != self.view.content or attempt.job.placements:
            return False
        if attempt.job.spec is not repeat.spec and attempt.job.spec != repeat.spec:
            return False
        asked = repeat.total > 0
        if (repeat.total > self.view.free[repeat.row])[asked].any():
            return False
        if self._alike(attempt.job) is not attempt.job.spec:
            return False
        pods = _by_group(repeat.pieces)
        if self.quotas.lack(attempt.job, pods) is not None:
            return False
        for group, count in pods.items():
            self.quotas.take(attempt.job, group, count)
        self.view.take([(repeat.row, 1)], repeat.total)
        repeat.content = self.view.content
        if self.view.neighbours is not None:
            for piece in repeat.pieces:
                pod = neighbour_of(attempt.job, piece.group)
                self.view.neighbours.place(pod, [(piece.row, len(piece.indices))], self.view.content)
        attempt.taken.append(([(repeat.row, 1)], repeat.total))
        attempt.pieces = list(repeat.pieces)
        attempt.quorum_stands = True
        return True

    def placed_pods(self, attempt: Attempt) -> tuple[PlacedPods, ...]:
        """The attempt's placements as an event tells them: by node name, then group, indices in runs."""
        by_place: dict[tuple[int, int], list[Piece]] = {}
        for piece in attempt.pieces:
            by_place.setdefault((piece.row, piece.group), []).append(piece)
        names = self.view.names
        return tuple(PlacedPods(names[row], group, _merged(by_place[row, group])) for row, group in sorted(by_place))


def _by_group(pieces: list[Piece]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for piece in pieces:
        counts[piece.group] = counts.get(piece.group, 0) + len(piece.indices)
    return counts


def _merged(pieces: list[Piece]) -> tuple[tuple[int, int], ...]:
    if len(pieces) == 1 and isinstance(pieces[0].indices, range):
        return ((pieces[0].indices[0], pieces[0].indices[-1]),)
    return runs(sorted(index for piece in pieces for index in piece.indices))
