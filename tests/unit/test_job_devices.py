"""Devices of TYJobs: each pod has claims of its own from templates, or shares one with others."""

import random

import pytest

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.devices import ResourceClaimTemplateSeen
from arranger.events.log import Entry
from arranger.lifecycle.desired import desired_pods, desired_status
from arranger.messages.shortages import shortage_text
from arranger.model.devices import Allocation, DeviceRequest, ResourceClaimFacts
from arranger.model.job import Stage
from arranger.model.names import own_claim_name
from arranger.model.pod import DevicesAsked, Phase
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed import slot_devices
from arranger.projections.observed.devices import needs_of
from arranger.projections.state import ASSUMED_MS, Changes, State
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.what_if.hypothesis import job_gone, supposed
from arranger.scheduling.cluster.device_room import Device, how_many, match
from arranger.scheduling.cycle import take_cycle
from tests.devices import CLASS, DeviceWorld, model, on, with_claims, with_own
from tests.unit.replay_worlds import verified
from tests.volumes import ZONE, within
from tests.world import shape

LEARNER = shape(cpu=1)


def two_nodes() -> DeviceWorld:
    """The nodes `a` with one device and `b` with three, two of them H100s, and the template `gpu` of one device."""
    world = DeviceWorld()
    world.node("a", cpu=8, labels={ZONE: "z1"})
    world.node("b", cpu=8, labels={ZONE: "z2"})
    world.devices("a", ["gpu-0"])
    world.devices("b", {"gpu-0": "A100", "gpu-1": "H100", "gpu-2": "H100"})
    world.template("gpu")
    return world


def held(world: DeviceWorld, job: JobRecord, entry: str = "gpu") -> dict[tuple[int, int], Allocation | None]:
    """The devices of each slot of a job."""
    found = {slot: slot_devices.decided_for(world.state, job, slot, entry) for slot in sorted(job.placements)}
    with_claims = [slot for slot in found if job.valid_spec.groups[slot[0]].shape.claims is not None]
    return {slot: of.allocation if (of := found[slot]) is not None else None for slot in with_claims}


def words(job: JobRecord) -> str:
    assert job.waits is not None, "it has nodes, or no reason"
    return shortage_text(job.waits.shortage)


def running(workers: int = 3, **more: object) -> tuple[DeviceWorld, JobRecord]:
    """The job `ppo`, each worker of which runs with a device of its own."""
    world = two_nodes()
    job = world.job("ppo", leader=LEARNER, workers=workers, worker=with_own("gpu"), min_workers=1, **more)  # type: ignore[arg-type]
    world.cycle()
    for slot in [slot for slot in job.placements if slot[0]]:
        world.own_claim(job, slot, "gpu", reserved=(f"uid-{job.pod_name(slot)}",))
    world.settle()
    assert job.stage == Stage.RUNNING
    return world, job


# --- what each pod gets -------------------------------------------------------------------------------------------


def test_every_pod_gets_devices_of_its_own_on_its_node_and_the_decision_names_them() -> None:
    world = two_nodes()
    job = world.job("ppo", leader=LEARNER, workers=4, worker=with_own("gpu"), min_workers=4)
    (*_, placed) = world.cycle()
    assert isinstance(placed, k.Placed) and [of.uid for of in placed.devices] == ["uid-gpu"] * 4
    devices = held(world, job)
    assert len(devices) == 4 and all(of is not None for of in devices.values())
    found = [(job.placements[slot], one.device.pool, one.device.device)
             for slot, of in devices.items() if of is not None for one in of.devices]  # fmt: skip
    assert sorted(found) == [("a", "a", "gpu-0"), ("b", "b", "gpu-0"), ("b", "b", "gpu-1"), ("b", "b", "gpu-2")]
    validate(world.state)


