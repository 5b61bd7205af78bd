"""Devices of resource claims: which nodes have them, which a claim gets, and who holds them until that shows."""

import itertools
import random
from collections.abc import Iterator, Mapping

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.facts import NodeClosed, OutOfReach
from arranger.events.log import Entry
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.devices import DecidedDevices, DeviceRequest
from arranger.model.job import Stage
from arranger.model.pods_to_place import SLOT
from arranger.model.queue import Preemption
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.what_if.hypothesis import private_copy, say
from arranger.scheduling.cycle import VERSIONS, take_cycle
from arranger.workers.deciding.device_matcher import matches
from tests.devices import CLASS, DRIVER, DeviceWorld, model, on, with_claims
from tests.unit.replay_worlds import verified
from tests.volumes import ZONE, within
from tests.world import shape


def two_nodes() -> DeviceWorld:
    """The nodes `a` with one device and `b` with three, two of them H100s."""
    world = DeviceWorld()
    world.node("a", cpu=8, labels={ZONE: "z1"})
    world.node("b", cpu=8, labels={ZONE: "z2"})
    world.devices("a", ["gpu-0"])
    world.devices("b", {"gpu-0": "A100", "gpu-1": "H100", "gpu-2": "H100"})
    return world


def words(pod: JobRecord) -> str:
    assert pod.waits is not None, "it has nodes, or no reason"
    return shortage_text(pod.waits.shortage)


# --- where a pod goes, and what its claims get ---------------------------------------------------------------------


def test_a_pod_goes_where_its_claim_gets_devices_and_the_decision_names_them() -> None:
    world = two_nodes()
    world.resource_claim("c", count=2)
    pod = world.claiming("web", "c")
    (*_, placed) = world.cycle()
    assert isinstance(placed, k.Placed) and [of.allocation for of in placed.devices] == [on("b", "gpu-0", "gpu-1")]
    assert pod.placements == {SLOT: "b"} and world.decided("c") == on("b", "gpu-0", "gpu-1")
    validate(world.state)


def test_selectors_of_class_and_request_both_count() -> None:
    world = two_nodes()
    world.resource_claim("c", count=2, selectors=(model("H100"),))
    pod = world.claiming("web", "c")
    world.cycle()
    assert pod.placements == {SLOT: "b"} and world.decided("c") == on("b", "gpu-1", "gpu-2")
    world.device_class(CLASS, 'device.driver == "other.example.com"')
    world.resource_claim("d")
    other = world.claiming("other", "d")
    world.cycle()
    assert words(other) == (
        "0 of 1 required pods fit; pod: 0 of 2 nodes fit: 2 insufficient devices for resource claim d (needs 1 of gpu)"
    )


def test_what_one_claim_has_no_other_gets_and_the_pod_waits_with_a_reason() -> None:
    world = two_nodes()
    for name in ("c1", "c2", "c3"):
        world.resource_claim(name, count=2)
    pods = [world.claiming(f"p{at}", f"c{at}") for at in (1, 2, 3)]
    world.cycle()
    assert [pod.placements for pod in pods] == [{SLOT: "b"}, {}, {}]
    assert "2 insufficient devices for resource claim c2 (needs 2 of gpu)" in words(pods[1])
    world.resource_claim("c1", count=2, allocation=on("b", "gpu-0", "gpu-1"), reserved=("uid-p1",))
    world.cycle()
    assert not pods[1].placements, "observed devices are held as decided ones"
    world.resource_claim("c1", count=2)
    world.pod_gone("uid-p1")
    world.cycle()
    assert pods[1].placements == {SLOT: "b"}, "the claim lost its devices with its pod"


def test_requests_take_from_each_other_what_another_can_do_without() -> None:
    world = DeviceWorld()
    world.node("b", cpu=8)
    world.devices("b", {"gpu-0": "A100", "gpu-1": "H100"})
    world.resource_claim("c", DeviceRequest("any", CLASS), DeviceRequest("a100", CLASS, (model("A100"),)))
    pod = world.claiming("web", "c")
    world.cycle()
    assert pod.placements == {SLOT: "b"}
    decided = world.decided("c")
    assert decided is not None
    assert [(of.request, of.device.device) for of in decided.devices] == [("any", "gpu-1"), ("a100", "gpu-0")]


