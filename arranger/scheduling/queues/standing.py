"""What each queue uses, demands and is entitled to at one moment, and whose turn it is in a cycle.

In a queue with `userFairness`, each submitter's jobs are like a queue of their own below it, all with equal weights. So
the submitters of a queue divide its share, and the one with the lowest ratio of used to share is next.
"""

from collections.abc import Iterable, Mapping, Sequence

from arranger.model.job import PodGroup
from arranger.model.queue import DEFAULT_QUEUE
from arranger.projections.derived.queue_counts import queue_of, sum_by_group, sum_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueTree
from arranger.projections.state import State
from arranger.scheduling.queues.demand import NonPreemptibleLeft, beyond_limits
from arranger.scheduling.queues.dominant_shares import PlacedPiece, pods_by_group
from arranger.scheduling.queues.fair_shares import OWN_WEIGHT, ByResource, Claims, Division, QueueClaims
from arranger.scheduling.queues.offer import offered
from arranger.scheduling.queues.order import QueueOrder, Seniority, Unentitled
from arranger.scheduling.queues.policies import JobQueue, Turn
from arranger.scheduling.queues.submitters import SubmitterLines

#: So many parts of a unit tell a share that is rounded down to nothing from one that is nothing.
_PARTS_OF_A_UNIT = 1_000_000_000

#: A line that isn't a queue with a way to the root, and its parent.
Extra = tuple[str, str]
#: The groups of jobs without nodes, in the order of the jobs.
_Groups = list[tuple[PodGroup, ...]]


class KeptQueues:
    """What a process keeps of the queues from one cycle to the next, because little of it changes: the tree with the
    divisions of what it has, and what the jobs of each line request. A standing is the same without it."""

    def __init__(self) -> None:
        self._tree: QueueTree | None = None
        self._extra: tuple[Extra, ...] = ()
        self._claims = Claims(())
        self._divisions: dict[tuple[str, int], Division] = {}
        self._resources: tuple[str, ...] = ()
        #: Line → the groups of its jobs without nodes, and what they request of each resource.
        self._requests: dict[str, tuple[_Groups, dict[str, int]]] = {}

    def claims(self, tree: QueueTree, extra: tuple[Extra, ...]) -> Claims:
        """The queues and the extra lines."""
        if tree is not self._tree or extra != self._extra:
            self._tree, self._extra, self._divisions = tree, extra, {}
            self._claims = Claims(_claims(tree, extra))
        return self._claims

    def division(self, resource: str, parts: int = 1) -> Division:
        """The division of a resource among the last claims, in parts of its unit."""
        found = self._divisions.get((resource, parts))
        if found is None:
            found = self._divisions[resource, parts] = Division(self._claims, resource, parts)
        return found

    def requests(self, lines: Mapping[str, _Groups], resources: tuple[str, ...]) -> Mapping[str, Mapping[str, int]]:
        """Line → what its jobs without nodes request of each of these resources. Don't modify it."""
        known = self._requests if resources == self._resources else {}
        self._resources = resources
        self._requests = {
            line: (groups, _requested(groups, *(known.get(line) or ([], dict.fromkeys(resources, 0)))))
            for line, groups in lines.items()
        }
        return {line: amounts for line, (_, amounts) in self._requests.items()}


