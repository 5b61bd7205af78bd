"""Volumes decide on nodes: the cases of kube-scheduler's plugins, and what becomes of jobs and pods with claims."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.events.log import Entry
from arranger.messages.shortages import shortage_text
from arranger.model.job import ScheduleState, Stage
from arranger.model.pod import Attachment, PodShape, PodTraits, Requirement
from arranger.model.reasons import FITS, Reason, ReasonKind
from arranger.model.volumes import NO_PROVISIONER, ONE_POD
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.observed.volumes import out_of_reach
from arranger.projections.state import Changes, State
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.what_if.hypothesis import private_copy, say, supposed
from arranger.scheduling.cluster.neighbours import neighbour_of
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.filters.nodes import Filters
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.scheduling.search.placer import Placer
from tests.unit.replay_worlds import verified
from tests.volumes import HOST, REGION, ZONE, VolumeWorld, using, within
from tests.world import shape

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
_K = ReasonKind


def three_nodes() -> VolumeWorld:
    """Nodes a and b in two zones of a region, and c without labels of zones."""
    world = VolumeWorld()
    world.node("a", cpu=8, labels={HOST: "a", ZONE: "z1", REGION: "r"})
    world.node("b", cpu=8, labels={HOST: "b", ZONE: "z2", REGION: "r"})
    world.node("c", cpu=8, labels={HOST: "c"})
    return world


@pytest.mark.parametrize(("holders", "fits"), [(1, True), (2, False)])
def test_a_quorum_of_which_one_pod_has_a_volume_is_searched_for_completely(holders: int, fits: bool) -> None:
    """Group by group, the second set takes the nodes with GPUs that the third one needs."""
    world = VolumeWorld()
    world.config = msgspec.structs.replace(world.config, search_steps=20_000, search_nodes=200)
    for name, cpu, gpus in (("a", 8, 0), ("b", 8, 0), ("c", 8, 0), ("d", 6, 0), ("e", 4, 2), ("f", 7, 2), ("g", 4, 2)):
        world.node(name, cpu=cpu, gpus=gpus, labels={HOST: name})
    world.storage_class("late")
    world.claim("own", modes=(ONE_POD,), of_class="late")
    world.claim("other", modes=(ONE_POD,), of_class="late")
    worker = shape(cpu=2, gpus=1) if holders == 1 else using("other", cpu=2, gpus=1)
    sets = [("w0", 4, shape(cpu=3)), ("w1", 3 if holders == 1 else 1, worker)]
    sets += [("w2", 2, shape(cpu=2, gpus=1))] if holders == 2 else []
    job = world.job("j", leader=using("own", cpu=1), workers=sets, min_workers=7, policy="Gang")
    world.cycle()
    assert bool(job.placements) == fits


def verdicts(world: VolumeWorld, pod: PodShape) -> dict[str, Reason]:
    """For each node why it refuses a pod of a new job, or `FITS`; every way to ask gives the same."""
    job = world.job("asking", leader=pod)
    view, of = Placer(world.state, world.config, BUILT_IN).view, job.valid_spec.groups[0].shape
    filters, seen = Filters(view, BUILT_IN.filters), neighbour_of(job, 0)
    found = {name: filters.refusal(of, row, seen) for row, name in enumerate(view.names)}
    assert dict(filters.reasons(of, seen)) == Counter(found.values())
    assert [reason == FITS for reason in found.values()] == (filters.room(of, seen) > 0).tolist()
    return found


def fitting(world: VolumeWorld, pod: PodShape) -> str:
    return "".join(name for name, reason in verdicts(world, pod).items() if reason == FITS)


def one_reason(world: VolumeWorld, pod: PodShape) -> Reason:
    """The reason of all nodes."""
    (reason,) = set(verdicts(world, pod).values())
    return reason


# --- VolumeBinding and VolumeZone -----------------------------------------------------------------------------------

Make = Callable[[VolumeWorld], None]


def bound(affinity: object = None, **more: object) -> Make:
    """The claim `data` is bound to a volume."""

    def make(world: VolumeWorld) -> None:
        world.volume("pv", affinity, **more)  # type: ignore[arg-type]
        world.claim("data", "pv")

    return make


def unbound(**of: object) -> Make:
    """The claim `data` has no volume yet, and the class `fast`."""

    def make(world: VolumeWorld) -> None:
        world.storage_class("fast", **of)  # type: ignore[arg-type]
        world.claim("data", of_class="fast")

    return make


NOT_A = ((Requirement(ZONE, "NotIn", ("z1",)),),)
BOTH = ((Requirement(ZONE, "In", ("z1",)), Requirement(REGION, "In", ("r",))), (Requirement(HOST, "In", ("c",)),))

REACHED: dict[str, tuple[Make, str]] = {
    "bound without node affinity": (bound(), "abc"),
    "bound with node affinity": (bound(within(ZONE, "z1")), "a"),
    "a label that a node lacks": (bound(NOT_A), "bc"),
    "requirements are ANDed, terms ORed": (bound(BOTH), "ac"),
    "an affinity without terms": (bound(()), ""),
    "a term without requirements": (bound(((),)), ""),
    "the affinity of a local volume": (bound(within(HOST, "b")), "b"),
    "the zone of the volume": (bound(zones={ZONE: "z2"}), "bc"),
    "several zones": (bound(zones={ZONE: "z1__z2"}), "abc"),
    "a zone where no node is": (bound(zones={ZONE: "z9"}), "c"),
    "zone and region": (bound(zones={ZONE: "z1", REGION: "r"}), "ac"),
    "another region": (bound(zones={ZONE: "z1", REGION: "s"}), "c"),
    "the old label of a zone": (bound(zones={BETA_ZONE: "z1"}), "ac"),
    "waits for its first pod": (unbound(), "abc"),
    "allowed topologies": (unbound(topologies=within(ZONE, "z2")), "b"),
    "several allowed topologies": (unbound(topologies=(*within(ZONE, "z2"), *within(HOST, "c"))), "bc"),
}


@pytest.mark.parametrize("case", REACHED)
def test_a_volume_is_reached_from(case: str) -> None:
    world, (make, nodes) = three_nodes(), REACHED[case]
    make(world)
    assert fitting(world, using("data")) == nodes


@pytest.mark.parametrize("case", REACHED)
def test_a_node_that_doesnt_reach_a_volume_any_more_is_known_without_a_cycle(case: str) -> None:
    world, (make, nodes) = three_nodes(), REACHED[case]
    make(world)
    job = world.job("asking", leader=using("data"))
    shape = job.valid_spec.groups[0].shape
    assert shape.volumes is not None
    to_be_made = not all(reach.bound for reach in shape.volumes.reaches)
    found = {name: out_of_reach(world.state, shape, name) for name in "abc"}
    assert found == {name: "" if name in nodes or to_be_made else "data" for name in "abc"}


def deleted_class(world: VolumeWorld) -> None:
    world.claim("data", of_class="fast")


LACKS: dict[str, tuple[Make, Reason]] = {
    "no claim": (lambda world: None, Reason(_K.CLAIM_MISSING, "data")),
    "a claim of another namespace": (
        lambda world: world.claim("data", namespace="x"),
        Reason(_K.CLAIM_MISSING, "data"),
    ),
    "a claim that is being deleted": (
        lambda world: world.claim("data", "pv", deleting=True),
        Reason(_K.CLAIM_DELETING, "data"),
    ),
    "a lost claim": (lambda world: world.claim("data", "pv", phase="Lost"), Reason(_K.CLAIM_LOST, "data", of="pv")),
    "a volume that is gone": (lambda world: world.claim("data", "pv"), Reason(_K.VOLUME_MISSING, "data", of="pv")),
    "no class": (lambda world: world.claim("data", of_class=""), Reason(_K.CLAIM_UNBOUND, "data")),
    "a claim that will be bound to a volume": (
        lambda world: (world.storage_class("fast"), world.claim("data", "pv", phase="Pending", of_class="fast"))[1],
        Reason(_K.CLAIM_BINDING, "data", of="pv"),
    ),
    "a class that binds immediately": (unbound(waits=False), Reason(_K.CLAIM_UNBOUND, "data", of="fast")),
    "a class that is gone": (deleted_class, Reason(_K.CLASS_MISSING, "data", of="fast")),
    "a class without provisioner": (
        unbound(provisioner=NO_PROVISIONER),
        Reason(_K.NO_PROVISIONER, "data", of="fast"),
    ),
}


@pytest.mark.parametrize("case", LACKS)
def test_no_node_takes_a_pod_whose_claim_lacks_something(case: str) -> None:
    world, (make, reason) = three_nodes(), LACKS[case]
    make(world)
    assert one_reason(world, using("data")) == reason


def test_the_reasons_of_volumes_name_the_claim() -> None:
    world = three_nodes()
    world.volume("pv", within(ZONE, "z1"))
    world.volume("old", zones={ZONE: "z1"})
    world.claim("data", "pv")
    world.claim("old", "old")
    unbound(topologies=within(ZONE, "z1"))(world)
    world.claim("new", of_class="fast")
    assert verdicts(world, using("new"))["b"] == Reason(_K.CLASS_TOPOLOGY, "new")
    assert verdicts(world, using("old"))["b"] == Reason(_K.VOLUME_ZONE, "old")
    world.claim("data", "pv")
    assert verdicts(world, using("data"))["b"] == Reason(_K.VOLUME_AFFINITY, "data")


def test_all_claims_of_a_pod_must_be_reached() -> None:
    world = three_nodes()
    for name, zone in (("one", "z1"), ("two", "z2")):
        world.volume(f"pv-{name}", within(ZONE, zone, "z3"))
        world.claim(name, f"pv-{name}")
    assert fitting(world, using("one")) == "a"
    assert fitting(world, using("one", "two")) == ""


def test_a_claim_whose_volume_is_being_made_for_a_node_holds_its_pod_there() -> None:
    world = three_nodes()
    world.storage_class("fast", topologies=within(ZONE, "z1", "z2"))
    world.claim("data", of_class="fast", selected_node="b")
    assert fitting(world, using("data")) == "b"
    world.claim("data", of_class="fast", selected_node="c")
    assert fitting(world, using("data")) == ""
    world.claim("data", of_class="fast")
    assert fitting(world, using("data")) == "ab"


@pytest.mark.parametrize(
    ("of_class", "nodes"), [("fast", "a"), (None, "b"), ("", "abc"), ("gone", ""), ("by-hand", ""), ("now", "abc")]
)
def test_an_ephemeral_volume_of_a_template_goes_where_its_class_allows(of_class: str | None, nodes: str) -> None:
    world = three_nodes()
    world.storage_class("fast", topologies=within(ZONE, "z1"))
    world.storage_class("usual", topologies=within(ZONE, "z2"), default=True)
    world.storage_class("by-hand", provisioner=NO_PROVISIONER)
    world.storage_class("now", waits=False)
    assert fitting(world, using(ephemeral=[of_class])) == nodes


# --- VolumeRestrictions --------------------------------------------------------------------------------------------


def exclusive() -> VolumeWorld:
    world = three_nodes()
    world.volume("pv")
    world.claim("data", "pv", modes=(ONE_POD,))
    return world


def test_a_claim_for_one_pod_is_in_use_while_a_pod_on_a_node_has_it() -> None:
    world = exclusive()
    assert fitting(world, using("data")) == "abc"
    user = world.user("user", "a", "data")
    assert one_reason(world, using("data")) == Reason(_K.CLAIM_IN_USE, "data")
    world.change_pod(user, phase="Succeeded")
    assert fitting(world, using("data")) == "abc"


def test_a_claim_of_the_same_name_elsewhere_and_one_for_many_pods_are_no_obstacle() -> None:
    world = exclusive()
    world.user("user", "a", "data", namespace="other")
    world.user("waiting", "", "data", phase="Pending")
    assert fitting(world, using("data")) == "abc"
    world.claim("shared", "pv", modes=("ReadWriteMany",))
    world.user("many", "a", "shared")
    assert fitting(world, using("shared")) == "abc"


def test_only_one_worker_gets_a_claim_for_one_pod() -> None:
    world = exclusive()
    job = world.job("train", leader=using(), workers=2, worker=using("data"), min_workers=1)
    other = world.job("other", leader=using("data"), created=1)
    world.cycle()
    assert [group for group, _ in job.placements] == [0, 1] and not other.placements
    assert other.waits is not None
    assert "claim data is in use by another pod" in shortage_text(other.waits.shortage)


# --- NodeVolumeLimits ----------------------------------------------------------------------------------------------


def limited(**limits: int) -> VolumeWorld:
    """Node a attaches two volumes of `csi`; pv-1 to pv-4 are of it, with the claims c-1 to c-4."""
    world = three_nodes()
    world.csi_node("a", **(limits or {"csi": 2}))
    for number in range(1, 5):
        world.volume(f"pv-{number}", driver="csi")
        world.claim(f"c-{number}", f"pv-{number}")
    world.volume("other", driver="csi2")
    world.claim("other", "other")
    return world


@pytest.mark.parametrize(
    ("there", "asked", "fits"),
    [
        ((), ("c-1",), True),
        ((), ("c-1", "c-2"), True),
        ((), ("c-1", "c-2", "c-3"), False),
        (("c-1",), ("c-2",), True),
        (("c-1", "c-2"), ("c-3",), False),
        (("c-1", "c-2"), ("c-2",), True),
        (("c-1", "c-2"), ("c-1", "c-2"), True),
        (("c-1", "c-2"), ("other",), True),
        (("c-1", "c-2", "c-3"), ("c-3",), True),
        (("other",), ("c-1", "c-2"), True),
        (("unknown", "c-1"), ("c-2",), True),
    ],
)
def test_a_node_attaches_so_many_volumes(there: tuple[str, ...], asked: tuple[str, ...], fits: bool) -> None:
    world = limited()
    for claim in there:
        world.user(f"user-{claim}", "a", claim)
    found = verdicts(world, using(*asked))
    assert found["a"] == (FITS if fits else Reason(_K.VOLUME_LIMIT, "csi", needed=2))
    assert found["b"] == found["c"] == FITS


def test_one_volume_under_two_names_and_one_of_two_pods_is_attached_once() -> None:
    world = limited()
    world.volume("pv-copy", driver="csi", handle="pv-1")
    world.claim("copy", "pv-copy")
    world.user("one", "a", "c-1", "c-2")
    world.user("two", "a", "c-1")
    assert fitting(world, using("copy")) == "abc"


def test_a_volume_to_be_made_counts_and_one_limit_of_zero_takes_none() -> None:
    world = limited(csi=1)
    world.storage_class("fast")
    world.claim("new", of_class="fast")
    assert fitting(world, using("new")) == "abc"
    world.user("user", "a", "c-1")
    assert fitting(world, using("new")) == "bc"
    world = limited(csi=0)
    assert fitting(world, using("c-1")) == "bc"


def test_workers_with_volumes_of_their_own_fill_a_node_to_its_limit() -> None:
    world = VolumeWorld()
    world.node("a", cpu=64)
    world.csi_node("a", csi=5)
    world.storage_class("fast")
    job = world.job("train", leader=using(), workers=8, worker=using(ephemeral=["fast", "fast"]), min_workers=1)
    world.cycle()
    assert len([slot for slot in job.placements if slot[0] == 1]) == 2
    assert job.waits is not None and "attaches no more volumes of csi (at most 5)" in shortage_text(job.waits.shortage)


def test_workers_that_share_a_volume_need_it_attached_once() -> None:
    world = VolumeWorld()
    world.node("a", cpu=64)
    world.csi_node("a", csi=1)
    world.volume("pv", driver="csi")
    world.claim("data", "pv", modes=("ReadWriteMany",))
    job = world.job("train", leader=using("data"), workers=8, worker=using("data"), min_workers=8)
    world.cycle()
    assert len(job.placements) == 9
    (shape,) = {of.shape for of in job.valid_spec.groups}
    assert shape.rules is not None and shape.rules.attachments == (Attachment("csi", "/pv"),)


# --- jobs, pods and the projection ---------------------------------------------------------------------------------


def test_a_job_waits_for_its_claim_and_never_fails_for_it() -> None:
    world = three_nodes()
    job = world.job("train", leader=using("data"), workers=1, worker=using("data"))
    world.cycle()
    assert job.waits is not None and not job.waits.shortage.infeasible
    assert "claim data doesn't exist" in shortage_text(job.waits.shortage)
    world.pass_time(3600)
    world.cycle()
    assert job.schedule_state == ScheduleState.UNSCHEDULED
    bound(within(ZONE, "z2"))(world)
    world.cycle()
    assert set(job.placements.values()) == {"b"}
    validate(world.state)


def test_workers_that_share_a_claim_without_a_volume_go_where_it_was_made() -> None:
    world = three_nodes()
    unbound()(world)
    for name, zone in (("a2", "z1"), ("b2", "z2")):
        world.node(name, cpu=8, labels={HOST: name, ZONE: zone, REGION: "r"})
    big = using("data", cpu=6)
    job = world.job("train", leader=big, workers=1, worker=big, min_workers=1)
    world.cycle()
    assert len(set(job.placements.values())) == 2, "nothing restricts them yet"
    world.volume("pv", within(ZONE, "z1"))
    world.claim("data", "pv", of_class="fast")
    for _ in range(3):
        world.control()
        world.wait_for_back_offs()
        world.cycle()
    assert set(job.placements.values()) == {"a", "a2"}
    validate(world.state)


def test_a_pod_to_place_follows_its_claim() -> None:
    world = three_nodes()
    pod = world.pod_to_place("web", of=using("data"))
    world.cycle()
    assert not pod.placements
    bound(within(ZONE, "z1"))(world)
    world.cycle()
    assert pod.stage == Stage.STARTING and set(pod.placements.values()) == {"a"}
    world.claim_gone("data", uid="another")
    assert world.state.volumes.claims, "the deletion of an earlier claim of that name says nothing of this one"


def test_claims_mean_nothing_while_volumes_arent_watched_and_until_they_are_listed() -> None:
    world = three_nodes()
    world.with_volumes(on=False)
    job = world.job("train", leader=using("data"), workers=1, worker=using("data"))
    assert job.valid_spec.groups[0].shape.volumes is None
    pods = world.say(k.claim(k.Watched.POD, "test", with_volumes=True))
    assert not world.state.synced, "which claims the pods name isn't known yet"
    world.say(k.ListingEnded(k.Watched.POD, pods, "2"))
    needs = job.valid_spec.groups[0].shape.volumes
    assert world.state.synced and needs is not None and needs.lack is not None


def test_nothing_is_decided_between_the_first_claim_of_pods_and_the_listing_of_volumes() -> None:
    world = VolumeWorld.__new__(VolumeWorld)
    super(VolumeWorld, world).__init__()
    pods = world.say(k.claim(k.Watched.POD, "test", with_volumes=True))
    world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
    assert not world.state.synced
    world.with_volumes()
    assert world.state.synced


def test_a_listing_that_ended_early_stops_nothing_once_volumes_are_turned_off() -> None:
    world = VolumeWorld.__new__(VolumeWorld)
    super(VolumeWorld, world).__init__()
    world.say(k.claim(k.Watched.VOLUME, "test"))
    pods = world.say(k.claim(k.Watched.POD, "test", with_volumes=True))
    world.say(k.ListingEnded(k.Watched.POD, pods, "1"))
    assert not world.state.synced
    pods = world.say(k.claim(k.Watched.POD, "test"))
    world.say(k.ListingEnded(k.Watched.POD, pods, "2"))
    assert world.state.synced


def test_without_the_right_to_one_kind_volumes_decide_nothing() -> None:
    world = three_nodes()
    job = world.job("train", leader=using("data"), workers=1, worker=using())
    world.say(k.WatchRefused(k.Watched.CSI_NODE, world.terms[k.Watched.CSI_NODE], 403))
    assert world.state.synced and job.valid_spec.groups[0].shape.volumes is None
    world.cycle()
    assert job.placements


def test_a_snapshot_has_the_volumes_and_every_cycle_is_a_function_of_them() -> None:
    world = limited()
    world.storage_class("fast", topologies=within(ZONE, "z1"))
    world.claim("new", of_class="fast")
    world.user("user", "a", "c-1", "c-2")
    world.job("train", leader=using("c-3"), workers=1, worker=using("new", ephemeral=["fast"]))
    content = snapshot.encode(world.state)
    again = snapshot.restore(content)
    assert snapshot.encode(again) == content
    assert take_cycle(again, world.config, world.now_ms) == take_cycle(world.state, world.config, world.now_ms)


def test_a_log_with_volumes_is_verified_and_without_names_its_cycles_decide_the_same() -> None:
    world = limited()
    world.volume("secret-pv", within(ZONE, "z1"), zones={ZONE: "z1"}, driver="csi", handle="secret-handle")
    world.storage_class("secret-class", provisioner="secret-driver", topologies=within(ZONE, "z2"))
    world.claim("secret-own", "secret-pv", of_class="secret-class", modes=(ONE_POD,))
    world.claim("secret-new", of_class="secret-class", selected_node="b")
    world.user("user", "a", "c-1", "c-2", "secret-own")
    for number, claims in enumerate(
        (("secret-own",), ("secret-new",), ("c-3",), ("secret-gone",), ("secret-new", "c-1"))
    ):
        world.job(f"j{number}", leader=using(*claims, ephemeral=["secret-class"]))
    world.cycle()
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
    told = snapshot.encode(state) + b"".join(encode_batch(entry.batch) for entry in entries)
    assert state.volumes.claims and b"secret" not in told.replace(b"uid-secret-", b""), "UIDs are kept"


def test_what_happens_to_a_copy_of_a_state_leaves_its_volumes_and_jobs_as_they_are() -> None:
    world = three_nodes()
    bound(within(ZONE, "z1"))(world)
    job, before = world.job("train", leader=using("data")), snapshot.encode(world.state)
    gone = [
        k.ObjectGone(k.Watched.CLAIM, world.terms[k.Watched.CLAIM], "default", "data", "uid-data"),
        k.ObjectGone(k.Watched.VOLUME, world.terms[k.Watched.VOLUME], "", "pv", "uid-pv"),
    ]
    copy = private_copy(world.state)
    say(copy, world.now_ms, gone)
    for other in (copy, supposed(world.state, gone)):
        needs = other.jobs[job.uid].valid_spec.groups[0].shape.volumes
        assert needs is not None and needs.lack is not None and not other.volumes.claims
        assert snapshot.encode(world.state) == before


def test_a_change_of_a_claim_or_volume_is_news_for_the_jobs_that_name_it_and_no_others() -> None:
    world = three_nodes()
    one, other = world.job("one", leader=using("data")), world.job("other", leader=using("more"))
    bound()(world)
    assert one.uid in world.changes.jobs and other.uid not in world.changes.jobs
    world.volume("pv", within(ZONE, "z1"))
    assert one.uid in world.changes.jobs and other.uid not in world.changes.jobs
    world.storage_class("fast")
    assert other.uid in world.changes.jobs, "a class may concern any claim"
    changes = world.state.scheduling_changes
    world.claim("data", "pv")
    assert world.state.scheduling_changes == changes, "the same again is no news"
    world.claim_gone("data")
    assert one.uid in world.changes.jobs


def test_traits_of_pods_without_claims_are_as_before() -> None:
    assert PodTraits().claims == ()
