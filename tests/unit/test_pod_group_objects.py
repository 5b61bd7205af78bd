"""PodGroups: their pods wait for them, and what they say counts from the next cycle on."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.pod_groups import pod_group_seen
from arranger.kube.translate import pod_seen
from arranger.messages.prerequisites import prerequisites_text
from arranger.messages.shortages import shortage_text, waits_text
from arranger.model.job import Stage
from arranger.model.pod import GroupAsked, GroupKind, PodGroupFacts
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.fold import apply_entry
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State
from arranger.replay.explain.awaited import What, awaited
from arranger.replay.explain.waiting import explain_waiting
from arranger.replay.export.pseudonyms import Pseudonyms
from arranger.replay.reading.describe import describe
from arranger.replay.what_if.hypothesis import private_copy, say
from tests.unit.replay_worlds import histories_of, verified
from tests.unit.test_translate_pods_to_place import pod
from tests.world import World, shape

OBJECTS = [GroupKind.COSCHEDULING, GroupKind.VOLCANO, GroupKind.NATIVE]


def waiting(count: int, *, kind: GroupKind = GroupKind.COSCHEDULING, **of_pod: Any) -> tuple[World, JobRecord]:
    """Two nodes of two CPUs, and the pods `p0`, `p1`, …, which name the PodGroup `train`."""
    world = World()
    world.node("n1", cpu=2)
    world.node("n2", cpu=2)
    for number in range(count):
        job = member(world, number, group_kind=kind, **of_pod)
    return world, job


def member(world: World, number: int, node: str = "", **of_pod: Any) -> JobRecord:
    asked = {"group_kind": GroupKind.COSCHEDULING, **of_pod}
    return world.pod_to_place(f"p{number}", node, group="train", **asked)


def bind(world: World, job: JobRecord, *numbers: int) -> None:
    for number in numbers:
        member(world, number, job.placements[job.slots.members[f"uid-p{number}"]])


@pytest.mark.parametrize("kind", OBJECTS)
def test_pods_wait_with_a_reason_for_a_group_that_isnt_there(kind: GroupKind) -> None:
    world, job = waiting(2, kind=kind)
    world.cycle()
    assert not job.placements and awaited(world.state, job).what == What.POD_GROUP
    assert prerequisites_text(world.state, job) == f"waits for PodGroup train of {kind}, which doesn't exist: create it"
    world.pod_group("train", 2, kind=kind)
    assert prerequisites_text(world.state, job) == ""
    world.cycle()
    assert (job.stage, len(job.placements)) == (Stage.STARTING, 2)
    validate(world.state)


def test_pods_name_the_versions_in_which_a_group_of_kubernetes_isnt_served() -> None:
    world = World()
    job = member(world, 0, group_kind=GroupKind.NATIVE)
    world.say(k.WatchRefused(k.Watched.NATIVE_GROUP, world.say(k.WatchClaimed(k.Watched.NATIVE_GROUP, "test")), 404))
    words = "the API server has no such kind as v1beta1, v1alpha3 or v1alpha2 (404)"
    assert words in prerequisites_text(world.state, job)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (404, "the API server has no such kind (404); install its CustomResourceDefinition or API"),
        (403, "the API server doesn't let Arranger list them (403)"),
    ],
)
def test_pods_say_why_no_group_can_be_seen(code: int, words: str) -> None:
    world, job = waiting(1)
    kind = k.Watched.COSCHEDULING_GROUP
    term = world.say(k.WatchClaimed(kind, "test"))
    world.say(k.WatchRefused(kind, term, code))
    assert prerequisites_text(world.state, job) == f"waits for PodGroup train of scheduling.x-k8s.io: {words}"
    other = world.pod_to_place("alone")
    world.cycle()
    assert other.placements and not job.placements, "nobody else waits for it"


def test_no_decision_is_made_before_the_groups_are_listed() -> None:
    world, _ = waiting(1)
    term = world.say(k.WatchClaimed(k.Watched.VOLCANO_GROUP, "test"))
    assert not world.state.synced
    world.say(k.ListingEnded(k.Watched.VOLCANO_GROUP, term, "1"))
    assert world.state.synced


def test_the_groups_of_a_kind_that_is_uninstalled_are_unknown() -> None:
    world, job = waiting(3)
    world.pod_group("train", 2)
    world.pod_group("other", 2, kind=GroupKind.VOLCANO)
    world.cycle()
    world.say(k.WatchRefused(k.Watched.COSCHEDULING_GROUP, world.terms[k.Watched.COSCHEDULING_GROUP], 404))
    assert not job.placements and job.stage == Stage.PENDING
    world.wait_for_late_pods()
    assert world.used("n1") == world.used("n2") == 0
    assert [of.name for of in world.state.pod_groups.values()] == ["other"]
    validate(world.state)


@pytest.mark.parametrize(("least", "placed"), [(4, 4), (5, 0), (3, 4)])
def test_a_minimum_counts_from_the_next_cycle_on(least: int, placed: int) -> None:
    world, job = waiting(4)
    world.pod_group("train", 5)
    world.cycle()
    assert not job.placements
    assert prerequisites_text(world.state, job) == "waits for 1 more pod of its group, which needs 5 and has 4"
    world.pod_group("train", least)
    world.cycle()
    assert len(job.placements) == placed
    validate(world.state)


def test_a_minimum_that_is_raised_before_any_pod_was_bound_takes_the_nodes_back() -> None:
    world, job = waiting(3)
    world.pod_group("train", 2)
    world.cycle()
    assert len(job.placements) == 3
    world.pod_group("train", 5)
    assert not job.placements and job.stage == Stage.PENDING
    world.wait_for_late_pods()
    assert world.used("n1") == 0
    validate(world.state)


def test_a_placement_on_an_earlier_minimum_is_outdated() -> None:
    world, job = waiting(2)
    world.pod_group("train", 2)
    before = job.version
    world.pod_group("train", 3)
    assert job.version > before
    world.pod_group("train", 3)
    assert job.version == world.state.offset - 1, "what repeats itself changes nothing"


def test_a_running_group_keeps_its_nodes_without_its_object() -> None:
    world, job = waiting(2)
    world.pod_group("train", 2)
    world.cycle()
    bind(world, job, 0, 1)
    assert job.stage == Stage.RUNNING
    world.pod_group_gone("train")
    assert job.stage == Stage.RUNNING and len(job.bound) == 2
    member(world, 2)
    world.cycle()
    assert len(job.placements) == 2 and awaited(world.state, job).what == What.POD_GROUP
    world.pod_group("train", 2, uid="another")
    world.cycle()
    assert len(job.placements) == 3
    validate(world.state)


def running(least: int, kind: GroupKind = GroupKind.COSCHEDULING) -> tuple[World, JobRecord]:
    """Three pods that run, of a group that needs so many."""
    world, job = waiting(3, kind=kind, least=least)
    if kind:
        world.pod_group("train", least, kind=kind)
    world.cycle()
    for number in range(3):
        member(world, number, job.placements[job.slots.members[f"uid-p{number}"]], group_kind=kind, least=least)
    assert job.stage == Stage.RUNNING
    return world, job


@pytest.mark.parametrize("kind", [GroupKind.LABELS, *OBJECTS])
def test_a_group_that_has_begun_is_no_longer_asked_for_its_minimum(kind: GroupKind) -> None:
    """Its controller made it smaller, and then one of the pods that are left fails and is made again."""
    world, job = running(3, kind)
    for number in (1, 2):
        world.pod_gone(f"uid-p{number}")
    assert job.stage == Stage.RUNNING and prerequisites_text(world.state, job) == ""
    member(world, 3, group_kind=kind, least=3)
    world.cycle()
    assert len(job.placements) == 2 and prerequisites_text(world.state, job) == ""
    for number in (4, 5):
        member(world, number, group_kind=kind, least=3)
    world.cycle()
    assert len(job.placements) == 4, "it grows again"
    assert job.valid_spec.min_workers == 3
    validate(world.state)
    assert verified(world.entries).sound


@pytest.mark.parametrize("kind", [GroupKind.LABELS, *OBJECTS])
def test_a_group_whose_pods_have_all_left_begins_again(kind: GroupKind) -> None:
    world, job = running(3, kind)
    world.pod_gone("uid-p1")
    member(world, 3, group_kind=kind, least=3)
    world.pod_gone("uid-p2")
    world.pod_gone("uid-p0")
    assert (job.stage, job.valid_spec.min_workers) == (Stage.PENDING, 3)
    assert "needs 3 and has 1" in prerequisites_text(world.state, job)
    world.cycle()
    assert not job.placements
    validate(world.state)


def test_a_reason_names_the_pods_that_lack_nodes_by_their_own_names() -> None:
    """Not by the number of a shape, which is no pod's name."""
    world, job = waiting(2)
    for number in (2, 3, 4):
        member(world, number, of=shape(cpu=3))
    world.pod_group("train", 5)
    world.cycle()
    assert "beside them, p2 and 2 like it: 0 of 2 nodes fit" in waits_text(job)
    asked = explain_waiting(histories_of(world.entries, "group:train").stories[job.uid], job)
    assert asked is not None and "p2 and 2 like it: 0 of 2 nodes fit" in asked.why
    world.pod_gone("uid-p3")
    world.pod_gone("uid-p4")
    world.pod_group("train", 3)
    world.cycle()
    assert "beside them, p2: 0 of 2 nodes fit" in waits_text(job)


