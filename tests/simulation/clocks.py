"""Clocks that are wrong by hours for a while, in running and in starting processes; and checks that no entry has a time
far from the store's, and that no decision by time alone is early.
"""

import asyncio
import datetime
import random
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.events import kinds as k
from arranger.events.facts import LostPods, NodeLeft, NodeLost, NodeTrouble
from arranger.events.log import Entry
from arranger.kube.cluster import NODES, PODS, Object
from arranger.kube.translate import owned_by, pod_seen
from arranger.lifecycle.config import LifecycleConfig
from arranger.model.pod import Phase
from arranger.model.provisioning import HOLDS_FOR_LABEL
from arranger.projections.cluster.nodes import UP
from arranger.projections.jobs.records import JobRecord, blameless
from arranger.projections.state import State
from tests.simulation.gateways import CLOCK_BOUND_MS
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

_HALF_AN_HOUR_MS, _FIVE_HOURS_MS = 1_800_000, 18_000_000
#: Writers that are not processes: they use the log's own time, so that their time has no effect.
_UNTIMED = ("rogue", "elsewhere", "forger")
#: A time in a status is whole seconds.
_SECOND_MS = 1_000
#: A job whose pods end shortly before its deadline.
JUST_IN_TIME = "a job ends shortly before its deadline"
#: A clock that is wrong by hours, for a while.
HOURS = "clock off by hours"


