"""The product's guards, and a way to turn off each; the simulation must notice that every time."""

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from arranger.events import kinds as k
from arranger.kube.cluster import TYJOBS, ClusterUnavailable
from arranger.lifecycle import awaited_room, giving_way, replacements, stages
from arranger.model import tyjob
from arranger.model.job import JobSpec, Topology
from arranger.model.pod import NO_DEFAULTS
from arranger.model.queue import Preemption, QueueSpec
from arranger.model.quota import QuotaLack
from arranger.model.stages import StageReason
from arranger.projections import fold, snapshot
from arranger.projections.derived import awaited_room as taken_room
from arranger.projections.derived import queue_membership
from arranger.projections.folding import forecasts, giving_up
from arranger.projections.folding.job_life import JobLife
from arranger.projections.folding.pods_of_jobs import PodsOfJobs
from arranger.projections.folding.slots import Slots
from arranger.projections.jobs.parts import Pardon, SlotKey, TakenRoom
from arranger.projections.jobs.records import JobRecord, requests_of
from arranger.projections.observed import runtime_classes
from arranger.projections.state import State
from arranger.projections.verdicts import judging, ownership, placements, preemption
from arranger.replay.forecast import ends
from arranger.sandbox.status import ApiRefusal
from arranger.sandbox.store import Store
from arranger.scheduling.filters import refusals
from arranger.scheduling.filters import volumes as volume_filters
from arranger.scheduling.filters.volumes import VolumeBinding, VolumeRestrictions
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.quotas import Quotas
from arranger.scheduling.placing.topology import Units
from arranger.scheduling.queues import known_jobs
from arranger.scheduling.queues import offer as queue_offer
from arranger.scheduling.queues import waiting as queue
from arranger.scheduling.queues.known_jobs import KnownJob
from arranger.scheduling.queues.limits import QueueRoom
from arranger.scheduling.room import backfill, candidates, vacating
from arranger.scheduling.room.backfill import Backfill
from arranger.scheduling.room.candidates import Candidates
from arranger.scheduling.room.held_room import HeldRooms
from arranger.scheduling.room.kept_limits import KeptLimits
from arranger.scheduling.room.preemption import LeavingAnyway
from arranger.scheduling.room.reservation_search import ReservationSearch
from arranger.scheduling.room.reservations import Reservations
from arranger.scheduling.room.victims import RoomSearch
from arranger.scheduling.search import placer
from arranger.scheduling.search.placer import Placer
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects import deletions
from arranger.workers.applying.effects.creation import Creation
from arranger.workers.applying.objects import members_writer, service_writer
from arranger.workers.applying.objects.claim_writer import ClaimWriter
from arranger.workers.applying.pods.placeholders import Placeholders
from arranger.workers.applying.pods.provisioner import Provisioner
from arranger.workers.applying.statuses.queue_writer import QueueWriter
from arranger.workers.applying.statuses.status_writer import StatusWriter
from arranger.workers.flow.cancelling import _ask
from arranger.workers.flow.retries import Retries
from arranger.workers.log.cluster_hold import ClusterHold
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.members.writes import Writes
from arranger.workers.watching import observer, watcher
from arranger.workers.watching.observer import Observer
from tests import memory_log
from tests.memory_log import MemoryLog
from tests.simulation.actors import TAKEN, TTL, home_of
from tests.simulation.calm import CALM
from tests.simulation.clocks import HOURS, JUST_IN_TIME
from tests.simulation.elsewhere import BREAKS
from tests.simulation.endings import RIVAL
from tests.simulation.faults import (
    BACK_UNSEEN,
    CUT,
    ENDS,
    HALF_WAY,
    KINDS,
    LIMITED,
    PLACEHOLDERS,
    REQUESTS,
    SLOW,
    SOME_FAIL,
    STAYING,
    STAYS,
    SUCCESS_UNSEEN,
    WITH_CLAIMS,
    WITHIN_DESERVED,
)
from tests.simulation.forecasts import IN_VAIN, TOLD, TOO_LATE
from tests.simulation.invariants import Violation
from tests.simulation.limit_ranges import COMES
from tests.simulation.queues import MODES
from tests.simulation.rogue import GROUPS
from tests.simulation.room import CROWD
from tests.simulation.second import SECOND
from tests.simulation.starts import KEPT, ORDER, UNABLE
from tests.simulation.topologies import RACE
from tests.simulation.vain import REFUSED
from tests.simulation.world import World

