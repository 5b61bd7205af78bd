"""Random walks of two TYJobs whose pods have claims of their own: pods fail and go, nodes close, watches are late, and
appliers end between two requests. No device is ever in two claims, no pod starts before its claims have devices on its
node, and in the end nothing is left."""

import random
from typing import Any

import pytest

from arranger.kube.cluster import NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, TYJOBS, Object, Resource
from arranger.projections.consistency import validate
from arranger.sandbox.garbage import DeleteOptions
from arranger.workers.applying.applier import Applier
from arranger.workers.applying.effects.progress import Look, Progress
from tests.device_objects import claim_template
from tests.parts import parts
from tests.unit.replay_worlds import verified
from tests.unit.test_applier import Everyone
from tests.unit.test_claim_writer import Recorded, WorldClock
from tests.unit.test_slot_claims import OWN, SEEN, Killed, Noting, Scene, tyjob

STEPS = 400


class Checked(Noting):
    """Refuses to make a pod whose claims have devices on another node. One from which Kubernetes has just taken them,
    because of an earlier pod, gets them again."""

    async def create(self, resource: Resource, namespace: str | None, body: Any, **more: Any) -> Object:
        if resource == PODS:
            for entry in body["spec"]["resourceClaims"]:
                claim = await self.get(RESOURCE_CLAIMS, namespace, entry["resourceClaimName"])
                allocation = claim["status"].get("allocation") or {"devices": {"results": []}}
                pools = {of["pool"] for of in allocation["devices"]["results"]}
                assert pools <= {body["spec"]["nodeName"]}, (body["metadata"]["name"], pools)
        return await super().create(resource, namespace, body, **more)


class Paced(WorldClock):
    """The time of a world alone passes."""

    def monotonic_s(self) -> float:
        return self.world.now_ms / 1000


