"""A long log with real cycles: 5,000 nodes and 100,000 pods, one cycle a second, as many events as asked for.

Nodes and strangers' pods are listed first. Then, second by second: jobs come, the scheduler takes a cycle on the state
as it is, the controllers decide, pods are created, get ready, succeed and go; strangers' pods restart, nodes are
cordoned and back; some jobs ask for what no node has free and wait until their user deletes them. About 200 events
a second of simulated time, in batches as a watcher appends them. Everything follows from the seed.
"""

import random
from collections import deque
from collections.abc import Iterator

import msgspec

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Entry
from arranger.events.log_keys import next_chain
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.desired import desired_pods
from arranger.lifecycle.stages import next_decision
from arranger.model.config import CycleConfig
from arranger.model.job import CleanPodPolicy, JobSpec, PodGroup
from arranger.model.names import pod_name
from arranger.model.pod import PodOwner, PodShape, PodTraits
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.parts import SlotKey
from arranger.projections.state import Changes, State
from arranger.scheduling.cycle import VERSIONS, take_cycle
from benchmarks.workload import GIB, node_facts

BEGAN_MS = 1_700_000_000_000
_BATCH = 500
_STRANGERS = 80_000
_JOBS_A_SECOND = 4
#: Changes that a watcher finds together at most, when pods are created in a burst and it gathers for 10 ms.
_TOGETHER = 10
#: Seconds that a job runs: with so many coming, about 20,000 of its kind of pods run at any time.
_RUNS_S = (300, 900)


