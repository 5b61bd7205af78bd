"""A simulation is the scheduler itself on any cluster, and counts every node for every pod that has none."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.model.quantity import amount
from arranger.projections.jobs.records import expand
from arranger.replay.what_if.simulation import Simulation
from tests.random_clusters import ALL_POLICIES, JobDraw, NodeDraw, asking_worlds, jobs_drawn, nodes_drawn, observed
from tests.world import World, shape

BY_CHANCE = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def simulated(world: World) -> Simulation:
    """A simulation of what the world has seen."""
    seen = (k.NodeSeen, k.PodSeen, k.JobSeen)
    events = [event for entry in world.entries for event in entry.batch.events if isinstance(event, seen)]
    return Simulation(events, world.config, time_ms=world.now_ms)


def assert_agrees(world: World, cycles: int) -> None:
    """The simulation says what the world's own cycles come to, and its parts agree with each other."""
    simulation = simulated(world)
    for _ in range(cycles):
        simulation.time_ms += 1000
        simulation.cycle()
        world.pass_time(1)
        world.cycle()
    outcome = simulation.outcome()
    nodes = [node.name for node in outcome.nodes]
    assert nodes == sorted(name for name in world.state.nodes.rows if world.state.nodes.has(name))
    for job in outcome.jobs:
        record = world.state.jobs[f"uid-{job.name}"]
        assert job.schedule_state == record.schedule_state
        assert sorted(pod.node for pod in job.placed) == sorted(record.placements.values())
        assert len(job.placed) + len(job.unplaced) == record.pods_desired()
        for pod in job.unplaced:
            assert sum(reason["nodes"] for reason in pod.reasons) == len(nodes)
    for node in outcome.nodes:
        assert all(amount(name, node.used[name]) == world.used(node.name, name) for name in node.used)


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn(policies=ALL_POLICIES, queues=("", "Priority", "DRF"), alike=3))
def test_it_is_the_scheduler(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    assert_agrees(observed(nodes, jobs)[0], 1)


@BY_CHANCE
@given(world=asking_worlds(), cycles=st.integers(1, 3))
def test_it_is_the_scheduler_for_pods_that_ask_something_of_others(world: World, cycles: int) -> None:
    assert_agrees(world, cycles)


@BY_CHANCE
@given(nodes=nodes_drawn, jobs=jobs_drawn(policies=ALL_POLICIES, queues=("", "Priority", "DRF")))
def test_jobs_stand_in_the_order_of_their_first_turns(nodes: list[NodeDraw], jobs: list[JobDraw]) -> None:
    simulation = simulated(observed(nodes, jobs)[0])
    decided = [event.job_uid for event in simulation.cycle() if isinstance(event, (k.Placed, k.Waits))]
    told = simulation.outcome().jobs
    assert [f"uid-{job.name}" for job in told] == list(dict.fromkeys(decided))
    assert [job.queue_position for job in told] == list(range(1, len(told) + 1))


def test_its_cycles_are_recorded_like_any() -> None:
    world = World()
    world.node("n1", cpu=2)
    world.job("j", leader=shape(cpu=1), workers=1)
    simulation = simulated(world)
    taken, placed = simulation.cycle()
    assert isinstance(taken, k.CycleTaken) and isinstance(placed, k.Placed)
    assert (taken.config, taken.time_ms) == (world.config, world.now_ms)
    assert expand(placed.pods) == {(0, 0): "n1", (1, 0): "n1"}
    simulation.time_ms += 1000
    assert simulation.cycle() == ()
