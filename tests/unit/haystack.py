"""Logs of 100,000 events in each of which one event is the known cause of what becomes of the job `victim`.

Everything else is hay: other nodes, jobs and pods that come, change and go where the victim can't be. The first and
largest part is the same for all of them and is made once.
"""

import itertools
from collections.abc import Callable, Iterator

import msgspec

from arranger.events import kinds as k
from arranger.model.job import GANG, Slot
from arranger.model.node import Taint
from arranger.model.pod import HostPort, PodRules, PodShape, PodTerm, PodTraits, Requirement, SpreadRule
from arranger.projections import snapshot
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.records import JobRecord
from tests.world import World, shape

#: Where the victim may run, and nothing of the hay.
HERE = {"zone": "here"}
#: Events before the victim's part begins, at least; the hay around the cause comes to some thousands more.
PREFIX = 98_500
_HAY_NODES = 40
_HAY_JOBS = 20
_ROUND = 500
_HOST = "kubernetes.io/hostname"


class Haystack(World):
    """A world with hay in it."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds = 0
        for number in range(_HAY_NODES):
            self._hay_node(number)
        for number in range(_HAY_JOBS):
            self._hay_job(number)
        self.settle()
        while self.state.offset < PREFIX:
            self.hay(busy=True)

    def after(self) -> "Haystack":
        """Another world that goes on from here; this one stays as it is."""
        other = object.__new__(Haystack)
        vars(other).update(vars(self))
        other.state = snapshot.restore(snapshot.encode(self.state))
        other.entries = list(self.entries)
        other.verdicts = []
        return other

    def hay(self, rounds: int = 4, *, busy: bool = False) -> None:
        """Nodes that change and hundreds of observations; when `busy` also a job that comes, one that goes, cycles."""
        for _ in range(rounds):
            self._rounds += 1
            self.pass_time(1)
            self._hay_node(self._rounds, cordoned=True)
            if busy:
                oldest = next(job for job in self.state.jobs.values() if job.seen.name.startswith("hay-"))
                pods = list(self.state.pods_of.get(oldest.uid, {}))
                self.job_gone(oldest)
                for uid in pods:
                    self.pod_gone(uid)
                self._hay_job(self._rounds + _HAY_JOBS)
                self.settle()
            self._hay_node(self._rounds)
            self.say(*itertools.islice(self._changes(), _ROUND))

    def here(self, name: str = "here-1", **facts: object) -> None:
        """A node that the victim may run on, with 4 GPUs unless said otherwise."""
        labels = {**HERE, _HOST: name, **facts.pop("labels", {})}  # type: ignore[dict-item]
        self.node(name, **{"gpus": 4, "labels": labels, **facts})  # type: ignore[arg-type]

    def victim(self, **spec: object) -> JobRecord:
        """The victim, its leader with 4 GPUs unless said otherwise; again to edit it."""
        generation = self.state.jobs["uid-victim"].seen.generation + 1 if "uid-victim" in self.state.jobs else 1
        created = self.state.jobs["uid-victim"].seen.created_ms if generation > 1 else self.now_ms
        options = {"leader": asks(4), "created": created, "generation": generation, **spec}
        return self.job("victim", **options)  # type: ignore[arg-type]

    def _hay_node(self, number: int, *, cordoned: bool = False) -> None:
        name = f"hay-{number % _HAY_NODES:02}"
        self.node(name, cpu=64, gpus=8, labels={"zone": "hay", _HOST: name}, cordoned=cordoned)

    def _hay_job(self, number: int) -> None:
        one = shape(cpu=1, gpus=1, selector={"zone": "hay"})
        self.job(f"hay-{number}", leader=one, workers=3, worker=one, min_workers=1, priority=1, created=self.now_ms)

    def _changes(self) -> Iterator[k.Event]:
        """Pods of the hay seen again, ready and not ready in turns."""
        pods = [pod for pod in self.state.pods.values() if pod.name.startswith("hay-")]
        for turn in itertools.count():
            for pod in pods:
                version = f"{self._rounds}-{turn}"
                yield msgspec.structs.replace(pod, resource_version=version, ready=turn % 2 == 0)


def asks(gpus: int, *, labels: dict[str, str] | None = None, rules: PodRules | None = None) -> PodShape:
    """A pod of the victim."""
    return shape(cpu=1, gpus=gpus, selector=HERE, labels=labels, rules=rules)


# --- why it waits: each scene answers the offset of the cause ------------------------------------------------


Scene = Callable[[Haystack], int]


def _now(world: Haystack) -> int:
    return world.state.offset


def _then_wait(world: Haystack, cause: int) -> int:
    """The cause is there; cycles are taken and time goes by."""
    world.hay(2)
    world.settle()
    world.hay(2, busy=True)
    return cause


def cordon(world: Haystack) -> int:
    """The only node that fits is cordoned."""
    world.here()
    world.victim()
    world.hay()
    world.here(cordoned=True)
    return _then_wait(world, _now(world))


def competing_decision(world: Haystack) -> int:
    """A job of higher priority gets the room."""
    world.here()
    world.victim()
    world.hay()
    world.job("rival", leader=asks(4), priority=9, created=world.now_ms)
    events = world.cycle()
    cause = _now(world) - len(events) + 1 + next(n for n, e in enumerate(events) if isinstance(e, k.Placed))
    return _then_wait(world, cause)


def taint(world: Haystack) -> int:
    """The only node that fits is tainted."""
    world.here()
    world.victim()
    world.hay()
    world.here(taints=[Taint("maintenance", "soon", "NoSchedule")])
    return _then_wait(world, _now(world))


def node_deleted(world: Haystack) -> int:
    """The only node that fits goes."""
    world.here()
    world.victim()
    world.hay()
    world.node_gone("here-1")
    return _then_wait(world, _now(world))


def node_not_ready(world: Haystack) -> int:
    """The only node that fits isn't ready any more."""
    world.here()
    world.victim()
    world.hay()
    world.here(ready=False, taints=[Taint("node.kubernetes.io/not-ready", "", "NoSchedule")])
    return _then_wait(world, _now(world))