class LongRun:
    """The cluster's life. `entries` is the log, without end; `state` what it folds to so far."""

    def __init__(
        self,
        *,
        nodes: int = 5_000,
        strangers: int = _STRANGERS,
        jobs_a_second: int = _JOBS_A_SECOND,
        runs_s: tuple[int, int] = _RUNS_S,
        seed: int = 7,
    ) -> None:
        self.state = State()
        self.now_ms = BEGAN_MS
        self.cycles = 0
        self.jobs_begun: list[str] = []
        self._chance = random.Random(seed)
        self._nodes = nodes
        self._jobs_a_second = jobs_a_second
        self._runs_s = runs_s
        self._strangers = strangers
        self._seq = 0
        self._chain = ""
        self._version = 0
        self._config = CycleConfig(versions=VERSIONS)
        self._lifecycle = LifecycleConfig()
        self._touched: dict[str, None] = {}
        #: Events to be observed at a second, by what a kubelet or a user does then.
        self._later: dict[int, list[tuple[str, str]]] = {}
        self._told_stage: dict[str, str] = {}
        self._node_names = [f"node-{number:05}" for number in range(nodes)]

    def entries(self) -> Iterator[Entry]:
        """The log, for ever."""
        yield self._say("epoch", [k.EpochBegun(1, 0, "benchmark")])
        claims = [self._say("watcher", [k.claim(kind, "watcher")]) for kind in k.Watched]
        yield from claims
        self._terms = dict(self.state.terms)
        yield from self._list(k.Watched.NODE, [self._node(number) for number in range(self._nodes)])
        yield from self._list(k.Watched.POD, [self._stranger(number) for number in range(self._strangers)])
        for kind in (k.Watched.JOB, *k.OPTIONAL):
            yield from self._list(kind, [])
        while True:
            yield from self._second()

    # --- one second ----------------------------------------------------------------------------------------

    def _second(self) -> Iterator[Entry]:
        self.now_ms += 1000
        yield from self._observe(self._come_and_go(), _TOGETHER)
        events = take_cycle(self.state, self._config, self.now_ms)
        if events:
            self.cycles += 1
            yield self._say("scheduler", list(events))
        yield from self._control()
        yield from self._observe(self._statuses(), _TOGETHER)
        yield from self._observe(self._apply(), _TOGETHER)
        self._touched = {}

    def _come_and_go(self) -> list[k.Event]:
        second = self.now_ms // 1000
        found: list[k.Event] = [self._job() for _ in range(self._jobs_a_second)]
        for what, uid in self._later.pop(second, ()):
            found += self._happens(what, uid)
        chance = self._chance
        pods = [f"{uid_of('stranger', chance.randrange(self._strangers))}" for _ in range(10)]
        found += [self._again(self.state.pods[uid], restarts=self.state.pods[uid].restarts + 1) for uid in pods]
        if second % 2:
            row = chance.randrange(self._nodes)
            nodes = self.state.nodes
            facts = nodes.facts[row]
            name = self._node_names[row]
            changed = msgspec.structs.replace(nodes.facts[nodes.rows[name]], cordoned=not facts.cordoned)
            found.append(k.NodeSeen(self._terms[k.Watched.NODE], name, uid_of("node", row), self._next(), changed))
            if changed.cordoned:
                self._in(20, "uncordon", name)
        return found

    def _happens(self, what: str, uid: str) -> list[k.Event]:
        state = self.state
        if what == "uncordon":
            row = state.nodes.rows[uid]
            facts = msgspec.structs.replace(state.nodes.facts[row], cordoned=False)
            return [k.NodeSeen(self._terms[k.Watched.NODE], uid, state.nodes.uids[row], self._next(), facts)]
        if what in ("gives up", "forgotten"):
            job = state.jobs.get(uid)
            if job is None or (what == "gives up" and job.placements):
                return []
            return [k.ObjectGone(k.Watched.JOB, self._terms[k.Watched.JOB], job.seen.namespace, job.seen.name, uid)]
        pod = state.pods.get(uid)
        if pod is None or pod.phase in ("Succeeded", "Failed"):
            return [] if pod is None or what != "gone" else [self._gone(pod)]
        if what == "gone":
            return [self._gone(pod)]
        if what == "runs":
            self._in(1 + self._chance.randrange(3), "ready", uid)
            return [self._again(pod, phase="Running", ip=self._address())]
        if what == "ready":
            if pod.owner is not None and pod.owner.leader:
                self._in(self._chance.randint(*self._runs_s), "succeeds", uid)
            return [self._again(pod, ready=True)]
        return [self._again(pod, phase="Succeeded", ready=False)]

    def _control(self) -> Iterator[Entry]:
        """The decisions on the jobs that were touched, until there is no more."""
        waiting = deque(self._touched)
        while waiting:
            found = []
            for uid in waiting:
                job = self.state.jobs.get(uid)
                decided = next_decision(self.state, job, self._lifecycle, self.now_ms) if job is not None else None
                if decided is not None:
                    found.append(decided)
            if not found:
                return
            yield self._say("controller", list(found))
            waiting = deque(dict.fromkeys(decided.job_uid for decided in found))

    def _statuses(self) -> list[k.Event]:
        """What the appliers wrote into the TYJobs comes back."""
        found: list[k.Event] = []
        for uid in self._touched:
            job = self.state.jobs.get(uid)
            if job is None or self._told_stage.get(uid) == job.stage:
                continue
            self._told_stage[uid] = job.stage
            digest = f"{self._chance.getrandbits(64):016x}"
            found.append(msgspec.structs.replace(job.seen, resource_version=self._next(), status_digest=digest))
            if job.ended:
                del self._told_stage[uid]
                self._in(30, "forgotten", uid)
        return found

    def _apply(self) -> list[k.Event]:
        found: list[k.Event] = []
        for uid in self._touched:
            job = self.state.jobs.get(uid)
            if job is None:
                continue
            desired = desired_pods(self.state, job, now_ms=self.now_ms)
            for pod in desired.delete:
                if not pod.deleting:
                    self._in(1 + self._chance.randrange(3), "gone", pod.uid)
                    found.append(self._again(pod, deleting=True))
            found += [self._created(uid, slot, node) for slot, node in desired.create]
        return found

    # --- what is seen --------------------------------------------------------------------------------------

    def _job(self) -> k.JobSeen:
        chance = self._chance
        number = len(self.jobs_begun)
        uid = _uuid(chance)
        name = f"{chance.choice(('train', 'ppo', 'sweep', 'rollout', 'selfplay'))}-{number:06}"
        self.jobs_begun.append(name)
        big = number % 150 == 149
        workers = 31 if big else chance.choice((3, 5, 7, 15))
        gpus = 8 if big else 1
        labels = (("app", name[: name.index("-")]), ("team", f"team-{number % 12}"))
        leader = PodShape((("cpu", 4000), ("memory", 8 * GIB), ("nvidia.com/gpu", gpus)), labels=labels)
        worker = PodShape((("cpu", 2000), ("memory", 4 * GIB), ("nvidia.com/gpu", gpus)), labels=labels)
        spec = JobSpec(
            (PodGroup("learner", 1, leader), PodGroup("actors", workers, worker)), workers, number % 10, "", "", 3,
            CleanPodPolicy.ALL, False,
        )  # fmt: skip
        if big:
            self._in(self._runs_s[0], "gives up", uid)
        return k.JobSeen(
            self._terms[k.Watched.JOB], f"team-{number % 12}", name, uid, self._next(), 1, self.now_ms, False, spec,
            (), "",
        )  # fmt: skip

    def _created(self, job_uid: str, slot: SlotKey, node: str) -> k.PodSeen:
        job = self.state.jobs[job_uid]
        assert job.spec is not None
        group = job.spec.groups[slot[0]]
        owner = PodOwner(job.uid, job.attempt, group.name, slot[0] == 0, slot[1])
        uid = _uuid(self._chance)
        self._in(1 + self._chance.randrange(4), "runs", uid)
        return k.PodSeen(
            self._terms[k.Watched.POD], job.seen.namespace, pod_name(job.seen.name, group.name, slot[1], job.attempt),
            uid, self._next(), node, "Pending", group.shape.requests, owner, False, False,
            traits=PodTraits(group.shape.labels),
        )  # fmt: skip

    def _node(self, number: int) -> k.NodeSeen:
        name = self._node_names[number]
        return k.NodeSeen(
            self._terms[k.Watched.NODE], name, uid_of("node", number), self._next(), node_facts(name, number)
        )

    def _stranger(self, number: int) -> k.PodSeen:
        app = f"app-{number % 400:03}"
        hashed = f"{(number % 400) * 2_654_435_761 % (1 << 32):08x}"
        gpu = (("nvidia.com/gpu", 1),) if number < self._nodes else ()
        return k.PodSeen(
            self._terms[k.Watched.POD], f"team-{number % 12}",
            f"{app}-{hashed}-{self._chance.getrandbits(25):05x}", uid_of("stranger", number), self._next(),
            self._node_names[number % self._nodes], "Running", (("cpu", 250), ("memory", GIB), *gpu), None, True, False,
            ip=self._address(), traits=PodTraits((("app", app), ("pod-template-hash", hashed))),
        )  # fmt: skip

    def _again(self, pod: k.PodSeen, **changes: object) -> k.PodSeen:
        return msgspec.structs.replace(pod, resource_version=self._next(), **changes)

    def _gone(self, pod: k.PodSeen) -> k.ObjectGone:
        return k.ObjectGone(k.Watched.POD, pod.term, pod.namespace, pod.name, pod.uid)

    def _address(self) -> str:
        bits = self._chance.getrandbits(24)
        return f"10.{bits >> 16}.{bits >> 8 & 255}.{bits & 255}"

    def _next(self) -> str:
        self._version += 1
        return str(41_000_000 + self._version)

    # --- the log -------------------------------------------------------------------------------------------

    def _in(self, seconds: int, what: str, uid: str) -> None:
        self._later.setdefault(self.now_ms // 1000 + seconds, []).append((what, uid))

    def _list(self, kind: k.Watched, seen: list[k.NodeSeen] | list[k.PodSeen]) -> Iterator[Entry]:
        yield self._say("watcher", [k.ListingBegun(kind, self._terms[kind])])
        yield from self._observe(list(seen))
        yield self._say("watcher", [k.ListingEnded(kind, self._terms[kind], self._next())])

    def _observe(self, events: list[k.Event], at_once: int = _BATCH) -> Iterator[Entry]:
        for begin in range(0, len(events), at_once):
            yield self._say("watcher", events[begin : begin + at_once])

    def _say(self, role: str, events: list[k.Event]) -> Entry:
        self._seq += 1
        batch = k.Batch(f"{role}@arranger-0-17-9c41ab", self._seq, self.now_ms, tuple(events))
        self._chain = next_chain(self._chain, encode_batch(batch))
        first = self.state.offset + 1
        entry = Entry(first, first + len(events) - 1, self._chain, batch)
        changes = Changes()
        apply_entry(self.state, entry, changes)
        self._touched.update(changes.jobs)
        return entry


def uid_of(kind: str, number: int) -> str:
    """The UID of a node or a stranger's pod: by chance, but the same one every time."""
    return _uuid(random.Random(f"{kind} {number}"))


def _uuid(chance: random.Random) -> str:
    bits = chance.getrandbits(128)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