#: The guards of room that is taken back.
OF_ROOM = (
    "that no job starts before its room is free",
    "how long a job waits for room",
    "who may give room",
    "that no job gives room to one of equal priority",
    "how room may be taken in a queue",
    "that only queues above their share give room",
    "that whoever isn't needed is spared",
    "that nobody gives room that comes by itself",
    "that surplus goes before whole jobs",
    "that who takes room which is to be left to a job before it is its guest",
    "that no restart of a preempted job counts",
    "that room is kept for whom others gave it",
    "how long jobs keep what they have just got",
    "that only victims' pods leave",
    "that who took room in vain takes none again",
    "that a job is pardoned once",
)
#: The guards of claims.
OF_CLAIMS = (
    "that a pod waits for its volumes",
    "where a volume is reached",
    "that one pod alone uses a claim",
    "that a pod leaves a node which its volume excludes",
    "that no job fails while a claim may still come",
)
#: The faults that a guard handles, with their rates while it is off: otherwise a run may not have them.
_OFTEN = {
    "a node that closed since the cycle began": {"a node closes while a cycle is on its way": 1.0},
    "whole worker groups": {GROUPS: 1.0},
    "the domain of pods that belong together": {RACE: 1.0},
    "that a rack is a rack of its block": {RACE: 1.0},
    "that workers may begin anywhere once those before them have finished": {RACE: 1.0, CROWD: 1.0},
    "the clock of a process that applies": {HOURS: 1.0, TTL: 1.0},
    "the cluster that a process is connected to": {BREAKS: 1.0},
    "the owner of a pod as it is when it is deleted": {TAKEN: 1.0},
    "the term of an append for a watch": {"append held in flight": 0.05},
    "the comparison of a watch": {f"watch {kind}: dropped": 0.3 for kind in KINDS},
    "ending tasks for sure": {"cancellation swallowed": 1.0, "append held in flight": 0.03, "lease unavailable": 0.05},
    **{key: {CROWD: 1.0} for key in OF_ROOM},
    "how room may be taken in a queue": {CROWD: 1.0, MODES: 1.0},
    "that who took room in vain takes none again": {CROWD: 1.0, REFUSED: 1.0},
    "that a job is pardoned once": {CROWD: 1.0, REFUSED: 1.0},
    "that nobody gives room that comes by itself": {CROWD: 1.0, ENDS: 1.0},
    "that jobs which can't be preempted don't borrow": {WITHIN_DESERVED: 1.0},
    "that a job whose pods show its end leaves by itself": {ENDS: 1.0},
    "that a pod which hangs is no reason to wait": {STAYS: 1.0},
    "a node that closed since a worker was to stay there": {STAYING: 1.0},
    "that first statuses come soon while nothing else is to do": {SLOW: 1.0},
    "that an effect which fails isn't a look that fails": {SOME_FAIL: 1.0},
    "that nobody becomes a guest where the job in front can start": {CALM: 1.0},
    "that who has no reservation any more has no guests": {CALM: 1.0},
    "that running jobs grow into reserved room": {CALM: 1.0},
    "that reserved room is kept": {CALM: 1.0},
    "that room which comes by itself is kept": {CROWD: 1.0, ENDS: 1.0},
    "that a limit is kept for the job which lacks nothing else": {CALM: 1.0, LIMITED: 1.0},
    "that only who ends in time goes before a reservation": {CALM: 1.0},
    "that one log works on a cluster": {SECOND: 1.0},
    "that no cycle looks at forecasts": {TOLD: 1.0},
    "the version of a job that was forecast": {TOO_LATE: 1.0},
    "that a deadline fails a job in a forecast, too": {IN_VAIN: 1.0},
    "that a status shows the expected start": {TOLD: 1.0},
    "that a members file is read again": {"user edits a members file": 1.0},
    "that a Service is looked for again": {"user deletes a Service": 1.0},
    **{key: {WITH_CLAIMS: 1.0} for key in OF_CLAIMS},
    "that no job fails while nodes are requested": {REQUESTS: 1.0},
    "that requests and placeholders are taken back": {PLACEHOLDERS: 1.0},
    "the UID of a pod that is bound": {HALF_WAY: 1.0},
    "that a quorum which doesn't start gives its nodes up": {UNABLE: 1.0},
    "that no attempt waits for pods on lost nodes": {KEPT: 1.0},
    "the sets of a quorum that others start after": {ORDER: 1.0},
    "that nothing final is decided by time on a view that is late": {JUST_IN_TIME: 1.0},
    "that no node counts as lost on a view that is late": {BACK_UNSEEN: 1.0},
    "that the leader's end is known before failed workers count": {SUCCESS_UNSEEN: 1.0},
    "that a success wins": {RIVAL: 1.0},
    "what LimitRanges give to containers": {COMES: 1.0},
    "that the deletion of a worker is its end": {CUT: 1.0},
}


