"""Topologies: pods that belong together get nodes of one domain, in the tightest level where they fit."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.messages.shortages import shortage_text
from arranger.model.job import PlacedPods, ScheduleState, Topology, TopologyMode, TopologyScope
from arranger.model.pod import Phase, PodRules, PodShape, PodTerm, Requirement
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.replay.reading.edits import changed
from tests.exhaustive import Exhaustive, searching
from tests.one_by_one import OneByOne, OneJob
from tests.unit.replay_worlds import explained
from tests.world import World, shape

BY_CHANCE = settings(max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
RACK, BLOCK = "x.io/rack", "x.io/block"
REQUIRED, PREFERRED = TopologyMode.REQUIRED, TopologyMode.PREFERRED
JOB, SET, GROUP = TopologyScope.JOB, TopologyScope.SET, TopologyScope.GROUP
WHOLE = shape(gpus=8)


def cluster(busy: Iterable[int] = (), *, nodes: int = 64, rack: int = 8, block: int = 32) -> World:
    """64 nodes of 8 GPUs, in 8 racks and 2 blocks; others use a GPU of the busy ones."""
    world = World(config=searching())
    for number in range(nodes):
        labels = {RACK: f"r{number // rack}", BLOCK: f"b{number // block}"}
        world.node(f"n{number:02}", cpu=64, gpus=8, labels=labels)
    for number in busy:
        world.pod(f"s{number}", f"n{number:02}", gpus=1)
    return world


def submitted(
    world: World,
    count: int,
    *,
    within: TopologyScope = GROUP,
    mode: TopologyMode = REQUIRED,
    levels: Sequence[str] = (RACK, BLOCK),
    least: int | None = None,
    leader: PodShape | None = None,
    **more: object,
) -> JobRecord:
    """A job of a small learner, and workers that need whole nodes: within Group, in worker groups of four."""
    topology = Topology(tuple(levels), mode, within)
    return world.job(
        "ppo", leader=leader or shape(cpu=1), workers=[("actors", count, WHOLE)],
        min_workers=count if least is None else least,
        topologies={"" if within == JOB else "actors": topology},
        group_size=4 if within == GROUP else 1, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def numbers(job: JobRecord) -> list[int]:
    """The numbers of the workers' nodes, by index."""
    return [int(node[1:]) for (group, _), node in sorted(job.placements.items()) if group]


def waits(job: JobRecord) -> str:
    assert job.waits is not None
    return shortage_text(job.waits.shortage)


#: Three nodes of each rack are free, 12 of each block.
THREE_A_RACK = [number for number in range(64) if number % 8 >= 3]


# --- groups -------------------------------------------------------------------------------------------------------


def test_each_group_gets_a_rack_and_ranks_are_neighbours() -> None:
    world = cluster()
    job = submitted(world, 32)
    world.cycle()
    assert numbers(job) == list(range(32))


def test_a_group_goes_to_the_rack_with_the_least_room_for_it() -> None:
    world = cluster([0, *range(8, 12), *range(16, 21), *range(32, 64)])  # 7, 4 and 3 of three racks are free
    job = submitted(world, 4, leader=shape(cpu=1, selector={BLOCK: "b1"}))
    world.cycle()
    assert numbers(job) == [12, 13, 14, 15]


def test_the_next_group_goes_near_the_one_before_it_rather_than_where_the_least_room_is() -> None:
    world = cluster([*range(4), *range(32, 36)])  # a rack of each block has room for one group
    job = submitted(world, 8)
    world.cycle()
    assert numbers(job) == [4, 5, 6, 7, 8, 9, 10, 11]


def test_where_no_rack_has_room_a_group_goes_to_one_block_in_few_racks() -> None:
    for mode in (REQUIRED, PREFERRED):
        world = cluster(THREE_A_RACK)
        job = submitted(world, 8, mode=mode)
        world.cycle()
        assert numbers(job) == [0, 1, 2, 8, 16, 17, 18, 9]


