"""The invariants, checked against the log's own bytes and the store's own history, not against the workers' state.

`Oracle` folds every entry as soon as the log's server stores it, and so has the true verdicts and placements.
`Checks` reads the store's changes of pods, nodes and TYJobs after every step. Each violation ends the run.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.events import kinds as k
from arranger.events.codec import StoredEntry, decode_batch, verified_run
from arranger.events.log import Entry, Position, StoredSnapshot
from arranger.kube.cluster import (
    CLAIMS,
    CLUSTER_LOGS,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    QUOTAS,
    TYJOB_STATUSES,
    TYJOBS,
    Object,
    Resource,
)
from arranger.kube.translate import job_seen, namespace_seen, node_seen, pod_seen, queue_seen, quota_seen
from arranger.model.job import ENDED, CleanPodPolicy, OnFailure, Replacement, ScheduleState, Stage
from arranger.model.pod import PodShape
from arranger.model.quantity import amount
from arranger.model.taints import untolerated
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.observed.priorities import lacks_class
from arranger.projections.state import Changes, State, Verdict
from arranger.projections.verdicts.ownership import attributed
from arranger.sandbox.history import Stored, Watch
from arranger.sandbox.listing import Selection
from arranger.sandbox.pod_run import requests_of
from arranger.scheduling.cycle import take_cycle
from tests.projected import differences
from tests.reasons import has_its_facts, lacking_quota
from tests.simulation import room_rules, worker_groups
from tests.simulation.autoscalers import is_placeholder
from tests.simulation.belongings import may_patch
from tests.simulation.bindings import bound_before, in_log, moved, pods_of
from tests.simulation.bounds import overgrown
from tests.simulation.claims import may_select
from tests.simulation.conservation import needless
from tests.simulation.limit_ranges import forget_given
from tests.simulation.limit_rules import passed_at_limits
from tests.simulation.others import SCHEDULER, record_of_pod
from tests.simulation.promises import Promises
from tests.simulation.queue_rules import Limits, outdated_reason, unusable
from tests.simulation.retaking import ROGUE, retaken
from tests.simulation.returning import given_back
from tests.simulation.submitter_rules import passed_by_submitters
from tests.simulation.topologies import joins_nobody, scattered
from tests.tyjob_schema import wrong_status

if TYPE_CHECKING:
    from tests.simulation.world import World

_WITH_STATUS = (TYJOBS, TYJOB_STATUSES, QUEUES)
_STARTED = (Stage.STARTING, Stage.RUNNING)
_RANK = {"": 0, "Pending": 0, "Rescheduling": 0, "Starting": 1, "Running": 2, "Succeeded": 3, "Failed": 3}


class Violation(AssertionError):
    """An invariant is violated."""

    def __init__(self, message: str, *, job: str = "") -> None:
        super().__init__(message)
        self.job = job


class Oracle:
    """The log folded as it is written, and everything that was ever accepted in any epoch."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.state = State()
        self.entries: list[Entry] = []
        self.chain = ""
        self.snapshots: list[StoredSnapshot] = []
        #: (job UID, attempt, worker set or "" for the leader, index) → nodes that accepted decisions ever gave to that
        #: slot.
        self.placed: dict[tuple[str, int, str, int], set[str]] = {}
        #: The same slots → the last change of LimitRanges that the last of these decisions knew.
        self.limits_known: dict[tuple[str, int, str, int], int] = {}
        #: UID of a pod of others → nodes that accepted decisions ever gave to it.
        self.given: dict[str, set[str]] = {}
        self.rejected: Counter[str] = Counter()
        #: (Namespace, name, stage) of every job that ever ended.
        self._ended: set[tuple[str, str, str]] = set()
        #: The number of cycles that gave the identical plan when repeated.
        self.cycles = 0
        self.epochs: list[int] = []
        #: Epoch → the one before it, and when it was begun.
        self._begun: dict[int, tuple[int, int]] = {}
        #: (writer, sequence number) of every batch of this epoch.
        self._identities: set[tuple[str, int]] = set()
        self.story: list[tuple[str, str]] = []
        self._limits = Limits()
        #: The base of the cycle whose entry is being added.
        self._base = 0
        self.promises = Promises(world.cycle_config, hit=world.faults.hit)
        #: Whether room of pods that never came was freed between a cycle and its entry.
        self._late = False
        #: What is used and kept for guarantees beyond what the nodes offer, before a cycle's entry.
        self._given_away: Counter[str] | None = None
        #: Whether this epoch lost its tail, and how many cycles were taken on a state of such a tail and came once the
        #: log was trimmed beyond their base: then it can't tell that it never had that state.
        self._lost_tail = False
        self._beyond_telling = 0

    def begin(self, epoch: int, first: bytes) -> None:
        """A new epoch: no number occurs twice, and each is higher than the last one that its beginner knows.

        Two processes that begin an epoch after the same one in the same millisecond give it the same number. If the log
        was emptied between them, a process that read the first batch finds that the log lost its tail, or by the chain
        that it was written again (they may differ in why they began it).

        A process that finds an empty home knows no epoch, and one that slept knows only an old one; both number by
        their own clocks, which may be behind. The first process that knows a higher one replaces such an epoch at once.
        """
        batch = decode_batch(first, 1)
        (begun,) = batch.events
        assert isinstance(begun, k.EpochBegun)
        by = (begun.previous, batch.time_ms)
        if self._begun.setdefault(epoch, by) != by or epoch <= begun.previous:
            raise Violation(f"epoch {epoch} follows epoch {self.epochs[-1]}")
        self.verify_snapshots()
        self._world.bad_nodes.forget()
        self._world.windows.forget()
        self._world.claims.forget()
        self._world.room_record.forget()
        self._world.vain.forget()
        self._world.forecasts.forget()
        self.promises.forget()
        self.epochs.append(epoch)
        self.state, self.entries, self.chain, self.snapshots = State(epoch=epoch), [], "", []
        self._identities = set()
        self._limits.begin(self.state)
        self._lost_tail, self._beyond_telling = False, 0

    def add(self, stored: StoredEntry) -> None:
        """Add the next entry."""
        if stored.first != self.state.offset + 1:
            raise Violation(f"entry {stored.first}-{stored.last} follows offset {self.state.offset}")
        [entry] = verified_run([stored], Position(self.state.epoch, self.state.offset, self.chain))
        self.chain = stored.chain
        identity = (entry.batch.writer, entry.batch.seq)
        if identity in self._identities:
            raise Violation(f"batch {identity[1]} of {identity[0]} was appended twice")
        self._identities.add(identity)
        self._world.clocks.check_entry(entry)
        self.entries.append(entry)
        changes = Changes()
        jobs = {uid: job for uid, job in self.state.jobs.items()}
        replaced = [event.job_uid for event in entry.batch.events if isinstance(event, k.WorkersReplaced)]
        nodes = {uid: dict(jobs[uid].placements) for uid in replaced if uid in jobs}
        decided = [_placed(event) for event in entry.batch.events]
        placed = [event.job_uid for event in decided if event is not None]
        kept_off_ms = {uid: _kept_off_ms(jobs[uid]) for uid in placed if uid in jobs}
        failed = [
            event.job_uid
            for event in entry.batch.events
            if isinstance(event, k.Waits) and event.schedule_state == ScheduleState.FAILED
        ]
        cycle = next((event for event in entry.batch.events if isinstance(event, k.CycleTaken)), None)
        time_ms = cycle.time_ms if cycle is not None else 0
        self._beyond_telling += self._of_lost_tail(cycle)
        begun = [uid for uid in placed + failed if uid in jobs and not jobs[uid].placements]
        before, record = self._before(entry, cycle), self._world.room_record
        bound = bound_before(self.state, entry.batch.events)
        of_room, of_promises = record.before(self.state, entry), self.promises.before(self.state, entry)
        of_forecasts = self._forecasts_before(entry)
        succeeded = self._world.endings.successes(self.state, entry)
        self._world.checks.note_late(entry)
        self._world.claims.note(entry)
        self._base = cycle.base if cycle is not None else 0
        self._gives_up(entry, cycle)
        apply_entry(self.state, entry, changes)
        self._note_successes(entry)
        self._world.autoscaler.note_waiting(self.state)
        verdicts = {verdict.offset: verdict for verdict in changes.verdicts}
        if problem := record.after(self.state, entry, verdicts, of_room):
            raise Violation(problem)
        self._world.vain.after(self.state, entry, verdicts)
        uid, problem = moved(self.state, bound)
        if problem:
            raise Violation(problem, job=uid)
        uid, problem = self.promises.after(self.state, entry, verdicts, of_promises)
        if problem:
            raise Violation(problem, job=uid)
        uid, problem = self._world.forecasts.after(self.state, entry, verdicts, of_forecasts)
        if problem:
            raise Violation(problem, job=uid)
        self._check_decisions(entry, cycle, changes.verdicts, begun, before=before)
        if entry.batch.writer not in (ROGUE, "elsewhere"):  # they bypass every fence
            self._check_terms(entry)
        for number, event in enumerate(entry.batch.events):
            offset = entry.first + number
            verdict = verdicts.get(offset)
            self._tell(offset, event, verdict.reason if verdict is not None else "", jobs)
            self._world.endings.note(event)
            if verdict is not None and not verdict.accepted:
                self.rejected[verdict.kind] += 1
            elif (placing := _placed(event)) is not None:
                self._accept(placing, time_ms, kept_off_ms[placing.job_uid])
            elif verdict is not None:
                self._accepted(event, jobs, nodes)
                if isinstance(event, k.StageDecided) and (why := self._world.endings.lost_success(event, succeeded)):
                    raise Violation(f"a success becomes a failure: {why}", job=event.job_uid)

    def _note_successes(self, entry: Entry) -> None:
        """Note the jobs whose pods show their success, which no decision says yet."""
        for event in entry.batch.events:
            owner = event.owner if isinstance(event, k.PodSeen) else None
            uid = owner.job_uid if owner is not None else getattr(event, "uid", "")
            job = self.state.jobs.get(uid)
            if job is not None and self._world.endings.has_succeeded(self.state, uid):
                self._ended.add((job.seen.namespace, job.seen.name, Stage.SUCCEEDED))

    def _gives_up(self, entry: Entry, cycle: k.CycleTaken | None) -> None:
        """Check that a cycle, taken on the present state, lets no job fail too early."""
        if cycle is None or cycle.base != entry.first - 1 or not entry.batch.writer.startswith("scheduler@"):
            return
        for event in entry.batch.events:
            job = self.state.jobs.get(event.job_uid) if isinstance(event, k.Waits) else None
            if job is None or not isinstance(event, k.Waits) or event.schedule_state != ScheduleState.FAILED:
                continue
            for rules in (self._world.claims, self._world.autoscaler):
                if problem := rules.gives_up(self.state, cycle, job):
                    raise Violation(problem, job=job.uid)

    def _accepted(self, event: k.Event, jobs: Mapping[str, JobRecord], nodes: Mapping[str, dict[SlotKey, str]]) -> None:
        """Check an accepted decision that places nothing. `nodes` are those that jobs with replaced workers had."""
        if isinstance(event, k.StageDecided):
            if not has_its_facts(event):
                raise Violation(f"{event.reason} was decided with {event.facts}", job=event.job_uid)
            if self._world.windows.too_many(event, jobs[event.job_uid], self.state.time_ms):
                raise Violation("a leader is restarted beyond its limit", job=event.job_uid)
            if event.stage in ENDED:
                seen = jobs[event.job_uid].seen
                self._ended.add((seen.namespace, seen.name, event.stage))
            if problem := self._world.endings.problem_of_end(event):
                raise Violation(f"a job has succeeded, though {problem}", job=event.job_uid)
        if isinstance(event, k.WorkersReplaced):
            self._stay(event)
            job = self.state.jobs[event.job_uid]
            self._world.bad_nodes.left(event, job, nodes[event.job_uid], self.state.time_ms)
        self._world.clocks.check_decision(event, self.state.jobs.get(getattr(event, "job_uid", "")))

    def _forecasts_before(self, entry: Entry) -> State | None:
        """The state after an entry if its forecasts were void; None if it has none."""
        if self._world.forecasts.sway(self.state, entry):
            raise Violation("a cycle decides otherwise because of a forecast")
        return self._world.forecasts.before(self.state, entry)

    def _before(self, entry: Entry, cycle: k.CycleTaken | None) -> State | None:
        """The state on which a cycle with preemptions was taken, if its entry follows that: with the rules of these
        checked, and of guests. None for other entries."""
        self._late = cycle is not None and any(
            cycle.time_ms < pod.until_ms <= entry.batch.time_ms for pod in self.state.assumed.values()
        )
        if (
            cycle is not None
            and self.state.queues
            and (problem := room_rules.misjudged_offer(self.state, cycle.time_ms))
        ):
            raise Violation(problem)
        if cycle is not None and cycle.base == entry.first - 1 and entry.batch.writer.startswith("scheduler@"):
            self._given_away = room_rules.given_away(self.state, cycle.time_ms)
            for uid, problem in room_rules.taken_before(self.state, cycle, entry.batch.events):
                raise Violation(problem, job=uid)
            if not any(isinstance(event, room_rules.Decision) for event in entry.batch.events):
                of_cycle = (cycle.config, cycle.time_ms, entry.batch.events)
                for uid, problem in room_rules.kept_by_borrowers(self.state, *of_cycle):
                    raise Violation(problem, job=uid)
            for rule in (passed_at_limits, passed_by_submitters):
                for uid, problem in rule(self.state, cycle, entry.batch.events):
                    raise Violation(problem, job=uid)
        takes_room = any(isinstance(event, k.Preempted) for event in entry.batch.events)
        if not takes_room and not any(isinstance(event, k.Placed) and event.hosts for event in entry.batch.events):
            return None
        if cycle is None or cycle.base != entry.first - 1 or not entry.batch.writer.startswith("scheduler@"):
            return None
        for rule in (room_rules.broken, given_back):
            for uid, problem in rule(self.state, cycle, entry.batch.events):
                raise Violation(problem, job=uid)
        return snapshot.restore(snapshot.encode(self.state)) if takes_room else None

    def _check_decisions(
        self,
        entry: Entry,
        cycle: k.CycleTaken | None,
        verdicts: Sequence[Verdict],
        begun: Sequence[str],
        *,
        before: State | None,
    ) -> None:
        """Check that decisions keep the limits of queues, that those of a cycle take effect if its entry follows the
        state on which it was taken, and that no job waits without need after it. `begun` got their first nodes, and
        `before` is that state, if the cycle has preemptions."""
        if lifted := self._limits.lifted(self.state, entry):
            raise Violation(f"a decision lifts what queues use above a limit: {lifted}")
        if cycle is None or cycle.base != entry.first - 1 or not entry.batch.writer.startswith("scheduler@"):
            return
        void = [verdict.reason for verdict in verdicts if not verdict.accepted]
        if void:
            raise Violation(f"a cycle decided what is void on its own state: {', '.join(void)}")
        after = room_rules.given_away(self.state, cycle.time_ms)
        if after is not None and self._given_away is not None and (lost := after - self._given_away):
            raise Violation(f"a cycle gives away what is kept for guarantees: {dict(lost)}")
        for event in entry.batch.events:
            if isinstance(event, k.Waits) and (pods := joins_nobody(self.state.jobs[event.job_uid], event)):
                raise Violation(f"pods wait to join others, of which none is there: {pods}", job=event.job_uid)
        if self._late:
            return
        for uid, problem in needless(self.state, cycle, begun, before=before, events=entry.batch.events):
            raise Violation(problem, job=uid)

    def _of_lost_tail(self, cycle: k.CycleTaken | None) -> bool:
        """Whether a tail was lost, no entry ends at the base of the cycle, and the log is trimmed beyond that."""
        index = self._world.home.index
        if cycle is None or not self._lost_tail or index is None or cycle.base >= index.start.offset:
            return False
        return all(entry.last != cycle.base for entry in self.entries)

    def _check_terms(self, entry: Entry) -> None:
        """Check that the log accepts observations under the current term alone."""
        for event in entry.batch.events:
            kind = k.watch_of(event)
            current, term = self.state.terms.get(kind or ""), getattr(event, "term", 0)
            if kind is not None and current != term:
                raise Violation(f"{entry.batch.writer} appends void observations: term {term}, not {current}")

    def _accept(self, event: k.Placed, cycle_time_ms: int, until_ms: int) -> None:
        """Check an accepted placement of a job whose back-off ended at `until_ms`."""
        job = self.state.jobs[event.job_uid]
        if until_ms > cycle_time_ms:
            early_ms = until_ms - cycle_time_ms
            raise Violation(f"a cycle placed a job {early_ms} ms before the end of its back-off", job=job.uid)
        assert job.spec is not None
        if not job.spec.group_known:
            raise Violation("pods got nodes whose PodGroup isn't there", job=job.uid)
        began = job.stage == Stage.STARTING and job.decided is not None and job.decided.based_on == event.based_on
        if began and (why := unusable(self.state, job)):
            raise Violation(f"a job got nodes that can't use its queue: {why}", job=job.uid)
        if part := worker_groups.placed_in_part(job, event):
            raise Violation(f"part of a worker group was accepted: {part} have no nodes", job=job.uid)
        if problem := self._world.claims.misplaced(self.state, job, event, self._base):
            raise Violation(problem, job=event.job_uid)
        self._check_after(job)
        self._check_slots(job, event, cycle_time_ms)
        there = [*job.placements, *job.slots.finished]
        of_sets = Counter(group for group, _ in there)
        groups = job.spec.groups
        short = [group.name for number, group in enumerate(groups) if of_sets[number] < group.min_count]
        if of_sets[0] != groups[0].count or len(there) - of_sets[0] < job.spec.min_workers or short:
            raise Violation(f"part of a quorum was accepted: {sorted(job.placements)}", job=event.job_uid)
        idle = [of.name for number, of in enumerate(groups) if of_sets[number] and _awaits(job, of_sets, number)]
        if idle:
            raise Violation(f"sets have nodes and wait for one that has none: {idle}", job=event.job_uid)
        if apart := scattered(self.state, job, event):
            raise Violation(apart, job=event.job_uid)

    def _check_after(self, job: JobRecord) -> None:
        """Check that the jobs have ended for which a job with new nodes waits."""
        for of in job.valid_spec.after:
            stages = [Stage.SUCCEEDED, *([Stage.FAILED] if of.on_failure == OnFailure.IGNORE else [])]
            if not any((job.seen.namespace, of.name, stage) in self._ended for stage in stages):
                raise Violation(f"a job has nodes before {of.name} has ended, which it waits for", job=job.uid)

    def _check_slots(self, job: JobRecord, event: k.Placed, cycle_time_ms: int) -> None:
        """Check the nodes of an accepted placement, and remember them."""
        groups, uids = job.valid_spec.groups, pods_of(job) if job.of_pods else {}
        for (group, index), node in expand(event.pods).items():
            if (group, index) in uids:
                self.given.setdefault(uids[group, index], set()).add(node)
            slot = (event.job_uid, event.attempt, groups[group].name if group else "", index)
            self.placed.setdefault(slot, set()).add(node)
            self.limits_known[slot] = self._world.limit_ranges.known(self.state, job.seen.namespace)
            if self._world.bad_nodes.returns(job, group, node, cycle_time_ms):
                raise Violation(f"a worker is placed on {node}, where its set failed repeatedly", job=job.uid)
        for pods in event.pods:
            self._open(pods.node, groups[pods.group].shape, event.job_uid)

    def _stay(self, event: k.WorkersReplaced) -> None:
        """Check workers that keep their nodes; their batch has no observations of nodes, so these are as before it."""
        job = self.state.jobs[event.job_uid]
        if part := worker_groups.replaced_in_part(job, event):
            raise Violation(f"part of a worker group was replaced: {part}", job=job.uid)
        for worker in event.workers:
            if worker.how == Replacement.SAME_NODE and job.spec is not None:
                node = job.placements[worker.slot.group, worker.slot.index]
                self._open(node, job.spec.groups[worker.slot.group].shape, event.job_uid, health_too=False)

    def _open(self, node: str, shape: PodShape, job: str, *, health_too: bool = True) -> None:
        """Check that a node with newly decided pods is open to them, according to the log."""
        facts = self.state.nodes.facts[self.state.nodes.rows[node]]
        against = [taint for taint in facts.taints if health_too or not taint.key.startswith("node.")]
        if not facts.ready or facts.cordoned or untolerated(against, shape) is not None:
            raise Violation(f"pods were placed on {node}, which is closed: {facts}", job=job)

    def _tell(self, offset: int, event: k.Event, refused: str, jobs: dict[str, Any]) -> None:
        uid = getattr(event, "job_uid", "")
        if k.seen_or_gone(event, k.JobSeen):
            uid = event.uid
        elif isinstance(event, k.PodSeen) and event.owner is not None:
            uid = event.owner.job_uid
        uids = [uid] if uid else []
        if isinstance(event, k.Preempted):
            uids = [event.placed.job_uid, *(victim.job_uid for victim in event.victims)]
        for uid in uids:
            text = repr(event)
            self.story.append(
                (uid, f"    log {self.state.epoch}:{offset} {text[:260]}{' REJECTED: ' + refused if refused else ''}")
            )

    def lose_after(self, offset: int) -> None:
        """Fold the log again after it lost its tail."""
        self._world.bad_nodes.forget()
        self._world.windows.forget()
        self._world.claims.forget()
        self._lost_tail = True
        kept = [entry for entry in self.entries if entry.last <= offset]
        self.state = _folded(State(epoch=self.state.epoch), kept)
        self.entries = kept
        self._world.room_record.lose_after(self.state)
        self._world.vain.forget()
        self._world.forecasts.lose_after(offset)
        self.promises.forget()
        self._identities = {(entry.batch.writer, entry.batch.seq) for entry in kept}
        self._limits.begin(self.state)
        self.chain = kept[-1].chain if kept else ""
        self.snapshots = [each for each in self.snapshots if each.position.offset <= offset]

    def lose_everything(self) -> None:
        """The log is empty; the next entry begins an epoch."""
        self.verify_snapshots()
        self.snapshots = []

    def snapshot(self, stored: StoredSnapshot) -> None:
        """Remember a stored snapshot, in order to check it against the log. Whether one forgets anything shows now: at
        the end of a run little is left to forget."""
        self._verify_fields(snapshot.restore(snapshot.encode(self.state)))
        if stored.position.epoch == self.state.epoch:
            self.snapshots.append(stored)

    def verify_snapshots(self) -> None:
        """fold(log) = fold(snapshot + tail) = the state that was folded step by step; for the first snapshot and the
        last two, because folding takes time."""
        if not self.entries:
            return
        grown = snapshot.encode(self.state)
        verification = retaken(self.state.epoch, self.entries)
        if snapshot.encode(verification.state) != grown:
            raise Violation("the log folded from its start isn't the state that grew")
        restored = snapshot.restore(grown)
        if snapshot.encode(restored) != grown:
            raise Violation("a state restored from its own bytes is another one")
        self._verify_fields(restored)
        report = verification.report
        expected = msgspec.structs.replace(report, different=report.different - self._beyond_telling)
        if not expected.sound or report.identical != report.cycles - self._beyond_telling:
            raise Violation(f"cycles taken again come out differently: {report}")
        self.cycles += report.cycles
        if problem := self._world.forecasts.made_again(self.state.epoch, self.entries):
            raise Violation(problem)
        ends = {(entry.last, entry.chain) for entry in self.entries}
        for stored in {each.position: each for each in (*self.snapshots[:1], *self.snapshots[-2:])}.values():
            if (stored.position.offset, stored.position.chain) not in ends:
                continue  # from a lost tail: a process that restores it doesn't find its position in the log
            tail = [entry for entry in self.entries if entry.first > stored.position.offset]
            if snapshot.encode(_folded(snapshot.restore(stored.content), tail)) != grown:
                raise Violation(f"the snapshot at {stored.position.offset} and its tail fold to another state")

    def _verify_fields(self, restored: State) -> None:
        if forgotten := [*differences(self.state, restored)]:
            raise Violation(f"a snapshot forgets fields of the state: {forgotten[:3]}")