@contextmanager
def _at_any_time() -> Iterator[None]:
    """What happened until now counts as known at any time."""
    with mock.patch.object(State, "known_ms", lambda _, time_ms: time_ms):
        yield


@contextmanager
def _settled_at_any_time() -> Iterator[None]:
    """Failed workers count after their time, whatever is known of the leader until then."""
    keep_due = replacements._keep_due

    def timed(job: JobRecord, found: Any, config: Any, time_ms: int, _: int) -> None:
        keep_due(job, found, config, time_ms, time_ms)

    with mock.patch.object(replacements, "_keep_due", timed):
        yield


@contextmanager
def _successes_count_nothing() -> Iterator[None]:
    """Neither controllers nor the log see to it that a success wins."""
    with _without(stages, "won", False)(), _without(judging, "won", False)():
        yield


@contextmanager
def _appends_twice() -> Iterator[None]:
    """The log forgets which writer appended which batch."""
    append = MemoryLog.append

    async def forgetful(self: MemoryLog, *args: Any, **more: Any) -> Any:
        self.home.writers.clear()
        return await append(self, *args, **more)

    with mock.patch.object(MemoryLog, "append", forgetful):
        yield


@contextmanager
def _any_pod_is_ours() -> Iterator[None]:
    async def ours(*_: Any, **__: Any) -> bool:
        return True

    with mock.patch.object(Creation, "_ours", ours):
        yield


@contextmanager
def _sets_in_any_order() -> Iterator[None]:
    """A quorum may lack the sets that others of it start after, and so may the pods beyond it."""
    with (
        mock.patch.object(tyjob, "with_needed", lambda groups, _: groups),
        mock.patch.object(placer, "awaits_set", lambda *_: False),
    ):
        yield


@contextmanager
def _any_clock_is_right() -> Iterator[None]:
    """Neither the writers nor the log check how far the clocks are off."""
    with _trusts_clocks(), mock.patch.object(MemoryLog, "_check_time", lambda *_: None):
        yield


@contextmanager
def _trusts_clocks() -> Iterator[None]:
    """No process checks how far its own clock is off."""
    with mock.patch.object(Timekeeper, "right", True):
        yield


@contextmanager
def _any_cluster_is_ours() -> Iterator[None]:
    """No process checks which cluster it is connected to."""
    with mock.patch.object(ClusterIdentity, "foreign", lambda *_: False):
        yield


@contextmanager
def _any_claim_counts() -> Iterator[None]:
    """A pod fills the slot that it claims, regardless of its namespace, name and node."""
    bind = Slots.bind

    def on_any_node(self: Slots, job: JobRecord, slot: SlotKey, pod: k.PodSeen, *, counted: bool = True) -> bool:
        decided = job.placements.get(slot, pod.node)
        may_bind = not job.ended and pod.node and pod.uid not in job.retired and slot not in job.slots.leaving
        if decided != pod.node and may_bind:
            self.state.nodes.release(decided, requests_of(job, slot))
            self.hold_slot(job, slot, pod.node)
        return bind(self, job, slot, pod, counted=counted)

    any_pod, owned = _without(fold, "_is_stranger", False)(), _without(ownership, "is_own", True)()
    with (
        any_pod,
        owned,
        _without(PodsOfJobs, "disown_strangers", None)(),
        mock.patch.object(Slots, "bind", on_any_node),
    ):
        yield