def test_a_task_of_a_group_that_has_begun_may_have_lost_its_pods() -> None:
    world, _ = waiting(2, kind=GroupKind.VOLCANO, task="worker")
    job = member(world, 2, group_kind=GroupKind.VOLCANO, task="ps")
    world.pod_group("train", 3, kind=GroupKind.VOLCANO, tasks=(("ps", 1), ("worker", 2)))
    world.cycle()
    for number, task in enumerate(("worker", "worker", "ps")):
        node = job.placements[job.slots.members[f"uid-p{number}"]]
        member(world, number, node, group_kind=GroupKind.VOLCANO, task=task)
    assert job.stage == Stage.RUNNING
    world.pod_gone("uid-p2")
    world.pod_gone("uid-p1")
    member(world, 3, group_kind=GroupKind.VOLCANO, task="worker")
    world.cycle()
    assert len(job.placements) == 2 and prerequisites_text(world.state, job) == ""
    validate(world.state)


def test_the_end_of_an_earlier_group_of_the_name_says_nothing() -> None:
    world, job = waiting(1)
    world.pod_group("train", 1, uid="second")
    world.pod_group_gone("train", uid="first")
    assert job.valid_spec.group_known


def test_a_group_without_an_object_isnt_running_yet_whoever_bound_its_pods() -> None:
    world, _ = waiting(2)
    job = member(world, 0, "n1")
    assert job.stage == Stage.STARTING
    world.pod_group("train", 2)
    assert job.stage == Stage.STARTING
    member(world, 1, "n1")
    assert job.stage == Stage.RUNNING
    validate(world.state)