def test_a_group_that_no_domain_takes_waits_with_the_reason_or_goes_anywhere_if_that_is_preferred() -> None:
    world = cluster(THREE_A_RACK)
    job = submitted(world, 4, levels=[RACK])
    world.cycle()
    assert not job.placements and job.schedule_state == ScheduleState.UNSCHEDULED
    assert waits(job) == (
        "1 of 5 required pods fit; beside it, no rack takes all 4 pods of group 0 of actors (8 racks, at most 3 fit); "
        "for one pod of actors alone, 24 of 64 nodes fit: 40 insufficient nvidia.com/gpu (needs 8, at most 7 free)"
    )
    world.job_gone(job)
    job = submitted(world, 4, levels=[RACK], mode=PREFERRED)
    world.cycle()
    assert numbers(job) == [0, 1, 2, 8]


def test_where_the_nodes_together_have_no_room_the_reason_says_that() -> None:
    world = cluster(range(62))
    job = submitted(world, 4, within=SET)
    world.cycle()
    assert job.waits is not None and job.waits.shortage.topology is None
    assert waits(job).startswith(
        "3 of 5 required pods fit; beside them, actors: 0 of 64 nodes fit: 64 insufficient nvidia.com/gpu"
    )


def test_nodes_without_the_label_are_in_no_domain() -> None:
    world = World(config=searching())
    for number in range(6):
        world.node(f"n{number}", gpus=8, labels={RACK: "a"} if number > 2 else {})
    job = submitted(world, 4, levels=[RACK, BLOCK])
    world.cycle()
    assert not job.placements and "(1 rack, at most 3 fit, no node has the label x.io/block)" in waits(job)
    assert job.waits is not None and job.waits.shortage.infeasible


@pytest.mark.parametrize("within", TopologyScope)
def test_pods_that_fit_only_where_no_domain_is_get_no_nodes(within: TopologyScope) -> None:
    world = cluster(range(64))
    for number in range(64, 68):
        world.node(f"n{number}", cpu=64, gpus=8)
    job = submitted(world, 4, within=within, least=0)
    world.cycle()
    assert numbers(job) == [] and not world.state.verdicts["Placed"][1]


def test_a_quorum_that_no_empty_domain_holds_is_infeasible() -> None:
    for within, pods, infeasible in (
        (GROUP, 8, False),
        (SET, 8, False),
        (SET, 12, True),
        (JOB, 8, False),
        (JOB, 12, True),
    ):
        world = cluster([0, 9, 18, 27, 36, 45, 54, 63])
        job = submitted(world, pods, within=within, levels=[RACK])
        world.cycle()
        short = job.waits.shortage if job.waits is not None else None
        assert (short is not None and short.infeasible) == infeasible, (within, pods)