def test_a_claim_for_all_devices_gets_none_where_one_is_tainted() -> None:
    """The rest isn't all of them, so kube-scheduler refuses the node (cluster 600 of the oracle)."""
    world = two_nodes()
    world.devices("a", ["tainted"], part="-2", pool="a-2", whole=False)
    world.resource_claim("all", DeviceRequest("gpus", CLASS, (), 0))
    pod = world.claiming("web", "all")
    world.cycle()
    assert pod.placements == {SLOT: "b"}


def test_a_claim_for_all_devices_gets_all_of_a_node_or_none() -> None:
    world = two_nodes()
    world.resource_claim("one", allocation=on("b", "gpu-2"))
    world.resource_claim("all", DeviceRequest("gpus", CLASS, (), 0))
    pod = world.claiming("web", "all")
    world.cycle()
    assert pod.placements == {SLOT: "a"} and world.decided("all") == on("a", "gpu-0")
    world.resource_claim("more", DeviceRequest("gpus", CLASS, (), 0))
    other = world.claiming("other", "more")
    world.cycle()
    assert "2 insufficient devices for resource claim more (needs all of gpu)" in words(other)


def test_several_claims_of_a_pod_get_devices_on_one_node() -> None:
    world = two_nodes()
    world.resource_claim("c1")
    world.resource_claim("c2", selectors=(model("H100"),))
    pod = world.claiming("web", "c1", "c2")
    world.cycle()
    assert pod.placements == {SLOT: "b"}
    assert (world.decided("c1"), world.decided("c2")) == (on("b", "gpu-0"), on("b", "gpu-1"))


def test_pods_that_name_one_claim_go_where_its_devices_are() -> None:
    world = two_nodes()
    world.resource_claim("c")
    shared = [world.pod_to_place(f"p{at}", of=with_claims("c"), group="g", least=3) for at in range(3)][-1]
    world.cycle()
    assert set(shared.placements.values()) == {"a"} and len(shared.placements) == 3
    assert world.decided("c") == on("a", "gpu-0")
    late = world.claiming("late", "c")
    (*_, placed) = world.cycle()
    assert late.placements == {SLOT: "a"}
    assert isinstance(placed, k.Placed) and placed.devices[0].allocation == on("a", "gpu-0"), "it relies on them too"


def test_a_group_whose_shared_claim_has_devices_on_too_small_a_node_waits_whole() -> None:
    world = two_nodes()
    world.resource_claim("c", allocation=on("a", "gpu-0"))
    of = with_claims("c", of=shape(cpu=4))
    group = [world.pod_to_place(f"p{at}", of=of, group="g", least=3) for at in range(3)][-1]
    world.cycle()
    assert not group.placements
    assert "not reached by the devices of resource claim c" in words(group)
    world.node("a", cpu=12, labels={ZONE: "z1"})
    world.cycle()
    assert set(group.placements.values()) == {"a"}


def test_devices_beyond_nodes_are_reached_from_those_that_their_slice_names() -> None:
    world = two_nodes()
    world.devices("", ["net-0"], pool="net", terms=within(ZONE, "z2"))
    world.resource_claim("c", count=4)
    world.resource_claim("d", allocation=on("net", "net-0", terms=within(ZONE, "z1")))
    pod, other = world.claiming("web", "c"), world.claiming("other", "d")
    world.cycle()
    assert not pod.placements and other.placements == {SLOT: "a"}
    world.resource_claim_gone("d")
    world.cycle()
    assert pod.placements == {SLOT: "b"}
    decided = world.decided("c")
    assert decided is not None and decided.terms == on("b").terms, "it needs devices of the node itself"


