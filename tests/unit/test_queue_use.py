"""What the jobs of each queue use, as the fold counts it."""

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.queues.use import JOBS
from tests.world import Edited, World, shape


def world(gpus: int = 8) -> World:
    made = World()
    made.node("n1", cpu=64, gpus=gpus)
    return made


def use(there: World) -> dict[str, dict[str, int]]:
    """What queues use; the state must be consistent, and the same after it was restored."""
    validate(there.state)
    assert snapshot.restore(snapshot.encode(there.state)).queue_use == there.state.queue_use
    return there.state.queue_use.own


def test_a_queue_uses_what_its_jobs_have_nodes_for_until_they_end() -> None:
    there = world()
    job = there.job("a", of_queue="rl", workers=2, min_workers=2, worker=shape(cpu=1, gpus=2))
    there.queue("rl")
    assert use(there) == {}
    there.cycle()
    assert use(there) == {"rl": {"cpu": 3000, "nvidia.com/gpu": 4, JOBS: 1}}
    there.settle()
    assert use(there) == {"rl": {"cpu": 3000, "nvidia.com/gpu": 4, JOBS: 1}}
    there.job_gone(job)
    assert use(there) == {}


def test_what_the_queues_above_use_follows_the_tree() -> None:
    there = world()
    there.queue("all")
    there.queue("rl", parent="all")
    there.job("a", of_queue="rl")
    there.job("b", of_queue="all")
    there.cycle()
    totals = {name: amounts["cpu"] for name, amounts in there.state.queue_totals.items()}
    assert totals == {"all": 2000, "rl": 1000}
    there.queue("rl")
    assert there.state.queue_totals["all"]["cpu"] == 1000
    there.job("c", of_queue="rl")
    there.cycle()
    assert {name: amounts[JOBS] for name, amounts in there.state.queue_totals.items()} == {"all": 1, "rl": 2}
    use(there)


def test_the_use_moves_with_the_namespaces_annotation() -> None:
    there = world()
    there.namespace("default", queue="rl")
    there.queue("rl")
    there.job("a")
    there.job("b", of_queue="default")
    there.cycle()
    assert {name: amounts[JOBS] for name, amounts in use(there).items()} == {"rl": 1, "default": 1}
    there.namespace("default", queue="other")
    assert {name: amounts[JOBS] for name, amounts in use(there).items()} == {"other": 1, "default": 1}
    there.namespace_gone("default")
    assert {name: amounts[JOBS] for name, amounts in use(there).items()} == {"default": 2}


def test_the_use_moves_with_the_spec() -> None:
    there = world()
    edited = Edited(there, of_queue="rl")
    there.queue("rl")
    there.queue("vision")
    there.cycle()
    assert use(there).keys() == {"rl"}
    assert edited.job.spec is not None
    spec = msgspec.structs.replace(edited.job.spec, queue="vision")
    term = there.terms[k.Watched.JOB]
    there.say(
        msgspec.structs.replace(edited.job.seen, term=term, resource_version="x", spec=spec)
    )  # the same generation
    assert use(there).keys() == {"vision"}


# --- what was used before -----------------------------------------------------------------------------------

HOUR_MS = 3_600_000


def decaying() -> World:
    """A world whose cycles have a half-life of an hour."""
    made = world()
    made.config = msgspec.structs.replace(made.config, half_life_ms=HOUR_MS)
    for name in ("a", "b"):
        made.queue(name)
    return made


def averages(there: World) -> dict[str, float]:
    """Queue → average of GPUs at the present time. A state that was restored has the same."""
    validate(there.state)
    restored = snapshot.restore(snapshot.encode(there.state))
    assert snapshot.digest(restored) == there.digest()
    found = there.state.queue_use.averages(there.now_ms)
    assert restored.queue_use.averages(there.now_ms) == found
    return {name: of.get("nvidia.com/gpu", 0) / 1000 for name, of in found.items()}


def test_what_a_queue_used_decays_with_the_half_life() -> None:
    there = decaying()
    first = there.job("first", of_queue="a", leader=shape(gpus=8))
    there.cycle()
    assert averages(there) == {"a": 0}
    there.pass_time(3600)
    assert averages(there)["a"] == pytest.approx(4, rel=0.01)
    there.job_gone(first)
    there.wait_for_late_pods()
    there.pass_time(3590)
    assert averages(there)["a"] == pytest.approx(2, rel=0.01)
    assert there.state.queue_use.own == {}


def test_who_used_much_before_comes_later() -> None:
    there = decaying()
    first = there.job("first", of_queue="a", leader=shape(gpus=8))
    there.cycle()
    there.pass_time(7200)
    there.job_gone(first)
    there.wait_for_late_pods()
    for at, name in enumerate(("a", "b")):
        there.job(f"next-{name}", of_queue=name, leader=shape(gpus=8), created=at, uid=f"uid-next-{name}")
    there.cycle()
    assert [job.seen.name for job in there.state.jobs.values() if job.placements] == ["next-b"]


def test_another_half_life_keeps_the_averages_and_none_forgets_them() -> None:
    there = decaying()
    there.job("first", of_queue="a", leader=shape(gpus=8))
    there.cycle()
    there.pass_time(3600)
    there.config = msgspec.structs.replace(there.config, half_life_ms=2 * HOUR_MS)
    there.job("second", of_queue="a", leader=shape(gpus=0))
    before = averages(there)["a"]
    there.cycle()
    assert averages(there)["a"] == pytest.approx(before, rel=0.01)
    there.pass_time(7200)
    assert averages(there)["a"] == pytest.approx(6, rel=0.01)
    there.config = msgspec.structs.replace(there.config, half_life_ms=0)
    there.job("third", of_queue="a", leader=shape(gpus=0))
    there.cycle()
    assert averages(there) == {}


def test_a_deleted_queue_without_jobs_is_forgotten() -> None:
    there = decaying()
    first = there.job("first", of_queue="a", leader=shape(gpus=8))
    there.cycle()
    there.pass_time(3600)
    there.queue_gone("a")
    assert averages(there)["a"] > 0
    there.job_gone(first)
    there.wait_for_late_pods()
    there.queue("a")
    there.queue_gone("a")
    assert averages(there) == {}


def test_a_queue_that_was_deleted_under_its_jobs_is_forgotten_after_them() -> None:
    there = decaying()
    first = there.job("first", of_queue="a", leader=shape(gpus=8))
    there.cycle()
    there.queue_gone("a")
    there.pass_time(3600)
    there.job("second", of_queue="b", leader=shape(cpu=1))
    there.cycle()
    assert averages(there)["a"] > 0
    there.job_gone(first)
    there.wait_for_late_pods()
    there.job("third", of_queue="b", leader=shape(cpu=1))
    there.cycle()
    assert averages(there).keys() == {"b"}


def test_sums_beyond_64_bits_are_restored() -> None:
    there = decaying()
    there.node("n1", cpu=64, gpus=8, memory=1 << 50)
    there.job("first", of_queue="a", leader=shape(memory=1 << 50))
    there.cycle()
    there.pass_time(3600)
    there.job("second", of_queue="a", leader=shape(cpu=1))
    there.cycle()
    assert max(there.state.queue_use.decayed["a"].sums.values()) > 1 << 64
    averages(there)