# --- sets and jobs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [SET, JOB])
def test_a_set_or_a_job_gets_the_tightest_domain_that_takes_all_of_it(within: TopologyScope) -> None:
    for count, found in ((8, 1), (9, 2), (32, 4), (33, 5)):
        world = cluster()
        job = submitted(world, count, within=within, mode=PREFERRED)
        world.cycle()
        racks, blocks = {number // 8 for number in numbers(job)}, {number // 32 for number in numbers(job)}
        assert (len(racks), len(blocks)) == (found, 1 + (count > 32))
        if within == JOB:
            assert int(job.placements[0, 0][1:]) // 8 in racks


def test_a_job_is_placed_where_all_of_it_fits_rather_than_its_quorum_alone() -> None:
    world = cluster(range(3))  # a rack with room for five
    job = submitted(world, 6, within=JOB, least=4)
    world.cycle()
    assert numbers(job) == list(range(8, 14))


def test_the_complete_search_goes_on_within_a_domain() -> None:
    """The leader would take the only node with room for a worker, in each of the two racks."""
    world = World(config=searching())
    for number in range(4):
        world.node(
            f"n{number}", cpu=4 if number % 2 else 3, gpus=1 if number % 2 else 0, labels={RACK: f"r{number // 2}"}
        )
    job = world.job("ppo", leader=shape(cpu=3), workers=[("actors", 1, shape(cpu=2, gpus=1))], min_workers=1,
                    policy="BinPack", topologies={"": Topology((RACK,))})  # fmt: skip
    world.cycle()
    assert set(job.placements.values()) in ({"n0", "n1"}, {"n2", "n3"})


def test_that_no_domain_holds_a_job_is_proved_once_for_equal_domains() -> None:
    world = World(config=searching(3_000))
    for number in range(320):
        world.node(f"n{number:03}", cpu=10, labels={RACK: f"r{number // 16}"})
    sets = [("large", 8, shape(cpu=7)), ("small", 24, shape(cpu=3.3))]  # seven nodes of a rack take three small ones
    job = world.job("ppo", leader=shape(cpu=7), workers=sets, min_workers=32, topologies={"": Topology((RACK,))})
    world.cycle()
    assert job.waits is not None and not job.waits.shortage.searched
    assert "no rack takes all 33 pods of the job (20 racks, at most 32 fit)" in waits(job)
    for number in range(320):  # now all racks differ
        world.node(f"n{number:03}", cpu=10 + number / 1000, labels={RACK: f"r{number // 16}"})
    world.now_ms += 60_000
    world.cycle()
    assert "nodes for all of them were not found within 3000 steps" in waits(job)
    world.job_gone(job)
    preferred = {"": Topology((RACK,), PREFERRED)}
    job = world.job("ppo", leader=shape(cpu=7), workers=sets, min_workers=32, topologies=preferred)
    world.cycle()
    assert len(job.placements) == 33


def test_a_set_may_have_its_own_topology_within_the_domain_of_the_job() -> None:
    world = cluster(THREE_A_RACK)
    topologies = {"": Topology((BLOCK,)), "actors": Topology((RACK,), REQUIRED, GROUP)}
    job = world.job("ppo", leader=shape(cpu=1), workers=[("actors", 12, WHOLE)], min_workers=12, topologies=topologies,
                    group_size=3)  # fmt: skip
    world.cycle()
    assert numbers(job) == [0, 1, 2, 8, 9, 10, 16, 17, 18, 24, 25, 26]


def test_the_topology_of_the_job_holds_for_sets_without_their_own() -> None:
    world = cluster()
    topologies = {"": Topology((RACK,), REQUIRED, SET), "b": Topology((BLOCK,), REQUIRED, SET)}
    job = world.job("ppo", leader=shape(cpu=1), workers=[("a", 8, WHOLE), ("b", 9, WHOLE)], min_workers=17,
                    topologies=topologies)  # fmt: skip
    world.cycle()
    assert len({number // 8 for number in numbers(job)[:8]}) == 1
    assert len({number // 8 for number in numbers(job)[8:]}) == 2 and max(numbers(job)) < 32


# --- rules among the pods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", list(TopologyScope))
def test_pods_that_avoid_each_others_racks_go_to_one_block(within: TopologyScope) -> None:
    """The sums of room say that a rack takes them: placing them shows that it doesn't."""
    app = (Requirement("app", "In", ("rl",)),)
    apart = shape(cpu=1, labels={"app": "rl"}, rules=PodRules(anti_affinity=(PodTerm(RACK, app),)))
    topologies = {"" if within == JOB else "actors": Topology((RACK, BLOCK), REQUIRED, within)}
    world = cluster()
    job = world.job("ppo", leader=shape(cpu=1), workers=[("actors", 4, apart)], min_workers=4, group_size=4,
                    topologies=topologies)  # fmt: skip
    world.cycle()
    assert len({number // 8 for number in numbers(job)}) == 4
    assert len({number // 32 for number in numbers(job)}) == 1
    told = [(one.node, one.retaken_on) for one in explained(world.entries, "ppo").placement_explanations]
    assert sorted(told) == sorted((node, node) for node in job.placements.values())
    world.job_gone(job)
    job = world.job("ppo", leader=shape(cpu=1), workers=[("actors", 5, apart)], min_workers=5, group_size=5,
                    topologies=topologies)  # fmt: skip
    world.cycle()
    assert not job.placements and job.waits is not None


# --- further pods, replaced pods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [SET, JOB])
def test_further_pods_join_the_others_in_their_rack_then_in_their_block(within: TopologyScope) -> None:
    world = cluster([number for number in range(64) if number not in (0, 1, 2, 8, 9, 40, 41, 42, 43)])
    job = submitted(world, 8, within=within, least=3)
    world.cycle()
    # No domain takes all eight: the block with the most room, and in it the rack with the most.
    assert sorted(numbers(job)) == [0, 1, 2, 8, 9]
    pods, there = ("actors", 5) if within == SET else ("the job", 6)
    lack = f"3 pods of {pods} must join the {there} pods that have nodes: 0 in their block fit"
    alone = "beside them, for one pod of actors alone, 4 of 64 nodes fit"
    assert waits(job).startswith(f"2 of 5 further pods of actors fit; {lack}; {alone}")
    world.pod_gone("uid-s10")
    world.cycle()
    assert sorted(numbers(job)) == [0, 1, 2, 8, 9, 10]


def test_preferred_further_pods_go_elsewhere_where_their_domain_is_full() -> None:
    world = cluster([number for number in range(64) if number not in (0, 1, 2, 40, 41, 42, 43)])
    job = submitted(world, 5, within=SET, least=3, mode=PREFERRED, levels=[RACK])
    world.cycle()
    assert sorted(numbers(job)) == [0, 40, 41, 42, 43]


def finished(world: World, job: JobRecord) -> None:
    """The pods that the job has succeed."""
    for pod in [*job.bound.values()]:
        world.change_pod(pod, phase=Phase.SUCCEEDED)
    world.settle()


@pytest.mark.parametrize("mode", TopologyMode)
@pytest.mark.parametrize("within", [SET, JOB])
def test_workers_whose_others_have_finished_begin_where_there_is_room(
    within: TopologyScope, mode: TopologyMode
) -> None:
    """The first ones leave no domain that the others would have to join."""
    world = cluster(range(4, 8), nodes=8, rack=2, block=4)
    job = submitted(world, 8, within=within, mode=mode, least=1, equals=True)
    world.settle()
    first = {number // 4 for number in numbers(job)}
    assert job.stage == "Running" and sorted(numbers(job)) == [0, 1, 2, 3]
    finished(world, job)
    assert sorted(numbers(job)) == [0, 1, 2, 3] and first == {0}
    finished(world, job)
    assert job.stage == "Succeeded"


@pytest.mark.parametrize("mode", TopologyMode)
def test_workers_of_a_job_whose_others_have_finished_go_to_the_tightest_domain(mode: TopologyMode) -> None:
    world = cluster([1, 2, 3], nodes=4, rack=2, block=4)
    job = submitted(world, 3, within=JOB, mode=mode, least=1, equals=True)
    world.settle()
    assert numbers(job) == [0]
    for number in (2, 3):
        world.pod_gone(f"uid-s{number}")
    finished(world, job)
    assert sorted(numbers(job)) == [2, 3]


@pytest.mark.parametrize("within", [SET, JOB])
def test_a_replaced_pod_comes_back_beside_the_others_or_waits(within: TopologyScope) -> None:
    world = cluster(range(5, 8))
    job = submitted(world, 4, within=within, levels=[RACK], least=3)
    world.settle()
    rack = numbers(job)[0] // 8
    world.node(f"n{numbers(job)[0]:02}", cpu=64, gpus=8, labels={RACK: f"r{rack}"}, ready=False)
    for number in range(8 * rack, 8 * rack + 8):
        if number not in numbers(job):
            world.pod(f"t{number}", f"n{number:02}", gpus=8)
    world.now_ms += 3_600_000
    world.settle()
    assert (job.stage, job.attempt, len(numbers(job))) == ("Running", 0, 3)
    assert "1 pod of " in waits(job) and "must join the " in waits(job) and "0 in their rack fit" in waits(job)
    world.pod_gone(f"uid-t{8 * rack + 4}")
    world.settle()
    assert len(numbers(job)) == 4 and {number // 8 for number in numbers(job)} == {rack}


# --- verdicts -----------------------------------------------------------------------------------------------------


def placed(world: World, job: JobRecord, nodes: Sequence[str]) -> str:
    """Decide these nodes for the leader and the workers, as another scheduler would; returns why that is refused."""
    pods = (PlacedPods(nodes[0], 0, ((0, 0),)),
            *(PlacedPods(node, 1, ((index, index),)) for index, node in enumerate(nodes[1:])))  # fmt: skip
    world.say(k.CycleTaken(world.state.offset, world.now_ms, world.config),
              k.Placed(job.uid, job.version, job.attempt, ScheduleState.SUCCEED, pods))  # fmt: skip
    return world.verdicts[-1].reason


@pytest.mark.parametrize(("within", "nodes", "refused"), [
    (JOB, ["n00", "n01", "n02", "n03", "n04"], ""),
    (JOB, ["n63", "n01", "n02", "n03", "n04"], f"the pods of the job share no domain of {RACK}, {BLOCK}"),
    (SET, ["n63", "n01", "n02", "n03", "n31"], ""),
    (SET, ["n63", "n01", "n02", "n03", "n32"], f"the pods of unit 0 of actors share no domain of {RACK}, {BLOCK}"),
    (GROUP, ["n63", "n00", "n01", "n02", "n03", "n60", "n61", "n62", "n59"], ""),
    (GROUP, ["n63", "n00", "n01", "n02", "n03", "n60", "n61", "n62", "n09"],
     f"the pods of unit 1 of actors share no domain of {RACK}, {BLOCK}"),
])  # fmt: skip
def test_a_decision_that_scatters_the_pods_of_a_unit_is_refused(
    within: TopologyScope, nodes: list[str], refused: str
) -> None:
    world = cluster()
    job = submitted(world, len(nodes) - 1, within=within)
    assert placed(world, job, nodes) == refused
    assert bool(job.placements) == (not refused)


def test_a_decision_on_nodes_that_changed_their_labels_on_the_way_is_refused() -> None:
    world = cluster()
    job = submitted(world, 4, within=SET, levels=[RACK])
    world.node("n03", cpu=64, gpus=8, labels={RACK: "r7", BLOCK: "b0"})
    assert placed(world, job, ["n00", "n00", "n01", "n02", "n03"]).startswith("the pods of unit 0 of actors share")
    world.node("n03", cpu=64, gpus=8)
    assert placed(world, job, ["n00", "n00", "n01", "n02", "n03"]).startswith("the pods of unit 0 of actors share")


def numbered_in_blocks() -> World:
    """Racks 1 and 2 in each of two blocks, east with n0 and n2, west with n1 and n3."""
    world = World(config=searching())
    for row in range(4):
        labels = {RACK: str(row // 2 + 1), BLOCK: ("east", "west")[row % 2]}
        world.node(f"n{row}", cpu=64, gpus=8, labels=labels)
    return world


@pytest.mark.parametrize("within", [JOB, SET, GROUP])
@pytest.mark.parametrize("mode", [REQUIRED, PREFERRED])
def test_a_rack_is_a_rack_of_its_block(within: TopologyScope, mode: TopologyMode) -> None:
    """kubernetes-sigs/kueue #14191: racks are numbered within blocks, so a domain is a path of labels."""
    world = numbered_in_blocks()
    size = 2 if within == GROUP else 1
    job = world.job("ppo", leader=shape(cpu=1), workers=[("actors", 2, WHOLE)], min_workers=2, group_size=size,
                    topologies={"" if within == JOB else "actors": Topology((RACK, BLOCK), mode, within)})  # fmt: skip
    world.cycle()
    workers = {node for (group, _), node in job.placements.items() if group}
    assert workers in ({"n0", "n2"}, {"n1", "n3"}), "one block, because no rack has two nodes"


def test_a_decision_on_racks_of_equal_numbers_is_refused() -> None:
    world = numbered_in_blocks()
    job = submitted(world, 2, within=SET)
    assert placed(world, job, ["n0", "n0", "n1"]) == f"the pods of unit 0 of actors share no domain of {RACK}, {BLOCK}"


def test_further_pods_join_no_rack_of_the_same_number_elsewhere() -> None:
    world = numbered_in_blocks()
    job = submitted(world, 3, within=SET, least=2)
    world.cycle()
    world.settle()
    world.cycle()
    assert len(job.placements) == 3 and "2 blocks" not in waits(job), waits(job)


def test_a_preferred_topology_makes_no_decision_void() -> None:
    world = cluster()
    job = submitted(world, 4, within=SET, levels=[RACK], mode=PREFERRED)
    assert placed(world, job, ["n00", "n00", "n11", "n22", "n33"]) == ""


# --- explain ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", list(TopologyScope))
def test_explain_says_which_unit_no_domain_takes_and_that_preferred_would_help(within: TopologyScope) -> None:
    world = cluster(THREE_A_RACK)
    submitted(world, 4, levels=[RACK], within=within)
    world.cycle()
    waiting = explained(world.entries, "ppo").waiting
    assert waiting is not None and waiting.shortfall is not None and waiting.shortfall.topology is not None
    units = {JOB: "5 pods of the job", SET: "4 pods of actors", GROUP: "4 pods of group 0 of actors"}
    assert f"no rack takes all {units[within]} (8 racks, at most " in waiting.why
    # What one pod finds is counted beside those that fit: of 24 free nodes, three of the set have 21 left.
    alone = {JOB: "for one pod of learner alone, 64", GROUP: "for one pod of actors alone, 24"}
    alone[SET] = "beside them, for one pod of actors alone, 21"
    assert f"fit); {alone[within]} of 64 nodes fit" in waiting.why
    assert ("required pods fit; beside it, no rack" in waiting.why) == (within == GROUP)
    whose = "" if within == JOB else " for actors"
    assert f"topology Preferred instead of Required{whose}" in [remedy.text for remedy in waiting.remedies]


def test_a_placement_says_that_other_nodes_are_in_other_racks() -> None:
    world = cluster()
    job = submitted(world, 4)
    world.cycle()
    told = explained(world.entries, "ppo", pod=job.pod_name((1, 0))).placement_explanations
    assert [one.node for one in told] == [job.placements[1, 0]]
    assert told[0].passed == 8 and (Reason(ReasonKind.OTHER_TOPOLOGY, RACK), 56) in told[0].refused


def test_an_edit_of_a_topology_is_told() -> None:
    world = cluster(THREE_A_RACK)
    before = submitted(world, 4, levels=[RACK]).valid_spec
    after = submitted(world, 4, mode=PREFERRED).valid_spec
    assert (
        changed(before, after)
        == f"actors topology Required within Group, {RACK} → Preferred within Group, {RACK}, {BLOCK}"
    )
    whole = submitted(world, 4, within=JOB).valid_spec
    assert changed(after, whole).startswith(
        f"topology unset → Required within Job, {RACK}, {BLOCK}, actors groupSize 4 → 1, actors topology Pref"
    )


# --- one by one ---------------------------------------------------------------------------------------------------


class Literal(OneByOne):
    """Units placed pod by pod, every node looked at for each."""

    def __init__(
        self, world: World, job: JobRecord, levels: Sequence[str], labels: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(world)
        self.one, self.levels_, self.labels = OneJob(job, {}), levels, labels
        self.last = ""

    def unit(self, group: int, indices: range, *, required: bool) -> bool:
        """Place the pods of one unit."""
        pod = self.one.shape(group)
        for level in range(len(self.levels_)):
            fits = [domain for domain in self.domains(level, self.names) if self.room(domain, pod) >= len(indices)]
            if fits:
                best = min(fits, key=lambda domain: (-self.near(domain, level), self.room(domain, pod), domain))
                self.spread(group, list(indices), best, level)
                return True
        if required:
            return False
        return self.spread(group, list(indices), self.names, len(self.levels_)) == len(indices)

    def spread(self, group: int, indices: list[int], nodes: list[str], level: int) -> int:
        if not level:
            return self.each(group, indices, nodes)
        pod, begun = self.one.shape(group), len(indices)
        left = self.domains(level - 1, nodes)
        while indices and any(self.room(domain, pod) for domain in left):
            fits = [domain for domain in left if self.room(domain, pod) >= len(indices)]
            near = [domain for domain in fits if self.path(self.last, level - 1) == self.path(domain[0], level - 1)]
            if fits:
                best = near[0] if near else min(fits, key=lambda domain: (self.room(domain, pod), domain))
            else:
                best = min(left, key=lambda domain: (-self.room(domain, pod), domain))
            got = self.spread(group, indices[: self.room(best, pod)], best, level - 1)
            indices = indices[got:]
            left.remove(best)
        return begun - len(indices) + self.each(group, indices, nodes)

    def each(self, group: int, indices: list[int], nodes: list[str]) -> int:
        everywhere, self.names, got = self.names, nodes, 0
        for index in indices:
            if not self._place(self.one, (group, index)):
                break
            self.last, got = self.one.slots[group, index], got + 1
        self.names = everywhere
        return got

    def domains(self, level: int, nodes: list[str]) -> list[list[str]]:
        found: dict[tuple[str | None, ...], list[str]] = {}
        for node in nodes:
            path = self.path(node, level)
            if path is not None:
                found.setdefault(path, []).append(node)
        return list(found.values())

    def room(self, nodes: list[str], pod: PodShape) -> int:
        return sum(self._room(node, pod, self.used[node]) for node in nodes)

    def near(self, domain: list[str], level: int) -> int:
        wider = range(level, len(self.levels_))
        return sum(self.path(self.last, at) == self.path(domain[0], at) is not None for at in wider)

    def path(self, node: str, level: int) -> tuple[str | None, ...] | None:
        """The values of a level's label and of those of wider levels; None for a node in no domain of the level."""
        labels, keys = self.labels.get(node, {}), self.levels_[level:]
        return tuple(map(labels.get, keys)) if keys[0] in labels else None


@BY_CHANCE
@given(data=st.data())
def test_units_are_placed_as_pod_by_pod(data: st.DataObject) -> None:
    """Many units in closed form get the same nodes as one pod after the other."""
    number = st.integers(0, 5)
    world, labels = World(config=searching()), {}
    racks = data.draw(st.sampled_from([6, 2]), label="racks with numbers of their own")
    for row in range(data.draw(st.integers(1, 12), label="nodes")):
        rack = data.draw(number)
        labels[f"n{row:02}"] = {RACK: f"r{rack % racks}", BLOCK: f"b{rack // 2}"}
        if not data.draw(number):  # in a block but no rack, or in neither
            labels[f"n{row:02}"] = data.draw(st.sampled_from([{BLOCK: f"b{rack // 2}"}, {}]))
        world.node(f"n{row:02}", cpu=data.draw(st.integers(0, 9)), gpus=data.draw(number), labels=labels[f"n{row:02}"])
    size, units = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    within, mode = data.draw(st.sampled_from([SET, GROUP])), data.draw(st.sampled_from([REQUIRED, PREFERRED]))
    levels = data.draw(st.sampled_from([(RACK,), (RACK, BLOCK), (BLOCK,)]))
    policy = data.draw(st.sampled_from(["BinPack", "JobAntiAffinity", "MostAllocated", "JobAffinity", "MinFragment"]))
    job = world.job("j", leader=shape(), workers=[("s", size * units, shape(cpu=data.draw(st.sampled_from([1, 2]))))],
                    min_workers=size * units, policy=policy, group_size=size,
                    topologies={"s": Topology(levels, mode, within)})  # fmt: skip
    literal = Literal(world, job, levels, labels)
    fits = literal.each(0, [0], literal.names) == 1
    size = size if within == GROUP else size * units
    for begin in range(0, job.valid_spec.groups[1].count, size):
        fits = fits and literal.unit(1, range(begin, begin + size), required=mode == REQUIRED)
    world.cycle()
    if not fits:
        assert not job.placements
        return
    assert counted(job.placements, size, labels, levels) == counted(literal.one.slots, size, labels, levels)


def counted(
    slots: Mapping[tuple[int, int], str], size: int, labels: Mapping[str, Mapping[str, str]], levels: Sequence[str]
) -> object:
    """Pods by node, and by unit and domain: pods of several units on nodes of one domain may change places."""
    domains = Counter(
        (index // size, *(labels[node].get(key) for key in levels)) for (group, index), node in slots.items() if group
    )
    return Counter(slots.values()), domains


# --- complete -----------------------------------------------------------------------------------------------------


def fits_somewhere(world: World, job: JobRecord, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether some domains take the quorum, found by trying all of them: a domain is a selector of its nodes."""
    spec, everywhere = job.valid_spec, list[tuple[str, str]]()

    def chosen(topology: Topology | None) -> list[list[tuple[str, str]]]:
        if topology is None:
            return [everywhere]
        paths = [topology.levels[at:] for at in range(len(topology.levels))]
        return sorted(
            [[*of] for of in {tuple((key, of[key]) for key in path) for of in labels.values() for path in paths}]
        )

    for of_job, *of_sets in itertools.product(
        chosen(spec.topology), *(chosen(group.topology) for group in spec.groups)
    ):
        selectors = [tuple({*of_job, *of_set}) for of_set in of_sets]
        if any(len({key for key, _ in selector}) < len(selector) for selector in selectors):
            continue  # no node is in two racks
        groups = [
            msgspec.structs.replace(group, topology=None, shape=msgspec.structs.replace(group.shape, node_selector=of))
            for group, of in zip(spec.groups, selectors, strict=True)
        ]
        narrowed = msgspec.structs.replace(spec, groups=tuple(groups), topology=None)
        if Exhaustive(world, JobRecord(job.seen, narrowed, 0)).fits():
            return True
    return False


@pytest.mark.parametrize("whole", [True, False])
def test_a_quorum_that_fits_a_domain_is_found(whole: bool) -> None:
    """Whether the topology holds for the whole job or for its sets."""
    rng, placed = random.Random(f"topology {whole}"), 0
    for _ in range(150):
        world = World(config=searching())
        labels = {
            f"n{row}": {RACK: f"r{rng.randrange(3)}", BLOCK: f"b{rng.randrange(2)}"} for row in range(rng.randint(2, 6))
        }
        for name, of_node in labels.items():
            world.node(name, cpu=rng.randint(1, 6), gpus=rng.choice([0, 1, 2]), labels=of_node)
        sets = [
            (f"s{at}", rng.randint(1, 3), shape(cpu=rng.randint(1, 3), gpus=rng.choice([0, 0, 1]))) for at in range(2)
        ]
        own = {
            name: Topology(rng.choice([(RACK,), (RACK, BLOCK)]), REQUIRED, SET)
            for name, *_ in sets
            if rng.random() < 0.7
        }
        topologies = {"": Topology(rng.choice([(RACK,), (BLOCK,), (RACK, BLOCK)]))} if whole else own
        total = sum(count for _, count, _ in sets)
        job = world.job("j", leader=shape(cpu=rng.randint(1, 3), gpus=rng.choice([0, 1])), workers=sets,
                        min_workers=total if not whole or rng.random() < 0.6 else rng.randint(1, total),
                        policy=rng.choice(["BinPack", "JobAntiAffinity", "MostAllocated"]),
                        topologies=topologies)  # fmt: skip
        fits = fits_somewhere(world, job, labels)
        world.cycle()
        placed += bool(job.placements)
        assert bool(job.placements) == bool(fits), waits(job)
        assert fits or (job.waits is not None and not job.waits.shortage.searched)
    assert placed > 20
