"""Actors of a world besides the workers: users, machines with their kubelets, the cluster's own controllers, and
disasters of the log and the API server. Each draws its next action from the world's seed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.kube.cluster import NODES, PODS, TYJOBS, ApiError, Object
from arranger.model.names import pod_name
from arranger.model.quantity import amount
from arranger.model.validation import counts_of, group_size_of, least_workers, scaled_set
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.garbage import DeleteOptions
from arranger.sandbox.kubelet import SimulatedKubelets
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.patching import MERGE
from arranger.sandbox.pod_run import requests_of
from tests.simulation import worker_groups
from tests.simulation.denials import TEAM
from tests.simulation.gateways import LOST_EVENTS, NEARLY_FULL, OOM, READONLY
from tests.simulation.invariants import Violation
from tests.simulation.loop import Owner
from tests.simulation.rogue import GROUPS
from tests.simulation.specs import large, wild

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedProcess, World

#: Why the log's server refuses writes: the site of the fault, and the error.
_REFUSES = (("log out of memory", OOM), ("log at its limit of memory", NEARLY_FULL), ("log read-only", READONLY))
#: A process that runs undisturbed for this many seconds is unready while the log's server is full.
_NOTICES_S = 8
_NAMES = tuple(f"job{number}" for number in range(6))
#: Deadlines and times to live that no run reaches, unless a clock is wrong.
_FAR_S = 1_700
#: In a run that is about one of these faults, users act so much more often than otherwise.
TAKEN, TTL = "a stranger takes a pod's name", "a ttl runs out"
#: Squatters end by themselves, so that waiting pods get their room.
_SQUATS_S = (3.0, 40.0)


def home_of(name: str) -> str:
    """The namespace of the jobs of a name. The last two names are in a namespace that is sometimes deleted."""
    return TEAM if name in _NAMES[4:] else "default"


_POLICIES = ("Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity")


class User:
    """Creates, edits and deletes TYJobs, deletes pods by hand, and runs pods that don't belong to Arranger."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(64))
        self._groups = random.Random(f"{world.seed} worker groups")
        self._pace_s = self._chance.choice((0.7, 1.5, 3.0))
        #: UID → name of every TYJob that ever existed.
        self.names: dict[str, str] = {}
        self._used: set[str] = set()
        self._strangers = self._names_taken = self._squatters = self._large = 0
        #: UIDs of TYJobs with an arbitrary spec.
        self._wild: set[str] = set()
        self._likes_large = self._chance.random() < 0.15

    async def run(self) -> None:
        """Act until the faults stop."""
        often = self._world.faults.often
        acts = [
            (self._create, 8), (self._edit_counts, 8 if often(GROUPS) else 2), (self._edit_priority, 1),
            (self._edit_min, 1),
            (self._terminate, 1), (self._delete, 2), (self._replace, 1),
            (self._delete_pod, 2), (self._stranger, 1), (self._take_name, 8 if often(TAKEN) else 1),
            (self._squat, 2), (self._create_wild, 1), (self._create_large, 1),
            (self._edit_template, 1), (self._suspend, 1), (self._scale, 8 if often(GROUPS) else 2),
        ]  # fmt: skip
        while self._world.faults.on:
            [act] = self._chance.choices([act for act, _ in acts], [weight for _, weight in acts])
            with suppress(ApiError):
                act()
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("user", what)

    def _jobs(self) -> dict[str, Object]:
        found = self._world.store.collection(TYJOBS).objects
        return {name: found[namespace, name].object for namespace, name in sorted(found)}

    def _some_job(self, *, sound: bool = True) -> tuple[str, Object] | None:
        """Any TYJob; with `sound` only one with a regular spec, which can be edited."""
        jobs = {
            name: job for name, job in self._jobs().items() if not sound or job["metadata"]["uid"] not in self._wild
        }
        return self._chance.choice(sorted(jobs.items(), key=lambda each: each[0])) if jobs else None

    def _create(self, name: str = "") -> None:
        jobs = self._jobs()
        free = [each for each in _NAMES if each not in jobs]
        if not free and not name:
            ended = [n for n, job in jobs.items() if (job.get("status") or {}).get("stage") in ("Succeeded", "Failed")]
            if ended:
                self._remove(self._chance.choice(ended))
            return
        name = name or self._chance.choice(free)
        stored = self._world.store.create(TYJOBS, home_of(name), self._tyjob(name)).stored
        self.names[stored.uid] = name
        again = name in self._used
        self._used.add(name)
        spec = stored.object["spec"]
        self._world.step("user", f"creates {name} [{stored.uid}] {spec['minWorkersNum']} of {counts_of(spec)}")
        if again:
            self._world.faults.hit("user creates a job again")

    def _create_wild(self) -> None:
        """A TYJob that the schema would refuse: it is older than the schema, or the server doesn't support rules."""
        free = [each for each in _NAMES if each not in self._jobs()]
        if not free:
            return
        name = self._chance.choice(free)
        body = wild(self._chance, self._tyjob(name))
        self._world.schema.off = True
        try:
            stored = self._world.store.create(TYJOBS, home_of(name), body).stored
        finally:
            self._world.schema.off = False
        self.names[stored.uid] = name
        self._wild.add(stored.uid)
        self._used.add(name)
        self._did("a TYJob that its schema refuses got in", f"creates {name} [{stored.uid}] with a wild spec")

    def _create_large(self) -> None:
        free = [each for each in _NAMES if each not in self._jobs()]
        if not free or not self._likes_large or self._large:
            return
        self._large += 1
        name = self._chance.choice(free)
        stored = self._world.store.create(TYJOBS, home_of(name), large(self._tyjob(name))).stored
        self.names[stored.uid] = name
        self._used.add(name)
        self._did("a TYJob of 1.4 MB", f"creates {name} [{stored.uid}] of {len(stored.raw)} bytes")

    def _edit_template(self) -> None:
        """Change a leader's requests: once the job has started, the schema refuses this, or else Arranger does."""
        found = self._some_job()
        if found is None:
            return
        name, job = found
        if "leader" not in job["spec"]:
            return
        leader = msgspec.json.decode(msgspec.json.encode(job["spec"]["leader"]))
        resources = leader["template"]["spec"]["containers"][0]["resources"]
        cpu = str(self._chance.randrange(1, 5))
        resources["requests"]["cpu"] = resources["limits"]["cpu"] = cpu
        started = (job.get("status") or {}).get("stage", "Pending") not in ("", "Pending")
        past = self._world.schema.off = self._chance.random() < 0.3
        try:
            site = "a forbidden edit got in" if past and started else "user edits a template"
            self._patch(name, {"leader": leader}, site)
        except ApiError:
            self._did("edit of a template refused", f"may not edit the leader of {name}")
        finally:
            self._world.schema.off = False

    def _tyjob(self, name: str) -> Object:
        chance = self._chance
        sets = [
            {"name": f"w{number}", "counts": chance.randrange(1, 4), "template": self._template(leader=False)}
            for number in range(chance.choice((0, 1, 1, 1, 2)))
        ]
        for each in sets:
            if chance.random() < 0.3:
                each["minCount"] = chance.randrange(0, each["counts"] + 1)
            if chance.random() < 0.4:
                each["restart"] = {"scope": chance.choice(("Worker", "Set", "Set", "Job"))}
                each["restart"] |= {"limit": chance.randrange(0, 3)} if chance.random() < 0.7 else {}
                each["restart"] |= {"windowSeconds": chance.choice((5, 60))} if chance.random() < 0.5 else {}
        self._world.belongings.draw(sets)
        worker_groups.draw(self._groups, sets, always=self._world.faults.often(GROUPS))
        workers = sum(counts_of({"workerSets": sets}))
        spec: dict[str, Any] = {
            "minWorkersNum": chance.randrange(0, workers + 1),
            "restartLimit": chance.randrange(0, 3),
            "priority": chance.randrange(1, 11),
            "cleanPodPolicy": chance.choice(("Running", "All", "None")),
            "leader": {"name": "learner", "template": self._template(leader=True), **self._world.windows.draw()},
            "workerSets": sets,
        }
        if of_class := self._world.classes.choose():
            del spec["priority"]
            spec["priorityClassName"] = of_class
        spec |= self._world.queues.draw()
        spec |= self._world.room.draw()
        spec |= self._world.dependencies.draw([of for of in _NAMES if of != name and home_of(of) == home_of(name)])
        if sets and chance.random() < 0.2:
            spec["scaledSet"] = chance.choice(sets)["name"]
        if chance.random() < 0.5:
            spec["keepFailedPods"] = chance.randrange(0, 3)
        if chance.random() < 0.3 or self._world.faults.often(TTL):
            spec["ttlSecondsAfterFinished"] = chance.choice((chance.randrange(0, 30), _FAR_S))
        if chance.random() < 0.2:
            spec["activeDeadlineSeconds"] = chance.choice((chance.randrange(5, 60), _FAR_S))
        if chance.random() < 0.05:
            spec["suspend"] = True
        if chance.random() < 0.6:
            spec["schedulerPolicy"] = {"basicPolicy": chance.choice(_POLICIES)}
        if chance.random() < 0.3:
            spec.setdefault("schedulerPolicy", {})["jobQueuePolicy"] = chance.choice(("Priority", "DRF"))
        self._world.endings.draw(spec)
        self._world.clocks.draw(spec)
        self._world.forecasts.draw(spec)
        self._world.claims.draw(spec, there=home_of(name) != TEAM)
        self._world.topologies.draw(spec)
        metadata = {"name": name, **self._world.queues.labels()}
        return {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "metadata": metadata, "spec": spec}

    def _template(self, *, leader: bool) -> Object:
        chance = self._chance
        notes: dict[str, str] = {}
        if leader and chance.random() < 0.8:
            notes["run-seconds"] = f"{chance.uniform(1, 40):.1f}"
        elif not leader and chance.random() < 0.2:
            notes["run-seconds"] = f"{chance.uniform(1, 20):.1f}"
        if chance.random() < 0.3:
            notes["start-seconds"] = f"{chance.uniform(0.1, 3):.1f}"
        if chance.random() < 0.3:
            notes["ready-seconds"] = f"{chance.uniform(0.1, 3):.1f}"
        if "run-seconds" in notes and chance.random() < 0.3:
            notes["failures"] = str(chance.randrange(1, 4))
        if leader and chance.random() < 0.05:
            notes["fail"] = "ErrImagePull"
        requests = {"cpu": str(chance.choice((1, 1, 2, 3, 7))), "memory": "1Gi"}
        if chance.random() < 0.15:
            requests["nvidia.com/gpu"] = "1"
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        self._world.limit_ranges.draw(container)
        spec: dict[str, Any] = {"containers": [container]}
        if chance.random() < 0.3:
            spec["restartPolicy"] = "Never"
        if not leader and chance.random() < 0.35:  # each of its pods fails by its own fault and is replaced on its node
            notes |= {"run-seconds": f"{chance.uniform(1, 15):.1f}", "failures": "1"}
            spec["restartPolicy"] = "Never"
        return {
            "metadata": {"annotations": {f"sandbox.arranger.dev/{key}": text for key, text in notes.items()}},
            "spec": spec,
        }

    def _patch(self, name: str, spec: dict[str, Any], site: str) -> None:
        self._world.store.patch(TYJOBS, home_of(name), name, {"spec": spec})
        self._did(
            site, f"edits {name} {msgspec.json.encode({k: v for k, v in spec.items() if k != 'workerSets'}).decode()}"
        )

    def _edit_counts(self) -> None:
        found = self._some_job()
        if found is None or not found[1]["spec"].get("workerSets"):
            return
        name, job = found
        sets = [dict(each) for each in job["spec"].get("workerSets") or ()]
        number = self._chance.randrange(len(sets))
        sets[number]["counts"] = self._chance.randrange(1, 5)
        counts = counts_of({**job["spec"], "workerSets": sets})
        groups = counts[number] // group_size_of(sets[number])
        sets[number]["minCount"] = min(sets[number].get("minCount", 0), groups)
        least = min(job["spec"]["minWorkersNum"], sum(counts))
        self._patch(name, {"workerSets": sets, "minWorkersNum": least}, "user edits counts")

    def _scale(self) -> None:
        """Scale a job as an autoscaler does: its quorum stays possible."""
        found = self._some_job()
        if found is None or (scaled := scaled_set(found[1]["spec"])) is None:
            return
        name, spec = found[0], found[1]["spec"]
        counts, of = counts_of(spec), spec["workerSets"][scaled]
        needed = least_workers(spec) - sum(counts) + counts[scaled]
        least = max(of.get("minCount", 0), -(-needed // group_size_of(of)))
        body = {"spec": {"replicas": self._chance.randrange(max(least, 0), max(least, 0) + 4)}}
        self._world.store.scale(TYJOBS, home_of(name), name, body, media_type=MERGE, options=WriteOptions())
        self._did("user scales", f"scales {name} {body['spec']}")

    def _edit_priority(self) -> None:
        if found := self._some_job():
            self._patch(found[0], {"priority": self._chance.randrange(1, 11)}, "user edits priority")

    def _edit_min(self) -> None:
        if not (found := self._some_job()):
            return
        name, job = found
        sets = [dict(each) for each in job["spec"].get("workerSets") or ()]
        if sets and self._chance.random() < 0.3:
            number = self._chance.randrange(len(sets))
            groups = counts_of(job["spec"])[number] // group_size_of(sets[number])
            sets[number]["minCount"] = self._chance.randrange(0, groups + 1)
            self._patch(name, {"workerSets": sets}, "user edits minCount")
        else:
            workers = sum(counts_of(job["spec"]))
            self._patch(name, {"minWorkersNum": self._chance.randrange(0, workers + 1)}, "user edits minWorkersNum")

    def _terminate(self) -> None:
        if found := self._some_job():
            self._patch(found[0], {"terminating": True}, "user terminates")

    def _suspend(self) -> None:
        """Suspend a job, or resume a suspended one."""
        if found := self._some_job():
            suspend = not found[1]["spec"].get("suspend", False)
            self._patch(found[0], {"suspend": suspend}, "user suspends" if suspend else "user resumes")

    def _remove(self, name: str) -> None:
        propagation = self._chance.choice(("Background", "Background", "Foreground"))
        self._world.store.delete(TYJOBS, home_of(name), name, DeleteOptions(propagation=propagation))
        self._did("user deletes a job", f"deletes {name} ({propagation})")

    def _delete(self) -> None:
        if found := self._some_job(sound=False):
            self._remove(found[0])

    def _replace(self) -> None:
        if found := self._some_job():
            self._remove(found[0])
            self._create(found[0])
            self._world.faults.hit("user deletes a job and its name is used again at once")

    def _delete_pod(self) -> None:
        pods = [stored for _, stored in sorted(self._world.store.collection(PODS).objects.items())]
        owned = [stored for stored in pods if stored.object["metadata"].get("ownerReferences")]
        if owned:
            pod = self._chance.choice(owned)
            self._world.store.delete(
                PODS, pod.namespace, pod.name, DeleteOptions(grace_s=self._chance.choice((None, 0)))
            )
            self._did("user deletes a pod", f"deletes pod {pod.name}")

    def _squat(self) -> None:
        """Another scheduler's pod takes room that is decided for a pod of Arranger but not confirmed yet."""
        state, store = self._world.oracle.state, self._world.store
        decided = [
            node
            for job in state.jobs.values()
            for slot, node in job.placements.items()
            if slot not in job.bound and ("", node) in store.collection(NODES).objects
        ]
        if not decided or self._squatters >= 6:
            return
        self._squatters += 1
        node, name = self._chance.choice(decided), f"squatter{self._squatters}"
        allocatable = store.get(NODES, "", node).object["status"]["allocatable"]["cpu"]
        taken = sum(
            requests_of(stored.object["spec"]).get("cpu", 0)
            for stored in store.collection(PODS).objects.values()
            if stored.object["spec"].get("nodeName") == node
            and stored.object["status"].get("phase") not in ("Succeeded", "Failed")
        )
        asked = amount("cpu", allocatable) - taken
        if asked <= 0:
            return
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{asked}m"}}}
        lasts = {"sandbox.arranger.dev/run-seconds": f"{self._chance.uniform(*_SQUATS_S):.1f}"}
        body = {
            "metadata": {"name": name, "annotations": lasts},
            "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Never"},
        }
        self._world.checks.strangers[name] = store.create(PODS, "default", body).stored.uid
        self._did("a stranger takes decided room", f"creates {name} of {asked} millicores on {node}")

    def _pod(self, name: str, labels: dict[str, str]) -> None:
        nodes = sorted(name for _, name in self._world.store.collection(NODES).objects)
        if not nodes:
            return
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"nodeName": self._chance.choice(nodes), "containers": [container]}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        stored = self._world.store.create(PODS, "default", body).stored
        self._world.checks.strangers[name] = stored.uid

    def _stranger(self) -> None:
        if self._strangers >= 4:
            return
        self._strangers += 1
        name = f"stranger{self._strangers}"
        labels = {
            "arranger.dev/job": self._chance.choice(_NAMES),
            "arranger.dev/role": "worker",
            "arranger.dev/index": "0",
        }
        self._pod(name, labels if self._chance.random() < 0.5 else {})
        self._did("stranger's pod", f"creates {name}")

    def _take_name(self) -> None:
        group, index = self._chance.choice((("learner", 0), ("w0", 0), ("w0", 1), ("w0", 2)))
        job, attempt = self._chance.choice(_NAMES), 0
        waiting = [name for name, each in self._jobs().items() if _waits(each)]
        if waiting and self._chance.random() < 0.8:  # the leader's pod will be created soon
            job, group, index = self._chance.choice(waiting), "learner", 0
            attempt = (self._jobs()[job].get("status") or {}).get("attempt", 0)
        name = pod_name(job, group, index, attempt)
        if self._names_taken >= 4 or ("default", name) in self._world.store.collection(PODS).objects:
            return
        self._names_taken += 1
        self._pod(name, {})
        self._did(TAKEN, f"creates {name}")