def test_a_job_that_needs_more_devices_than_are_free_waits_whole_with_a_reason_and_gets_them_later() -> None:
    world = two_nodes()
    first = world.job("first", leader=LEARNER, workers=2, worker=with_own("gpu"), min_workers=2)
    second = world.job("second", leader=LEARNER, workers=3, worker=with_own("gpu"), min_workers=3)
    world.cycle()
    assert len(first.placements) == 3 and not second.placements
    assert "insufficient devices for resource claim gpu (needs 1 of gpu)" in words(second)
    assert second.stage == Stage.PENDING and not second.waits.shortage.infeasible  # type: ignore[union-attr]
    world.job_gone(first)
    world.wait_for_late_pods()
    world.cycle()
    assert len(second.placements) == 4, "nobody made a pod with them"


def test_a_pod_with_several_claims_gets_all_of_them_on_one_node() -> None:
    world = two_nodes()
    world.template("h100", selectors=(model("H100"),))
    world.template("any", DeviceRequest("one", CLASS), DeviceRequest("other", CLASS))
    job = world.job("ppo", leader=with_own("any", "h100"))
    world.cycle()
    assert job.placements == {(0, 0): "b"}
    (h100,), (any_,) = held(world, job, "h100").values(), held(world, job, "any").values()
    assert h100 == on("b", "gpu-1") or h100 == on("b", "gpu-2")
    assert any_ is not None and [of.request for of in any_.devices] == ["one", "other"]


def test_own_claims_and_a_shared_one_get_devices_together_on_one_node() -> None:
    world = two_nodes()
    world.resource_claim("shared", selectors=(model("H100"),))
    job = world.job("ppo", leader=LEARNER, workers=2, worker=with_own("gpu", claims=("shared",)), min_workers=2)
    world.cycle()
    assert {job.placements[1, 0], job.placements[1, 1]} == {"b"}
    devices = [world.decided("shared"), *held(world, job).values()]
    assert len({of.devices[0].device for of in devices if of is not None}) == 3


def test_a_claim_that_pods_share_keeps_them_on_one_node_and_is_let_go_with_the_last_of_them() -> None:
    world = two_nodes()
    world.resource_claim("shared", count=2)
    job = world.job("ppo", leader=LEARNER, workers=3, worker=with_own(claims=("shared",)), min_workers=3)
    world.cycle()
    assert {node for slot, node in job.placements.items() if slot[0]} == {"b"}
    assert world.decided("shared") == on("b", "gpu-0", "gpu-1")
    other = world.job("other", leader=with_own("gpu"), workers=1, min_workers=1)
    world.job_gone(job)
    world.cycle()
    assert other.placements[0, 0] == "a" or held(world, other)[0, 0] == on("b", "gpu-2")


def test_devices_that_several_nodes_reach_go_to_one_pod_each() -> None:
    world = DeviceWorld()
    for name in ("a", "b"):
        world.node(name, cpu=8, labels={ZONE: "z"})
    world.devices("", ["nic-0", "nic-1"], pool="net", terms=within(ZONE, "z"))
    world.template("gpu")
    job = world.job("ppo", leader=LEARNER, workers=3, worker=with_own("gpu"), min_workers=2)
    world.cycle()
    found = [of.devices[0].device.device for of in held(world, job).values() if of is not None]
    assert sorted(found) == ["nic-0", "nic-1"] and len(job.placements) == 3


@pytest.mark.parametrize(
    ("change", "lack"),
    [
        (lambda world: world.template_gone("gpu"), "ResourceClaimTemplate gpu for resource claim gpu doesn't exist"),
        (lambda world: world.template("gpu", beyond="constraints"), "more than Arranger allocates (constraints)"),
        (lambda world: world.template("gpu", DeviceRequest("r", "none")), "DeviceClass none of resource claim gpu"),
    ],
)  # fmt: skip
def test_a_job_says_what_its_template_lacks_and_waits_for_it(change: object, lack: str) -> None:
    world = two_nodes()
    change(world)  # type: ignore[operator]
    job = world.job("ppo", leader=with_own("gpu"))
    world.cycle()
    assert lack in words(job) and not job.placements
    world.template("gpu")
    world.cycle()
    assert job.placements