class QueueStanding:
    """The queues of a state, with waiting jobs (see `waiting_jobs`). Amounts are by resource, in its unit."""

    def __init__(
        self,
        state: State,
        jobs: Sequence[JobRecord],
        time_ms: int,
        kept: KeptQueues | None = None,
        *,
        ended: Sequence[JobRecord] = (),
    ) -> None:
        """`ended` are jobs with nodes that use and demand nothing, as if they had ended."""
        kept = KeptQueues() if kept is None else kept
        self._state = state
        self._tree = tree = state.queue_tree
        #: What the nodes offer to all jobs; resources without any are left out.
        self.total = {name: amount for name, amount in offered(state, time_ms).items() if amount}
        #: Queue, or queue and submitter → its waiting jobs.
        self.lines: dict[str, list[JobRecord]] = {}
        #: Line → its queue.
        self.queue_of: dict[str, str] = {}
        self._submitters = SubmitterLines(state)
        #: The groups of its jobs without nodes that may get some; those with nodes, or with a limit because they can't
        #: be preempted, each with its line.
        self._groups: dict[str, _Groups] = {}
        self._begun: list[tuple[str, JobRecord]] = []
        beyond, self._non_preemptible = beyond_limits(state, jobs), NonPreemptibleLeft(state)
        limited, fair = self._non_preemptible.limited(jobs), bool(self._submitters.queues)
        gone = {job.uid for job in ended}
        for job in jobs:
            if job.uid in gone:
                continue
            name = job.valid_spec.queue or queue_of(state, job)
            line = self._submitters.line_of(name, job) if fair else name
            of_line = self.lines.get(line)
            if of_line is None:
                of_line = self.lines[line] = []
                self._groups[line] = []
                self.queue_of[line] = name
            of_line.append(job)
            slots = job.slots
            if job.uid in beyond:
                continue
            if slots.nodes or slots.given_up or slots.finished or job.uid in limited:
                self._begun.append((line, job))
            else:
                self._groups[line].append(job.valid_spec.groups)
        #: Line, or queue without waiting jobs → what its own jobs use.
        self.used: dict[str, ByResource] = {**state.queue_use.own, **self._of_submitters()}
        self._end(ended)
        #: What the own jobs of queues used on average, in thousandths of the units; nothing without a half-life.
        self.averages = state.queue_use.averages(time_ms)
        self._claims = kept.claims(tree, self._extra())
        demand = self._demand(kept)
        #: What each queue and those below it are entitled to.
        self.shares = self._shares(kept, demand)
        self._unentitled = self._without(kept, demand)

    def order(self, first_jobs: Mapping[str, Seniority] | None = None, *, averages: bool = True) -> QueueOrder:
        """The order of the lines in a cycle, with the seniority of the first job of each; without it, ties go by name.
        Without `averages`, it is as if nothing had been used before."""
        waiting = dict.fromkeys(self.lines, ()) if first_jobs is None else first_jobs
        before = self.averages if averages else {}
        return QueueOrder(
            self._claims,
            self.total,
            shares=self.shares,
            used=self.used,
            waiting=waiting,
            averages=before,
            unentitled=self._unentitled,
        )

    def way(self, line: str) -> list[str]:
        """The queues from the one below the root to a line."""
        claims, found = self._claims, [line]
        at = claims.parents[claims.at[line]]
        while at >= 0:
            found.insert(0, claims.queues[at].name)
            at = claims.parents[at]
        return found

    def policy(self, line: str) -> str:
        """The queue policy that a line's queue states; empty if none."""
        spec = self._tree.specs.get(self.queue_of[line])
        return spec.queue_policy if spec is not None else ""

    def _of_submitters(self) -> dict[str, ByResource]:
        """What each submitter uses in queues with `userFairness`; these queues' own jobs then use nothing more."""
        used: dict[str, ByResource] = {name: {} for name in self._submitters.queues}
        for line, (queue, amounts) in self._submitters.used().items():
            self.queue_of[line], used[line] = queue, amounts
        return used

    def _end(self, jobs: Sequence[JobRecord]) -> None:
        """These jobs use nothing any more."""
        for job in [job for job in jobs if not job.slots.done]:
            queue = queue_of(self._state, job)
            line = self._submitters.line_of(queue, job)
            amounts = dict(self.used.get(line, _NOTHING))
            for resource, amount in sum_of(job, job.placements.keys()).items():
                amounts[resource] = amounts.get(resource, 0) - amount
            self.used[line] = amounts

    def _extra(self) -> tuple[Extra, ...]:
        """The lines that aren't queues with a way to the root: submitters, with a queue between them and a queue that
        has children, and queues without a way to the root whose jobs have nodes."""
        tree = self._tree
        between = {name: f"{name}/" for name in self._submitters.queues if name in tree.children}
        found = [(own, name) for name, own in between.items()]
        for line in {**self.used, **self.lines}:
            if line not in tree.paths:
                name = self.queue_of.get(line, line)
                found.append((line, between.get(name, name) if line != name else ""))
        return tuple(sorted(found))

    def unentitled(self, name: str, *, own: bool = False) -> str:
        """The resource that jobs of a queue and those below it request, or its own jobs, and of which it is entitled to
        nothing; empty without one."""
        return (self._unentitled.own if own else self._unentitled.queues).get(name, "")

    def _shares(self, kept: KeptQueues, demand: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
        shares = {name: kept.division(name).shares(demand[name], total) for name, total in self.total.items()}
        return {
            queue.name: {name: of[at] for name, of in shares.items()} for at, queue in enumerate(self._claims.queues)
        }

    def _without(self, kept: KeptQueues, demand: Mapping[str, Sequence[int]]) -> Unentitled:
        queues: dict[str, str] = {}
        own: dict[str, str] = {}
        for name, of in sorted(demand.items()):
            left = self._claims.of_own([self.shares[queue.name][name] for queue in self._claims.queues])
            if all(share or not requested for share, requested in zip(left, of, strict=True)):
                continue  # the common case
            # Where units are fewer than queues, some have none by their names, and are entitled to a part of one.
            finer = [requested * _PARTS_OF_A_UNIT for requested in of]
            division = kept.division(name, _PARTS_OF_A_UNIT)
            found = division.entitled_to_nothing(finer, self.total[name] * _PARTS_OF_A_UNIT)
            for entries, positions in zip((queues, own), found, strict=True):
                for at in positions:
                    entries.setdefault(self._claims.queues[at].name, name)
        return Unentitled(queues, own)

    def _demand(self, kept: KeptQueues) -> dict[str, list[int]]:
        """Resource → what the own jobs of each queue use, and what its waiting jobs still request."""
        requests = kept.requests(self._groups, tuple(self.total))
        names = [queue.name for queue in self._claims.queues]
        parts = [(self.used.get(name, _NOTHING), requests.get(name, _NOTHING)) for name in names]
        demand = {one: [used.get(one, 0) + more.get(one, 0) for used, more in parts] for one in self.total}
        for line, job in self._begun:
            for resource, amount in self._non_preemptible.take(job, _lacking(job)).items():
                if resource in demand:
                    demand[resource][self._claims.at[line]] += amount
        return demand


def _claims(tree: QueueTree, extra: Iterable[Extra]) -> Iterable[QueueClaims]:
    for name in tree.paths:
        spec = tree.specs[name]
        yield QueueClaims(
            name=name,
            parent=spec.parent,
            weight=spec.weight,
            guarantee=dict(spec.guarantee),
            deserved=dict(spec.deserved),
            capability=dict(spec.capability),
        )
    for name, parent in extra:
        yield QueueClaims(name=name, parent=parent, weight=OWN_WEIGHT)


_NOTHING: ByResource = {}


#: A turn for all further pods of a job is divided into about so many, between which other queues may have theirs:
#: otherwise a job that takes all that is left would lift its queue far above its share.
_PARTS = 16


class QueueTurns:
    """The turns of all jobs in one cycle: `order` picks the line, and the line's policies its job."""

    def __init__(self, lines: Mapping[str, JobQueue], order: QueueOrder | None) -> None:
        """Without an order there is one line, `default`."""
        self._order = order
        self._divided = len(lines) > 1
        #: The lines that aren't finished.
        self._lines = dict(lines)
        #: The line of the current turn. It also has the next one if its job gets nothing, because no ratio changes.
        self._name = "" if order is not None else DEFAULT_QUEUE
        #: The current turn is a part of the one that the line gives.
        self._in_part = False

    def head(self) -> Turn | None:
        """The current turn; None when no job is left."""
        while name := self._name or (self._order.head() if self._order is not None else None):
            self._name = name
            if (turn := self._lines[name].head()) is not None:
                self._in_part = self._divided and not turn.quorum and turn.pods is None
                if not self._in_part:
                    return turn
                return Turn(turn.job, quorum=False, pods=max(turn.job.pods_desired() // _PARTS, 1))
            if self._order is None:
                return None
            self._order.finish(name)
            del self._lines[name]
            self._name = ""
        return None

    def taken(self, *, more: bool, job: JobRecord, pieces: Sequence[PlacedPiece] = ()) -> None:
        """End the current turn, of this job, which got these pods. `more` as for a `JobQueue`."""
        if not (self._in_part and more):
            self._lines[self._name].taken(more=more)
        if pieces and self._order is not None:
            self._order.give(self._name, _sum(job, pieces))
            self._name = ""


def _requested(groups: _Groups, before: _Groups, known: dict[str, int]) -> dict[str, int]:
    """What all pods of these groups request of the resources in `known`, which has that of the groups before."""
    if groups == before:
        return known
    first, same = 0, min(len(groups), len(before))
    while first < same and groups[first] is before[first]:
        first += 1
    last = 0
    while last < same - first and groups[-1 - last] is before[-1 - last]:
        last += 1
    amounts = dict(known)
    _add_requests(amounts, groups[first : len(groups) - last], 1)
    _add_requests(amounts, before[first : len(before) - last], -1)
    return amounts


def _add_requests(amounts: dict[str, int], all_groups: _Groups, sign: int) -> None:
    """Add what all pods of these groups request. The groups of equal jobs that follow each other are mostly one
    object."""
    first = 0
    for last, groups in enumerate(all_groups, start=1):
        if last < len(all_groups) and all_groups[last] is groups:
            continue
        for group in groups:
            count = sign * (last - first) * group.count
            for resource, amount in group.shape.requests:
                if resource in amounts:
                    amounts[resource] += amount * count
        first = last


def _lacking(job: JobRecord) -> dict[str, int]:
    """What the pods of a job request whose slots have no nodes and need some."""
    slots = job.slots
    counts = [group.count for group in job.valid_spec.groups]
    for there in (slots.nodes, slots.given_up, slots.finished):
        for number, _ in there:
            counts[number] -= 1
    return sum_by_group(job, dict(enumerate(counts)))


def _sum(job: JobRecord, pieces: Iterable[PlacedPiece]) -> dict[str, int]:
    return sum_by_group(job, pods_by_group(pieces))