def test_only_complete_pools_in_their_newest_generation_and_whole_devices_count() -> None:
    world = DeviceWorld()
    world.node("a", cpu=8)
    world.devices("a", ["gpu-0"], slices=2, generation=2)
    world.devices("a", ["gpu-9"], part="-old", generation=1)
    world.devices("a", ["part-0"], pool="parts", whole=False)
    world.resource_claim("c")
    pod = world.claiming("web", "c")
    world.cycle()
    assert not pod.placements
    world.devices("a", ["gpu-1"], part="-2", slices=2, generation=2)
    world.cycle()
    assert world.decided("c") == on("a", "gpu-0")


def test_no_claim_gets_all_devices_of_a_node_while_slices_of_its_pools_are_missing() -> None:
    world = DeviceWorld()
    world.node("a", cpu=8)
    world.devices("a", ["gpu-0"])
    world.devices("a", ["more-0"], pool="more", slices=2)
    world.resource_claim("all", DeviceRequest("gpus", CLASS, (), 0))
    pod = world.claiming("web", "all")
    world.cycle()
    assert not pod.placements
    world.devices("a", ["more-1"], pool="more", part="-2", slices=2)
    world.cycle()
    decided = world.decided("all")
    assert decided is not None and [of.device.device for of in decided.devices] == ["gpu-0", "more-0", "more-1"]


# --- what a claim lacks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "lack"),
    [
        ("", "resource claim c0 hasn't been made from its template yet"),
        ("none", "resource claim none doesn't exist: create it"),
        ("leaving", "resource claim leaving is being deleted"),
        ("more", "resource claim more asks for more than Arranger allocates (constraints)"),
        ("classless", "DeviceClass big of resource claim classless doesn't exist"),
        ("odd", "resource claim odd asks for more than Arranger allocates (a selector that it can't evaluate)"),
        ("elsewhere", "not reached by the devices of resource claim elsewhere"),
    ],
)
def test_a_pod_says_what_its_claim_lacks_and_waits_for_it(claim: str, lack: str) -> None:
    world = two_nodes()
    world.resource_claim("leaving", deleting=True)
    world.resource_claim("more", beyond="constraints")
    world.resource_claim("classless", DeviceRequest("gpus", "big"))
    world.resource_claim("odd", selectors=('device.attributes["a"].?b.orValue(1) == 1',))
    world.resource_claim("elsewhere", allocation=on("gone", "gpu-0"))
    pod = world.claiming("web", claim)
    world.cycle()
    assert words(pod) == f"0 of 1 required pods fit; pod: 0 of 2 nodes fit: 2 {lack}"
    world.pass_time(10 * world.config.infeasible_grace_ms / 1000)
    world.settle()
    assert pod.stage == Stage.PENDING, "it may come at any time"
    if claim:
        world.resource_claim(claim, uid=f"uid-{claim}-2")
        world.cycle()
        assert pod.placements == {SLOT: "a"}


def test_a_selector_that_fails_for_a_device_doesnt_select_it() -> None:
    world = two_nodes()
    selector = f'device.attributes["{DRIVER}"].memory > 1'
    world.resource_claim("c", selectors=(selector,))
    pod = world.claiming("web", "c")
    world.cycle()
    assert "insufficient devices" in words(pod)


def test_without_one_of_the_kinds_a_pod_with_a_claim_waits_and_others_dont() -> None:
    world = two_nodes()
    world.resource_claim("c")
    world.say(k.WatchRefused(k.Watched.RESOURCE_SLICE, world.terms[k.Watched.RESOURCE_SLICE], 403))
    pod, other = world.claiming("web", "c"), world.pod_to_place("other")
    world.cycle()
    assert other.placements and not pod.placements
    assert "the devices for resource claim c are unknown: the API server doesn't show resourceslices" in words(pod)


def test_nothing_is_decided_before_the_kinds_of_devices_are_listed_after_the_setting_came_on() -> None:
    world = DeviceWorld()
    world.with_devices(on=False)
    assert world.state.synced
    world.say(k.claim(k.Watched.POD, "test", with_devices=True))
    assert not world.state.synced, "the pods are listed again, with the claims that they name"


# --- who holds decided devices ------------------------------------------------------------------------------------