def _waits(job: Object) -> bool:
    """Whether a TYJob still waits for its pods, in a namespace with foreign pods."""
    return job["metadata"]["namespace"] == "default" and (job.get("status") or {}).get("stage", "Pending") in (
        "Pending",
        "Rescheduling",
    )


class FaultyKubelets(SimulatedKubelets):
    """Kubelets that may refuse pods at random, and that can lose devices."""

    def __init__(self, world: "World", **more: Any) -> None:
        super().__init__(DirectCluster(world.store, clock=world.clock), clock=world.clock, **more)
        self._world = world

    def _fits_without(self, run: Any, uids: Sequence[str]) -> bool:
        """Whether a pod would fit its node without the pods of these UIDs."""
        every, self._runs = self._runs, {uid: of for uid, of in self._runs.items() if uid not in uids}
        lacking = super()._lacking(run)
        self._runs = every
        return lacking is None

    def _lacking(self, run: Any) -> tuple[str, str] | None:
        faults = self._world.faults
        if faults.at("kubelet refuses: UnexpectedAdmissionError"):
            return "UnexpectedAdmissionError", "Allocate failed due to no healthy devices present, which is unexpected"
        if self._world.vain.refuses(run.pod):
            return "UnexpectedAdmissionError", "Allocate failed due to a device plugin that knows no such device"
        lacking = super()._lacking(run)
        if lacking is not None:
            faults.hit("kubelet refuses: no room")
            there = [uid for uid, of in self._runs.items() if of.node == run.node and of.requests and of is not run]
            staying = self._world.room_record.staying(run.pod, there)
            if staying and self._fits_without(run, staying):
                name = run.pod["metadata"]["name"]
                problem = f"{name} was refused, because {staying} haven't left the room that they gave"
                self._world.fail(Violation(problem), None)
        return lacking

    async def _end(self, run: Any, grace_s: int) -> None:
        await self._world.room.hang(run.uid)
        await self._world.starts.linger(run.pod["metadata"]["name"])
        await self._world.coming.keep(run.pod["metadata"]["name"])
        await super()._end(run, grace_s)

    async def _live(self, run: Any) -> None:
        if (run.pod.get("status") or {}).get("phase") != "Running" and (why := self._world.starts.why_unable()):
            run.started = run.started or self._timestamp()
            await self._patch(run, run.pending(why, self._timestamp()))
            await self._world.starts.end_of_hindrance()
        await super()._live(run)

    def _backing_off(self, run: Any, code: int) -> Object:
        self._world.faults.hit("a container fails and restarts in place")
        return super()._backing_off(run, code)

    def _ended(self, run: Any, code: int) -> Object:
        if code:
            self._world.faults.hit("a pod fails for good")
        return super()._ended(run, code)

    def set_devices(self, name: str, count: int) -> None:
        """Set how many GPUs the device plugin of a node finds now."""
        self._holds[name]["nvidia.com/gpu"] = count


