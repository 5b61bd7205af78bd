"""The mix that FragmentGradient weighs: what waits and runs in the whole cluster, and what a cycle makes of it."""

from arranger.scheduling.cluster.mix import cluster_mix
from tests.world import World, requests, shape


def test_the_mix_is_what_jobs_want_and_what_strangers_hold() -> None:
    world = World()
    world.node("n1")
    world.job("a", leader=shape(cpu=1), workers=3, worker=shape(cpu=2, gpus=1))
    world.job("b", leader=shape(cpu=1), min_workers=0)
    world.pod("stranger", "n1", cpu=2, gpus=1)
    world.pod("done", "n1", phase="Succeeded", cpu=7)
    world.pod("unbound", cpu=7)
    world.job("invalid", invalid="spec.leader")
    mix = cluster_mix(world.state)
    assert [(one.requests, count) for one, count in mix] == [(requests(cpu=2, gpus=1), 4), (requests(cpu=1), 2)]


def test_pods_of_a_job_count_once_however_far_it_is() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.job("a", leader=shape(cpu=1, gpus=1), workers=2, min_workers=2, policy="FragmentGradient")
    before = cluster_mix(world.state)
    world.settle()
    assert world.used("n1", "nvidia.com/gpu") == 3
    assert cluster_mix(world.state) == before


def test_small_pods_leave_the_node_that_the_waiting_large_one_needs() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.node("n2", gpus=3)
    world.pod("busy", "n2", cpu=1)
    for name in ("small-1", "small-2", "small-3"):
        world.job(name, priority=9, leader=shape(cpu=1, gpus=1), policy="FragmentGradient")
    world.job("large", leader=shape(cpu=1, gpus=8))
    world.cycle()
    chosen = {job.seen.name: job.placements[0, 0] for job in world.state.jobs.values()}
    assert chosen == {"small-1": "n2", "small-2": "n2", "small-3": "n2", "large": "n1"}


def test_where_typical_pods_may_not_run_nothing_is_kept_for_them() -> None:
    world = World()
    world.node("n1", gpus=2, labels={"pool": "a"})
    world.node("n2", gpus=2, labels={"pool": "b"})
    world.job("typical", priority=1, leader=shape(cpu=1, gpus=2, selector={"pool": "a"}))
    job = world.job("small", leader=shape(cpu=1, gpus=1), policy="FragmentGradient")
    world.cycle()
    assert job.placements[0, 0] == "n2"