def test_with_the_setting_off_a_job_waits_and_names_it_and_goes_on_once_it_is_on() -> None:
    world = two_nodes()
    world.with_devices(on=False)
    job = world.job("ppo", leader=with_own("gpu"), workers=1)
    plain = world.job("plain", workers=1)
    world.cycle()
    assert plain.placements and not job.placements and "the setting devices is off" in words(job)
    assert "the setting devices is off" in desired_status(world.state, job)["message"]
    world.with_devices()
    world.cycle()
    assert job.placements


def test_before_templates_are_listed_a_job_waits_and_pods_of_others_dont() -> None:
    world = DeviceWorld()
    world.node("a", cpu=8)
    world.devices("a", ["gpu-0"])
    world.template("gpu")
    term = world.terms[k.Watched.RESOURCE_CLAIM_TEMPLATE]
    world.say(k.WatchRefused(k.Watched.RESOURCE_CLAIM_TEMPLATE, term, 403))
    job = world.job("ppo", leader=with_own("gpu"))
    world.resource_claim("c")
    pod = world.claiming("web", "c")
    world.cycle()
    assert "the API server doesn't show resourceclaimtemplates" in words(job) and pod.placements


# --- how long a slot has its devices ------------------------------------------------------------------------------


def test_a_worker_that_is_placed_again_gets_free_devices_and_its_first_ones_stay_with_the_claim() -> None:
    world, job = running()
    (slot,) = [slot for slot, node in job.placements.items() if node == "a" and slot[0]]
    name = world.own_claim(job, slot, "gpu")
    assert held(world, job)[slot] == on("a", "gpu-0")
    world.node("a", cpu=8, ready=True, cordoned=True)
    pod = world.pods_of(job)[slot]
    world.change_pod(pod.uid, phase="Failed", reason="Evicted")
    world.control()
    world.pod_gone(pod.uid)
    world.cycle()
    assert job.placements[slot] == "b"
    assert held(world, job)[slot] not in (None, on("a", "gpu-0"))
    assert [of.name for of in slot_devices.needless_claims(world.state, job)] == [name]


def test_a_failed_worker_that_stays_on_its_node_keeps_its_devices_while_its_claim_has_none() -> None:
    world, job = running()
    slot = (1, 0)
    before, node = held(world, job)[slot], job.placements[slot]
    pod = world.pods_of(job)[slot]
    world.change_pod(pod.uid, phase="Failed")
    world.own_claim(job, slot, "gpu", allocation=None)  # Kubernetes takes them when the pod has ended
    rival = world.job("rival", leader=with_own("gpu", of=shape(cpu=1)))
    world.pass_time(60)
    world.settle()
    assert job.placements[slot] == node and held(world, job)[slot] == before
    other = held(world, rival).get((0, 0))
    assert other is not None and other != before
    assert not [*slot_devices.needless_claims(world.state, job)]


def test_devices_of_a_pod_that_may_have_been_made_are_kept_for_a_moment_and_those_of_no_pod_arent() -> None:
    world = two_nodes()
    job = world.job("ppo", leader=with_own("gpu"), workers=1, worker=with_own("gpu"), min_workers=1)
    world.cycle()
    leader, worker = held(world, job)[0, 0], held(world, job)[1, 0]
    assert leader is not None and worker is not None
    world.job_gone(job)
    validate(world.state)
    kept = world.state.devices.reserved
    assert leader.devices[0].device in kept, "the leader's claim may have been made"
    assert worker.devices[0].device not in kept, "a worker's isn't made before the leader runs"
    late = world.job("late", leader=LEARNER, workers=4, worker=with_own("gpu"), min_workers=4)
    world.cycle()
    assert not late.placements
    world.pass_time(ASSUMED_MS / 1000)
    world.cycle()
    assert len(late.placements) == 5


