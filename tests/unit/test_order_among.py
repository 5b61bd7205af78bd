"""The order among a few jobs is that of all jobs, without the others."""

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.scheduling import in_order, in_order_among
from tests.world import World, shape


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_order_among_a_few_jobs_is_that_of_all(seed: int) -> None:
    draws = Random(seed)
    world = World()
    world.config = msgspec.structs.replace(world.config, qos_order=draws.random() < 0.5)
    world.node("n", gpus=8)
    queues = ["default"]
    if draws.random() < 0.7:
        for name in ("default", "rl"):
            world.queue(
                name,
                max_waiting=draws.choice([None, None, 3]),
                user_fairness=draws.random() < 0.2,
                max_priority=draws.choice([None, 4]),
                queue_policy=draws.choice(["", "", "DRF"]),
            )
        queues = ["default", "rl"]
    for number in range(12):
        name = f"j{draws.randrange(1000)}-{number}"
        policy = draws.choice(["", "", "", "DRF"])
        world.job(
            name,
            leader=shape(gpus=draws.randint(1, 9)),
            of_queue=draws.choice(queues),
            policy=policy,
            priority=draws.randint(3, 6),
            created=draws.randint(0, 2),
        )
        if draws.random() < 0.2:
            world.cycle()
    uids = set(draws.sample(sorted(world.state.jobs), draws.randint(1, 4)))
    whole = [job.uid for job in in_order(world.state, world.config, time_ms=world.now_ms) if job.uid in uids]
    found = in_order_among(world.state, uids, world.config, time_ms=world.now_ms)
    assert [job.uid for job in found] == whole
