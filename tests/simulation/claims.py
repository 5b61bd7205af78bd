"""Volumes of the simulated world: pods of TYJobs and of others name claims, for which a provisioner makes volumes. It
is late, refuses a node, makes a volume for another one, or never answers. Claims, volumes and classes go and come.

Safety: no pod gets a node that the volume of its claim excludes, as the log knew it at the decision. None is created or
bound before its claims have volumes, and one pod alone uses a claim that only one may use. No job fails because a claim
lacks something. Liveness: at the end each claim is there, and whoever waits for one says so rightly.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.cluster import CLAIMS, CSI_NODES, NODES, PODS, STORAGE_CLASSES, VOLUMES, ApiError, Object, Resource
from arranger.kube.volumes import SELECTED_NODE
from arranger.model.pod import TERMINAL, NodeTerms
from arranger.model.reasons import ReasonKind
from arranger.model.volumes import ONE_POD, ClaimFacts
from arranger.projections.derived.queue_membership import queue_out_of_reach
from arranger.projections.jobs.records import JobRecord, expand
from arranger.projections.state import State
from arranger.projections.verdicts.preemption import leaves
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search.placer import Placer
from tests.simulation.autoscalers import is_placeholder
from tests.simulation.calm import CALM
from tests.simulation.faults import CLAIM_FAULTS, WITH_CLAIMS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The claims, all of one namespace. Only one pod may use the last one.
_NAMES = ("data0", "data1", "data2", "own")
#: In a run that is about claims, pods name this one too, which comes only at the end.
_LATER = "later"
_CLASS, _DRIVER = "disks", "disks.test"
_HOST = "kubernetes.io/hostname"
#: How a provisioner answers → how often.
_ANSWERS = {"soon": 5, "late": 2, "never": 2, "refuses the node": 2, "on another node": 2}
#: The mean time between two changes, the time between two looks of the provisioner, and how late it may be.
_PACE_S, _LOOK_S, _LATE_S = 3.0, 1.0, (5.0, 40.0)
#: How long a worker may be behind the API server.
_BEHIND_S = 90.0
#: What a claim lacks, in the reasons why jobs wait.
_LACKS = (
    ReasonKind.CLAIM_MISSING, ReasonKind.CLAIM_DELETING, ReasonKind.CLAIM_LOST, ReasonKind.VOLUME_MISSING,
    ReasonKind.CLASS_MISSING,
)  # fmt: skip


class Claims:
    """The users, the provisioner and the controllers of volumes, and the rules about them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = random.Random(f"{world.seed} claims")
        self._about = world.faults.often(WITH_CLAIMS)
        self.comes = (chance.random() < 0.35 or self._about) and not world.faults.often(CALM)
        if self.comes:
            world.faults.more(CLAIM_FAULTS, chance)
        self._names = (*_NAMES, _LATER) if self._about else _NAMES
        #: UID of a claim → how its provisioner answers, and from when on.
        self._answers: dict[str, tuple[str, float]] = {}
        #: Name of a claim → when it last had a volume.
        self._bound_s: dict[str, float] = {}
        #: The offset of the last observation that decides where volumes are reached.
        self._changed = 0
        self._made = 0

    # --- what there is -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the class and the claims, one of them with a volume."""
        if not self.comes:
            return
        self._create(STORAGE_CLASSES, _class())
        for name in _NAMES:
            self._claim(name)
        if self._chance.random() < 0.6:
            self._bind(self._stored(CLAIMS, "data0"), self._some_node())
        if self._chance.random() < 0.5:
            limits = [{"name": _DRIVER, "nodeID": "n0", "allocatable": {"count": 1}}]
            self._create(CSI_NODES, {"metadata": {"name": "n0"}, "spec": {"drivers": limits}})

    def draw(self, spec: dict[str, Any], *, there: bool) -> None:
        """Let some templates of a new TYJob name claims, if it is where they are."""
        if not (self.comes and there):
            return
        for part in (*([spec["leader"]] if "leader" in spec else ()), *(spec.get("workerSets") or ())):
            if self._chance.random() < (0.7 if self._about else 0.3):
                part["template"]["spec"]["volumes"] = self.volumes(alone=part is spec.get("leader"))

    def volumes(self, *, alone: bool = True) -> list[Object]:
        """The volumes of a pod; of pods that are `alone` in what they are, some use the claim of one pod."""
        names = _NAMES if alone or self._chance.random() < 0.1 else _NAMES[:-1]
        names += self._names[len(_NAMES) :]
        return [{"name": "data", "persistentVolumeClaim": {"claimName": self._chance.choice(names)}}]

    def names_one(self) -> bool:
        """Whether the next pod of others names a claim."""
        return self.comes and self._chance.random() < (0.7 if self._about else 0.3)

    def _stored(self, resource: Resource, name: str) -> Object | None:
        stored = self._world.store.collection(resource).objects.get(("default" if resource == CLAIMS else "", name))
        return stored.object if stored is not None else None

    def _create(self, resource: Resource, body: Object) -> None:
        self._world.store.create(resource, "default" if resource == CLAIMS else "", body)

    def _claim(self, name: str) -> None:
        modes = [ONE_POD] if name == _NAMES[-1] else ["ReadWriteMany"]
        spec = {"accessModes": modes, "storageClassName": _CLASS, "resources": {"requests": {"storage": "1Gi"}}}
        self._create(CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def _some_node(self) -> str:
        nodes = sorted(name for _, name in self._world.store.collection(NODES).objects)
        return self._chance.choice(nodes or ["n0"])

    # --- the provisioner, and the controllers ------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer claims, and let those go that are being deleted, until the run ends."""
        while self.comes:
            await asyncio.sleep(_LOOK_S)
            for name in self._names:
                if (claim := self._stored(CLAIMS, name)) is not None:
                    with suppress(ApiError):
                        self._look(name, claim)

    def _look(self, name: str, claim: Object) -> None:
        if "deletionTimestamp" in claim["metadata"]:
            if not self._in_use(claim):
                self._patch(name, {"metadata": {"finalizers": None}}, "isn't protected any more")
        elif volume := claim["spec"].get("volumeName"):
            if claim["status"]["phase"] == "Bound" and self._stored(VOLUMES, volume) is None:
                self._world.store.patch(CLAIMS, "default", name, {"status": {"phase": "Lost"}}, subresource="status")
                self._world.step("claims", f"{name} is lost")
            elif claim["status"]["phase"] == "Lost" and not self._world.faults.on:
                self._go(name, protected=False)
        elif (node := _selected(claim)) and self._stored(STORAGE_CLASSES, _CLASS) is not None:
            self._answer(name, claim, node)

    def _answer(self, name: str, claim: Object, node: str) -> None:
        uid, now_s, faults = claim["metadata"]["uid"], self._world.loop.time(), self._world.faults
        if uid not in self._answers:
            [how] = self._chance.choices([*_ANSWERS], [*_ANSWERS.values()])
            self._answers[uid] = (how, now_s + (self._chance.uniform(*_LATE_S) if how == "late" else 0.0))
        how, due_s = self._answers[uid] if faults.on else ("soon", now_s)
        if how == "never" and faults.on:
            faults.hit("a provisioner never answers")
        elif how == "refuses the node" and self._chance.random() < 0.6:
            faults.hit("a provisioner refuses a node")
            self._patch(name, {"metadata": {"annotations": {SELECTED_NODE: None}}}, f"gets no volume on {node}")
        elif now_s >= due_s:
            other = self._some_node() if how == "on another node" else node
            if how == "late":
                faults.hit("a volume is made late")
            if other != node:
                faults.hit("a volume is made for another node")
            self._bind(claim, other)

    def _bind(self, claim: Object | None, node: str) -> None:
        """Make a volume for a claim, mostly one that a single node reaches."""
        assert claim is not None
        self._made += 1
        name, volume = claim["metadata"]["name"], f"pv{self._made}"
        spec: Object = {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": _DRIVER, "volumeHandle": volume},
            "storageClassName": _CLASS,
        }
        if self._chance.random() < 0.7:
            only = {"key": _HOST, "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}}
        self._create(VOLUMES, {"metadata": {"name": volume}, "spec": spec})
        self._patch(name, {"spec": {"volumeName": volume}}, f"has volume {volume} on {node}: {'nodeAffinity' in spec}")
        self._world.store.patch(CLAIMS, "default", name, {"status": {"phase": "Bound"}}, subresource="status")
        self._world.step("claims", f"{name} is bound")

    def _patch(self, name: str, body: Object, what: str) -> None:
        self._world.store.patch(CLAIMS, "default", name, body)
        self._world.step("claims", f"{name} {what}")

    def _running(self) -> Iterator[Object]:
        """Pods with nodes that haven't ended."""
        for _, stored in sorted(self._world.store.collection(PODS).objects.items()):
            pod = stored.object
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                yield pod

    def _in_use(self, claim: Object | None) -> bool:
        """Whether a claim is being deleted that pods still use."""
        if claim is None or "deletionTimestamp" not in claim["metadata"]:
            return False
        return any(claim["metadata"]["name"] in claims_of(pod) for pod in self._running())

    # --- users -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delete and create claims, volumes and the class until the faults stop."""
        acts = (self._claim_goes, *[self._comes] * 5, self._volume_goes, self._class_goes)
        while self.comes:
            await asyncio.sleep(self._chance.expovariate(1 / _PACE_S))
            if not self._world.faults.on:
                return
            with suppress(ApiError):
                self._chance.choice(acts)()

    def _did(self, site: str, what: str) -> None:
        self._world.faults.hit(site)
        self._world.step("claims", what)

    def _claim_goes(self) -> None:
        used = [name for name in _NAMES if any(name in claims_of(pod) for pod in self._running())]
        names = used if used and self._chance.random() < 0.5 else _NAMES
        self._go(self._chance.choice(names), protected=self._chance.random() < 0.6)

    def _go(self, name: str, *, protected: bool) -> None:
        """Delete a claim, which a finalizer may keep for as long as pods use it."""
        used = any(name in claims_of(pod) for pod in self._running())
        if protected:
            finalizers = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
            self._world.store.patch(CLAIMS, "default", name, finalizers)
        self._world.store.delete(CLAIMS, "default", name)
        self._did("a claim in use goes" if used else "a claim goes", f"{name} is deleted")

    def _comes(self) -> None:
        """The class comes, or a claim that isn't there; one that has lost its volume goes, so that it can come."""
        missing = [name for name in _NAMES if self._stored(CLAIMS, name) is None]
        lost = [name for name in _NAMES if name not in missing and _phase(self._stored(CLAIMS, name)) == "Lost"]
        if self._stored(STORAGE_CLASSES, _CLASS) is None:
            self._create(STORAGE_CLASSES, _class())
            self._did("a storage class comes", "the class comes")
        elif lost:
            self._go(self._chance.choice(lost), protected=False)
        elif missing:
            name = self._chance.choice(missing)
            self._claim(name)
            self._did("a claim comes", f"{name} is created")
            if self._chance.random() < 0.3:
                self._bind(self._stored(CLAIMS, name), self._some_node())

    def _volume_goes(self) -> None:
        volumes = sorted(name for _, name in self._world.store.collection(VOLUMES).objects)
        if volumes and self._chance.random() < 0.5:
            name = self._chance.choice(volumes)
            self._world.store.delete(VOLUMES, "", name)
            self._did("a volume goes", f"volume {name} is deleted")

    def _class_goes(self) -> None:
        if self._stored(STORAGE_CLASSES, _CLASS) is not None and self._chance.random() < 0.3:
            self._world.store.delete(STORAGE_CLASSES, "", _CLASS)
            self._did("a storage class goes", "the class goes")

    def end(self) -> None:
        """The class and every claim are there, and the provisioner answers."""
        if self.comes:
            if self._stored(STORAGE_CLASSES, _CLASS) is None:
                self._create(STORAGE_CLASSES, _class())
            self._world.spawn(self._tend(), "claims at the end")

    async def _tend(self) -> None:
        """Create a claim again that is gone."""
        while True:
            for name in self._names:
                if self._stored(CLAIMS, name) is None:
                    self._claim(name)
                    self._world.step("claims", f"{name} is created again")
            await asyncio.sleep(_LOOK_S)

    # --- safety ------------------------------------------------------------------------------------------------

    def note(self, entry: Entry) -> None:
        """The log has another entry."""
        if any(k.watch_of(event) in (*k.OF_VOLUMES, k.Watched.NODE) for event in entry.batch.events):
            self._changed = entry.last

    def forget(self) -> None:
        """The log begins again, or goes back."""
        self._changed = 0

    def misplaced(self, state: State, job: JobRecord, event: k.Placed, base: int) -> str:
        """Why a pod of an accepted decision couldn't use a claim on its node, as the log knew it at the base of that;
        empty if it could."""
        if not state.with_volumes or base < self._changed:
            return ""  # it has changed since, and the pod gets another node before it is created
        for pods in event.pods:
            claims = job.valid_spec.groups[pods.group].shape.claims
            for name in claims.names if claims is not None else ():
                if problem := _excluded(state, job.seen.namespace, name, pods.node):
                    return f"pods with claim {name} got node {pods.node}, though {problem}"
        return _shared(state, job, event)

    def lacking(self, state: State, pod: Object | None) -> list[str]:
        """The claims of a pod that lack a volume as far as a worker with this state knows. A placeholder never runs."""
        if not self.comes or pod is None or is_placeholder(pod):
            return []
        seen = {name: state.volumes.claims.get(("default", name)) for name in claims_of(pod)}
        return [name for name, of in seen.items() if of is None or of.facts.deleting or of.facts.phase != "Bound"]

    def too_early(self, lacking: Sequence[str]) -> str:
        """Why a pod with these claims that lack volumes shouldn't be created, or bound, yet: one had none just now."""
        self.after_step()
        now_s = self._world.loop.time()
        late = [name for name in lacking if now_s - self._bound_s.get(name, -_BEHIND_S) >= _BEHIND_S]
        return f"claim {late[0]} has no volume" if late else ""

    def unreached(self, state: State, pod: Object | None, node: str) -> str:
        """Why a worker with this state shouldn't create or bind a pod on a node: the volume of a claim, as it knows it,
        which isn't reached from there."""
        for name in claims_of(pod) if pod is not None and state.with_volumes and state.nodes.has(node) else ():
            seen = state.volumes.claims.get(("default", name))
            known = seen is not None and seen.facts.phase == "Bound" and seen.facts.volume in state.volumes.volumes
            if known and not (seen is None or seen.facts.deleting) and _excluded(state, "default", name, node):
                return f"the volume of claim {name} isn't reached from {node}"
        return ""

    def after_step(self) -> None:
        """Remember which claims have volumes."""
        for name in self._names if self.comes else ():
            claim = self._stored(CLAIMS, name)
            if _phase(claim) == "Bound":
                self._bound_s[name] = self._world.loop.time()

    def gives_up(self, state: State, cycle: k.CycleTaken, job: JobRecord) -> str:
        """Why a cycle shouldn't let a job fail; empty if it may: its quorum wouldn't fit either if its claims lacked
        nothing."""
        spec, before = job.valid_spec, job.spec
        lacks = [of.shape.volumes.lack for of in spec.groups if of.shape.volumes is not None and of.shape.volumes.lack]
        if not lacks:
            return ""
        needs = [of.shape.volumes and msgspec.structs.replace(of.shape.volumes, lack=None) for of in spec.groups]
        shapes = [msgspec.structs.replace(of.shape, volumes=need) for of, need in zip(spec.groups, needs, strict=True)]
        groups = [msgspec.structs.replace(of, shape=shape) for of, shape in zip(spec.groups, shapes, strict=True)]
        job.spec = msgspec.structs.replace(spec, groups=tuple(groups))
        tried = Placer(state, cycle.config, BUILT_IN, time_ms=cycle.time_ms).quorum(job)
        job.spec = before
        never = tried.shortage is not None and tried.shortage.infeasible
        return "" if never else f"a job fails, though its claim may still come: {lacks[0]}"

    # --- liveness ----------------------------------------------------------------------------------------------

    def unsettled(self, state: State) -> list[tuple[str, str]]:
        """(UID, the problem): the projection holds other claims, or a job waits for a claim that lacks nothing."""
        if not self.comes:
            return []
        there = {name: self._stored(CLAIMS, name) for name in self._names}
        held = {of.name: (of.facts.phase, of.facts.volume) for of in state.volumes.claims.values()}
        shown = {
            name: (of["status"].get("phase", ""), of["spec"].get("volumeName", ""))
            for name, of in there.items()
            if of is not None
        }
        found = [] if held == shown else [("", f"claims are {shown}, and the projection holds {held}")]
        for job in state.jobs.values():
            if queue_out_of_reach(state, job):
                continue  # it waits for its queue, and what it lacked before is no news
            for reason, _ in job.waits.shortage.reasons if job.waits is not None and job.active else ():
                if reason.kind == ReasonKind.CLAIM_DELETING and self._in_use(there.get(reason.name)):
                    continue  # it is there until the last pod that uses it has ended
                if reason.kind in _LACKS and reason.name in there and job.seen.namespace == "default":
                    found.append((job.uid, f"{job.seen.name} waits for {reason}, and it is {shown.get(reason.name)}"))
        return found


def _class() -> Object:
    metadata = {"name": _CLASS}
    return {"metadata": metadata, "provisioner": _DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}


def _phase(claim: Object | None) -> str:
    return str(claim["status"].get("phase")) if claim is not None else ""


def _selected(claim: Object) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE) or "")


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The claims that a pod names. An empty name, which a TYJob beyond its schema may have, names none."""
    volumes = pod["spec"].get("volumes") or ()
    names = [of["persistentVolumeClaim"]["claimName"] for of in volumes if of.get("persistentVolumeClaim")]
    return [name for name in names if name]


def may_select(body: Mapping[str, Any]) -> bool:
    """Whether a change of a claim only selects its node, as the claim was when it was read."""
    metadata = body["metadata"]
    held = set(body) == {"metadata"} and set(metadata) == {"uid", "resourceVersion", "annotations"}
    return held and set(metadata["annotations"]) == {SELECTED_NODE}


def _excluded(state: State, namespace: str, name: str, node: str) -> str:
    """Why a pod can't use a claim on a node; empty if it can, or may once a volume was made."""
    seen = state.volumes.claims.get((namespace, name))
    if seen is None:
        return "the claim isn't there"
    facts: ClaimFacts = seen.facts
    if facts.deleting or facts.phase == "Lost":
        return "the claim is being deleted, or has lost its volume"
    if facts.phase != "Bound":
        known = facts.storage_class in state.volumes.classes
        chosen = facts.selected_node not in ("", node)
        return "its volume is being made for another node" if chosen else "" if known else "its class isn't there"
    volume = state.volumes.volumes.get(facts.volume)
    if volume is None:
        return "its volume isn't there"
    labels = dict(state.nodes.facts[state.nodes.rows[node]].labels)
    return "" if _reaches(volume.facts.affinity, labels) else "its volume isn't reached from there"