def test_an_edit_of_a_running_job_leaves_its_devices_with_its_slots() -> None:
    world, job = running(workers=2)
    before = held(world, job)
    world.job("ppo", leader=LEARNER, workers=3, worker=with_own("gpu"), min_workers=2, generation=2)
    assert {slot: held(world, job)[slot] for slot in before} == before
    world.cycle()
    assert held(world, job)[1, 2] is not None and len({str(of) for of in held(world, job).values()}) == 3
    validate(world.state)


def test_the_end_of_a_job_frees_its_devices_once_its_claims_have_lost_them() -> None:
    world, job = running()
    world.job("ppo", leader=LEARNER, workers=3, worker=with_own("gpu"), min_workers=3, terminating=True, generation=2)
    world.control()
    assert job.ended and not slot_devices.holdings(world.state, job)
    assert [*slot_devices.needless_claims(world.state, job)] == [], "its pods still run"
    world.settle()
    claims = [*slot_devices.needless_claims(world.state, job)]
    assert len(claims) == 3
    late = world.job("late", leader=LEARNER, workers=4, worker=with_own("gpu"), min_workers=4)
    world.cycle()
    assert not late.placements
    for claim in claims:
        world.resource_claim_gone(claim.name, uid=claim.uid)
    world.cycle()
    assert len(late.placements) == 5


def test_a_pod_whose_template_is_gone_gives_its_node_back() -> None:
    world = two_nodes()
    job = world.job("ppo", leader=with_own("gpu"))
    world.cycle()
    assert job.placements
    world.template_gone("gpu")
    world.control()
    assert not job.placements
    world.template("gpu")
    world.wait_for_back_offs()
    world.cycle()
    assert job.placements


def test_a_pod_whose_template_is_another_one_now_gives_its_node_back_unless_its_claim_was_made() -> None:
    world = two_nodes()
    made, job = (world.job(name, leader=with_own("gpu")) for name in ("made", "unmade"))
    world.cycle()
    world.own_claim(made, (0, 0), "gpu")
    term = world.terms[k.Watched.RESOURCE_CLAIM_TEMPLATE]
    facts = ResourceClaimFacts((DeviceRequest("other", CLASS, (), 2),))
    world.say(k.ObjectGone(k.Watched.RESOURCE_CLAIM_TEMPLATE, term, "default", "gpu", "uid-gpu"))
    world.say(ResourceClaimTemplateSeen(term, "default", "gpu", "uid-new", "9", facts))
    world.control()
    assert made.placements and not job.placements
    world.wait_for_back_offs()
    (*_, placed) = world.cycle()
    assert isinstance(placed, k.Placed) and [of.uid for of in placed.devices] == ["uid-new"]
    assert [of.request for of in placed.devices[0].allocation.devices] == ["other", "other"]


def test_two_cycles_never_give_one_device_to_two_pods() -> None:
    world = two_nodes()
    first = world.job("first", leader=with_own("gpu", of=shape(cpu=1, selector={ZONE: "z1"})))
    second = world.job("second", leader=with_own("gpu", of=shape(cpu=1, selector={ZONE: "z1"})))
    world.cycle()
    placed = next(of for entry in world.entries for of in entry.batch.events if isinstance(of, k.Placed))
    late = k.Placed(second.uid, second.version, second.attempt, placed.schedule_state, placed.pods, placed.devices)
    cycle = next(of for entry in world.entries for of in entry.batch.events if isinstance(of, k.CycleTaken))
    world.say(k.CycleTaken(world.state.offset, world.now_ms, cycle.config, 0), late)
    assert first.placements and not second.placements
    assert "is another claim's" in world.verdict("Placed").reason


def test_a_decision_without_devices_for_a_pod_is_void() -> None:
    world = two_nodes()
    job = world.job("ppo", leader=with_own("gpu"))
    found = take_cycle(world.state, world.config, world.now_ms)
    assert not found or not any(isinstance(of, k.Placed) for of in found), "nothing is known of the selectors yet"
    world.cycle()
    assert job.placements


