"""What group checks and permits of other packages say to the quorums of one cycle, and the room that permits keep.

A hold is no state of its own: the job's recorded reason (`Objection`) says since when it is held back, until when, and
where its room is kept. So a cycle that is taken again finds the same holds. A hold is over once the job was edited, or
when it doesn't fit any more.
"""

from collections.abc import Mapping

import numpy as np

from arranger.events.facts import Objected, Objection
from arranger.model.job import PlacedPods
from arranger.model.reasons import FITS, objected
from arranger.model.text import first_line
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, exists, expand, is_quorum
from arranger.projections.state import State
from arranger.projections.verdicts.judging import sharing_no_domain
from arranger.scheduling.cluster.view import add_to
from arranger.scheduling.placing.needs import quorum_needs
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.policies.consent import MOST_SECONDS, MOST_WORDS, GroupCheck, Hold, Permit, QuorumAsked
from arranger.scheduling.queues.dominant_shares import pods_by_group
from arranger.scheduling.queues.known_jobs import RowRooms


class Consents:
    """The answers for one cycle. From its beginning on, the view is without the room that is kept."""

    def __init__(self, state: State, placing: Placing) -> None:
        self._state = state
        self._placing = placing
        self._checks, self._permits = placing.policies.checks, placing.policies.permits
        #: Job UID → the room that is held for it at the moment.
        self._kept: dict[str, RowRooms] = {}
        for job in state.jobs.values() if self._permits else ():
            known = self._known(job)
            if known is not None and known.pods and placing.time_ms < known.until_ms:
                self._keep(job, known.pods)

    @property
    def asks_checks(self) -> bool:
        """Whether there is a group check."""
        return bool(self._checks)

    @property
    def asks_permits(self) -> bool:
        """Whether there is a permit."""
        return bool(self._permits)

    def refusal(self, tried: PlacementTry, pods: Mapping[int, int]) -> Shortage | None:
        """The shortage of a quorum that a group check refuses."""
        for check in self._checks:
            words = check.refuses(self._asked(tried, pods))
            if words:
                return self._shortage(tried, sum(pods.values()), check, Objection(check.name, _short(words)))
        return None

    def lift(self, job: JobRecord) -> tuple[PlacedPods, ...]:
        """Let a job use the room that is kept for it, from its turn on; returns where that is."""
        kept = self._kept.pop(job.uid, None)
        if kept is None:
            return ()
        self._placing.view.hold(*kept, sign=-1)
        known = self._known(job)
        return known.pods if known is not None else ()

    def place_again(self, tried: PlacementTry, pods: tuple[PlacedPods, ...]) -> bool:
        """Place a quorum where its room was kept, which a permit may have looked at; False if that isn't possible any
        more."""
        placing, job = self._placing, tried.job
        slots, mark = expand(pods), placing.mark()
        if not self._as_needed(tried, slots) or sharing_no_domain(self._state.nodes, job, slots):
            return False
        rows = placing.view.node_index.rows()
        for (group, index), node in slots.items():
            if node not in rows or not self._placed(tried, group, index, rows[node]):
                placing.undo(tried, mark)
                return False
        return True

    def _as_needed(self, tried: PlacementTry, slots: Mapping[SlotKey, str]) -> bool:
        """Whether these slots are still a quorum that needs nodes: pods of a group come and go without an edit."""
        job = tried.job
        over = job.provided | job.slots.given_up.keys()
        if any(not exists(job.valid_spec, slot) or slot in over for slot in slots):
            return False
        needed = sum(map(len, quorum_needs(job, tried.policy).values()))
        return len(slots) == needed and is_quorum(job.valid_spec, job.provided | slots.keys())

    def _placed(self, tried: PlacementTry, group: int, index: int, row: int) -> bool:
        """Place one pod on this node if it still fits."""
        placing, job, shape = self._placing, tried.job, tried.groups[group].shape
        pod = placing.pod(job, group)
        limits = placing.quotas.limits(job)
        if placing.filters.refusal(shape, row, pod) != FITS:
            return False
        if limits and placing.quotas.lack(job, {group: 1}) is not None:
            return False
        amounts = placing.view.request(shape)
        placing.view.take([(row, 1)], amounts, pod)
        if limits:
            placing.quotas.take(job, group, 1)
        tried.taken.append(([(row, 1)], amounts))
        tried.pieces.append(Piece(row, group, (index,)))
        return True

    def hold_back(
        self, tried: PlacementTry, placed: tuple[PlacedPods, ...], *, may_keep: bool = True
    ) -> Shortage | None:
        """The shortage of a quorum with nodes that a permit holds back, and which doesn't stand any more. With
        `may_keep`, the room may be kept: it is free now."""
        pods = pods_by_group(tried.pieces)
        for permit in self._permits if pods else ():
            hold = permit.holds(self._asked(tried, pods, placed))
            if hold is not None:
                tried.quorum_stands = False
                objection = self._held(tried.job, permit, hold, placed if may_keep else ())
                return self._shortage(tried, sum(pods.values()), permit, objection)
        return None

    def keep(self, tried: PlacementTry, shortage: Shortage) -> None:
        """Keep the room of a quorum that was held back and that isn't on the view any more."""
        if shortage.objection is not None and shortage.objection.pods:
            self._keep(tried.job, shortage.objection.pods)

    def _held(self, job: JobRecord, permit: Permit, hold: Hold, placed: tuple[PlacedPods, ...]) -> Objection:
        """The hold as it goes on, or as it begins."""
        known, time_ms = self._known(job), self._placing.time_ms
        if known is not None and known.plugin == permit.name:
            since_ms, until_ms = known.since_ms, known.until_ms
        else:
            since_ms, until_ms = time_ms, time_ms + min(max(hold.seconds, 0), MOST_SECONDS) * 1000
        over = time_ms >= until_ms
        pods = placed if hold.keep_room and not over else ()
        return Objection(permit.name, _short(hold.words), since_ms, until_ms, pods, over)

    def _known(self, job: JobRecord) -> Objection | None:
        """The hold that the job's recorded reason names, if the job is as it was then."""
        waits = job.waits
        if waits is None or not isinstance(waits.shortage, Objected):
            return None
        known, stale = waits.shortage.objection, waits.based_on != job.version or job.placements
        return known if known.since_ms and not stale else None

    def _keep(self, job: JobRecord, pods: tuple[PlacedPods, ...]) -> None:
        view = self._placing.view
        rows, groups = view.node_index.rows(), job.valid_spec.groups
        there = [of for of in pods if of.node in rows and of.group < len(groups)]
        if not there:
            return
        on = np.array([rows[of.node] for of in there], np.int64)
        counts = [sum(last - first + 1 for first, last in of.indices) for of in there]
        each = [view.amounts(groups[of.group].shape.requests) * n for of, n in zip(there, counts, strict=True)]
        needed = np.zeros_like(view.free)
        add_to(needed, on, np.array(each))
        held = np.unique(on)
        rooms = RowRooms(held, needed[held].astype(np.int64))
        view.hold(rooms.rows, rooms.amounts)
        self._kept[job.uid] = rooms

    def _asked(self, tried: PlacementTry, pods: Mapping[int, int], placed: tuple[PlacedPods, ...] = ()) -> QuorumAsked:
        namespace = self._state.namespaces.get(tried.job.seen.namespace)
        labels = dict(namespace.labels) if namespace is not None else {}
        view = self._placing.view
        rows = view.node_index.rows() if placed else {}
        return QuorumAsked(tried.job, labels, pods, placed, {of.node: view.facts[rows[of.node]] for of in placed})

    def _shortage(self, tried: PlacementTry, asked: int, plugin: GroupCheck | Permit, objection: Objection) -> Shortage:
        permit = isinstance(plugin, Permit)
        reasons = ((objected(plugin.name, objection.words, permit=permit), 1),)
        group = min((piece.group for piece in tried.pieces), default=0)
        found = asked if permit else 0
        return self._placing.told(tried, Shortage(group, reasons, found, asked, objection=objection))


def _short(words: str) -> str:
    return first_line(words, MOST_WORDS)