def waiting_for_one() -> tuple[DeviceWorld, JobRecord]:
    """A node with one device, and a pod that waits for it."""
    world = DeviceWorld()
    world.node("a", cpu=8)
    world.devices("a", ["gpu-0"])
    world.resource_claim("c")
    pod = world.claiming("web", "c")
    world.say(*matches(world.state))
    return world, pod


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.resource_claim_gone("c"), "resource claim c gets no devices"),
        (lambda world: world.resource_claim("c", uid="another"), "resource claim c is gone"),
        (lambda world: world.resource_claim("c", deleting=True), "resource claim c gets no devices"),
        (lambda world: world.resource_claim("c", allocation=on("b", "gpu-7")), "resource claim c has devices already"),
        (
            lambda world: world.resource_claim("other", allocation=on("a", "gpu-0")),
            f"device gpu-0 of {DRIVER} is another claim's",
        ),
    ],
)
def test_a_decision_on_devices_that_arent_to_be_had_any_more_is_void(change: object, why: str) -> None:
    world, pod = waiting_for_one()
    cycle = take_cycle(world.state, world.config, world.now_ms)
    change(world)  # type: ignore[operator]
    world.say(*cycle)
    verdict = world.verdict("Placed")
    assert (verdict.accepted, verdict.reason) == (False, why)
    assert not pod.placements and world.decided("c") is None


def test_two_cycles_never_give_one_device_to_two_claims() -> None:
    world, _ = waiting_for_one()
    world.resource_claim("c2")
    second = world.claiming("web2", "c2")
    first = take_cycle(world.state, world.config, world.now_ms)
    stolen = next(of for of in first if isinstance(of, k.Placed))
    world.say(*first)
    devices = (DecidedDevices("c2", "uid-c2", stolen.devices[0].allocation),)
    forged = k.Placed(second.uid, second.version, 0, stolen.schedule_state, stolen.pods, devices)
    cycle = next(of for of in first if isinstance(of, k.CycleTaken))
    again = k.CycleTaken(world.state.offset, world.now_ms, cycle.config)
    world.say(again, forged)
    assert world.verdict("Placed").reason == f"device gpu-0 of {DRIVER} is another claim's"


def test_a_device_that_two_claims_have_is_taken_until_neither_has_it() -> None:
    world, pod = waiting_for_one()
    for name in ("x", "y"):  # another program's mistake
        world.resource_claim(name, allocation=on("a", "gpu-0"))
    again = snapshot.restore(snapshot.encode(world.state))
    assert again.devices == world.state.devices, "it doesn't depend on which was seen last"
    world.resource_claim_gone("y")
    world.cycle()
    assert not pod.placements
    world.resource_claim_gone("x")
    world.cycle()
    assert pod.placements == {SLOT: "a"}


def test_a_decision_that_names_no_devices_for_a_claim_without_any_is_void() -> None:
    world, pod = waiting_for_one()
    cycle, placed = take_cycle(world.state, world.config, world.now_ms)
    assert isinstance(placed, k.Placed)
    world.say(cycle, msgspec.structs.replace(placed, devices=()))
    assert world.verdict("Placed").reason == "resource claim c gets no devices" and not pod.placements


def test_devices_of_a_pod_that_gives_its_node_up_are_kept_for_a_moment() -> None:
    world, _ = waiting_for_one()
    world.cycle()
    world.pod_gone("uid-web")
    world.resource_claim("c2")
    second = world.claiming("web2", "c2")
    world.cycle()
    assert not second.placements, "the first claim may have its device without being observed yet"
    world.pass_time(11)
    world.cycle()
    assert second.placements == {SLOT: "a"} and world.decided("c") is None


def test_a_claim_that_loses_its_devices_or_is_gone_gives_the_node_back_and_the_pod_is_placed_again() -> None:
    world, pod = waiting_for_one()
    world.cycle()
    world.resource_claim_gone("c")
    world.control()
    assert not pod.placements and pod.stage in (Stage.PENDING, Stage.RESCHEDULING)
    world.resource_claim("c", uid="uid-c-2")
    world.wait_for_back_offs()
    world.pass_time(11)
    world.cycle()
    assert pod.placements == {SLOT: "a"}
    world.resource_claim("c", uid="uid-c-2", allocation=on("a", "gpu-0"), reserved=("uid-web",))
    assert world.control() == [] or pod.placements
    validate(world.state)