class Walk(Scene):
    """A scene that does one random thing after another."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        super().__init__(workers=3, kept=self.chance.choice([0, 1]))
        rival = tyjob(OWN, 2, self.chance.choice([0, 1]))
        self.store.create(TYJOBS, "default", {**rival, "metadata": {"name": "k"}})
        self.cluster = Checked(self.store)
        self.start()

    def start(self) -> None:
        clock, writer = Paced(self.world), Recorded(self.world)  # type: ignore[arg-type]
        given: dict[str, Any] = {"cluster": self.cluster, "follower": self.following, "membership": Everyone()}
        self.applier = Applier(parts(clock=clock, writer=writer, **given))

    def check(self) -> None:
        devices = [one for of in self.devices().values() for one in of]
        assert len(devices) == len(set(devices)), self.devices()
        validate(self.world.state)

    async def step(self) -> None:
        some = {
            self.applier_looks: 30, self.observes: 30, self.decides: 15, self.collect: 8, self.pods_start: 20,
            self.a_pod_fails: 3, self.a_pod_goes: 3, self.a_node_changes: 2, self.the_applier_ends: 3,
            self.time_passes: 8, self.the_template_changes: 1, self.a_job_is_suspended_or_goes_on: 3,
        }  # fmt: skip
        (chosen,) = self.chance.choices([*some], [*some.values()])
        done = chosen()
        if done is not None:
            await done

    async def look(self) -> None:
        for record in [*self.world.state.jobs.values()]:
            progress = self.applier._progress.setdefault(record.uid, Progress())
            await self.applier._pods.reconciler.reconcile(Look(self.following, record, progress))  # type: ignore[arg-type]

    async def applier_looks(self) -> None:
        try:
            await self.look()
        except (Killed, BaseExceptionGroup) as ended:
            assert isinstance(ended, Killed) or ended.subgroup(Killed) is not None, ended
            self.start()

    def observes(self) -> None:
        """Some watches are ahead of others."""
        kinds = [*SEEN, PODS, TYJOBS]
        late = {of for of in kinds if self.chance.random() < 0.3}
        items = self.items
        self.items = lambda resource: [] if resource in late else items(resource)  # type: ignore[method-assign]
        gone = {RESOURCE_CLAIMS, PODS} & late
        try:
            self.observe() if not gone else self.sees_only_what_is_there(late)
        finally:
            self.items = items  # type: ignore[method-assign]

    def sees_only_what_is_there(self, late: set[Resource]) -> None:
        """Claims or pods aren't looked at, so none of them is gone."""
        for resource, (kind, seen) in SEEN.items():
            for item in [] if resource in late else self.items(resource):
                self.world.say(seen(item, self.world.terms[kind]))

    def decides(self) -> None:
        self.world.control()
        self.world.cycle()

    def alive(self) -> list[Object]:
        return [pod for pod in self.items(PODS) if pod["status"].get("phase") not in ("Failed", "Succeeded")]

    def pods_start(self) -> None:
        """Kubelets start the pods that may use their claims, and end those that are being deleted."""
        for pod in self.items(PODS):
            if pod["metadata"].get("deletionTimestamp"):
                self.store.delete(PODS, "default", pod["metadata"]["name"], DeleteOptions(grace_s=0))
        for pod in self.alive():
            claims = [of["resourceClaimName"] for of in pod["spec"]["resourceClaims"]]
            there = {of["metadata"]["name"]: of for of in self.items(RESOURCE_CLAIMS)}
            if all(name in there and pod["metadata"]["uid"] in self.reserved(name) for name in claims):
                for name in claims:
                    assert {of.partition("/")[0] for of in self.devices()[name]} == {pod["spec"]["nodeName"]}
                self.ready(pod["metadata"]["name"])

    def a_pod_fails(self) -> None:
        if pods := self.alive():
            self.set_pod(self.chance.choice(pods)["metadata"]["name"], phase="Failed", conditions=[])

    def a_pod_goes(self) -> None:
        if pods := self.items(PODS):
            self.store.delete(PODS, "default", self.chance.choice(pods)["metadata"]["name"], DeleteOptions(grace_s=0))

    def a_node_changes(self) -> None:
        name = self.chance.choice(["n1", "n2"])
        self.store.patch(NODES, "", name, {"spec": {"unschedulable": self.chance.choice([True, None, None])}})

    def the_applier_ends(self) -> None:
        """It ends after one of its next requests, or at once."""
        names = [f"j-w-{self.chance.randrange(3)}", "j-learner-0", "k-w-0", "k-learner-0"]
        name = self.chance.choice(names)
        what = [f"create {name}.gpu", f"patch {name}.gpu/status", f"create {name}", f"delete {name}.gpu"]
        self.cluster.lost.add(self.chance.choice(what))
        self.start()

    def time_passes(self) -> None:
        self.world.pass_time(self.chance.choice([0.5, 2, 2, 12, 120]))
        self.world.wait_for_back_offs()

    def the_template_changes(self) -> None:
        self.store.delete(RESOURCE_CLAIM_TEMPLATES, "default", "gpu")
        self.store.create(RESOURCE_CLAIM_TEMPLATES, "default", claim_template("gpu"))

    def a_job_is_suspended_or_goes_on(self) -> None:
        name = self.chance.choice("jk")
        self.store.patch(TYJOBS, "default", name, {"spec": {"suspend": self.chance.random() < 0.2}})

    async def comes_to_rest(self) -> None:
        """Everything is seen and done until nothing changes."""
        self.cluster.lost.clear()
        quiet = 0
        for _ in range(100):
            before = len(self.cluster.writes)
            self.start()  # so that nothing is awaited in real time
            self.observe()
            self.decides()
            await self.look()
            self.collect()
            self.pods_start()
            self.world.pass_time(15)
            self.world.wait_for_back_offs()
            quiet = quiet + 1 if len(self.cluster.writes) == before and self._runs() else 0
            if quiet == 5:
                return
        raise AssertionError(self.cluster.writes[-8:])

    def _runs(self) -> bool:
        return all(pod["metadata"]["uid"] in self.reserved(f"{pod['metadata']['name']}.gpu") for pod in self.alive())

    def made(self) -> list[str]:
        """The claims that were made for pods."""
        return [of["metadata"]["name"] for of in self.items(RESOURCE_CLAIMS) if of["metadata"]["name"] != "shared"]


@pytest.mark.parametrize("seed", range(40))
async def test_a_random_walk_never_gives_a_device_twice_and_leaves_nothing(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        await walk.step()
        walk.check()
    for node in ("n1", "n2"):
        walk.store.patch(NODES, "", node, {"spec": {"unschedulable": None}})
    for name in "jk":
        walk.store.patch(TYJOBS, "default", name, {"spec": {"suspend": False}})
    await walk.comes_to_rest()
    walk.check()
    jobs = [*walk.world.state.jobs.values()]
    placed = sum(len(job.placements) for job in jobs)
    assert len(walk.alive()) == len(walk.devices()) == placed
    for job in [job for job in jobs if not job.ended]:
        walk.store.patch(TYJOBS, "default", job.seen.name, {"spec": {"terminating": True}})
    await walk.comes_to_rest()
    assert all(job.ended for job in jobs) and not walk.made() and not walk.devices()
    assert not walk.world.state.devices.of_slots
    report = verified(walk.world.entries)
    assert report.sound and report.cycles == report.identical
