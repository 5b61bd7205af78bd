"""What each queue uses, demands and is entitled to at one moment, and whose turn it is in a cycle.

In a queue with `userFairness`, each submitter's jobs are like a queue of their own below it, all with equal weights. So
the submitters of a queue divide its share, and the one with the lowest ratio of used to share is next.
"""

from collections.abc import Iterable, Mapping, Sequence

from arranger.projections.jobs import JobRecord
from arranger.projections.nodes import Requests
from arranger.projections.queue_membership import submitter_of
from arranger.projections.queue_use import queue_of, sum_of
from arranger.projections.state import State
from arranger.scheduling.policies.queues import MergedQueues, Turn
from arranger.scheduling.queue_order import QueueOrder
from arranger.scheduling.queue_room import ready_total
from arranger.scheduling.queue_shares import OWN_WEIGHT, Amounts, QueueClaims, queue_shares
from arranger.scheduling.shares import Piece


class QueueStanding:
    """The queues of a state, with waiting jobs (see `waiting_jobs`). Amounts are by resource, in its unit."""

    def __init__(self, state: State, jobs: Iterable[JobRecord], time_ms: int) -> None:
        self._tree = tree = state.queue_tree
        #: What all ready nodes have; resources without any are left out.
        self.total = {name: amount for name, amount in ready_total(state.nodes).items() if amount}
        #: Queue, or queue and submitter → its waiting jobs.
        self.lines: dict[str, list[JobRecord]] = {}
        #: Line → its queue.
        self.queue_of: dict[str, str] = {}
        self._fair = [name for name in tree.paths if tree.specs[name].user_fairness]
        for job in jobs:
            name = queue_of(state, job)
            line = self._line(name, job) if self._fair else name
            of_line = self.lines.get(line)
            if of_line is None:
                of_line = self.lines[line] = []
                self.queue_of[line] = name
            of_line.append(job)
        #: Line, or queue without waiting jobs → what its own jobs use.
        self.used: dict[str, Amounts] = {**state.queue_use.own, **self._of_submitters(state)}
        #: The same, with what its waiting jobs still request.
        self.demand = {name: _with_requests(self.used.get(name, {}), of) for name, of in self.lines.items()}
        self.claims = list(self._claims())
        #: What the own jobs of queues used on average, in thousandths of the units; nothing without a half-life.
        self.averages = state.queue_use.averages(time_ms)
        #: What each queue and those below it are entitled to.
        self.shares = queue_shares(self.claims, self.total)

    def order(self, *, averages: bool = True) -> QueueOrder:
        """The order of the lines in a cycle; without `averages`, as if nothing had been used before."""
        before = self.averages if averages else {}
        return QueueOrder(
            self.claims, self.total, shares=self.shares, used=self.used, waiting=self.lines, averages=before
        )

    def way(self, line: str) -> list[str]:
        """The queues from the one below the root to a line."""
        parents = {claim.name: claim.parent for claim in self.claims}
        found = [line]
        while parents.get(found[0]):
            found.insert(0, parents[found[0]])
        return found

    def policy(self, line: str) -> str:
        """The queue policy that a line's queue states; empty if none."""
        spec = self._tree.specs.get(self.queue_of[line])
        return spec.queue_policy if spec is not None else ""

    def _line(self, name: str, job: JobRecord) -> str:
        return f"{name}/{submitter_of(job)}" if name in self._fair else name  # no queue has a "/" in its name

    def _of_submitters(self, state: State) -> dict[str, Amounts]:
        """What each submitter uses in queues with `userFairness`; these queues' own jobs then use nothing more."""
        used: dict[str, dict[str, int]] = {name: {} for name in self._fair}
        for job in state.jobs.values() if self._fair else ():
            name = queue_of(state, job)
            if job.placements and name in used:
                line = self._line(name, job)
                self.queue_of[line] = name
                of_line = used.setdefault(line, {})
                for resource, amount in sum_of(job, job.placements).items():
                    of_line[resource] = of_line.get(resource, 0) + amount
        return dict(used)

    def _claims(self) -> Iterable[QueueClaims]:
        tree = self._tree
        for name in tree.paths:
            spec = tree.specs[name]
            yield QueueClaims(
                name=name,
                parent=spec.parent,
                weight=spec.weight,
                guarantee=dict(spec.guarantee),
                deserved=dict(spec.deserved),
                capability=dict(spec.capability),
                demand=self._demand(name),
            )
        between = {name: f"{name}/" for name in self._fair if name in tree.children}
        for name, own in between.items():
            yield QueueClaims(name=own, parent=name, weight=OWN_WEIGHT)
        for line in sorted(self.used.keys() | self.lines.keys()):
            if line not in tree.paths:  # a submitter, or a queue without a way to the root whose jobs have nodes
                name = self.queue_of.get(line, line)
                parent = between.get(name, name) if line != name else ""
                yield QueueClaims(name=line, parent=parent, weight=OWN_WEIGHT, demand=self._demand(line))

    def _demand(self, line: str) -> Amounts:
        found = self.demand.get(line)
        return self.used.get(line, {}) if found is None else found


#: A turn for all further pods of a job is divided into about so many, between which other queues may have theirs:
#: otherwise a job that takes all that is left would lift its queue far above its share.
_PARTS = 16
_NO_LINE = MergedQueues(())


class QueueTurns:
    """The turns of all jobs in one cycle: `order` picks the line, and the line's policies its job."""

    def __init__(self, lines: Mapping[str, MergedQueues], order: QueueOrder | None) -> None:
        """Without an order there is one line."""
        self._lines = lines
        self._order = order
        #: That of the current turn.
        self._line = next(iter(lines.values()), _NO_LINE)
        #: The current turn is a part of the one that the line gives.
        self._in_part = False

    def head(self) -> Turn | None:
        """The current turn; None when no job is left."""
        if self._order is None:
            return self._line.head()
        while (name := self._order.head()) is not None:
            self._line = self._lines[name]
            if (turn := self._line.head()) is not None:
                self._in_part = not turn.quorum and turn.pods is None and len(self._lines) > 1
                pods = max(turn.job.pods_desired() // _PARTS, 1)
                return Turn(turn.job, quorum=False, pods=pods) if self._in_part else turn
            self._order.finish(name)
        return None

    def taken(self, *, more: bool, job: JobRecord, pieces: Sequence[Piece] = ()) -> None:
        """End the current turn, of this job, which got these pods. `more` as for a `JobQueue`."""
        if not (self._in_part and more):
            self._line.taken(more=more)
        if pieces and self._order is not None and (name := self._order.head()) is not None:
            self._order.give(name, _sum(job, pieces))


def _with_requests(used: Amounts, jobs: Iterable[JobRecord]) -> Amounts:
    """What is used, and what these jobs still request."""
    pods: dict[Requests, int] = {}
    for job in jobs:
        slots, groups = job.slots, job.valid_spec.groups
        for group in groups:  # equal requests are summed once: thousands of jobs may wait
            requests = group.shape.requests
            pods[requests] = pods.get(requests, 0) + group.count
        for there in (slots.nodes, slots.given_up, slots.finished):
            for number, _ in there:
                pods[groups[number].shape.requests] -= 1
    amounts = dict(used)
    for requests, count in pods.items():
        for resource, amount in requests:
            amounts[resource] = amounts.get(resource, 0) + amount * count
    return amounts


def _sum(job: JobRecord, pieces: Iterable[Piece]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for piece in pieces:
        for resource, amount in job.valid_spec.groups[piece.group].shape.requests:
            amounts[resource] = amounts.get(resource, 0) + amount * len(piece.indices)
    return amounts