def test_a_claim_that_another_scheduler_gave_devices_elsewhere_gives_the_node_back() -> None:
    world, pod = waiting_for_one()
    world.cycle()
    world.resource_claim("c", allocation=on("z", "gpu-0"))
    (decision,) = world.control()
    assert isinstance(decision, k.StageDecided)
    assert isinstance(decision.facts, NodeClosed) and decision.facts.how == OutOfReach("c")
    assert not pod.placements


@pytest.mark.parametrize("count", [1, 2])
def test_a_pod_takes_room_from_jobs_only_if_its_claim_gets_devices_there(count: int) -> None:
    world = DeviceWorld()
    world.config = CycleConfig(versions=VERSIONS, preemption=Preemption())
    world.node("a", cpu=4)
    world.devices("a", ["gpu-0"])
    job = world.job("ppo", leader=shape(cpu=4), priority=5)
    world.settle()
    world.resource_claim("c", count=count)
    pod = world.claiming("web", "c", priority=9)
    world.cycle()
    if count == 2:
        assert job.stage == Stage.RUNNING and not pod.placements
        return
    assert job.stage == Stage.RESCHEDULING and pod.placements == {SLOT: "a"}
    assert world.decided("c") == on("a", "gpu-0"), "the decision that takes the room names the devices"
    world.apply()
    world.control()
    assert pod.stage == Stage.STARTING
    report = verified(world.entries)
    assert report.sound and report.cycles == report.identical
    validate(world.state)


def test_a_pod_whose_node_is_gone_gets_devices_on_another_one() -> None:
    world, pod = waiting_for_one()
    world.cycle()
    world.node_gone("a", uid=world.state.nodes.uids[world.state.nodes.rows["a"]])
    world.control()
    assert not pod.placements and world.decided("c") == on("a", "gpu-0")
    world.pass_time(11)
    world.node("b", cpu=8)
    world.devices("b", ["gpu-5"])
    world.wait_for_back_offs()
    world.cycle()
    assert pod.placements == {SLOT: "b"} and world.decided("c") == on("b", "gpu-5")


# --- replay -------------------------------------------------------------------------------------------------------


def busy() -> DeviceWorld:
    """A world in which every part of the table of devices has something."""
    world = two_nodes()
    world.devices("", ["net-0"], pool="net", terms=within(ZONE, "z2"))
    world.resource_claim("secret-1", count=2, selectors=(model("H100"),))
    world.resource_claim("secret-2", allocation=on("a", "gpu-0"), reserved=("uid-p9",))
    world.resource_claim("secret-3", count=5)
    world.resource_claim("secret-4", beyond="constraints")
    world.resource_claim("secret-5", selectors=("device.?secret",))
    for at, claims in enumerate((["secret-1"], ["secret-2"], ["secret-3"], ["secret-4"], ["secret-5"], ["secret-6"])):
        world.claiming(f"p{at}", *claims)
    world.claiming("p7", "")
    world.cycle()
    assert world.state.devices.decided and world.state.devices.matches and world.state.devices.unread
    return world


def test_a_snapshot_has_the_devices_and_every_cycle_is_a_function_of_them() -> None:
    world = busy()
    again = snapshot.restore(snapshot.encode(world.state))
    assert snapshot.encode(again) == snapshot.encode(world.state)
    assert again.devices == world.state.devices
    world.resource_claim("new")
    world.claiming("late", "new")
    again = snapshot.restore(snapshot.encode(world.state))
    assert take_cycle(again, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)