def test_the_queue_and_the_priority_of_a_group_go_before_those_of_its_pods() -> None:
    world, job = waiting(2, priority=3, of_queue="slow")
    world.pod_group("train", 2, queue="fast", priority=7)
    assert (job.valid_spec.queue, job.valid_spec.priority) == ("fast", 7)
    world.pod_group("train", 2)
    assert (job.valid_spec.queue, job.valid_spec.priority) == ("slow", 3)


def test_a_group_waits_for_the_value_of_its_class() -> None:
    world, job = waiting(2, priority=3)
    world.pod_group("train", 2, priority_class="high")
    world.cycle()
    assert not job.placements
    assert prerequisites_text(world.state, job).startswith("waits for PriorityClass high, which doesn't exist")
    world.priority_class("high", 1000)
    assert job.valid_spec.priority == 1000
    member(world, 2, priority=3)
    world.cycle()
    assert (job.valid_spec.priority, len(job.placements)) == (1000, 3)
    validate(world.state)


def test_a_group_isnt_tried_while_the_nodes_together_have_less_free_than_it_says() -> None:
    """As with Coscheduling, no room is taken back or reserved for it then, whatever its pods request."""
    world, job = waiting(2)
    world.job("low", leader=shape(cpu=1), workers=1, worker=shape(cpu=1), priority=-1)
    world.cycle()
    other = world.pod_to_place("alone")
    world.pod_group("train", 2, priority=5, min_resources=(("cpu", 3000),))
    assert not job.placements
    world.cycle()
    assert not job.placements and job.waits is not None and other.placements, "it blocks nobody"
    words = "all nodes together have less cpu free than the minResources of its group (needs 3, 2 free)"
    assert words in shortage_text(job.waits.shortage)
    assert not world.state.reservations
    world.node("n3", cpu=2)
    world.cycle()
    assert len(job.placements) == 2
    validate(world.state)
    assert verified(world.entries).sound