class Machines:
    """The nodes, their kubelets, and their faults."""

    def __init__(self, world: "World", templates: list[NodeTemplate] | None = None) -> None:
        """Use the given nodes, or draw a few."""
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(64))
        chance = self._chance
        self.templates = templates or [
            NodeTemplate(
                f"n{n}",
                cpu=str(chance.choice((4, 6, 8))),
                memory="32Gi",
                pods=12,
                gpus=chance.choice((0, 0, 2)),
                labels=world.topologies.labels(n),
            )
            for n in range(chance.randrange(2, 6))
        ]
        self.owner = Owner("kubelets")
        self._kubelets = FaultyKubelets(world, nodes=self.templates, heartbeat_s=30.0)
        self._absent: dict[str, NodeTemplate] = {}
        #: Node → when it was last said to be ready, in milliseconds since 1970.
        self.back_ms: dict[str, int] = {}
        #: Lost nodes that come back before anybody deletes their pods.
        self.soon_back: dict[str, None] = {}
        self._pace_s = chance.choice((2.0, 5.0, 15.0))
        self._changes: list[str] = []

    async def start(self) -> None:
        """Register the nodes. Each kubelet is a separate process."""
        await self._world.loop.create_task(self._kubelets.start(), context=self.owner.context())

    async def run(self) -> None:
        """Cause a fault of a node now and then, and undo it later or at the end."""
        acts = (
            self._cordon,
            self._taint,
            self._remove,
            self._flap,
            self._lose,
            self._shrink,
            self._pause,
            self._lose_gpus,
        )
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / self._pace_s))
            template = self._chance.choice(self.templates)
            with suppress(ApiError):
                await self._chance.choice(acts)(template)

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("machines", what)

    def _patch(self, name: str, body: Object, **more: Any) -> None:
        self._world.store.patch(NODES, "", name, body, **more)

    async def _cordon(self, node: NodeTemplate) -> None:
        self._patch(node.name, {"spec": {"unschedulable": True}})
        self._did("node cordoned", f"cordons {node.name}")
        await self._while()
        self._patch(node.name, {"spec": {"unschedulable": None}})

    async def _taint(self, node: NodeTemplate) -> None:
        self._patch(node.name, {"spec": {"taints": [{"key": "user/busy", "effect": "NoSchedule"}]}})
        self._did("node tainted", f"taints {node.name}")
        await self._while()
        self._patch(node.name, {"spec": {"taints": None}})

    async def _remove(self, node: NodeTemplate) -> None:
        if len(self._absent) + 1 >= len(self.templates):
            return
        self._world.store.delete(NODES, "", node.name)
        self._absent[node.name] = node
        self._did("node deleted", f"deletes node {node.name}")
        await self._while()
        await self._return(node)

    async def _return(self, node: NodeTemplate) -> None:
        if node.name not in self._absent:
            return
        await self._as_kubelet(self._kubelets.add(node))
        await self._ready(node.name)
        if self._absent.pop(node.name, None) is not None:  # else somebody else added it meanwhile
            self._did("node added again", f"adds node {node.name}")

    async def _flap(self, node: NodeTemplate) -> None:
        for ready in (False, True, False, True):
            await self._ready(node.name, ready=ready)
            self._did("node flaps", f"{node.name} is {'' if ready else 'not '}ready")
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))

    async def _ready(self, name: str, *, ready: bool = True) -> None:
        await self._as_kubelet(self._kubelets.set_ready(name, ready))
        if ready:
            self.back_ms[name] = self._world.clock.now_ms()

    async def _lose(self, node: NodeTemplate) -> None:
        await self._as_kubelet(self._kubelets.lose(node.name))
        self._did("node lost", f"loses {node.name}")
        self._world.starts.node_lost(node.name)
        await self._while()
        await self._ready(node.name)

    async def lose(self, name: str, *, soon_back: bool = False) -> None:
        """Lose one node, until it is found."""
        if soon_back:
            self.soon_back[name] = None
        await self._as_kubelet(self._kubelets.lose(name))
        self._did("node lost", f"loses {name}")

    async def find(self, name: str) -> None:
        """A lost node is back, and only then may its pods be deleted again for its loss."""
        await self._ready(name)
        self.soon_back.pop(name, None)

    async def _shrink(self, node: NodeTemplate) -> None:
        amounts = {**node.amounts(), "cpu": "3", "nvidia.com/gpu": "0"}
        self._patch(node.name, {"status": {"allocatable": amounts}}, subresource="status")
        self._did("node shrinks", f"shrinks {node.name}")
        await self._while()
        self._patch(node.name, {"status": {"allocatable": node.amounts()}}, subresource="status")

    async def _lose_gpus(self, node: NodeTemplate) -> None:
        node = next((each for each in self.templates if each.gpus), node)
        if not node.gpus:
            return
        left = self._chance.randrange(node.gpus)
        self._kubelets.set_devices(node.name, left)
        amounts = {**node.amounts(), "nvidia.com/gpu": str(left)}
        self._patch(node.name, {"status": {"allocatable": amounts}}, subresource="status")
        self._did("node loses GPUs", f"{node.name} has {left} of {node.gpus} GPUs left")
        await self._while()
        self._kubelets.set_devices(node.name, node.gpus)
        self._patch(node.name, {"status": {"allocatable": node.amounts()}}, subresource="status")

    async def _pause(self, _node: NodeTemplate) -> None:
        self.owner.paused = True
        self._did("kubelets pause", "all kubelets pause")
        await asyncio.sleep(self._chance.uniform(0.5, 15.0))
        self._world.loop.resume(self.owner)

    async def _while(self) -> None:
        lasts_s = self._chance.choice((0.5, 5.0, 20.0, 60.0)) * self._chance.uniform(0.5, 1.0)
        until_s = self._world.loop.time() + lasts_s
        while self._world.faults.on and self._world.loop.time() < until_s:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)

    async def _as_kubelet(self, work: Any) -> None:
        with suppress(ApiError):
            await self._world.loop.create_task(work, context=self.owner.context())

    def close(self, name: str) -> None:
        """Cordon or taint one node, or make it not ready; open it again after a while."""
        self._begin(self._chance.choice((self._cordon, self._taint, self._flap)), name)

    def cordon(self, name: str) -> None:
        """Cordon one node; open it again after a while."""
        self._begin(self._cordon, name)

    def remove(self, name: str) -> None:
        """Delete one node; add it again after a while."""
        self._begin(self._remove, name)

    def _begin(self, act: Callable[[NodeTemplate], Awaitable[None]], name: str) -> None:
        for template in [each for each in self.templates if each.name == name]:  # none if its autoscaler removed it
            self._world.spawn(self._closed(act, template), "closing")

    async def _closed(self, act: Callable[[NodeTemplate], Awaitable[None]], node: NodeTemplate) -> None:
        with suppress(ApiError):
            await act(node)

    async def provide(self, node: NodeTemplate) -> None:
        """Add a node that an autoscaler made; from now on it has the faults of all."""
        self.templates.append(node)
        await self._as_kubelet(self._kubelets.add(node))
        await self._ready(node.name)

    def take_back(self, name: str) -> None:
        """Remove such a node for good, if it is still there."""
        self.templates[:] = [of for of in self.templates if of.name != name]
        self._absent.pop(name, None)
        with suppress(ApiError):
            self._world.store.delete(NODES, "", name)

    def exchange(self, name: str) -> None:
        """Remove one node for good; another one of its size comes in its place."""
        self._begin(self._exchange, name)

    async def _exchange(self, node: NodeTemplate) -> None:
        self.take_back(node.name)
        self._did("node deleted", f"removes node {node.name} for good")
        await self.provide(msgspec.structs.replace(node, name=f"{node.name}x"))

    async def heal(self) -> None:
        """Make every node exist, complete and ready."""
        self._world.loop.resume(self.owner)
        for node in [*self.templates]:
            await self._return(node)
            await self._ready(node.name)
            self._patch(node.name, {"spec": {"unschedulable": None, "taints": None}})
            self._kubelets.set_devices(node.name, node.gpus)
            self._patch(node.name, {"status": {"allocatable": node.amounts()}}, subresource="status")


