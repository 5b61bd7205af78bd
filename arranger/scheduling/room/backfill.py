"""Backfill: who of the jobs behind may use room that is held for those in front.

A job behind takes from the reserved nodes what is left once the quorum in front is there. If its deadline ends it
before the reservation begins, it may use all that is free now. Any other may use it as a guest: it leaves as soon as
the job with the reservation can start with its room (`PreemptionSearch.ask_guests`). Pods of a job that has other nodes
are lent such room by themselves (`lend`). So no room is idle because it is reserved, and no job behind delays the
start, because nothing that a job only expects of itself counts here. (Without guests it does, as nobody else could use
the room.)

A guest that keeps its queue within its share stays, where its host would lift its own above it (`ShareRules.stays`).
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from arranger.model.pod import PodShape
from arranger.model.reasons import ReasonKind
from arranger.projections.cluster.nodes import Amounts
from arranger.projections.derived.awaited_room import untried
from arranger.projections.derived.expected_ends import leaves_by_ms
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.scheduling.cluster.view import add_to, fitting
from arranger.scheduling.placing.needs import pods_of, quorum_needs
from arranger.scheduling.placing.placement_try import Piece, PlacementTry, Shortage
from arranger.scheduling.room.guests import leaves_in_time, may_be_guest, with_reservation
from arranger.scheduling.room.held_room import HeldRoom
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.search.placer import Placer


class MakeRoom(Protocol):
    """`PreemptionSearch.make_room`."""

    def __call__(
        self,
        tried: PlacementTry,
        may_not_give: Callable[[], Collection[str]],
        beside_queues: tuple[str, ...] = (),
    ) -> PlacementTry | None: ...


class OpenRoom(NamedTuple):
    """The reserved room that a job might use, by row of the view: of the jobs (UIDs) before which it comes, where any
    job may give it more, and all of it, where at most these guests (UIDs) do."""

    hosts: tuple[str, ...]
    first: Amounts
    every: Amounts
    guests: Collection[str]


class Backfill:
    """What jobs behind may use in one cycle, beside its reservations."""

    def __init__(self, state: State, placer: Placer, reservations: Reservations) -> None:
        self._state = state
        self._config = placer.placing.config
        self._placer = placer
        self._time_ms = placer.placing.time_ms
        self._held = reservations.held
        self._guests = reservations.guests
        self._share_rules = reservations.guests.share_rules
        self._vacating = reservations.vacating
        #: The content of the view, a pod and how many of a quorum lack room → who keeps it out.
        self._keep_out: dict[tuple[int, PodShape, int], tuple[str, ...]] = {}
        #: UID and which of its guests stay → whether that job can start with what is held for it, without the others.
        self._may_starts: dict[tuple[str, frozenset[str]], bool] = {}

    # --- quorums --------------------------------------------------------------------------------------------

    def quorum(self, tried: PlacementTry) -> PlacementTry | None:
        """The quorum of a failed try, placed in reserved room that it leaves in time, or as a guest, or held back by a
        permit; None if it has none. Then the try says what it lacks in the room that is open to it, and who keeps the
        rest."""
        job = tried.job
        if not self._held or tried.shortage is None or not tried.shortage.of_nodes or tried.shortage.infeasible:
            return None
        in_time = None if job.placements else self._placed_in(self._open_for_good(tried, None), job)
        if in_time is not None and _has_room(in_time):
            return in_time
        guest = self._as_guest(job)
        if guest is not None and _has_room(guest):
            return guest
        shortage = tried.shortage
        for again in (in_time, guest):
            shortage = _in_open_room(shortage, again.shortage if again is not None else None)
        # A copy: equal jobs have the same shortage, and in whose reserved room they may be depends on their queues.
        tried.shortage = shortage = dataclasses.replace(shortage)
        self._note_no_guest(job, shortage)
        if len(self._state.reservations) > 1 or self._held.keys() - self._state.reservations.keys():
            shortage.kept_by = self._keeping_out(job, shortage)
        return None

    def _as_guest(self, job: JobRecord) -> PlacementTry | None:
        if not may_be_guest(job, self._config):
            return None
        open_rooms = self._open_to_guests(job)
        found = self._placed_in(open_rooms, job)
        if found is not None and found.quorum_stands:
            self._note_hosts(found, open_rooms)
            self._occupy(found, found.pieces)
        return found

    def _placed_in(self, open_rooms: Mapping[str, HeldRoom], job: JobRecord) -> PlacementTry | None:
        """A try to place the quorum of a job with this reserved room; None without any."""
        if not open_rooms:
            return None
        with self._held.opened(open_rooms) as opening:
            again = self._placer.quorum(job)
            opening.stays = again.quorum_stands
        return again

    def _note_no_guest(self, job: JobRecord, shortage: Shortage) -> None:
        """Say of a job whether it is no guest where it would fit because it isn't preemptible, or leaves too late."""
        if not self._config.guests or job.of_pods or not _is_in_the_way(shortage):
            return
        if not job.valid_spec.preemptible:
            shortage.no_guest = self._would_fit(job, self._open_to_guests(job))
        elif not self._leaves_all_in_time(job):
            shortage.leaves_late = self._would_fit(job, self._open_to_guests(job, late=True))

    def _would_fit(self, job: JobRecord, open_rooms: Mapping[str, HeldRoom]) -> bool:
        """Whether the quorum of a job would have room with this reserved room. Nothing changes."""
        if not open_rooms:
            return False
        placing = self._placer.placing
        with placing.unobserved(), self._held.opened(open_rooms):
            mark = placing.mark()
            tried = self._placer.quorum(job)
            placing.undo(tried, mark)
        return tried.quorum_stands

    def _keeping_out(self, job: JobRecord, shortage: Shortage) -> tuple[str, ...]:
        """The jobs whose reserved room is in the way of a quorum: those of which each alone keeps all that it lacks,
        else those of which each keeps room for a pod of the group that lacks it, else all on the nodes for that
        group."""
        if not _is_in_the_way(shortage):
            return ()
        view, shape = self._placer.view, job.valid_spec.groups[shortage.group].shape
        lacks = shortage.asked - shortage.found
        key = (view.content, shape, lacks)
        if key not in self._keep_out:
            nodes, fit = self._placer.placing.filters.static(shape), fitting(view, shape)
            more = {}
            for uid, held in self._held.items():
                kept = np.zeros_like(view.free)
                kept[held.rooms.rows] = held.rooms.amounts
                more[uid] = int(((fitting(view, shape, -kept) - fit) * nodes).sum())
            all_of_it = [uid for uid, pods in more.items() if pods >= lacks]
            there = [uid for uid, held in self._held.items() if nodes[held.rooms.rows].any()]
            self._keep_out[key] = tuple(all_of_it or [uid for uid, pods in more.items() if pods] or there)
        return self._keep_out[key]

    # --- further pods ---------------------------------------------------------------------------------------

    def lend(self, tried: PlacementTry, pods: int | None) -> bool:
        """Place pods beyond a quorum as `Placer.further`, in reserved room. The job loses them, or all that it has if
        its quorum is a guest, once those with the reservations need their room."""
        job, shortage, done, more = tried.job, tried.shortage, len(tried.pieces), False
        if not self._held or not self._config.guests or job.of_pods:
            return False
        if tried.hosts:
            return self._lend(tried, pods)
        if shortage is None or not shortage.of_nodes:
            return False
        short = tried.groups[shortage.group].count - sum(group == shortage.group for group, _ in job.placements)
        asked = {shortage.group: short if pods is None else min(short, pods)}
        more = self._further(tried, pods, self._open_for_good(tried, asked))
        if len(tried.pieces) == done and job.valid_spec.preemptible:
            more = self._lend(tried, pods)
        if len(tried.pieces) == done and tried.shortage is not None:
            self._note_why_not_lent(tried, tried.shortage)
        return more

    def _lend(self, tried: PlacementTry, pods: int | None) -> bool:
        done, before = len(tried.pieces), tried.shortage
        is_guest = bool(tried.hosts)
        open_rooms = self._open_to_guests(tried.job, quorum=False)
        hosts, quotas = [self._with_room(uid) for uid in open_rooms], self._placer.placing.quotas
        with quotas.kept_for(hosts, tried.job):
            more = self._further(tried, pods, open_rooms)
        shortage = tried.shortage
        if shortage is not None and shortage.quota is not None:
            each = {shortage.group: tried.groups[shortage.group].group_size}
            if quotas.lack(tried.job, each) is None:  # they lack nothing but what is kept of it for the hosts
                tried.shortage = before
        if len(tried.pieces) > done:
            self._note_hosts(tried, open_rooms)
            self._occupy(tried, tried.pieces[done:] if is_guest else [])
        return more

    def _further(self, tried: PlacementTry, pods: int | None, open_rooms: Mapping[str, HeldRoom]) -> bool:
        """As `Placer.further`, with this reserved room. If nothing is placed, nothing has changed but the reason: what
        the pods lack in the room that is open to them."""
        if not open_rooms:
            return False
        before, done = tried.shortage, len(tried.pieces)
        tried.left, tried.shortage = None, None
        with self._held.opened(open_rooms) as opening:
            more = self._placer.further(tried, pods)
            opening.stays = len(tried.pieces) > done
        if not opening.stays:
            tried.shortage = _in_open_room(before, tried.shortage) if before is not None else None
        return more

    def _note_why_not_lent(self, tried: PlacementTry, shortage: Shortage) -> None:
        """Say of further pods whether they are no guests where they would fit because their job isn't preemptible, and
        who keeps them out."""
        job = tried.job
        if not job.valid_spec.preemptible and _is_in_the_way(shortage):
            shortage.no_guest = self._would_grow(tried, shortage.group, self._open_to_guests(job))
        if len(self._state.reservations) > 1:
            shortage.kept_by = self._keeping_out(job, shortage)

    def _would_grow(self, tried: PlacementTry, group: int, open_rooms: Mapping[str, HeldRoom]) -> bool:
        """As `_would_fit`, for further pods of a group."""
        if not open_rooms:
            return False
        with self._held.opened(open_rooms):
            return self._placer.may_grow(tried, group)

    # --- quorums to which others give room ------------------------------------------------------------------

    def beside_borrowers(self, tried: PlacementTry, make_room: MakeRoom) -> PlacementTry | None:
        """The quorum of a failed try, where others give it room; None if they don't. What is reserved for those before
        which it comes by the shares of their queues is free for it, also as pods leave it. Jobs for whose ends others
        wait that have a reservation give no room, or as in `_awaited`.

        If it comes before some only by what its victims give, it is first sought with their reserved room. That may be
        enough without any victim, and then isn't open to it: so it is sought beside that, too."""
        against = self._held_against(tried)
        by_victims = [uid for uid in against if self._comes_first_by_victims(tried.job, uid)]
        if by_victims:
            rest = {uid: held for uid, held in against.items() if uid not in by_victims}
            queues = tuple(dict.fromkeys(queue_of(self._state, self._state.jobs[uid]) for uid in by_victims))
            for closed in (rest, against):
                found = self._beside(tried, make_room, closed=closed, against=rest, queues=queues)
                if found is not None or (tried.shortage is not None and tried.shortage.untried):
                    return found
        return self._beside(tried, make_room, closed=against, against=against)

    def _beside(
        self,
        tried: PlacementTry,
        make_room: MakeRoom,
        *,
        closed: Mapping[str, HeldRoom],
        against: Mapping[str, HeldRoom],
        queues: tuple[str, ...] = (),
    ) -> PlacementTry | None:
        """As `beside_borrowers`, where this reserved room is closed to a quorum, those give none who are awaited
        `against` it, and it keeps its queues within their shares beside these."""
        with self._held.opened({uid: held for uid, held in self._held.items() if uid not in closed}) as opening:
            found = make_room(tried, lambda: self._awaited_with_guests(tried, against), queues)
            opening.stays = found is not None and found.quorum_stands
        if found is not None:
            self._note_terms(found, against)
        return found

    def _note_terms(self, found: PlacementTry, against: Mapping[str, HeldRoom]) -> None:
        """A quorum that takes room which is to be left to others with reservations is their guest there."""
        if found.preempted is None:
            return
        victims = {victim.job_uid for victim in found.preempted.victims}
        found.hosts = tuple(uid for uid, held in against.items() if not victims.isdisjoint(held.awaits))
        if found.hosts:
            _decide_hosts(found)

    def among_guests(self, tried: PlacementTry, make_room: MakeRoom) -> PlacementTry | None:
        """The quorum of a failed try as a guest, where guests give it their room; None if they don't. Between guests,
        the same rules hold as between other jobs. Nobody else gives it any: its host might start in that, and would
        take it back at once."""
        job = tried.job
        if not may_be_guest(job, self._config):
            return None
        open_rooms = self._open_to_guests(job) if not self._guests.hosts.isdisjoint(self._held) else {}
        guests = {guest.uid for uid in open_rooms for guest in self._guests.of(uid)}
        # In the room of a guest of several, the job would be in the way of those whose guest it can't be.
        guests -= {guest.uid for uid in self._held if uid not in open_rooms for guest in self._guests.of(uid)}
        if not guests:
            return None

        def may_not_give() -> dict[str, None]:
            stay = [other.uid for other in self._state.jobs.values() if other.placements and other.uid not in guests]
            return {**self._awaited(tried, self._held_against(tried)), **dict.fromkeys(stay)}

        with self._held.opened(open_rooms) as opening:
            found = make_room(tried, may_not_give)
            opening.stays = found is not None and found.quorum_stands
        if found is not None and found.preempted is not None:
            self._note_hosts(found, open_rooms)
            _decide_hosts(found)
        return found

    def _awaited_with_guests(self, tried: PlacementTry, against: Mapping[str, HeldRoom]) -> dict[str, None]:
        """UID → jobs for whose ends those wait whose reserved room is held against a quorum; and the guests in it. They
        give no room to the quorum: what they leave is for those. If the time of a reservation isn't known, jobs may use
        such room until then, as guests."""
        found = self._awaited(tried, against)
        for uid in against:
            found.update(dict.fromkeys(guest.uid for guest in self._guests.of(uid)))
        return found

    def _awaited(self, tried: PlacementTry, against: Mapping[str, HeldRoom]) -> dict[str, None]:
        """The same without guests. Who may be a guest takes their room as one if the time isn't known."""
        open_rooms = self._open_to_guests(tried.job) if may_be_guest(tried.job, self._config) else {}
        hosts = {uid for uid in open_rooms if not untried(self._state.jobs[uid], self._config)}
        waits = [held for uid, held in against.items() if held.start_ms or uid not in hosts]
        return {uid: None for held in waits for uid in held.awaits}

    def _held_against(self, tried: PlacementTry) -> dict[str, HeldRoom]:
        """What is held by those before which this quorum doesn't come by the shares of their queues."""
        return {uid: held for uid, held in self._held.items() if not self._comes_first(tried.job, None, uid)}

    # --- what is open to whom -------------------------------------------------------------------------------

    def open_to(self, job: JobRecord) -> OpenRoom | None:
        """The reserved room that a job without nodes might use in its turn; None if its turn tells first. Who may start
        without guests is asked as in its turn: once of each host."""
        nothing = np.zeros_like(self._placer.view.free, np.int64)
        if not self._held:
            return OpenRoom((), nothing, nothing, {})
        may, late = self._config.guests and not job.of_pods, not self._leaves_all_in_time(job)
        if may and (late or not job.valid_spec.preemptible):
            return None
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        to_guests = self._open_to_guests(job) if may else {}
        hosts, first, every = list[str](), nothing, nothing.copy()
        for uid, held in self._held.items():
            comes_first = self._may_come_first(job, uid)
            opens = comes_first or uid in to_guests or (end_ms is not None and end_ms <= held.start_ms)
            every[held.rooms.rows] += held.rooms.amounts if opens else held.lent
            if comes_first:
                hosts.append(uid)
                first[held.rooms.rows] += held.rooms.amounts
        guests = {guest.uid: None for uid in to_guests for guest in self._guests.of(uid)}
        return OpenRoom(tuple(hosts), first, every, guests)

    def ended_by(self, job: JobRecord) -> tuple[tuple[str, ...], Amounts] | None:
        """The jobs (UIDs) whose reservations end if a job starts, which uses what they need of a quota of their
        namespace, and all that is held for them, by row; None if there are none."""
        if job.placements or not self._held or not self._placer.placing.quotas.limits(job):
            return None
        hosts = tuple(uid for uid in self._held if uid != job.uid and self._needs_its_quota(uid, job))
        room = np.zeros_like(self._placer.view.free, np.int64)
        for uid in hosts:
            rows, amounts = self._held[uid].rooms
            room[rows] += amounts
        return (hosts, room) if hosts else None

    def _open_for_good(self, tried: PlacementTry, pods: Mapping[int, int] | None) -> dict[str, HeldRoom]:
        """The reserved room that a job may use without being a guest, for so many more pods of its groups, None for its
        quorum: what it will have left before the reservation begins, and all where its queue comes first. Of the rest,
        what is held beside pods that were lent it."""
        job = tried.job
        end_ms = leaves_by_ms(self._state, job, self._config, self._time_ms)
        whole = {uid for uid, held in self._held.items() if end_ms is not None and end_ms <= held.start_ms}
        if tried.shortage is not None and _is_in_the_way(tried.shortage):
            behind = [uid for uid in self._held if uid not in whole]
            whole |= {uid for uid in behind if self._comes_first(job, pods, uid)}
        open_rooms = {uid: held if uid in whole else held.beside_lent for uid, held in self._held.items()}
        return {uid: held for uid, held in open_rooms.items() if uid in whole or held.rooms.amounts.any()}

    def _open_to_guests(self, job: JobRecord, *, late: bool = False, quorum: bool = True) -> dict[str, HeldRoom]:
        """The reserved room in which a job may be a guest. Who starts in room that the job in front can use now would
        be asked to leave at once, and be in its way if its turn is still to come. So would who starts in room of a job
        that only waits for its own pods, and who can't leave before a start that is known, but `late`; and whose
        `quorum` uses a ResourceQuota that the job in front needs, because that counts pods until they are gone."""
        jobs = self._state.jobs
        found = {
            uid: held
            for uid, held in self._held.items()
            if job.uid not in jobs[uid].slots.asked and not self._vacating.own_gone_ms(jobs[uid])
        }
        found = {uid: held for uid, held in found.items() if late or leaves_in_time(job, held.start_ms, self._time_ms)}
        if quorum and not job.placements and self._placer.placing.quotas.limits(job):
            found = {uid: held for uid, held in found.items() if not self._needs_its_quota(uid, job)}
        return {uid: held for uid, held in found.items() if not self.may_start(uid)}

    def may_start(self, uid: str) -> bool:
        """Whether the job for which room is held can start with it without its guests. In a cycle, there is more room
        later on only where other guests stay, because queues have got more, so this is asked once of each."""
        host = self._state.jobs[uid]
        key = (uid, self._share_rules.staying(host))
        if key not in self._may_starts:
            with self._placer.view.holding(*self._held[uid].rooms, sign=-1):
                self._may_starts[key] = self._share_rules.fits_without_guests(host)
        return self._may_starts[key]

    def _comes_first(self, job: JobRecord, pods: Mapping[int, int] | None, uid: str) -> bool:
        """Whether so many pods of a job's groups, None for its quorum, come before the one for which room is held."""
        return self._share_rules.comes_first(job, pods, with_reservation(self._state, uid))

    def _may_come_first(self, job: JobRecord, uid: str) -> bool:
        """Whether a job's quorum comes before one with reserved room, or may by what others give it."""
        return self._comes_first(job, None, uid) or self._comes_first_by_victims(job, uid)

    def _comes_first_by_victims(self, job: JobRecord, uid: str) -> bool:
        return self._share_rules.comes_first_by_victims(job, with_reservation(self._state, uid))

    def _leaves_all_in_time(self, job: JobRecord) -> bool:
        return all(leaves_in_time(job, held.start_ms, self._time_ms) for held in self._held.values())

    def _needs_its_quota(self, uid: str, job: JobRecord) -> bool:
        """Whether a job with reserved room needs what another one's quorum would use of a quota of their namespace."""
        placing = self._placer.placing
        policy = placing.policies.pod_policy(job, self._config)
        return placing.quotas.quota_keeps_from(*self._with_room(uid), job, policy)

    def _with_room(self, uid: str) -> tuple[JobRecord, Mapping[int, int]]:
        """A job with reserved room, and for how many pods of its groups that is: its quorum, if it has it since its
        turn in this cycle."""
        host, needs = with_reservation(self._state, uid)
        return host, needs or pods_of(quorum_needs(host, self._placer.placing.policies.pod_policy(host, self._config)))

    # --- guests of this cycle -------------------------------------------------------------------------------

    def _note_hosts(self, tried: PlacementTry, open_rooms: Collection[str]) -> None:
        """Say in a try in whose reserved room it is, of those open to it."""
        rows = {piece.row for piece in tried.pieces}
        found = [uid for uid, held in self._held.items() if not rows.isdisjoint(held.rooms.rows.tolist())]
        tried.hosts = tuple(uid for uid in found if uid in open_rooms or uid in tried.hosts)

    def _occupy(self, tried: PlacementTry, pieces: list[Piece]) -> None:
        """Hold no room beside these pods of a new guest that they leave when it is needed: `HeldRooms.hold` says the
        same of them from the next cycle on."""
        view, groups = self._placer.view, tried.job.valid_spec.groups
        if not pieces:
            return
        used = np.zeros_like(view.free)
        each = [view.amounts(groups[piece.group].shape.requests) * len(piece.indices) for piece in pieces]
        add_to(used, np.array([piece.row for piece in pieces], np.int64), np.array(each))
        self._held.hold_less(tried.hosts, used)


def _decide_hosts(found: PlacementTry) -> None:
    """Name the hosts of a quorum in the decision by which others give it room."""
    assert found.preempted is not None
    decided = found.preempted
    found.preempted = replace(decided, placed=replace(decided.placed, hosts=found.hosts))


def _has_room(tried: PlacementTry) -> bool:
    """Whether a quorum has nodes, or a permit holds it back."""
    return tried.quorum_stands or (tried.shortage is not None and tried.shortage.objection is not None)


def _in_open_room(before: Shortage, again: Shortage | None) -> Shortage:
    """What to tell of pods: the shortage of another try, with reserved room that is open to them, if there was one.
    Once they lack no room but a limit, that keeps them out, whatever room is in the way of a later try."""
    return before if again is None or not before.of_nodes else again


def _is_in_the_way(shortage: Shortage) -> bool:
    """Whether reserved room is in a job's way."""
    return any(reason.kind == ReasonKind.RESERVED for reason, _ in shortage.reasons)