def racks() -> World:
    """Two nodes of two CPUs in the rack `a`, and one of three in `b`."""
    world = World()
    for name, cpu, rack in (("n1", 2, "a"), ("n2", 2, "a"), ("n3", 3, "b")):
        world.node(name, cpu=cpu, labels={"rack": rack})
    return world


def test_the_pods_of_a_group_with_a_topology_constraint_are_in_one_domain_whenever_they_come() -> None:
    world = racks()
    for number in range(4):
        job = member(world, number, group_kind=GroupKind.NATIVE)
    world.pod_group("train", 2, kind=GroupKind.NATIVE, topology="rack")
    world.cycle()
    assert sorted(job.placements.values()) == ["n1", "n1", "n2", "n2"], "b has no room for all of them"
    for number in range(4):
        member(world, number, job.placements[job.slots.members[f"uid-p{number}"]], group_kind=GroupKind.NATIVE)
    member(world, 4, group_kind=GroupKind.NATIVE)
    world.cycle()
    assert len(job.placements) == 4, "the fifth waits, although b has room"
    world.node("n4", cpu=1, labels={"rack": "a"})
    world.cycle()
    assert len(job.placements) == 5
    validate(world.state)
    assert verified(world.entries).sound


def test_a_group_that_no_domain_holds_waits_and_says_so() -> None:
    world = racks()
    for number in range(5):
        job = member(world, number, group_kind=GroupKind.NATIVE)
    world.pod_group("train", 5, kind=GroupKind.NATIVE, topology="rack")
    world.cycle()
    assert not job.placements and job.waits is not None
    assert "rack" in shortage_text(job.waits.shortage)


def test_groups_of_one_name_and_of_several_kinds_are_several() -> None:
    world = World()
    uids = [world.pod_to_place(f"a{n}", group="train", group_kind=kind).uid for n, kind in enumerate(GroupKind)]
    assert uids == [
        "group:default/train",
        "group:default/train/scheduling.x-k8s.io",
        "group:default/train/scheduling.volcano.sh",
        "group:default/train/scheduling.k8s.io",
    ]
    world.pod_group("train", 2, kind=GroupKind.VOLCANO)
    known = [world.state.jobs[uid].valid_spec.group_known for uid in uids]
    assert known == [True, False, True, False]
    validate(world.state)


@given(
    st.permutations(["p0", "p1", "p2", "group", "gone", "again"]),
    st.integers(1, 4),
    st.sampled_from(OBJECTS),
)
def test_the_order_of_a_group_and_its_pods_makes_no_difference(order: list[str], least: int, kind: GroupKind) -> None:
    """What is there at the end decides, however it came; and snapshots and every order of the fold agree."""
    world = World()
    for number in (1, 2):
        world.node(f"n{number}", cpu=2)
    for step in order:
        if step.startswith("p"):
            world.pod_to_place(step, group="train", group_kind=kind)
        elif step == "gone":
            world.pod_group_gone("train", kind=kind, uid="first")
        else:
            world.pod_group("train", least, kind=kind, uid="first" if step == "group" else "again")
        world.cycle()
        validate(world.state)
        restored = snapshot.restore(snapshot.encode(world.state))
        assert snapshot.digest(restored) == world.digest()
    job = world.state.jobs[f"group:default/train/{kind}"]
    there = f"group:default/train/{kind}" in world.state.pod_groups
    assert there == job.valid_spec.group_known == _left(order)
    world.wait_for_late_pods()
    world.wait_for_back_offs()
    world.cycle()
    assert len(job.placements) == (3 if there and least <= 3 else 0)


def _left(order: list[str]) -> bool:
    """Whether the object that came last wasn't the one whose deletion was seen after it."""
    present = ""
    for step in order:
        if step in ("group", "again"):
            present = step
        elif step == "gone" and present == "group":
            present = ""
    return bool(present)