def gpus_lost(world: Haystack) -> int:
    """A device plugin reports fewer GPUs."""
    world.here()
    world.victim()
    world.hay()
    world.here(gpus=3)
    return _then_wait(world, _now(world))


def label_removed(world: Haystack) -> int:
    """The node loses the label that the victim selects."""
    world.here()
    world.victim()
    world.hay()
    world.here(labels={"zone": "elsewhere"})
    return _then_wait(world, _now(world))


def quorum_edit(world: Haystack) -> int:
    """The quorum is raised beyond what fits."""
    world.here()
    world.victim(leader=asks(1), workers=8, worker=asks(1), min_workers=2)
    world.hay()
    world.victim(leader=asks(1), workers=8, worker=asks(1), min_workers=6)
    return _then_wait(world, _now(world))


def raised_request(world: Haystack) -> int:
    """The leader asks for more than any node has."""
    world.here()
    world.victim(leader=asks(2))
    world.hay()
    world.victim(leader=asks(8))
    return _then_wait(world, _now(world))


def priority_edit_of_another(world: Haystack) -> int:
    """A job that was behind is put ahead; no cycle has come since."""
    world.here()
    world.job("rival", leader=asks(4), priority=1, created=world.now_ms)
    world.victim()
    world.hay()
    world.job("rival", leader=asks(4), priority=9, created=world.now_ms, generation=2)
    cause = _now(world)
    world.hay()
    return cause


def strangers_pod(world: Haystack) -> int:
    """A pod that nobody here decided on takes the room."""
    world.here()
    world.victim()
    world.hay()
    world.pod("stranger", "here-1", gpus=2)
    return _then_wait(world, _now(world))