@contextmanager
def _any_term_appends() -> Iterator[None]:
    with mock.patch.object(memory_log, "check_fence", lambda *_: None):
        yield


@contextmanager
def _any_term_judges() -> Iterator[None]:
    """A superseded watcher declares the log lost, and the log accepts that. So that it comes to that, watchers stop
    while they have news that their fold lacks, and the job is deleted before they go on."""
    begin, ahead = MemoryLog.begin_epoch, Observer._ahead

    async def unfenced(self: MemoryLog, **more: Any) -> Any:
        return await begin(self, **{**more, "fence": None})

    def stops(self: Any, items: Any, listing: bool) -> list[str]:
        found = ahead(self, items, listing)
        for name in found if not listing else ():
            process = self._cluster._cluster._gateway.process
            process.pause(25.0, "with news that its fold lacks")
            if name.startswith("job"):  # those of others are in somebody's plans
                with suppress(ApiRefusal):
                    process.world.store.delete(TYJOBS, home_of(name), name)
        return found

    no_term = mock.patch.object(Observer, "_check_term", lambda _: None)
    with no_term, mock.patch.object(MemoryLog, "begin_epoch", unfenced), mock.patch.object(Observer, "_ahead", stops):
        yield


@contextmanager
def _watches_from_the_beginning() -> Iterator[None]:
    """A broken watch resumes from its beginning, and receives objects again that have been deleted since."""
    watch = Observer._watch

    async def forgetful(self: Observer) -> None:
        began = self._version
        try:
            await watch(self)
        except ClusterUnavailable:
            self._version = began
            raise

    with mock.patch.object(Observer, "_watch", forgetful):
        yield


@contextmanager
def _never_compares() -> Iterator[None]:
    with mock.patch.object(Observer, "_compare_after", lambda self, _: setattr(self, "_compare_at_s", math.inf)):
        yield


@contextmanager
def _ends_once() -> Iterator[None]:
    """A task that is cancelled again while it ends other tasks leaves them running."""

    async def interrupted(tasks: Any, *, once: Any = (), within_s: float | None = None, again_s: float = 0.1) -> Any:
        tasks = list(tasks)
        for task in tasks:
            task.add_done_callback(_ask)
        pending = {task for task in tasks if not task.done()}
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while pending:
                    for task in pending:
                        task.cancel()
                    _, pending = await asyncio.wait(pending, timeout=again_s)
        return [task for task in tasks if not task.done()]

    with mock.patch.object(watcher, "end", interrupted):
        yield


@contextmanager
def _no_limits_in_cycles() -> Iterator[None]:
    limited, full = _without(QueueRoom, "limited", ())(), _without(QueueRoom, "full", None)()
    with limited, full:
        yield


@contextmanager
def _offers_assumed_pods() -> Iterator[None]:
    """What is kept for pods that may still come to closed or overbooked nodes is offered, as what jobs hold there."""
    held_on = queue_offer._held_on

    def more(state: State, names: Any) -> Iterator[Any]:
        yield from held_on(state, names)
        yield from [(pod.node, pod.requests) for pod in state.assumed.values() if pod.node in names]

    with mock.patch.object(queue_offer, "_held_on", more):
        yield


@contextmanager
def _one_holds_up_all() -> Iterator[None]:
    """The first job without room in a cycle holds up the others, whose reason then isn't true."""
    quorum = Placer.quorum

    def held_up(self: Placer, job: JobRecord) -> PlacementTry:
        if self.__dict__.get("blocked") and not job.placements:
            return self.left_out(job, QuotaLack("", "pods", 1, 0, 0))
        tried = quorum(self, job)
        self.__dict__["blocked"] = not tried.quorum_stands
        return tried

    with mock.patch.object(Placer, "quorum", held_up):
        yield