POD = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 1),
        "preempts": st.booleans(),
        "created": st.integers(0, 2),
        "of_queue": st.sampled_from(["", "fast"]),
        "least": st.integers(1, 2),
        "of": st.sampled_from([shape(cpu=1), shape(cpu=2)]),
    }
)


@given(st.lists(POD, min_size=2, max_size=7), st.randoms(use_true_random=False))
def test_a_group_is_what_its_pods_are_whoever_left_before(pods: list[dict[str, Any]], chance: random.Random) -> None:
    world = World()
    for number, of_pod in enumerate(pods):
        world.pod_to_place(f"p{number}", group="train", **of_pod)
    left = list(enumerate(pods))
    while len(left) > 1:
        number, _ = left.pop(chance.randrange(len(left)))
        world.pod_gone(f"uid-p{number}")
        job = world.state.jobs["group:default/train"]
        spec, (_, oldest) = job.valid_spec, min(left, key=lambda of: (of[1]["created"], f"p{of[0]}"))
        assert (spec.queue, job.seen.created_ms) == (oldest["of_queue"], oldest["created"])
        assert spec.priority == min(of["priority"] for _, of in left)
        assert spec.preempts == all(of["preempts"] for _, of in left)
        assert spec.min_workers == max(of["least"] for _, of in left)
        slots = list(job.slots.members.values())
        most = max(group for group, _ in slots)
        counts = [max([index + 1 for of, index in slots if of == group], default=0) for group in range(1, most + 1)]
        assert [group.count for group in spec.groups[1:]] == counts
        assert sum(counts) - len(job.slots.given_up) == len(left)
        validate(world.state)


def test_a_log_with_pod_groups_verifies_and_its_export_decides_as_before() -> None:
    world, job = waiting(3)
    world.pod_group("train", 3, queue="default", priority_class="high", uid="u")
    world.priority_class("high", 5, uid="v")
    world.cycle()
    bind(world, job, 0, 1, 2)
    assert job.stage == Stage.RUNNING
    report = verified(world.entries)
    assert report.sound and 0 < report.cycles == report.identical
    names = Pseudonyms()
    for entry in world.entries:
        names.batch(entry.batch)
    names.begin()
    state, changes = State(), Changes()
    for entry in world.entries:
        apply_entry(state, Entry(entry.first, entry.last, "", names.batch(entry.batch)), changes)
    assert all(of.accepted for of in changes.verdicts)
    (job,) = state.jobs.values()
    assert job.uid == "group:ns-0001/g-0001/scheduling.x-k8s.io" and job.stage == Stage.RUNNING
    assert b"train" not in snapshot.encode(state) and b"high" not in snapshot.encode(state)


# --- from JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "spec", "asked"),
    [
        ({"labels": {"scheduling.x-k8s.io/pod-group": "a"}}, {}, GroupAsked("a", 0, GroupKind.COSCHEDULING)),
        ({"annotations": {"scheduling.k8s.io/group-name": "a"}}, {}, GroupAsked("a", 0, GroupKind.VOLCANO)),
        ({"annotations": {"scheduling.volcano.sh/group-name": "a"}}, {}, GroupAsked("a", 0, GroupKind.VOLCANO)),
        ({}, {"schedulingGroup": {"podGroupName": "a"}}, GroupAsked("a", 0, GroupKind.NATIVE)),
        ({"labels": {"scheduling.x-k8s.io/pod-group": ""}}, {"schedulingGroup": {}}, None),
    ],
)
def test_a_pod_names_its_group(metadata: dict[str, Any], spec: dict[str, Any], asked: GroupAsked | None) -> None:
    seen = pod_seen(pod(metadata=metadata, **spec), 1, ("arranger",))
    assert seen.asks is not None and seen.asks.group == asked
    if asked is not None:
        assert describe(seen, State()).endswith(f"in the PodGroup a of {asked.kind}")


OF_QUEUE = {"arranger.dev/queue": "q"}
RACK = {"topology": [{"key": "rack"}]}
GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}