class Clocks:
    """Sets clocks wrong and right again, and records how far the clocks of possible writers are off."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} clocks")
        self._comes = self._chance.random() < 0.8 or world.faults.often(HOURS)
        self._pace_s = self._chance.choice((6.0, 25.0)) if not world.faults.often(HOURS) else 3.0
        self._from_the_start = self._chance.choice((0.0, 0.05, 0.3))
        self._ends = random.Random(f"{world.seed} ends in time")
        #: The largest error so far of a clock within the bound.
        self.tolerated_ms = 0

    def starts(self, process: "SimulatedProcess") -> None:
        """Give a starting process a wrong clock now and then."""
        self.look(process)
        if self._comes and self._world.faults.on and self._chance.random() < self._from_the_start:
            self._set_off(process, "clock off by hours from the start")

    async def run(self) -> None:
        """Set one clock wrong once in a while, until the faults stop."""
        while self._comes and self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))
            right = [each for each in self._world.processes if abs(each.clock.skew_ms) <= CLOCK_BOUND_MS]
            if self._world.faults.on and right:
                self._set_off(self._chance.choice(right), HOURS)

    def _set_off(self, process: "SimulatedProcess", site: str) -> None:
        off_ms = self._chance.choice((-1, 1, 1)) * self._chance.randrange(_HALF_AN_HOUR_MS, _FIVE_HOURS_MS)
        before_ms, process.clock.skew_ms = process.clock.skew_ms, process.clock.skew_ms + off_ms
        self._world.faults.hit(site)
        self._world.step("clocks", f"{site}: {process.name} by {off_ms / 1000:+.0f} s")

        def mend() -> None:
            if process in self._world.processes:
                process.clock.skew_ms = before_ms
                self._world.step("clocks", f"the clock of {process.name} is set right")

        self._world.later(self._chance.choice((2.0, 15.0, 60.0)) * self._chance.uniform(0.3, 1.0), mend)

    def mend_all(self) -> None:
        """Bring every clock within the bound."""
        for process in self._world.processes:
            if abs(process.clock.skew_ms) > CLOCK_BOUND_MS:
                process.clock.skew_ms = 0

    def look(self, process: "SimulatedProcess") -> None:
        """Record the error of a clock that is allowed to write."""
        off_ms = abs(process.clock.skew_ms)
        if off_ms <= CLOCK_BOUND_MS:
            self.tolerated_ms = max(self.tolerated_ms, off_ms)

    # --- checks --------------------------------------------------------------------------------------------

    def check_entry(self, entry: Entry) -> None:
        """Check that the time of an entry of a process is near the store's own."""
        off_ms = entry.batch.time_ms - self._world.clock.now_ms()
        if abs(off_ms) > CLOCK_BOUND_MS and entry.batch.writer not in _UNTIMED:
            raise Violation(f"{entry.batch.writer} told offset {entry.first} by a clock that is {off_ms} ms off")

    def check_decision(self, event: k.Event, job: JobRecord | None) -> None:
        """Check that an accepted decision isn't earlier than its job's deadline, and that a node is really lost."""
        facts = event.facts if isinstance(event, k.StageDecided) else None
        if isinstance(facts, NodeLost) and not (facts.awaited or (facts.gone and not facts.down_s)):  # a pod is on it
            self._check_lost(self._world.oracle.state, facts.node, event.job_uid)
        if isinstance(event, k.WorkersReplaced):
            bound = any(worker.pod_uid for worker in event.workers)
            for cause in event.causes:  # a worker without a pod needs another node as soon as its node is deleted
                match cause:
                    case LostPods(why=NodeLeft(node, NodeTrouble.NOT_READY)):
                        self._check_lost(self._world.oracle.state, node, event.job_uid)
                    case LostPods(why=NodeLeft(node, NodeTrouble.GONE)) if bound:
                        self._check_lost(self._world.oracle.state, node, event.job_uid)
        if not isinstance(event, k.StageDecided) or event.reason != "DeadlineExceeded":
            return
        limit_s = job.spec.deadline_s if job is not None and job.spec is not None else None
        if job is None or limit_s is None:
            return
        active_ms = self._world.clock.now_ms() - job.times.start_ms
        if active_ms < limit_s * 1000 - self.tolerated_ms:
            raise Violation(f"the deadline of {limit_s} s came after {active_ms} ms", job=job.uid)
        left_ms = limit_s * 1000 - job.times.active_ms
        ended_ms = self._succeeded_ms(job)
        if ended_ms is not None and ended_ms < job.times.completion_ms + left_ms - self.tolerated_ms - _SECOND_MS:
            raise Violation("it failed by its deadline, before which it had succeeded", job=job.uid)

    def _check_lost(self, state: State, name: str, uid: str) -> None:
        """Check that a node which counts as lost hadn't been ready again in time, as the API server has it."""
        row = state.nodes.rows.get(name)
        down_ms, back_ms = (
            state.nodes.down_ms[row] if row is not None else UP,
            self._world.machines.back_ms.get(name, 0),
        )
        due_ms = down_ms + LifecycleConfig().node_lost_after_ms - 2 * self.tolerated_ms - _SECOND_MS
        stored = self._world.store.collection(NODES).objects.get(("", name))
        if down_ms == UP or stored is None or not down_ms + self.tolerated_ms < back_ms < due_ms:
            return
        if any(of["type"] == "Ready" and of["status"] == "True" for of in stored.object["status"]["conditions"]):
            raise Violation(f"{name} counts as lost, and has been ready again after {back_ms - down_ms} ms", job=uid)

    def _succeeded_ms(self, job: JobRecord) -> int | None:
        """When the last pod ended whose end is the job's, as the API server has them; None if one hasn't succeeded, or
        if there are none: their sets were scaled to nothing."""
        stored = self._world.store.collection(PODS).objects
        there = [of.object for (within, _), of in stored.items() if within == job.seen.namespace]
        pods = {pod["metadata"]["name"]: pod for pod in there if owned_by(pod, job.uid)}
        latest_ms, spec = 0, job.valid_spec
        for slot in [(group, index) for group in spec.success for index in range(spec.groups[group].count)]:
            pod = pods.get(job.pod_name(slot))
            seen = pod_seen(pod, 0) if pod is not None else None
            if seen is None or seen.phase != Phase.SUCCEEDED or blameless(seen) or not seen.times.ended_ms:
                return None
            latest_ms = max(latest_ms, seen.times.ended_ms)
        return latest_ms or None

    def draw(self, spec: dict[str, Any]) -> None:
        """Let a job now and then end shortly before its deadline."""
        if self._ends.random() >= 0.05 and not self._world.faults.often(JUST_IN_TIME):
            return
        spec["activeDeadlineSeconds"] = deadline_s = self._ends.randrange(8, 25)
        self._world.faults.hit(JUST_IN_TIME)
        for of in (spec.get("leader"), *(spec.get("workerSets") or ())):
            if of is not None:
                notes = of["template"]["metadata"]["annotations"]
                notes["sandbox.arranger.dev/run-seconds"] = f"{deadline_s - self._ends.uniform(2.0, 5.0):.1f}"
                notes.pop("sandbox.arranger.dev/failures", None)
                of["template"]["spec"]["restartPolicy"] = "Never"

    def check_expiry(self, job: Object) -> None:
        """Check that a worker deletes an ended TYJob only after its time to live."""
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        ended = (job.get("status") or {}).get("completionTime")
        if ttl_s is None or not ended:
            return
        kept_ms = self._world.clock.now_ms() - rfc3339_ms(ended)
        if kept_ms < ttl_s * 1000 - self.tolerated_ms - _SECOND_MS:
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            raise Violation(f"TYJob {name} went {kept_ms} ms after its end, and was to be kept for {ttl_s} s", job=uid)

    def check_force(self, process: "SimulatedProcess", uid: str) -> None:
        """Check that a worker deletes a pod by force only if its node has been down for long enough. A placeholder runs
        nothing, and has no grace period on any node."""
        state = process.follower.state
        pod = state.pods.get(uid)
        if pod is None or HOLDS_FOR_LABEL in dict(pod.traits.labels):
            return
        down_ms = state.nodes.down_for_ms(pod.node, max(self._world.clock.now_ms(), state.time_ms))
        job = pod.owner.job_uid if pod.owner is not None else ""
        self._check_lost(state, pod.node, job)
        if 0 <= down_ms < LifecycleConfig().node_lost_after_ms - self.tolerated_ms:
            raise Violation(f"pod {pod.name} is deleted by force on {pod.node}, down for {down_ms} ms", job=job)


def rfc3339_ms(text: str) -> int:
    """A time as Kubernetes writes it, in milliseconds since 1970."""
    return round(msgspec.convert(text, datetime.datetime).timestamp() * 1000)