class Caretaker:
    """Deletes pods of deleted or lost nodes after a while, as kube-controller-manager does."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._unready_since_s: dict[str, float] = {}

    async def run(self) -> None:
        """Check every few seconds, without end."""
        while True:
            await asyncio.sleep(2.0)
            nodes = self._world.store.collection(NODES).objects
            for (_, name), stored in sorted(nodes.items()):
                if any(taint["effect"] == "NoExecute" for taint in stored.object["spec"].get("taints") or ()):
                    self._unready_since_s.setdefault(name, self._world.loop.time())
                else:
                    self._unready_since_s.pop(name, None)
            for (namespace, name), stored in sorted(self._world.store.collection(PODS).objects.items()):
                node = stored.object["spec"].get("nodeName", "")
                self._look(namespace, name, node, stored.object)

    def _look(self, namespace: str, name: str, node: str, pod: Object) -> None:
        store, checks = self._world.store, self._world.checks
        if not node:
            return  # it waits for one
        gone = ("", node) not in store.collection(NODES).objects
        since_s = self._unready_since_s.get(node)
        lost = since_s is not None and self._world.loop.time() - since_s > 10.0
        lost = lost and node not in self._world.machines.soon_back
        if not (gone or (lost and "deletionTimestamp" not in pod["metadata"])):
            return
        checks.strangers.pop(name, None)
        with suppress(ApiError):
            if gone and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                why = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                failed = {"status": {"phase": "Failed", "conditions": [why]}}
                store.patch(PODS, namespace, name, failed, subresource="status")
            store.delete(PODS, namespace, name, DeleteOptions(grace_s=0 if gone else None))
            self._world.step("care", f"deletes pod {name} of {node}, which is {'gone' if gone else 'lost'}")


class Disasters:
    """Faults of the log's server, the API server and the clocks as a whole."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(world.chance.getrandbits(64))

    async def run(self) -> None:
        """Once in a while, until the faults stop."""
        acts = (self._log_away, self._api_away, self._lose_tail, self._empty, self._jump, self._compact, self._refuse,
                self._slow)  # fmt: skip
        while self._world.faults.on:
            await asyncio.sleep(self._chance.expovariate(1 / 12.0))
            if self._world.faults.on:
                await self._chance.choice(acts)()

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("disaster", what)

    async def _log_away(self) -> None:
        if not self._world.faults.has("log away for a while"):
            return
        self._world.log_away = True
        self._did("log away for a while", "the log is away")
        await asyncio.sleep(self._chance.uniform(0.2, 15.0))
        self._world.log_away = False

    async def _api_away(self) -> None:
        self._world.api_away = True
        self._did("API away for a while", "the API server is away")
        await asyncio.sleep(self._chance.uniform(0.2, 15.0))
        self._world.api_away = False

    async def _lose_tail(self) -> None:
        index = self._world.home.index
        if not self._world.faults.has("log lost its tail") or index is None:
            return
        after = max(index.start.offset, index.end.offset - self._chance.randrange(1, LOST_EVENTS))
        if after < 1:
            return
        self._world.home.lose_tail(after)
        self._did("log lost its tail", f"the log lost what came after {after}")

    async def _empty(self) -> None:
        if self._world.faults.has("log emptied") and self._chance.random() < 0.5:
            self._world.elsewhere.leaves()  # an empty log doesn't show its cluster
            self._world.home.lose_everything()
            self._world.redis.forget()
            self._did("log emptied", "the log is empty")

    async def _refuse(self) -> None:
        """Let the log's server refuse writes: it is full, or it has become a replica in a failover. At its limit, it
        still accepts small ones. Every process is unready soon, also one with nothing to append."""
        site, self._world.log_trouble = self._chance.choice(_REFUSES)
        self._did(site, f"{site} for a while")
        left_s = self._chance.uniform(0.5, 20.0)
        ran_s: dict[SimulatedProcess, int] = {}
        while left_s > 0:
            await asyncio.sleep(min(left_s, 1.0))
            left_s -= 1.0
            world = self._world
            undisturbed = not (world.log_away or world.log_slow or world.stalls.stalled)
            ran_s = {one: ran_s.get(one, 0) + 1 for one in world.processes if undisturbed and one.runs}
            ready = [one.name for one, for_s in ran_s.items() if for_s >= _NOTICES_S and one.takes_writes]
            if ready and world.log_trouble in (OOM, NEARLY_FULL):
                world.fail(Violation(f"{ready[0]} is ready, though the log's server is full"), None)
        self._world.log_trouble = ""

    async def _slow(self) -> None:
        self._world.log_slow = True
        self._did("log slow", "the log is slow")
        await asyncio.sleep(self._chance.uniform(2.0, 30.0))
        self._world.log_slow = False

    async def _jump(self) -> None:
        processes = self._world.processes
        if processes:
            process = self._chance.choice(processes)
            process.clock.skew_ms += self._chance.randrange(-20_000, 20_000)
            self._did("clock jumps", f"the clock of {process.name} is off by {process.clock.skew_ms} ms")

    async def _compact(self) -> None:
        self._world.checks.after_step()
        self._world.store.compact()
        self._did("watch history compacted", "the API server compacts its history")