def group(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "3", **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "made", "facts"),
    [
        (GroupKind.COSCHEDULING, group({"minMember": 3}), PodGroupFacts(3)),
        (
            GroupKind.COSCHEDULING,
            group({"minMember": 3}, annotations=OF_QUEUE),
            PodGroupFacts(3, "q"),
        ),
        (GroupKind.COSCHEDULING, group({}), PodGroupFacts(1)),
        (
            GroupKind.COSCHEDULING,
            group({"minMember": 3, "minResources": {"memory": "1Gi", "cpu": 1, "bad": "x", "none": "0"}}),
            PodGroupFacts(3, min_resources=(("cpu", 1000), ("memory", 1 << 30))),
        ),
        (GroupKind.VOLCANO, group({"minMember": 3, "minResources": {"cpu": "1"}}), PodGroupFacts(3)),
        (GroupKind.COSCHEDULING, group({"minMember": -1}), PodGroupFacts(1)),
        (
            GroupKind.VOLCANO,
            group({"minMember": 2, "queue": "q", "priorityClassName": "high"}),
            PodGroupFacts(2, "q", "high"),
        ),
        (
            GroupKind.VOLCANO,
            group({"minMember": 5, "minTaskMember": {"worker": 3, "ps": 2, "none": 0}}),
            PodGroupFacts(5, tasks=(("ps", 2), ("worker", 3))),
        ),
        (
            GroupKind.NATIVE,
            group({**GANG, "priority": 9}),
            PodGroupFacts(4, priority=9),
        ),
        (GroupKind.NATIVE, group({"schedulingPolicy": {"basic": {}}}), PodGroupFacts(1)),
        (GroupKind.NATIVE, group({**GANG, "schedulingConstraints": RACK}), PodGroupFacts(4, topology="rack")),
    ],
)
def test_a_group_says_what_it_needs(kind: GroupKind, made: dict[str, Any], facts: PodGroupFacts) -> None:
    assert pod_group_seen(kind, made, 7) == k.PodGroupSeen(7, "ns", "a", "u", "3", kind, facts)


@pytest.mark.parametrize("kind", list(GroupKind)[1:])
def test_a_group_says_who_makes_its_pods(kind: GroupKind) -> None:
    def of(name: str, version: str, made: str, **more: bool) -> dict[str, Any]:
        return {"apiVersion": version, "kind": made, "name": name, **more}

    def owner(*references: dict[str, Any]) -> tuple[str, str]:
        seen = pod_group_seen(kind, group(GANG, ownerReferences=list(references)), 7)
        return seen.owner, seen.owner_kind

    assert owner(of("x", "v1", "Node"), of("a", "kubeflow.org/v1", "TFJob", controller=True)) == (
        "a",
        "TFJob.v1.kubeflow.org",
    )
    assert owner(of("x", "v1", "ConfigMap")) == ("x", "ConfigMap.v1")
    assert owner() == ("", "")


def test_the_events_of_a_group_are_told_in_words() -> None:
    facts = PodGroupFacts(2, "q", "high", 7, "rack", (("ps", 1),), (("cpu", 2000),))
    seen = k.PodGroupSeen(1, "ns", "a", "u", "3", GroupKind.VOLCANO, facts)
    words = "of scheduling.volcano.sh: needs 2 pods at once, queue q, PriorityClass high, priority 7"
    assert describe(seen, State()) == f"{words}, all on nodes with the same rack, 1 of its task ps, 2 cpu free"
    phases = ((GroupKind.NATIVE, "False", "scheduled: False"), (GroupKind.VOLCANO, "Inqueue", "phase Inqueue"))
    for kind, phase, words in phases:
        seen = k.PodGroupSeen(1, "ns", "a", "u", "3", kind, PodGroupFacts(2), phase)
        assert describe(seen, State()) == f"of {kind}: needs 2 pods at once, {words}"
    assert (
        describe(k.ObjectGone(k.GROUP_WATCHES[GroupKind.VOLCANO], 1, "ns", "a", "u"), State())
        == "of scheduling.volcano.sh: gone"
    )


def test_what_happens_to_a_copy_of_a_state_leaves_its_pod_groups_as_they_are() -> None:
    world = World()
    world.pod_group("train", 3)
    before, copy = snapshot.encode(world.state), private_copy(world.state)
    term = world.watch_groups(GroupKind.COSCHEDULING)
    say(
        copy,
        world.now_ms,
        [k.ObjectGone(k.GROUP_WATCHES[GroupKind.COSCHEDULING], term, "default", "train", "uid-train")],
    )
    assert not copy.pod_groups and snapshot.encode(world.state) == before