# --- suppositions -------------------------------------------------------------------------------------------------


def test_a_job_would_fit_without_one_that_has_the_devices_and_a_supposition_changes_nothing() -> None:
    world, job = running(4)
    world.resource_claim("shared", allocation=on("b", "gpu-9"), reserved=("uid-web",))
    late = world.job("late", leader=with_own("gpu"))
    world.cycle()
    assert not late.placements
    before = snapshot.encode(world.state)
    without = supposed(world.state, job_gone(job, world.state))
    assert take_cycle(without, world.config, world.now_ms), "its claims lose their devices with its pods"
    assert snapshot.encode(world.state) == before
    (claim,) = [of for key, of in without.devices.claims.items() if key[1] == "shared"]
    assert claim.facts.allocation is not None


def test_a_shared_claim_loses_its_devices_with_the_last_pod_that_is_supposed_to_go() -> None:
    world = two_nodes()
    world.resource_claim("shared", count=3)
    pod = world.claiming("web", "shared")
    world.cycle()
    world.resource_claim("shared", count=3, allocation=world.decided("shared"), reserved=("uid-web",))
    world.pod_to_place("web", "b", of=with_claims("shared"))
    late = world.job("late", leader=with_own("gpu"), workers=1, worker=with_own("gpu"), min_workers=1)
    world.cycle()
    assert not late.placements and pod.placements
    before = snapshot.encode(world.state)
    without = supposed(world.state, job_gone(pod, world.state))
    assert any(isinstance(of, k.Placed) for of in take_cycle(without, world.config, world.now_ms))
    assert snapshot.encode(world.state) == before


# --- a job that was adopted from its status -----------------------------------------------------------------------


def test_a_claim_without_a_decision_counts_with_the_devices_that_it_has() -> None:
    world, job = running(workers=1)
    slot = (1, 0)
    for key in world.state.devices.of_slots[job.uid][slot]:  # as in an epoch that adopted the job
        world.state.devices.drop_decided(key)
    (need,) = needs_of(job.valid_spec.groups[1].shape)
    assert slot_devices.allocation_of(world.state, job, slot, need) is not None
    assert not [*slot_devices.needless_claims(world.state, job)]


def test_a_slot_without_devices_gives_its_node_up_although_others_there_have_theirs() -> None:
    world, job = running(workers=3)
    on_b = [slot for slot, node in job.placements.items() if node == "b"]
    for slot in on_b:
        world.pod_gone(world.pods_of(job)[slot].uid)
    first, second = on_b
    world.own_claim(job, first, "gpu")
    name = own_claim_name(job.pod_name(second), "gpu")
    world.resource_claim_gone(name)
    for key in world.state.devices.of_slots[job.uid][second]:  # as in an epoch that adopted the job
        world.state.devices.drop_decided(key)
    assert [slot for slot, _ in desired_pods(world.state, job).create] == [first]
    world.control()
    assert first in job.placements and second not in job.placements


# --- replay -------------------------------------------------------------------------------------------------------


def busy() -> DeviceWorld:
    world, job = running(workers=2)
    world.template("secret-t", count=9)
    world.job("waits", leader=with_own("secret-t"))
    world.job("lacks", leader=with_own("secret-none"))
    world.job("half", leader=with_own("gpu"))
    world.cycle()
    world.change_pod(world.pods_of(job)[1, 1].uid, phase=Phase.FAILED, reason="Evicted")
    world.settle()
    return world


def test_a_snapshot_has_the_devices_of_slots_and_every_cycle_is_a_function_of_them() -> None:
    world = busy()
    again = snapshot.restore(snapshot.encode(world.state))
    assert snapshot.encode(again) == snapshot.encode(world.state)
    assert again.devices == world.state.devices and again.devices.of_slots
    world.job("late", leader=with_own("gpu"))
    again = snapshot.restore(snapshot.encode(world.state))
    assert take_cycle(again, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)


