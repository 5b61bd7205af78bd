"""Jobs of several queue policies in one cycle: naming another policy brings no job forward."""

from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.queues import waiting as queue
from arranger.scheduling.queues.policies import seniority
from tests.world import World, shape

QUEUES = ("Priority", "DRF")

#: A job: its queue policy, its priority, when it was created, how many GPUs its leader asks for, and its workers.
Draw = tuple[str, int, int, int, int]
drawn = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 4), st.integers(0, 8), st.integers(0, 2)),
    min_size=2,
    max_size=12,
)
BY_CHANCE = settings(max_examples=300, print_blob=True)


def world_of(draws: list[Draw]) -> World:
    """A world in which these jobs wait."""
    world = World()
    world.node("n1", cpu=64, gpus=8)
    for number, (policy, priority, created, gpus, workers) in enumerate(draws):
        world.job(
            f"j{number:02}", queue=policy, priority=priority, created=created, workers=workers,
            leader=shape(cpu=1, gpus=gpus), worker=shape(cpu=1),
        )  # fmt: skip
    return world


def first_turns(world: World) -> dict[str, int]:
    """Job UID → the number of its first turn."""
    return {job.uid: turn for turn, job in enumerate(queue.in_order(world.state, world.config))}


def policy(job: JobRecord) -> str:
    """The queue policy that a job names."""
    assert job.spec is not None
    return job.spec.queue_policy


def test_a_newer_small_job_that_names_drf_does_not_pass_an_older_large_one() -> None:
    world = World()
    world.node("n1", gpus=8)
    large = world.job("large", leader=shape(gpus=8), created=1)
    small = world.job("small", leader=shape(gpus=1), created=2, queue="DRF")
    world.cycle()
    assert (len(large.placements), len(small.placements)) == (1, 0)


def test_a_job_that_names_drf_does_not_send_a_smaller_one_of_its_queue_before_an_older_job_of_another() -> None:
    world = World()
    world.node("n1", gpus=8)
    world.job("a", leader=shape(gpus=8), created=1, queue="DRF")
    world.job("b", leader=shape(gpus=4), created=2)
    world.job("c", leader=shape(gpus=1), created=3, queue="DRF")
    assert [job.seen.name for job in queue.in_order(world.state, world.config)] == ["a", "b", "c"]


@BY_CHANCE
@given(draws=drawn)
def test_no_job_goes_before_an_older_one_of_another_queue_and_at_least_its_priority(draws: list[Draw]) -> None:
    world = world_of(draws)
    turns = first_turns(world)
    assert turns.keys() == world.state.jobs.keys()
    for older in world.state.jobs.values():
        for newer in world.state.jobs.values():
            if policy(older) != policy(newer) and seniority(older) < seniority(newer):
                assert turns[older.uid] < turns[newer.uid]


@BY_CHANCE
@given(draws=drawn, chosen=st.integers(0, 11))
def test_naming_another_policy_brings_no_job_before_an_older_one_of_another_queue(
    draws: list[Draw], chosen: int
) -> None:
    chosen %= len(draws)
    before = first_turns(world_of(draws))
    (name, *rest) = draws[chosen]
    other = QUEUES[1 - QUEUES.index(name)]
    world = world_of([*draws[:chosen], (other, *rest), *draws[chosen + 1 :]])  # type: ignore[arg-type]
    after = first_turns(world)
    job = world.state.jobs[f"uid-j{chosen:02}"]
    for older in world.state.jobs.values():
        stood_behind = seniority(older) < seniority(job) and before[older.uid] < before[job.uid]
        if stood_behind and policy(older) != other:
            assert after[older.uid] < after[job.uid]


@BY_CHANCE
@given(draws=drawn, name=st.sampled_from(QUEUES))
def test_one_queue_alone_gives_its_own_turns(draws: list[Draw], name: str) -> None:
    world = world_of([(name, *rest) for _, *rest in draws])  # type: ignore[misc]
    jobs = queue.waiting_jobs(world.state, world.now_ms)
    own = seniority if name == "Priority" else _fair_key(world)
    assert list(first_turns(world)) == [job.uid for job in sorted(jobs, key=own)]


def _fair_key(world: World):  # type: ignore[no-untyped-def]
    from arranger.scheduling.cluster.view import ClusterView
    from arranger.scheduling.queues.dominant_shares import Shares

    shares = Shares(ClusterView(world.state.nodes))
    return lambda job: (shares.allocated(job), shares.requested(job), seniority(job))


def test_the_quorums_of_a_priority_come_before_its_further_pods_in_all_queues_and_before_the_next_priority() -> None:
    world = World()
    world.node("n1", cpu=4)
    fair = world.job("fair", queue="DRF", priority=5, created=1, workers=9)
    strict = world.job("strict", priority=5, created=2, workers=9)
    low = world.job("low", priority=4, created=0)
    world.cycle()
    assert (len(fair.placements), len(strict.placements), len(low.placements)) == (3, 1, 0)