@contextmanager
def _takes_in_vain_again() -> Iterator[None]:
    """Neither a cycle nor the fold asks whether a job took room in vain before."""
    with _without(taken_room, "took_in_vain", False)(), _without(preemption, "took_in_vain", False)():
        yield


def _pardons_for_ever(job: JobRecord, taken: TakenRoom, _: StageReason) -> Pardon:
    """Whoever a kubelet refuses takes room once more, however often that was in vain."""
    return Pardon.GIVEN if any(node in job.refusals for node in taken.nodes) else taken.pardon


@contextmanager
def _any_may_give_room() -> Iterator[None]:
    """Jobs give room whether they are preemptible or not, and as soon as they have nodes."""
    begin = KnownJob.__init__

    def gives(self: KnownJob, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.may_give = True

    with mock.patch.object(KnownJob, "__init__", gives), _without(candidates, "least_runtime_ms", (0, 0))():
        yield


@contextmanager
def _equals_give_room() -> Iterator[None]:
    """Jobs give room to those of equal priority."""

    counted = Candidates._counted

    def lower_with_nodes(self: Candidates, job: JobRecord, queue: str) -> int:
        return counted(self, job, queue) - bool(job.placements)

    with mock.patch.object(Candidates, "_counted", lower_with_nodes):
        yield


@contextmanager
def _reclaims_from_anyone() -> Iterator[None]:
    """Queues give room whatever they use. Who asks has a note of the answer all the same."""
    asked = candidates.ShareLine.may_reclaim

    def always(line: candidates.ShareLine, queue: str) -> bool:
        asked(line, queue)
        return True

    with mock.patch.object(candidates.ShareLine, "may_reclaim", always):
        yield


@contextmanager
def _restarts_of_victims_count() -> Iterator[None]:
    give_way = JobLife.give_way

    def counted(self: JobLife, job: JobRecord, *args: Any) -> None:
        job.leader.restarts += 1
        give_way(self, job, *args)

    with mock.patch.object(JobLife, "give_way", counted):
        yield


@contextmanager
def _room_is_anyones() -> Iterator[None]:
    """Victims leave, and whoever comes first gets the room."""
    preempted = fold._Fold.preempted

    def unkept(self: fold._Fold, offset: int, event: k.Preempted) -> None:
        preempted(self, offset, event)
        job = self.state.jobs.get(event.placed.job_uid)
        if job is not None and job.slots.room == event:
            self.slots.unschedule(job, job.stage)

    with mock.patch.dict(fold._APPLY, {k.Preempted: unkept}):
        yield


@contextmanager
def _another_pod_goes_too() -> Iterator[None]:
    """A job that gives up surplus loses one more pod, whose slot it keeps."""
    give_way = JobLife.give_way

    def greedy(self: JobLife, job: JobRecord, *args: Any) -> None:
        give_way(self, job, *args)
        if job.bound:
            job.retired[next(iter(job.bound.values()))] = None

    with mock.patch.object(JobLife, "give_way", greedy):
        yield


@contextmanager
def _waits_for_its_forecast() -> Iterator[None]:
    """No cycle places a job that has a forecast."""
    wanting = queue._wanting

    def later(state: State, short: list[JobRecord] | None = None) -> list[JobRecord]:
        return [job for job in wanting(state, short) if job.uid not in state.forecasts]

    with mock.patch.object(queue, "_wanting", later):
        yield


@contextmanager
def _pods_before_their_volumes() -> Iterator[None]:
    async def all_of_them(_writer: ClaimWriter, _look: Any, slots: Any) -> Any:
        return list(slots)

    with mock.patch.object(ClaimWriter, "with_volumes", all_of_them):
        yield


@contextmanager
def _many_use_a_claim() -> Iterator[None]:
    refusals, most = (
        _without(VolumeRestrictions, name, answer)() for name, answer in (("refusals", ()), ("most", None))
    )
    with refusals, most:
        yield


@contextmanager
def _nothing_is_taken_back() -> Iterator[None]:
    """Neither placeholders nor requests are deleted."""

    async def kept(*_: Any, **__: Any) -> bool:
        return True

    with mock.patch.object(Placeholders, "_delete", kept), mock.patch.object(Provisioner, "_delete", kept):
        yield


@contextmanager
def _limits_are_used() -> Iterator[None]:
    """Who uses a limit that is kept for another job is no guest of that one, and nobody waits for it."""
    beyond, note = (
        mock.patch.object(KeptLimits, "beyond", lambda *_: None),
        mock.patch.object(KeptLimits, "mark_as_guest"),
    )
    with beyond, note:
        yield


@contextmanager
def _any_pod_of_the_name_is_bound() -> Iterator[None]:
    """A binding doesn't say which pod it is for."""
    bind = Store.bind

    def by_name(self: Store, namespace: str, name: str, node: str, *, uid: str | None = None) -> None:
        bind(self, namespace, name, node)

    with mock.patch.object(Store, "bind", by_name):
        yield


@contextmanager
def _waits_without_end() -> Iterator[None]:
    """A process that has caught up leaves a task behind that waits for the fold."""
    catch_up = Follower.catch_up

    async def leaving_one_behind(self: Follower) -> bool:
        task = asyncio.get_running_loop().create_task(self.epoch_ended(self.state.epoch))
        self.__dict__.setdefault("left_behind", []).append(task)
        return await catch_up(self)

    with mock.patch.object(Follower, "catch_up", leaving_one_behind):
        yield


@contextmanager
def _only_whole_looks() -> Iterator[None]:
    """Each failure of a look makes its next delay longer, whatever it achieved."""
    failed = Retries.failed

    def as_a_whole(self: Retries, key: str, *, version: int, asked_s: float = 0.0, **_: Any) -> float:
        return failed(self, key, version=version, asked_s=asked_s)

    with mock.patch.object(Retries, "failed", as_a_whole), _without(Retries, "succeeded", None)():
        yield


def _without(owner: Any, name: str, answer: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(owner, name, lambda *_, **__: answer)


async def _never(*_: object) -> None:
    """Waits until it is cancelled, in place of a task that is turned off."""
    await asyncio.Event().wait()


async def _nothing(*_: object) -> None:
    """In place of what is turned off."""


GUARDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "an observation's term": _without(fold._Fold, "is_current", True),
    "a decision's version and attempt": _without(fold, "outdated", ""),
    "the whole quorum": _without(placements, "misplaced", ""),
    "whole worker groups": _without(judging, "placed_in_part", ""),
    "a worker group that is replaced as a whole": _without(judging, "replaced_in_part", ""),
    "room on the nodes, decided and unconfirmed included": _without(placements, "lacking", ""),
    "a node that closed since the cycle began": _without(placements, "closed_to_new", ""),
    "a node that closed since a worker was to stay there": _without(judging, "closed_to_next", ""),
    "the jobs that a job waits for": _without(placements, "too_early", ""),
    "the queue that a job may use": _without(queue_membership, "outside_its_queue", ""),
    "what LimitRanges give to containers": _without(runtime_classes, "_defaults", NO_DEFAULTS),
    "the limits of a queue": _without(queue_membership, "beyond_its_queue", ""),
    "that what jobs hold beyond their node is offered": _without(queue_offer, "_overbooked", frozenset()),
    "that what no queue counts isn't offered": _offers_assumed_pods,
    "that what pods hold that outlive their job isn't offered": _without(queue_offer, "kept_pods", ()),
    "that no cycle exceeds the limits of a queue": _no_limits_in_cycles,
    "that jobs which can't be preempted don't borrow": lambda: mock.patch.object(
        QueueSpec, "most_non_preemptible", property(lambda _: ())
    ),
    "that a job without room holds up no other": _one_holds_up_all,
    "that the status of a queue is written": _without(QueueWriter, "_turn", None),
    "that no cycle places a job that waits for others": lambda: mock.patch.object(
        JobSpec, "unmet", property(lambda _: [])
    ),
    "that no cycle places a worker where its set failed repeatedly": _without(refusals, "_now", ()),
    "the domain of pods that belong together": _without(placements, "sharing_no_domain", ""),
    "that a rack is a rack of its block": lambda: mock.patch.object(
        Topology, "paths", lambda topology: tuple((key,) for key in topology.levels)
    ),
    "that workers may begin anywhere once those before them have finished": _without(Units, "_is_there", True),
    "that a snapshot has every field of the state": lambda: mock.patch.multiple(
        snapshot,
        _SAME=tuple(name for name in snapshot._SAME if name != "heard"),
        StateImage=partial(snapshot.StateImage, heard={}),
    ),
    "a superseded cycle": lambda: mock.patch.object(
        fold._Fold, "cycle_refusal", property(lambda _: "", lambda *_: None), create=True
    ),
    "the identity of an append": _appends_twice,
    "the owner's UID of a pod that exists already": _any_pod_is_ours,
    "the time of an entry, and the clock of a process": _any_clock_is_right,
    "the clock of a process that applies": _trusts_clocks,
    "the cluster of a claim": _without(State, "foreign", False),
    "that one log works on a cluster": lambda: mock.patch.multiple(
        ClusterHold, held=property(lambda _: True), fresh=lambda _: True
    ),
    "the cluster that a process is connected to": _any_cluster_is_ours,
    "the namespace, the name and the node of a pod that claims a slot": _any_claim_counts,
    "the owner of a pod as it is when it is deleted": _without(deletions, "owned_by", True),
    "the term of an append for a watch": _any_term_appends,
    "the term of who declares the log lost": _any_term_judges,
    "the comparison of a watch": _never_compares,
    "what a watch has told since a comparison began": _without(observer._Told, "add", None),
    "where a watch that broke off goes on": _watches_from_the_beginning,
    "ending tasks for sure": _ends_once,
    "that a members file is read again": lambda: mock.patch.object(members_writer, "_CHECK_S", math.inf),
    "that a Service is looked for again": lambda: mock.patch.object(service_writer, "_CHECK_S", math.inf),
    "that nothing final is decided by time on a view that is late": _without(State, "heard_ms", math.inf),
    "that no node counts as lost on a view that is late": _at_any_time,
    "that the leader's end is known before failed workers count": _settled_at_any_time,
    "that a success wins": _successes_count_nothing,
    "that the deletion of a worker is its end": _without(PodsOfJobs, "_restart_others", None),
    "the deadline of a part of a quorum": _without(stages, "_incomplete", None),
    "that a refused quorum gives its nodes up": _without(stages, "refused_quorum", None),
    "that a quorum which doesn't start gives its nodes up": _without(stages, "start_timeout", None),
    "that no attempt waits for pods on lost nodes": _without(stages, "left_behind", None),
    "the sets of a quorum that others start after": _sets_in_any_order,
    "what a worker set starts after": _without(JobRecord, "may_start_after", True),
    "that all have finished whose end is the job's": lambda: mock.patch.object(
        JobRecord, "succeeded", property(lambda job: bool(job.slots.finished))
    ),
    "that no job starts before its room is free": _without(stages, "room_is_free", True),
    "how long a job waits for room": _without(awaited_room, "awaited_until_ms", 0),
    "who may give room": _any_may_give_room,
    "that guarantees are a reason only where they keep room": _without(Quotas, "of_guarantees", False),
    "that no job gives room to one of equal priority": _equals_give_room,
    "how room may be taken in a queue": _without(Candidates, "rules", Preemption()),
    "that only queues above their share give room": _reclaims_from_anyone,
    "that whoever isn't needed is spared": _without(RoomSearch, "_may_spare", False),
    "that nobody gives room that comes by itself": lambda: mock.patch.object(
        LeavingAnyway, "by_itself", property(lambda _: [])
    ),
    "that a job whose pods show its end leaves by itself": lambda: mock.patch.object(
        known_jobs, "ends_by_itself", lambda _, job, time_ms: job.stands_still or not job.active
    ),
    "that a pod which hangs is no reason to wait": _without(vacating, "hanging", frozenset()),
    "that surplus goes before whole jobs": _without(Candidates, "_units_on", ()),
    "that no restart of a preempted job counts": _restarts_of_victims_count,
    "that room is kept for whom others gave it": _room_is_anyones,
    "that who took room in vain takes none again": _takes_in_vain_again,
    "that a job is pardoned once": lambda: mock.patch.object(taken_room, "_pardon", _pardons_for_ever),
    "that only victims' pods leave": _another_pod_goes_too,
    "how long jobs keep what they have just got": _without(candidates, "least_runtime_ms", (0, 0)),
    "that reserved room has guests": _without(Backfill, "_as_guest", None),
    "that nobody becomes a guest where the job in front can start": _without(Backfill, "may_start", False),
    "that who has no reservation any more has no guests": lambda: mock.patch.object(
        forecasts, "end_reservation", lambda state, uid, _: state.reservations.pop(uid, None)
    ),
    "that running jobs grow into reserved room": _without(Backfill, "lend", False),
    "that reserved room is kept": _without(HeldRooms, "hold", None),
    "that room which comes by itself is kept": _without(ReservationSearch, "after_departures", None),
    "that a limit is kept for the job which lacks nothing else": _limits_are_used,
    "that room is kept for a job that waits for its own pods": lambda: mock.patch.object(
        Reservations, "waits_for_own_pods", lambda self, job: bool(self.vacating.own_gone_ms(job))
    ),
    "that who takes room which is to be left to a job before it is its guest": _without(Backfill, "_note_terms", None),
    "that only who ends in time goes before a reservation": _without(backfill, "leaves_by_ms", 1),
    "that no cycle looks at forecasts": _waits_for_its_forecast,
    "the version of a job that was forecast": _without(fold, "no_forecast", ""),
    "that a deadline fails a job in a forecast, too": _without(ends, "reaches_deadline", False),
    "that a status shows the expected start": _without(giving_way, "expected_start", None),
    "that a pod waits for its volumes": _pods_before_their_volumes,
    "where a volume is reached": lambda: mock.patch.object(
        volume_filters, "_in_terms", lambda view, _: np.ones(len(view), bool)
    ),
    "that one pod alone uses a claim": _many_use_a_claim,
    "that a pod leaves a node which its volume excludes": _without(replacements, "out_of_reach", ""),
    "that no job fails while a claim may still come": lambda: mock.patch.object(
        VolumeBinding, "on_healthy_nodes", lambda binding: binding
    ),
    "that no job fails while nodes are requested": _without(giving_up, "asks_autoscaler", False),
    "that requests and placeholders are taken back": _nothing_is_taken_back,
    "the UID of a pod that is bound": _any_pod_of_the_name_is_bound,
    "that no cycle places a job that backs off": lambda: mock.patch.object(
        JobRecord, "not_before_ms", property(lambda _: 0)
    ),
    "that an applier forgets jobs that are gone": lambda: mock.patch.object(
        Applier, "_sweep", lambda self: self._follower.state.jobs
    ),
    "that first statuses come soon while nothing else is to do": lambda: mock.patch.object(StatusWriter, "run", _never),
    "that an effect which fails isn't a look that fails": _only_whole_looks,
    "the memory of the log's server": lambda: mock.patch.object(Writes, "look", _nothing),
    "that waiting for the fold ends": _waits_without_end,
}


class Missed(Exception):
    """A run reached its bound of steps before anything was noticed."""


class _Bounded(World):
    """A world that ends a run after so many steps, those after the faults included."""

    most = sys.maxsize

    def _stop_if_failed(self) -> None:
        super()._stop_if_failed()
        if self.steps > self.most and not self.closing:
            raise Missed


def noticed(guard: str, seed: int, steps: int, *, within: int = sys.maxsize, off: bool = True) -> tuple[int, str]:
    """The step at which a run of `steps` steps with faults notices that the guard is off, and what it found; 0 if it
    doesn't notice that within so many steps. With the guard on, nothing should be noticed."""
    world = _Bounded(seed, _OFTEN.get(guard, {}))
    world.most = within
    with GUARDS[guard]() if off else nullcontext():
        try:
            world.run(steps)
        except Missed:
            return 0, ""
        except Violation as violation:
            if isinstance(violation.__cause__, TypeError | AttributeError):
                raise  # an error in turning off the guard proves nothing
            return world.steps, str(violation)
        except (AssertionError, KeyError, ValueError) as problem:  # the fold itself fails
            return world.steps, repr(problem)
    return 0, ""