def test_a_log_with_devices_of_jobs_is_verified_and_without_names_its_cycles_decide_the_same() -> None:
    world = busy()
    report = verified(world.entries)
    assert report.sound and 0 < report.cycles == report.identical
    names = Pseudonyms()
    for entry in world.entries:
        names.batch(entry.batch)
    names.begin()
    entries = [Entry(one.first, one.last, "", names.batch(one.batch)) for one in world.entries]
    report = verified(entries)
    assert report.sound and 0 < report.cycles == report.identical
    state = State()
    for entry in entries:
        apply_entry(state, entry, Changes())
    assert state.devices.of_slots and state.devices.own and state.devices.templates
    told = b"".join(encode_batch(entry.batch) for entry in entries)
    for hidden in (b"secret", b"gpu.example.com", b"H100", b"gpu-0"):
        assert hidden not in told.replace(b"uid-secret-", b""), hidden


# --- an oracle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_on_random_clusters_a_quorum_is_placed_exactly_if_there_are_devices_for_all_of_it(seed: int) -> None:
    """Each pod of a job needs one or two devices of two models, so that the most that fit on a node can be counted."""
    chance = random.Random(seed)
    world = DeviceWorld()
    nodes = {f"n{at}": [chance.choice("AB") for _ in range(chance.randint(0, 5))] for at in range(3)}
    for name, models in nodes.items():
        world.node(name, cpu=64)
        if models:
            world.devices(name, {f"g{at}": of for at, of in enumerate(models)})
    taken: set[tuple[str, str]] = set()
    for at in range(3):
        asked = [chance.choice(["", "A", "B"]) for _ in range(chance.randint(1, 2))]
        requests = [DeviceRequest(f"r{i}", CLASS, (model(of),) if of else ()) for i, of in enumerate(asked)]
        world.template(f"t{at}", *requests)
        most = 0
        for name, models in nodes.items():
            free = [of for i, of in enumerate(models) if (name, f"g{i}") not in taken]
            most += _most(asked, free.count("A"), free.count("B"))
        workers = chance.randint(1, 5)
        job = world.job(f"j{at}", leader=LEARNER, workers=workers, worker=with_own(f"t{at}"), min_workers=workers)
        world.cycle()
        assert len(job.placements) == (workers + 1 if workers <= most else 0), (seed, at)
        for slot, of in held(world, job, f"t{at}").items():
            assert of is not None and of.terms == on(job.placements[slot]).terms
            for i, one in enumerate(of.devices):
                key = (one.device.pool, one.device.device)
                assert key not in taken and one.device.pool == job.placements[slot]
                assert asked[i] in ("", nodes[key[0]][int(key[1][1:])])
                taken.add(key)
    validate(world.state)
    report = verified(world.entries)
    assert report.sound and report.cycles == report.identical


def _most(asked: list[str], a: int, b: int) -> int:
    """For how many pods so many devices of two models are enough."""
    pods = 0
    while True:
        more = pods + 1
        least_a, least_b = more * asked.count("A"), more * asked.count("B")
        if least_a > a or least_b > b or more * len(asked) > a + b:
            return pods
        pods = more


def test_as_many_pods_as_are_said_to_fit_get_devices_and_one_more_doesnt() -> None:
    chance = random.Random(7)
    for _ in range(200):
        devices = [
            Device(on("n", f"g{at}").devices[0].device, None, frozenset(chance.sample("xyz", chance.randint(0, 3))))
            for at in range(chance.randint(0, 6))
        ]
        claims = [
            [DevicesAsked("r", CLASS, tuple(chance.sample("xyz", chance.randint(0, 2))), chance.randint(1, 2))]
            for _ in range(chance.randint(1, 2))
        ]
        most = how_many(devices, claims, ())
        assert not isinstance(match(devices, claims * most, ()), int)
        assert isinstance(match(devices, claims * (most + 1), ()), int)