def _placed(event: k.Event) -> k.Placed | None:
    """The placement that a decision is or has."""
    found = event.placed if isinstance(event, k.Preempted) else event
    return found if isinstance(found, k.Placed) else None


def _kept_off_ms(job: JobRecord) -> int:
    """The end of the back-off of a job that isn't placed yet: the attempt's, or that of further pods."""
    return (job.back_offs.further if job.stage in _STARTED else job.back_offs.attempt).until_ms


def _folded(state: State, entries: list[Entry]) -> State:
    for entry in entries:
        apply_entry(state, entry, Changes())
    return state


def _owner(obj: Object) -> dict[str, Any] | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == "TYJob":
            found: dict[str, Any] = reference
            return found
    return None


def _live(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


#: The role of a pod that no TYJob owns; its slot has its UID instead of a group.
_OTHER = "other"


class _Slot(msgspec.Struct, frozen=True):
    job: str
    attempt: int
    group: str
    role: str
    index: int


def _place(pod: Object, owner: dict[str, Any]) -> _Slot:
    labels = pod["metadata"]["labels"]
    role, index, attempt = (labels[f"arranger.dev/{name}"] for name in ("role", "index", "attempt"))
    return _Slot(owner["uid"], int(attempt), labels.get("arranger.dev/worker-set", ""), role, int(index))


def _awaits(job: JobRecord, pods: Mapping[int, int], group: int) -> bool:
    """Whether a set waits for another one of which no pod has a node; `pods` have one, by group."""
    of = job.valid_spec.groups[group]
    before = of.start_after or 0
    given_up = sum(slot[0] == before for slot in job.slots.given_up)
    left = job.valid_spec.groups[before].count - given_up if before else 0
    return left > 0 and not pods[before] and not job.may_start_after(of)


class Checks:
    """Safety after every step, from the store's own history; and liveness at the end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._store = world.store
        self._watches: dict[str, Watch] = {}
        for resource in (NODES, PODS, TYJOBS):
            self._watches[resource.plural] = self._store.watch(
                resource, Selection(), str(self._store.version), lambda: None
            )
        #: (Namespace, name) → the last status of a TYJob that a worker wrote.
        self._told: dict[tuple[str, str], Object] = {}
        self._room: dict[str, Counter[str]] = {}
        #: (job, attempt, group, role, index) → UID of its pod.
        self._there: dict[_Slot, str] = {}
        #: UIDs of pods whose room wasn't kept continuously since their creation.
        self._unawaited: set[str] = set()
        #: UID of each live pod → its slot and node; and the same by node, with its requests.
        self._pods: dict[str, tuple[_Slot, str]] = {}
        self._on: dict[str, dict[str, tuple[_Slot, dict[str, int]]]] = {}
        self._status: dict[str, tuple[int, str]] = {}
        self.strangers: dict[str, str] = {}
        #: UID of each forged pod → UID of the TYJob whose owner reference it has; "" if it has a slot's name.
        self.forged: dict[str, str] = {}
        self._forged_addresses: set[str] = set()

    # --- safety --------------------------------------------------------------------------------------------

    def after_step(self) -> None:
        """Check every change of the store since the last step."""
        self._world.claims.after_step()
        for event in self._watches["nodes"].take():
            if event.type != "DELETED":
                self._node(event.stored.object)
        for event in self._watches["pods"].take():
            self._pod(event.type, event.stored.object)
        for event in self._watches["tyjobs"].take():
            if event.type != "DELETED":
                self._job(event.stored)

    def _node(self, node: Object) -> None:
        room = self._room.setdefault(node["metadata"]["name"], Counter())
        for name, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
            room[name] = max(room[name], amount(name, quantity))

    def _job(self, stored: Stored) -> None:
        status = stored.object.get("status") or {}
        stage, attempt = status.get("stage", ""), status.get("attempt", 0)
        name, uid = stored.name, stored.uid
        before_attempt, before = self._status.get(uid, (0, ""))
        if (attempt, _RANK[stage]) < (before_attempt, _RANK[before]) or (_RANK[before] == 3 and stage != before):
            raise Violation(
                f"the status of {name} went back from {before} of attempt {before_attempt} to {stage} of {attempt}",
                job=uid,
            )
        self._status[uid] = (attempt, stage)
        if status.get("leaderAddress") in self._forged_addresses:
            raise Violation(f"the status of {name} tells the address of a forged pod", job=uid)

    def _pod(self, change: str, pod: Object) -> None:
        owner, uid = _owner(pod), pod["metadata"]["uid"]
        if self.forged.get(uid) and (address := (pod.get("status") or {}).get("podIP")):
            self._forged_addresses.add(address)
        bound = owner is None and pod["spec"].get("schedulerName") == SCHEDULER and pod["spec"].get("nodeName")
        if owner is not None and self.forged.get(uid) == "" and self._is_decided(pod, _place(pod, owner)):
            self._world.endings.see(pod)  # nothing tells it from the pod that would have been created
        if (owner is None and not bound) or uid in self.forged or uid in self._world.bindings.taken:
            return
        if is_placeholder(pod):
            return
        self._world.endings.see(pod)
        if change == "DELETED" or not _live(pod):
            found = self._pods.pop(uid, None)
            self._unawaited.discard(uid)
            if found is not None:
                del self._on[found[1]][uid]
                if self._there.get(found[0]) == uid:
                    del self._there[found[0]]
            return
        if owner is None and uid not in self._pods:
            self._count(pod, _Slot(record_of_pod(pod), 0, uid, _OTHER, 0))
        elif owner is not None and change == "ADDED":
            self._created(pod, _place(pod, owner))

    def _created(self, pod: Object, slot: _Slot) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if not self._is_decided(pod, slot):
            node = pod["spec"].get("nodeName", "")
            raise Violation(f"pod {name} was created on {node} without an accepted decision", job=slot.job)
        if slot in self._there:
            raise Violation(f"two live pods fill the slot of {name}", job=slot.job)
        if problem := self._world.endings.problem_of_new(pod):
            raise Violation(f"pod {name} was created, though {problem}", job=slot.job)
        self._there[slot] = uid
        self._count(pod, slot)

    def _is_decided(self, pod: Object, slot: _Slot) -> bool:
        """Whether an accepted decision ever gave the slot the pod's node."""
        key = (slot.job, slot.attempt, slot.group, slot.index)
        return pod["spec"].get("nodeName", "") in self._world.oracle.placed.get(key, ())

    def _count(self, pod: Object, slot: _Slot) -> None:
        """A pod has come to its node."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        self._pods[uid] = (slot, node)
        requests = requests_of(pod["spec"])
        if slot.role != _OTHER:
            key = (slot.job, slot.attempt, slot.group, slot.index)
            requests = self._world.limit_ranges.planned(pod, self._world.oracle.limits_known.get(key, -1))
        self._on.setdefault(node, {})[uid] = (slot, requests)
        self._fits(node, slot.job)

    def limits_change(self) -> None:
        """LimitRanges are about to change. Plans count pods that they don't know yet by that."""
        state = self._world.oracle.state
        for of_node in self._on.values():
            for uid, (slot, requests) in of_node.items():
                if slot.role != _OTHER and uid not in state.pods:
                    forget_given(requests)

    def _fits(self, node: str, job: str) -> None:
        """Check that the pods that Arranger placed fit on a node: those that the log desires there and those of
        released slots, except those that appeared after their room was freed."""
        total: Counter[str] = Counter()
        for uid, (slot, requests) in self._on[node].items():
            if self._counts(uid, slot, node):
                total.update(requests)
        room = self._room.get(node, Counter())
        short = sorted(name for name, asked in total.items() if asked > room[name])
        if short:
            raise Violation(f"node {node} is oversubscribed: {short}, {dict(total)} of {dict(room)}", job=job)

    def note_late(self, entry: Entry) -> None:
        """Note the pods that an entry shows for the first time, although their room wasn't kept until then."""
        for event in entry.batch.events:
            if isinstance(event, k.PodSeen) and event.uid in self._pods:
                self._counts(event.uid, *self._pods[event.uid], time_ms=entry.batch.time_ms)

    def _counts(self, uid: str, slot: _Slot, node: str, *, time_ms: int = 0) -> bool:
        """Whether a pod's room is counted: as a desired pod, as an observed one, or as an assumed one, for which that
        isn't over at this time."""
        state = self._world.oracle.state
        if slot.role == _OTHER:
            if not in_log(state, slot.job, uid, node, time_ms):
                self._unawaited.add(uid)
            return uid not in self._unawaited
        if self._desired(slot, node):
            return True
        claimed = (slot.job, slot.attempt, slot.group, slot.index, node)
        assumed = (
            (one.job_uid, one.attempt, "" if one.leader else one.group_name, one.index, at)
            for (one, at), pod in state.assumed.items()
            if pod.until_ms > time_ms
        )
        if uid not in state.pods and claimed not in assumed:
            self._unawaited.add(uid)
        return uid not in self._unawaited

    def _desired(self, slot: _Slot, node: str) -> bool:
        job = self._world.oracle.state.jobs.get(slot.job)
        if job is None or job.spec is None or job.attempt != slot.attempt:
            return False
        groups = ["", *(group.name for group in job.spec.groups[1:])]
        return slot.group in groups and job.placements.get((groups.index(slot.group), slot.index)) == node

    def worker_patches(
        self, resource: Resource, namespace: str, name: str, subresource: str, body: Mapping[str, Any]
    ) -> None:
        """Check that workers write only Events, the status of TYJobs and Queues, the members files of TYJobs, which log
        holds the cluster, and why pods wait that they are to place.

        The version for statuses takes any status, so check that it is one that v1 would take.
        """
        if resource == CLAIMS and may_select(body):
            return
        if (
            resource == CLUSTER_LOGS
            and body.keys() == {"metadata", "holders"}
            and "resourceVersion" in body["metadata"]
        ):
            return
        if resource == CONFIG_MAPS and may_patch(self._world, resource, namespace, name, body["metadata"]["uid"]):
            return
        if resource == PODS and subresource == "status" and self._world.others.may_tell(name, body):
            return
        if resource.plural != "events" and (resource not in _WITH_STATUS or subresource != "status"):
            raise Violation(f"a worker patches {resource.plural}/{name} {subresource}")
        if resource == TYJOB_STATUSES:
            wrong, self._told[namespace, name] = wrong_status(body["status"], self._told.get((namespace, name)))
            if wrong:
                raise Violation(f"a status of {name} that v1 has no place for: {wrong[0]}")

    def worker_deletes(self, resource: Resource, namespace: str, name: str, uid: str | None, *, knows: bool) -> None:
        """Check that workers delete only pods of TYJobs, and ended TYJobs with a time to live; all by UID.

        With `knows`, the worker's own log had the owner of a forged pod when it decided on the deletion. Without it,
        the pod is an orphan: in its namespace, there is no TYJob of that UID.
        """
        stored = self._store.collection(resource).objects.get((namespace, name))
        if self._world.autoscaler.may_delete(resource, stored):
            return
        if resource == TYJOBS and uid is not None:
            if stored is not None and stored.uid == uid:
                stage = (stored.object.get("status") or {}).get("stage", "")
                if stage not in ENDED or "ttlSecondsAfterFinished" not in stored.object["spec"]:
                    raise Violation(f"a worker deletes TYJob {name}, which is {stage}", job=uid)
                self._world.clocks.check_expiry(stored.object)
            self._world.faults.hit("a ttl runs out")
            return
        if resource != PODS or uid is None:
            raise Violation(f"a worker deletes {resource.plural}/{name} of UID {uid}")
        if stored is not None and stored.uid == uid and _owner(stored.object) is None:
            raise Violation(f"a worker deletes {name}, which isn't Arranger's")
        job = self.forged.get(uid)
        if job and knows and stored is not None and stored.uid == uid:
            raise Violation(f"a worker deletes the forged pod {namespace}/{name}", job=job)

    def strangers_stand(self) -> None:
        """Check that only users deleted foreign pods, and that no forged pod fills a slot."""
        for job in self._world.oracle.state.jobs.values():
            if any(self.forged.get(uid) for uid in job.bound.values()):
                raise Violation(f"a forged pod fills a slot: {job.bound}", job=job.uid)
        for name, uid in self.strangers.items():
            stored = self._store.collection(PODS).objects.get(("default", name))
            if stored is None or stored.uid != uid or "deletionTimestamp" in stored.object["metadata"]:
                raise Violation(f"the stranger's pod {name} was deleted")

    def projections_agree(self) -> None:
        """Check that the oracle's state is consistent, and that every process at the log's end has the same bytes."""
        state = self._world.oracle.state
        validate(state)
        told = None
        for process in self._world.processes:
            theirs = process.follower.state
            at = (theirs.epoch, theirs.offset, process.follower.position.chain)  # a process may be in a lost tail
            if at == (state.epoch, state.offset, self._world.oracle.chain):
                told = told or snapshot.encode(state)
                if snapshot.encode(theirs) != told:
                    raise Violation(f"{process.name} holds another state at offset {state.offset}")

    # --- liveness ------------------------------------------------------------------------------------------

    def unsettled(self) -> list[tuple[str, str]]:
        """(Job UID or "", the problem); empty at a good end."""
        found = [*self._behind(), *self._differs(), *self._jobs_unsettled()]
        return found or self._backlog()

    def _behind(self) -> list[tuple[str, str]]:
        state = self._world.oracle.state
        return [
            ("", f"{process.name} is at {process.follower.state.offset} of epoch {process.follower.state.epoch}")
            for process in self._world.processes
            if (process.follower.state.epoch, process.follower.state.offset) != (state.epoch, state.offset)
        ]

    def _objects(self, resource: Resource) -> list[Object]:
        return [stored.object for _, stored in sorted(self._store.collection(resource).objects.items())]

    def _differs(self) -> list[tuple[str, str]]:
        """Differences between the projection and the API server."""
        state = self._world.oracle.state
        found = []
        pods = {pod["metadata"]["uid"]: pod for pod in self._objects(PODS)}
        jobs = {job["metadata"]["uid"]: job for job in self._objects(TYJOBS)}
        for uid in sorted(pods.keys() | state.pods.keys()):
            seen = None
            if uid in pods:
                seen = attributed(state, pod_seen(pods[uid], 0, (SCHEDULER,), with_volumes=state.with_volumes))
            held = state.pods.get(uid)
            if (
                seen is None
                or held is None
                or msgspec.structs.replace(held, term=0, resource_version=seen.resource_version) != seen
            ):
                found.append(("", f"pod {uid} is {seen} and the projection holds {held}"))
        for uid in sorted(jobs.keys() | {uid for uid, job in state.jobs.items() if not job.of_pods}):
            if uid not in jobs or uid not in state.jobs:
                found.append((uid, f"TYJob {uid} is {'there' if uid in jobs else 'gone'}, and the projection differs"))
                continue
            spec = job_seen(jobs[uid], 0, with_status=False)
            if (spec.spec, spec.generation) != (state.jobs[uid].seen.spec, state.jobs[uid].seen.generation):
                found.append((uid, "the projection holds another spec"))
        nodes = {node["metadata"]["name"]: node_seen(node, 0).facts for node in self._objects(NODES)}
        held_nodes = {
            name: state.nodes.facts[row] for name, row in state.nodes.rows.items() if state.nodes.present(row)
        }
        quotas = {quota["metadata"]["uid"]: quota_seen(quota, 0) for quota in self._objects(QUOTAS)}
        held_quotas = {quota.uid: quota for of in state.quotas.values() for quota in of.values()}
        for uid in sorted(quotas.keys() | held_quotas.keys()):
            there, told = quotas.get(uid), held_quotas.get(uid)
            if (there and (there.hard, there.used, there.scopes)) != (told and (told.hard, told.used, told.scopes)):
                found.append(("", f"quota {uid} is {there} and the projection holds {told}"))
        classes = {of["metadata"]["name"]: of["value"] for of in self._objects(PRIORITY_CLASSES)}
        if classes != {of.name: of.value for of in state.priority_classes.values()}:
            found.append(("", f"priority classes are {classes} and the projection differs"))
        found += self._queues_apart()
        found += self._world.limit_ranges.apart(state)
        if nodes != held_nodes:
            found.append(("", f"nodes are {sorted(nodes)} and the projection differs"))
        return found

    def _queues_apart(self) -> list[tuple[str, str]]:
        """Queues and namespaces that the projection holds otherwise than the API server."""
        state, found = self._world.oracle.state, []
        spaces = {(of.uid, of.labels, of.queue) for of in (namespace_seen(of, 0) for of in self._objects(NAMESPACES))}
        if spaces != {(of.uid, of.labels, of.queue) for of in state.namespaces.values()}:
            found.append(("", f"namespaces are {sorted(spaces)} and the projection differs"))
        queues = self._objects(QUEUES) if self._world.queues.served else []
        if {(of.uid, of.spec) for of in (queue_seen(of, 0) for of in queues)} != {
            (of.uid, of.spec) for of in state.queues.values()
        }:
            found.append(("", f"queues are {queues} and the projection differs"))
        return found

    def _jobs_unsettled(self) -> list[tuple[str, str]]:
        state = self._world.oracle.state
        found = []
        for job in self._objects(TYJOBS):
            uid, name, status = job["metadata"]["uid"], job["metadata"]["name"], job.get("status") or {}
            record = state.jobs.get(uid)
            if record is None:
                continue
            stage = status.get("stage", "")
            if (stage, status.get("attempt", 0), status.get("scheduleState")) != (
                record.stage,
                record.attempt,
                record.schedule_state,
            ):
                found.append((uid, f"the status of {name} says {stage}, the log {record.stage}"))
            waiting = stage in ("Pending", "Rescheduling") and record.waits is not None and status.get("message")
            # A foreign pod has a pod's name, or a quota refuses the quorum: then the status reports the back-off.
            kept_off = record.failure is not None or (stage == "Rescheduling" and record.back_offs.held_back)
            refused = kept_off and "refused" in status.get("message", "")
            further = record.schedule_state == ScheduleState.PARTLY and record.waits is not None
            outside = stage in ("Pending", "Rescheduling") and record.spec is not None and unusable(state, record)
            lack = lacking_quota(record.waits) if waiting and not outside else None  # who is outside isn't tried
            if lack is not None and lack.quota and lack.quota not in state.quotas.get(record.seen.namespace, {}):
                found.append((uid, f"{name} waits for the quota {lack.quota}, which isn't there"))
            if record.times.short_ms:
                found.append((uid, f"{name} starts with a part of its quorum: {status.get('message')}"))
            stands_still = stage == "Pending" and record.suspended and record.spec is not None and record.spec.suspend
            over = any(
                state.pods[pod].phase == "Succeeded" for pod in record.bound.values()
            )  # their end isn't the job's
            goes_on = stage == "Starting" and (further or over or _may_fail_forever(record))
            goes_on = goes_on or (stage == "Rescheduling" and self._world.windows.fails_forever(record))
            before = stage in ("Pending", "Rescheduling") and self._world.dependencies.waits_rightly(record)
            if before and not status.get("message", "").startswith("waits for job ") and not stands_still:
                found.append((uid, f"{name} doesn't say for which job it waits: {status.get('message')}"))
            if lack is not None and lack.queue and (untrue := outdated_reason(state, record, lack)):
                found.append((uid, f"{name} waits for {lack}, and {untrue}"))
            if outside and not (before or stands_still) and "queue" not in status.get("message", ""):
                found.append((uid, f"{name} doesn't say that {outside}: {status.get('message')}"))
            missing = record.spec is not None and lacks_class(record) and record.spec.priority_class
            of_class = missing and missing not in state.priority_classes and missing in status.get("message", "")
            told = waiting or refused or stands_still or before or goes_on or outside or of_class
            if not (told or stage in (*ENDED, "Running")):
                found.append((uid, f"{name} is {stage} {status.get('scheduleState')}: {status.get('message')}"))
        found += [*worker_groups.unsettled(state), *self._world.others.unsettled()]
        found += [*self._world.claims.unsettled(state), *self._world.autoscaler.unsettled(state)]
        found += self._world.forecasts.unsettled()
        return [*found, *self._strays(), *self._world.belongings.unsettled(), *self._world.queues.unsettled()]

    def _strays(self) -> list[tuple[str, str]]:
        """Undesired pods, and incomplete quorums."""
        state = self._world.oracle.state
        found: list[tuple[str, str]] = []
        whole: Counter[str] = Counter()
        for pod in self._objects(PODS):
            owner = _owner(pod)
            if owner is None or "deletionTimestamp" in pod["metadata"] or self.forged.get(pod["metadata"]["uid"]):
                continue
            if is_placeholder(pod):
                continue
            slot, job = _place(pod, owner), state.jobs.get(owner["uid"])
            name = pod["metadata"]["name"]
            if job is None:
                found.append((slot.job, f"pod {name} outlived its job"))
            elif pod["metadata"]["uid"] in job.kept:
                continue
            elif job.attempt != slot.attempt:
                found.append((slot.job, f"pod {name} outlived its attempt"))
            elif job.ended and job.spec is not None:
                policy = job.spec.clean_pod_policy
                if policy == CleanPodPolicy.ALL or (policy == CleanPodPolicy.RUNNING and _live(pod)):
                    found.append((slot.job, f"pod {name} outlived its job, whose cleanPodPolicy is {policy}"))
            else:
                whole[slot.job] += 1
        for uid, pods in sorted(whole.items()):
            spec = state.jobs[uid].spec
            job = state.jobs[uid]
            if job.failure is not None or (job.schedule_state == ScheduleState.PARTLY and job.waits is not None):
                continue  # a foreign pod has a pod's name, or the job doesn't fit: the status says so
            needed = spec.groups[0].count + spec.min_workers - len(job.slots.finished) if spec is not None else 0
            if pods < needed:
                found.append((uid, f"{pods} pods of a quorum of {needed}"))
        return [*found, *self._kept()]

    def _kept(self) -> list[tuple[str, str]]:
        """Pods that are kept for their logs although they run, or are too many."""
        there = {pod["metadata"]["uid"]: pod for pod in self._objects(PODS)}
        found: list[tuple[str, str]] = []
        for uid, job in self._world.oracle.state.jobs.items():
            for of in job.keepers:
                pods = [there[pod] for pod in of.kept if pod in there]
                if len(of.kept) > (job.spec.keep_failed if job.spec is not None else 0) or any(map(_live, pods)):
                    found.append((uid, f"{job.seen.name} keeps the pods {of.kept}"))
        return found

    def _backlog(self) -> list[tuple[str, str]]:
        """Remaining work: placements that a cycle would still make, and exceeded bounds."""
        state, world = self._world.oracle.state, self._world
        unforeseen = dataclasses.replace(state, forecasts={})  # a forecast is no reason to wait
        events = take_cycle(unforeseen, world.cycle_config, state.time_ms)
        # Whoever waits for the time of its next cycle must know what that one would find out.
        later = take_cycle(unforeseen, world.cycle_config, max(world.clock.now_ms(), state.time_ms))
        found = [
            ("", f"a cycle would still say {type(event).__name__}")
            for event in (*events, *(event for event in later if isinstance(event, k.Reserved)))
            if isinstance(event, k.Placed | k.Preempted | k.Reserved)
        ]
        for job in state.jobs.values():
            if job.stage in (Stage.PENDING, Stage.RESCHEDULING) and job.schedule_state == ScheduleState.SUCCEED:
                found.append((job.uid, f"{job.seen.name} is placed and doesn't start"))
        found += room_rules.could_take(state, world.cycle_config, state.time_ms)
        found += room_rules.kept_by_borrowers(state, world.cycle_config, state.time_ms)
        return [*found, *(("", text) for text in overgrown(world))]


def _may_fail_forever(job: JobRecord) -> bool:
    """Whether workers fail whose limit counts within a window: after a back-off beyond it, it counts from nothing."""
    policies = [group.restart for group in job.valid_spec.groups if group.name in job.failing]
    return any(policy is not None and policy.window_s is not None for policy in policies)