def host_port(world: Haystack) -> int:
    """A pod takes the host port."""
    world.here()
    world.victim(leader=asks(1, rules=PodRules(host_ports=(HostPort(8080),))))
    world.hay()
    world.pod("proxy", "here-1", cpu=1, traits=PodTraits(host_ports=(HostPort(8080),)))
    return _then_wait(world, _now(world))


def _apart(app: str) -> PodTerm:
    return PodTerm(_HOST, (Requirement("app", "In", (app,)),))


def anti_affinity_of_another(world: Haystack) -> int:
    """A pod comes that keeps the victim's away."""
    world.here()
    world.victim(leader=asks(1, labels={"app": "victim"}))
    world.hay()
    world.pod("hermit", "here-1", cpu=1, traits=PodTraits((("app", "hermit"),), anti_affinity=(_apart("victim"),)))
    return _then_wait(world, _now(world))


def own_anti_affinity(world: Haystack) -> int:
    """A pod comes that the victim's avoids."""
    world.here()
    world.victim(leader=asks(1, rules=PodRules(anti_affinity=(_apart("noisy"),))))
    world.hay()
    world.pod("noisy", "here-1", cpu=1, traits=PodTraits((("app", "noisy"),)))
    return _then_wait(world, _now(world))


def affinity_lost(world: Haystack) -> int:
    """The pod that the victim's has to join goes."""
    world.here()
    store = world.pod("store", "here-1", cpu=1, traits=PodTraits((("app", "store"),)))
    world.victim(leader=asks(1, rules=PodRules(affinity=(_apart("store"),))))
    world.hay()
    world.pod_gone(store)
    return _then_wait(world, _now(world))


def spread(world: Haystack) -> int:
    """A pod comes that makes the only rack with room one too many."""
    rule = SpreadRule("rack", 1, (Requirement("app", "In", ("web",)),))
    world.here("here-1", labels={"rack": "r1"})
    world.here("here-2", labels={"rack": "r2"}, gpus=0)
    world.victim(leader=asks(1, labels={"app": "web"}, rules=PodRules(spread=(rule,))))
    world.hay()
    world.pod("web", "here-1", cpu=1, traits=PodTraits((("app", "web"),)))
    return _then_wait(world, _now(world))


def refused_node(world: Haystack) -> int:
    """The node's kubelet refuses the victim's pod."""
    world.here()
    job = world.victim()
    world.settle()
    world.hay()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="OutOfnvidia.com/gpu")
    cause = _now(world)
    world.settle()
    world.hay(2, busy=True)
    return cause


def suspended(world: Haystack) -> int:
    """Its user suspends it."""
    world.here()
    world.victim()
    world.hay()
    world.victim(suspend=True)
    return _then_wait(world, _now(world))


def earlier_pods_stay(world: Haystack) -> int:
    """Pods of the attempt before don't go: the decision that began the new attempt."""
    world.here()
    job = world.victim()
    world.settle()
    world.hay()
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Error")
    (decided,) = world.control()
    assert isinstance(decided, k.StageDecided) and decided.stage == "Rescheduling"
    cause = _now(world)
    world.hay()
    world.cycle()
    return cause


def policy_changed(world: Haystack) -> int:
    """Cycles go by another pod policy: the quorum is the whole job now."""
    world.here()
    world.hay(1, busy=True)
    world.victim(leader=asks(1), workers=8, worker=asks(1), min_workers=2)
    world.hay()
    world.config = msgspec.structs.replace(world.config, pod_policy=GANG)
    before = _now(world)
    assert world.cycle()
    return _then_wait(world, before + 1)


def plugin_changed(world: Haystack) -> int:
    """Cycles go by another queue policy: the smallest share goes first, and that is the rival."""
    world.here()
    world.hay(1, busy=True)
    world.job("rival", leader=asks(1), priority=1, created=world.now_ms)
    world.victim(leader=asks(4), priority=9)
    world.hay()
    world.config = msgspec.structs.replace(world.config, queue_policy="DRF")
    cause = _now(world) + 1
    # The record of a cycle that had nothing for either of them: the first under the new policy.
    world.say(k.CycleTaken(world.state.offset, world.now_ms, world.config))
    world.hay()
    return cause


