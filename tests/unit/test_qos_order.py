"""The order among pod groups, and what the setting `qos_order` changes in it: QoS classes between equals."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.kube.translate import pod_seen
from arranger.model.pod import QosClass, lowest_qos
from arranger.model.template import qos_class
from arranger.model.tyjob import job_spec
from arranger.projections.consistency import validate
from arranger.replay.explain.ahead import QueueKeys
from arranger.scheduling import BUILT_IN
from arranger.scheduling.queues import waiting as queue
from tests.unit.replay_worlds import verified
from tests.unit.test_translate_pods_to_place import pod
from tests.unit.tyjob_table import tyjob
from tests.world import World, shape

GUARANTEED, BURSTABLE, BEST_EFFORT = QosClass
SMALL = {"cpu": "1", "memory": "1Gi"}


def order_of(world: World) -> list[str]:
    return [job.seen.name for job in queue.in_order(world.state, world.config)]


def by_qos(world: World) -> None:
    world.config = msgspec.structs.replace(world.config, qos_order=True)


GROUPS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
    min_size=2,
)


@given(GROUPS, st.randoms(use_true_random=False))
def test_groups_have_their_turns_by_priority_then_their_first_time_then_their_name(
    groups: dict[str, tuple[int, list[int]]], chance: Any
) -> None:
    """Whatever the order in which their pods were seen, no pod of another group comes between those of one."""
    world = World()
    world.node("n1", cpu=0)
    pods = [(name, number) for name, (_, times) in groups.items() for number in range(len(times))]
    chance.shuffle(pods)
    for name, number in pods:
        priority, times = groups[name]
        asked: dict[str, Any] = {"priority": priority, "created": times[number], "least": len(times)}
        world.pod_to_place(f"{name}-{number}", group=name, **asked)
    expected = sorted(groups, key=lambda name: (-groups[name][0], min(groups[name][1]), name))
    assert order_of(world) == [f"group:{name}" for name in expected]


def test_qos_classes_decide_between_equals_only_where_the_setting_says_so() -> None:
    world = World()
    world.node("n1", cpu=1)
    for created, (name, qos) in enumerate([("late", BEST_EFFORT), ("some", BURSTABLE), ("best", GUARANTEED)]):
        world.pod_to_place(name, qos=qos, created=created)
    world.pod_to_place("high", qos=BEST_EFFORT, created=9, priority=1)
    assert order_of(world) == ["pod:high", "pod:late", "pod:some", "pod:best"]
    by_qos(world)
    assert order_of(world) == ["pod:high", "pod:best", "pod:some", "pod:late"]
    waiting = queue.in_order(world.state, world.config)
    keys = QueueKeys(world.state, waiting, world.config, BUILT_IN)
    assert keys.between(waiting[1], waiting[3]) == "QoS class Guaranteed against BestEffort"


def test_a_cycle_records_the_order_so_that_it_replays() -> None:
    world = World()
    world.node("n1", cpu=1)
    for created, (name, qos) in enumerate([("late", BURSTABLE), ("best", GUARANTEED)]):
        world.pod_to_place(name, qos=qos, created=created)
    by_qos(world)
    world.cycle()
    assert {job.seen.name for job in world.state.jobs.values() if job.placements} == {"pod:best"}
    report = verified(world.entries)
    assert report.sound and 0 < report.cycles == report.identical
    assert all(not job.valid_spec.qos_rank for job in world.state.jobs.values()), "the state has none of it"


def test_a_group_has_the_class_of_the_pod_that_is_guaranteed_least() -> None:
    world = World()
    first = world.pod_to_place("a", group="g", qos=GUARANTEED)
    assert first.valid_spec.qos == GUARANTEED
    world.pod_to_place("b", group="g", qos=BEST_EFFORT)
    assert first.valid_spec.qos == BEST_EFFORT
    world.pod_gone("uid-b")
    assert first.valid_spec.qos == GUARANTEED
    validate(world.state)


def test_a_log_without_classes_is_ordered_as_before() -> None:
    world = World()
    world.node("n1", cpu=1)
    world.pod_to_place("b", created=1)
    world.pod_to_place("a", created=2, of=shape(cpu=2))
    by_qos(world)
    assert order_of(world) == ["pod:b", "pod:a"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{}]}, BEST_EFFORT),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}, BEST_EFFORT),
        ({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, BEST_EFFORT),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, BURSTABLE),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, BURSTABLE),
        ({"containers": [{"resources": {"limits": SMALL}}]}, GUARANTEED),
        ({"containers": [{"resources": {"limits": SMALL, "requests": {"cpu": "1000m"}}}]}, GUARANTEED),
        ({"containers": [{"resources": {"limits": SMALL, "requests": {"cpu": "500m"}}}]}, BURSTABLE),
        ({"containers": [{"resources": {"limits": SMALL}}, {}]}, BURSTABLE),
        ({"containers": [{"resources": {"limits": SMALL}}], "initContainers": [{}]}, BURSTABLE),
        ({"containers": [{}], "resources": {"limits": SMALL}}, GUARANTEED),
    ],
)
def test_a_template_has_the_class_that_kubernetes_gives_its_pods(spec: dict[str, Any], expected: QosClass) -> None:
    assert qos_class(spec) == expected


def test_a_pod_has_the_class_in_its_status_and_a_job_the_lowest_of_its_templates() -> None:
    made = pod()
    assert pod_seen(made, 1, ("arranger",)).asks.qos is None  # type: ignore[union-attr]
    made["status"] = {"qosClass": "Burstable"}
    assert pod_seen(made, 1, ("arranger",)).asks.qos == BURSTABLE  # type: ignore[union-attr]
    assert lowest_qos([GUARANTEED, None]) is None and lowest_qos([GUARANTEED, BURSTABLE]) == BURSTABLE
    job = tyjob()
    job["spec"]["leader"]["template"]["spec"]["containers"][0]["resources"] = {"limits": SMALL}
    job["spec"]["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {}
    assert job_spec(job).qos == BEST_EFFORT