def _reaches(terms: NodeTerms | None, labels: Mapping[str, str]) -> bool:
    return terms is None or any(all(labels.get(of.key) in of.values for of in term) for term in terms)


def _shared(state: State, job: JobRecord, event: k.Placed) -> str:
    """The claim of one pod alone that pods of a decision would share with others, as text; empty if there is none."""
    for slot in expand(event.pods):
        claims = job.valid_spec.groups[slot[0]].shape.claims
        for name in claims.names if claims is not None else ():
            seen = state.volumes.claims.get((job.seen.namespace, name))
            if seen is not None and ONE_POD in seen.facts.access_modes:
                users = sorted({*_users(state, job.seen.namespace, name)} - _leaving_for(state, job))
                if len(users) > 1:
                    return f"claim {name}, which only one pod may use, is used by {users}"
    return ""


def _leaving_for(state: State, job: JobRecord) -> set[str]:
    """The pods (UIDs) that leave for a job: it waits until they are gone."""
    room = job.slots.room
    if room is None:
        return set()
    of_victims = {
        uid for of in room.victims for uid, pod in state.pods_of.get(of.job_uid, {}).items() if leaves(state, pod)
    }
    return of_victims | {*room.leaving}


def _users(state: State, namespace: str, name: str) -> Iterable[str]:
    """The pods that use a claim, by UID, or by their slot while they have none. What has ended uses none, and a slot
    whose node is gone gets another one before it gets a pod."""
    for job in state.jobs.values():
        for slot in job.placements if job.seen.namespace == namespace else ():
            claims = job.valid_spec.groups[slot[0]].shape.claims
            uid = job.bound.get(slot)
            over = uid is not None and state.pods[uid].phase in TERMINAL
            gone = uid is None and not state.nodes.has(job.placements[slot])
            if claims is not None and name in claims.names and not over and not gone:
                yield uid or f"{job.uid} {slot}"
    for pod in state.pods.values():
        if pod.namespace == namespace and pod.node and name in pod.traits.claims and pod.phase not in TERMINAL:
            yield pod.uid