#: Why the victim waits at the end of each log.
WAITS: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        cordon,
        competing_decision,
        taint,
        node_deleted,
        node_not_ready,
        gpus_lost,
        label_removed,
        quorum_edit,
        raised_request,
        priority_edit_of_another,
        strangers_pod,
        host_port,
        anti_affinity_of_another,
        own_anti_affinity,
        affinity_lost,
        spread,
        refused_node,
        suspended,
        earlier_pods_stay,
        policy_changed,
        plugin_changed,
    )
}


# --- what happened to it -------------------------------------------------------------------------------------


def _running(world: Haystack, **spec: object) -> JobRecord:
    for number in (1, 2):
        world.here(f"here-{number}", gpus=8)
    one = asks(1)
    job = world.victim(**{"leader": one, "workers": 3, "worker": one, "min_workers": 2, **spec})
    world.settle()
    world.hay()
    return job


def _then_decide(world: Haystack, cause: int, seconds: float = 10) -> int:
    world.hay(1)
    world.pass_time(seconds)
    world.control()
    world.hay(2, busy=True)
    return cause


def leader_failed(world: Haystack) -> int:
    """The leader's program fails."""
    job = _running(world)
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="OOMKilled")
    return _then_decide(world, _now(world))


def leader_deleted(world: Haystack) -> int:
    """Somebody deletes the leader's pod."""
    job = _running(world)
    world.pod_gone(job.bound[LEADER])
    return _then_decide(world, _now(world))


def leader_evicted(world: Haystack) -> int:
    """The leader is evicted."""
    job = _running(world)
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Evicted")
    return _then_decide(world, _now(world))


def leaders_node_lost(world: Haystack) -> int:
    """The leader's node isn't ready for too long."""
    job = _running(world)
    world.here(job.placements[LEADER], gpus=8, ready=False)
    return _then_decide(world, _now(world), 70)


def worker_failed(world: Haystack) -> int:
    """One worker's program fails."""
    job = _running(world)
    world.change_pod(job.bound[1, 1], phase="Failed", ready=False, reason="Error")
    return _then_decide(world, _now(world))


def restart_limit(world: Haystack) -> int:
    """The leader fails once too often."""
    job = _running(world, restart_limit=0)
    world.change_pod(job.bound[LEADER], phase="Failed", ready=False, reason="Error")
    return _then_decide(world, _now(world))


def deadline(world: Haystack) -> int:
    """An edit gives it a deadline that is soon over."""
    one = asks(1)
    _running(world)
    world.victim(leader=one, workers=3, worker=one, min_workers=2, deadline_s=60)
    return _then_decide(world, _now(world), 70)


def image_missing(world: Haystack) -> int:
    """The leader's image can't be pulled."""
    world.here(gpus=8)
    job = world.victim(leader=asks(1))
    world.cycle()
    world.control()
    uid = world.run_pod(job, LEADER, job.placements[LEADER], phase="Pending")
    world.hay()
    world.change_pod(uid, ready=False, waiting="ImagePullBackOff")
    cause = _now(world)
    world.control()  # the grace begins when a controller sees it
    return _then_decide(world, cause, 130)


def refused_by_server(world: Haystack) -> int:
    """The API server refuses its pods for good."""
    world.here(gpus=8)
    job = world.victim(leader=asks(1))
    world.cycle()
    world.control()
    world.hay()
    failed = k.EffectFailed(job.uid, job.attempt, "create", Slot(0, 0), 422, "Invalid", "spec.x: no", permanent=True)
    return _then_decide(world, world.say(failed))


#: What happened to the victim last in each log.
HAPPENED: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        leader_failed,
        leader_deleted,
        leader_evicted,
        leaders_node_lost,
        worker_failed,
        restart_limit,
        deadline,
        image_missing,
        refused_by_server,
    )
}
