"""The reason of an infeasible job is that of the nodes without pods and all healthy, whoever uses them now."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.events.facts import ShortageFacts
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import Dependency, Stage, Topology
from arranger.model.pod import HostPort, PodRules, PodTerm, Requirement
from arranger.model.queue import Preemption
from arranger.model.reasons import ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.in_queue import KeptBy
from arranger.scheduling.search import own_rules
from tests.unit.replay_worlds import explained
from tests.unit.test_explain_failures import page
from tests.world import World, shape


def reason(world: World, job: str = "j") -> ShortageFacts:
    """The recorded reason of a job after one more cycle."""
    world.cycle()
    record = world.state.find_job("default", job)
    assert record is not None and record.waits is not None
    return record.waits.shortage


def job_of(world: World) -> JobRecord:
    job = world.state.find_job("default", "j")
    assert job is not None
    return job


def full(**labels: str) -> World:
    """Two nodes of which a stranger has all GPUs."""
    world = World()
    for name in ("n1", "n2"):
        world.node(name, gpus=8, labels=labels)
        world.pod(f"on-{name}", name, gpus=8)
    return world


def test_in_a_full_cluster_a_selector_that_no_node_has_is_to_blame_and_not_who_has_the_room() -> None:
    world = full(pool="a")
    world.job("j", leader=shape(gpus=8, selector={"pool": "b"}))
    assert shortage_text(reason(world)) == (
        "even an empty cluster of these nodes can't hold it: 0 of 1 required pods fit; "
        "learner: 0 of 2 nodes fit: 2 node selector doesn't match"
    )
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.takers == waiting.holders == ()
    assert waiting.in_queue is not None and waiting.in_queue.kept_by == KeptBy.SELECTION
    assert [one.text for one in waiting.remedies] == ["one more node like n2 with the label pool=b"]


def test_in_a_full_cluster_too_large_a_gang_is_told_how_much_of_it_an_empty_one_would_hold() -> None:
    world = full()
    world.job("j", leader=shape(cpu=1), workers=5, worker=shape(gpus=4), min_workers=5)
    short = reason(world)
    assert (short.infeasible, short.group, short.found, short.asked) == (True, "actors", 5, 6)
    assert shortage_text(short).endswith("2 insufficient nvidia.com/gpu (needs 4, at most 0 free)")
    waiting = explained(world.entries, "j", node="n2").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.node is not None
    beside = "beside 2 pods of its own that the same cycle puts there, if nothing else ran there"
    assert waiting.shortfall.node.refused == f"insufficient nvidia.com/gpu (needs 4, 0 free), {beside}"
    assert waiting.in_queue is not None and waiting.in_queue.kept_by == KeptBy.INFEASIBLE


def test_what_helps_is_still_found_by_what_is_free_now() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.pod("stranger", "n1", gpus=5)
    world.job("j", leader=shape(gpus=9))
    assert reason(world).infeasible
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.closest is not None
    assert waiting.shortfall.closest.text == (
        "would take it with 1 more nvidia.com/gpu (needs 9, has 8 of 8 free), if nothing else ran there"
    )
    assert [one.text for one in waiting.remedies] == [
        "learner asking for 3 nvidia.com/gpu instead of 9",
        "learner asking for 8 nvidia.com/gpu instead of 9; then it waits for room",
        "one more node like n1 with 9 nvidia.com/gpu",
    ]


def test_nodes_that_are_unhealthy_or_cordoned_are_not_to_blame() -> None:
    world = World()
    world.node("n1", gpus=4, ready=False)
    world.node("n2", gpus=4, cordoned=True)
    world.job("j", leader=shape(gpus=8))
    [(only, nodes)] = reason(world).reasons
    assert (only.kind, only.free, nodes) == (ReasonKind.INSUFFICIENT, 4, 2)


def test_of_a_topology_the_domains_of_the_empty_nodes_are_counted() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}", gpus=8, labels={"rack": f"r{number // 2}"})
        world.pod(f"on-n{number}", f"n{number}", gpus=8)
    topologies = {"": Topology(("rack",))}
    world.job("j", leader=shape(cpu=1), workers=3, worker=shape(gpus=8), min_workers=3, topologies=topologies)
    text = shortage_text(reason(world))
    assert "no rack takes all 4 pods of the job (2 racks, at most 3 fit)" in text


def test_the_reason_does_not_change_as_pods_come_and_go() -> None:
    world = full()
    world.job("j", leader=shape(gpus=9))
    assert reason(world).infeasible
    for name in ("n1", "n2"):
        world.pass_time(60)
        world.pod_gone(f"uid-on-{name}")
        assert not any(isinstance(event, k.Waits) for event in world.cycle())


@pytest.mark.parametrize("neighbours", [False, True])
@given(
    gpus=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    used=st.lists(st.integers(0, 8), min_size=5, max_size=5),
    closed=st.lists(st.sampled_from(["open", "cordoned", "unready"]), min_size=5, max_size=5),
    asked=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 6)),
    selects=st.booleans(),
)
def test_it_is_the_reason_of_a_cluster_without_pods(
    neighbours: bool, gpus: list[int], used: list[int], closed: list[str], asked: tuple[int, int, int], selects: bool
) -> None:
    """Where nothing is free now as well, the job waits for the same reason as on the nodes without pods."""
    found = []
    for empty in (False, True):
        world = World()
        for number, amount in enumerate(gpus):
            shut = "open" if empty else closed[number]
            labels = {"half": str(number % 2), "kubernetes.io/hostname": f"n{number}"}
            world.node(f"n{number}", gpus=amount, cordoned=shut == "cordoned", ready=shut != "unready", labels=labels)
            if not empty and used[number]:
                world.pod(f"on-n{number}", f"n{number}", gpus=min(used[number], amount))
        if neighbours:
            world.job("alone", leader=shape(cpu=1, gpus=100, rules=PodRules(host_ports=(HostPort(80),))))
        leader, worker, workers = asked
        selector = {"half": "1"} if selects else {}
        world.job("j", leader=shape(gpus=leader), worker=shape(gpus=worker, selector=selector), workers=workers,
                  min_workers=workers)  # fmt: skip
        world.cycle()
        record = world.state.find_job("default", "j")
        assert record is not None
        found.append(record.waits.shortage if record.waits is not None else None)
    now, without = found
    if now is not None and now.infeasible:
        assert now == without
    else:
        assert without is None or not without.infeasible


def after(world: World) -> None:
    world.job("first", leader=shape(gpus=1))
    world.job("j", leader=shape(gpus=40), after=[Dependency("first")])


def without_queue(world: World) -> None:
    world.queue("other")
    world.job("j", leader=shape(gpus=40), of_queue="nowhere")


def suspended(world: World) -> None:
    world.job("j", leader=shape(gpus=40), suspend=True)


@pytest.mark.parametrize("kept", [after, without_queue, suspended])
def test_a_job_that_waits_for_something_else_first_is_told_that_it_never_fits(kept: Callable[[World], None]) -> None:
    world = full()
    kept(world)
    world.settle()
    answer = explained(world.entries, "j")
    waiting = answer.waiting
    assert waiting is not None and not waiting.position and not waiting.infeasible_since_ms
    never = waiting.never_fits
    assert never is not None and (never.infeasible, never.found, never.asked) == (True, 0, 1)
    [(of, nodes)] = never.reasons
    assert (of.name, of.needed, of.free, nodes) == ("nvidia.com/gpu", 40, 8, 2)
    told = "learner: 0 of 2 nodes fit: 2 insufficient nvidia.com/gpu (needs 40, at most 8 free)"
    [line] = [line for line in page(answer).splitlines() if line.startswith("  infeasible ")]
    assert line == (
        "  infeasible    once that is over, too: even an empty cluster of these nodes can't hold it: "
        f"0 of 1 required pods fit; {told}"
    )


def test_a_job_that_waits_for_something_else_and_would_fit_an_empty_cluster_is_told_nothing_of_it() -> None:
    world = full()
    world.queue("other")
    world.job("first", leader=shape(gpus=1))
    world.job("j", leader=shape(gpus=8), after=[Dependency("first")])
    world.job("q", leader=shape(gpus=8), of_queue="nowhere")
    world.settle()
    for name in "jq":
        waiting = explained(world.entries, name).waiting
        assert waiting is not None and not waiting.position and waiting.never_fits is None


def test_what_the_cycle_says_of_a_job_that_never_fits_is_not_said_twice() -> None:
    world = full()
    world.job("j", leader=shape(gpus=40))
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is not None and waiting.infeasible_since_ms and waiting.never_fits is None
    world.pass_time(world.config.infeasible_grace_ms / 1000 + 1)
    world.cycle()
    waiting = explained(world.entries, "j").waiting
    assert waiting is None or waiting.never_fits is None


# --- rules among its own pods ----------------------------------------------------------------------------------


def _term(key: str) -> PodTerm:
    return PodTerm(key, (Requirement("app", "In", ("j",)),))


def zones(*, used: bool = True, nodes: int = 4, config: CycleConfig | None = None) -> World:
    """Two zones and as many racks, which a stranger fills."""
    world = World(config=config or CycleConfig(search_steps=20_000))
    for number in range(nodes):
        world.node(f"n{number}", gpus=4, labels={"zone": f"z{number % 2}", "rack": f"r{number // 2}"})
        if used:
            world.pod(f"on-n{number}", f"n{number}", gpus=4)
    return world


def own(
    world: World,
    name: str = "j",
    *,
    pods: int = 3,
    gpus: int = 4,
    priority: int = 5,
    of_queue: str = "",
    **rules: tuple[PodTerm, ...],
) -> None:
    worker = shape(gpus=gpus, labels={"app": "j"}, rules=PodRules(**rules))
    world.job(name, workers=pods, worker=worker, min_workers=pods, equals=True, priority=priority, of_queue=of_queue)


def test_more_pods_that_avoid_each_other_by_zone_than_zones_never_fit() -> None:
    world = zones()
    own(world, gpus=1, anti_affinity=(_term("zone"),))
    assert shortage_text(reason(world)) == (
        "even an empty cluster of these nodes can't hold it: 2 of 3 required pods fit; "
        "beside them, actors: 0 of 4 nodes fit: 4 in the same zone as pods it must avoid (anti-affinity)"
    )
    answer = explained(world.entries, "j")
    assert answer.waiting is not None and answer.waiting.infeasible_since_ms
    world.pass_time(world.config.infeasible_grace_ms / 1000 + 1)
    world.settle()
    assert job_of(world).stage == Stage.FAILED


def test_more_pods_that_join_each_other_than_a_rack_takes_never_fit() -> None:
    world = zones()
    own(world, affinity=(_term("rack"),))
    text = shortage_text(reason(world))
    assert text.startswith("even an empty cluster of these nodes can't hold it: 2 of 3 required pods fit; ")
    assert text.endswith(
        "beside them, actors: 0 of 4 nodes fit: 2 not in the same rack as the pods it must join (affinity), "
        "2 insufficient nvidia.com/gpu (needs 4, at most 0 free)"
    )


@pytest.mark.parametrize("rules", [{"anti_affinity": (_term("zone"),)}, {"affinity": (_term("rack"),)}])
def test_as_many_as_zones_or_a_rack_hold_wait_for_room(rules: dict[str, tuple[PodTerm, ...]]) -> None:
    world = zones()
    own(world, pods=2, **rules)
    assert not reason(world).infeasible


def test_pods_that_may_join_those_of_others_wait_for_room() -> None:
    world = zones(used=False)
    world.job("other", leader=shape(gpus=4, labels={"app": "j"}))
    world.cycle()
    own(world, affinity=(_term("rack"),))
    assert not reason(world).infeasible


def test_where_the_search_ends_at_its_bound_nothing_is_proved() -> None:
    world = zones(config=CycleConfig(search_steps=20))
    own(world, gpus=1, anti_affinity=(_term("zone"),))
    assert not reason(world).infeasible


def test_equal_questions_are_searched_for_once_a_change_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    forbid = own_rules.forbid
    monkeypatch.setattr(own_rules, "forbid", lambda *a, **b: (searched.append(1), forbid(*a, **b))[1])
    world = zones()
    own(world, pods=2, anti_affinity=(_term("zone"),))
    for _ in range(3):
        world.cycle()
    assert len(searched) == 1
    world.node("n9", gpus=4, labels={"zone": "z0"}, ready=False)
    world.cycle()
    assert len(searched) == 2


def test_the_searches_of_a_cycle_have_a_bound() -> None:
    """And what was found of a job stays, also if others come before it then."""
    world = zones(config=CycleConfig(search_steps=60))

    def found() -> list[bool]:
        world.cycle()
        return [job.waits is not None and job.waits.shortage.infeasible for job in world.state.jobs.values()]

    for number in range(20):
        own(world, f"j{number:02}", gpus=1, anti_affinity=(_term("zone"),))
    first = found()
    assert 0 < sum(first) < 20
    assert first == sorted(first, reverse=True)
    own(world, "k", gpus=1, priority=9, anti_affinity=(_term("zone"),))
    assert found() == [*first, True]


@given(
    gpus=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    used=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=4),
    pods=st.integers(1, 5),
    asked=st.integers(1, 4),
    apart=st.sampled_from(["", "zone", "rack"]),
    join=st.sampled_from(["", "zone", "rack"]),
)
def test_by_its_rules_a_job_is_infeasible_if_and_only_if_an_empty_cluster_does_not_take_it(
    gpus: list[int], used: list[int], places: list[tuple[int, int]], pods: int, asked: int, apart: str, join: str
) -> None:
    found = []
    for empty in (False, True):
        world = World(config=CycleConfig(search_steps=20_000))
        for number, amount in enumerate(gpus):
            zone, rack = places[number]
            labels = {key: f"{key}{at}" for key, at in (("zone", zone), ("rack", rack)) if at}
            world.node(f"n{number}", gpus=amount, labels=labels)
            if not empty and min(used[number], amount):
                world.pod(f"on-n{number}", f"n{number}", gpus=min(used[number], amount))
        rules = {"anti_affinity": (_term(apart),) if apart else (), "affinity": (_term(join),) if join else ()}
        own(world, pods=pods, gpus=asked, **rules)
        world.cycle()
        found.append(job_of(world))
    full, alone = found
    assert bool(alone.placements) == (alone.waits is None)
    assert bool(full.waits and full.waits.shortage.infeasible) == (not alone.placements)
    if full.waits is not None and full.waits.shortage.infeasible:
        assert alone.waits is not None and full.waits.shortage == alone.waits.shortage


def test_a_job_that_its_rules_keep_out_leaves_the_others_their_shares() -> None:
    """Of 32 GPUs, two queues are entitled to half each, not three to a third."""
    world = World(config=CycleConfig(search_steps=20_000, preemption=Preemption()))
    for number in range(8):
        world.node(f"n{number}", gpus=4, labels={"zone": f"z{number % 2}"})
    for queue in ("x", "y", "z"):
        world.queue(queue)
    for number in range(8):
        world.job(f"runs{number}", leader=shape(cpu=1, gpus=4), of_queue="x" if number < 6 else "y")
    world.settle()
    own(world, of_queue="z", anti_affinity=(_term("zone"),))
    assert reason(world).infeasible
    world.job("gang", workers=2, worker=shape(gpus=4), min_workers=2, equals=True, of_queue="y")
    [decided] = [event for event in world.cycle() if isinstance(event, k.Preempted)]
    assert [world.state.jobs[of.job_uid].valid_spec.queue for of in decided.victims] == ["x", "x"]