def test_a_log_with_devices_is_verified_and_without_names_its_cycles_decide_the_same() -> None:
    world = busy()
    report = verified(world.entries)
    assert report.sound and 0 < report.cycles == report.identical
    names = Pseudonyms()
    for entry in world.entries:
        names.batch(entry.batch)
    names.walk(snapshot.image_of(snapshot.encode(world.state)))
    names.begin()
    entries = [Entry(one.first, one.last, "", names.batch(one.batch)) for one in world.entries]
    report = verified(entries)
    assert report.sound and 0 < report.cycles == report.identical
    state = State()
    for entry in entries:
        apply_entry(state, entry, Changes())
    told = snapshot.encode(state) + snapshot.encode_image(names.walk(snapshot.image_of(snapshot.encode(world.state))))
    told += b"".join(encode_batch(entry.batch) for entry in entries)
    assert state.devices.claims and state.devices.decided
    for hidden in (b"secret", b"gpu.example.com", b"H100", b"gpu-0", b"net-0"):
        assert hidden not in told.replace(b"uid-secret-", b""), hidden


def test_what_happens_to_a_copy_of_a_state_leaves_its_devices_as_they_are() -> None:
    world = busy()
    before = snapshot.encode(world.state)
    copy = private_copy(world.state)
    term = world.terms[k.Watched.RESOURCE_CLAIM]
    say(copy, world.now_ms, [k.ObjectGone(k.Watched.RESOURCE_CLAIM, term, "default", "secret-1", "uid-secret-1")])
    assert snapshot.encode(world.state) == before
    assert ("default", "secret-1") not in copy.devices.claims


# --- an oracle ----------------------------------------------------------------------------------------------------


def choices(free: Mapping[str, str], asked: list[tuple[int, str]]) -> Iterator[set[str]]:
    """Every way in which requests of (count, model; "" for any) get devices of one node."""
    if not asked:
        yield set()
        return
    (count, of_model), *rest = asked
    fitting = [name for name, of in free.items() if of_model in ("", of)]
    for chosen in itertools.combinations(fitting, count):
        left = {name: of for name, of in free.items() if name not in chosen}
        for others in choices(left, rest):
            yield {*chosen, *others}


@pytest.mark.parametrize("seed", range(150))
def test_on_random_clusters_a_pod_is_placed_exactly_where_some_choice_of_devices_exists(seed: int) -> None:
    chance = random.Random(seed)
    world = DeviceWorld()
    nodes = {f"n{at}": {f"g{i}": chance.choice("AB") for i in range(chance.randint(0, 4))} for at in range(3)}
    for name, devices in nodes.items():
        world.node(name, cpu=64)
        if devices:
            world.devices(name, devices)
    left = {name: dict(devices) for name, devices in nodes.items()}
    for at in range(5):
        claims = {
            f"c{at}-{number}": [
                (chance.randint(1, 2), chance.choice(["", "A", "B"])) for _ in range(chance.randint(1, 2))
            ]
            for number in range(chance.randint(1, 2))
        }
        for claim, asked in claims.items():
            requests = [
                DeviceRequest(f"r{i}", CLASS, (model(of),) if of else (), count) for i, (count, of) in enumerate(asked)
            ]
            world.resource_claim(claim, *requests)
        pod = world.claiming(f"p{at}", *claims)
        world.cycle()
        every = [one for asked in claims.values() for one in asked]
        able = {name for name, free in left.items() if next(choices(free, every), None) is not None}
        assert bool(pod.placements) == bool(able), (seed, at)
        if not pod.placements:
            continue
        node = pod.placements[SLOT]
        assert node in able
        for claim, asked in claims.items():
            decided = world.decided(claim)
            assert decided is not None and decided.terms == on(node).terms
            got = [(of.request, of.device.device) for of in decided.devices]
            for i, (count, of_model) in enumerate(asked):
                mine = [device for request, device in got if request == f"r{i}"]
                assert len(mine) == count and all(of_model in ("", left[node][device]) for device in mine)
                for device in mine:
                    del left[node][device]
        if chance.random() < 0.5:  # the cluster shows what was decided
            for claim in claims:
                world.resource_claim(claim, allocation=world.decided(claim), reserved=(f"uid-p{at}",))
            world.pod_to_place(f"p{at}", node, of=with_claims(*claims))
    validate(world.state)
    report = verified(world.entries)
    assert report.sound and report.cycles == report.identical
