"""Submitters of a queue with `userFairness` take turns although room or a limit is kept for jobs of one of them."""

from collections.abc import Sequence

import pytest

from arranger.model.config import CycleConfig, Preemption
from arranger.projections.jobs.records import JobRecord
from tests.unit.test_kept_limits import end
from tests.world import World, shape

GPUS = "nvidia.com/gpu"
EIGHT = shape(gpus=8)


def full(nodes: int = 2, **queue: object) -> World:
    """So many nodes of eight GPUs, where jobs of ann run and others of her wait, who was there first."""
    of = World(config=CycleConfig(preemption=Preemption(), reservations=1, reservation_refresh_ms=30_000, guests=True))
    for number in range(nodes):
        of.node(f"n{number}", gpus=8)
    of.queue("q", **queue)
    for number in range(6):
        submit(of, f"ann{number}", "ann")
    of.settle()
    return of


def submit(of: World, name: str, user: str, **more: object) -> JobRecord:
    return of.job(
        name, leader=EIGHT, of_queue="q", user=user, created=of.now_ms, expected_s=600, preemptible=False, **more
    )


def running(of: World) -> list[str]:
    return sorted(job.seen.name for job in of.state.jobs.values() if job.placements and not job.ended)


def ends_in_turn(of: World, names: Sequence[str]) -> list[list[str]]:
    """Who runs after each of these has ended."""
    found = []
    for name in names:
        end(of, of.state.jobs[f"uid-{name}"])
        found.append(running(of))
    return found


LIMITED = {"capability": ((GPUS, 16),)}


@pytest.mark.parametrize(("nodes", "limits"), [(2, {}), (4, LIMITED)], ids=["room", "limit"])
def test_who_uses_less_starts_before_the_older_jobs_of_another(nodes: int, limits: dict[str, object]) -> None:
    of = full(nodes, user_fairness=True, **limits)
    assert running(of) == ["ann0", "ann1"]
    for number in range(2):
        submit(of, f"bob{number}", "bob", priority=1)
    of.settle()
    # Each has one then, and the older job is next.
    assert ends_in_turn(of, ["ann0", "ann1"]) == [["ann1", "bob0"], ["ann2", "bob0"]]
    assert ends_in_turn(of, ["bob0"]) == [["ann2", "bob1"]]


def test_without_user_fairness_the_older_jobs_are_first() -> None:
    of = full()
    submit(of, "bob0", "bob")
    of.settle()
    assert ends_in_turn(of, ["ann0", "ann1"]) == [["ann1", "ann2"], ["ann2", "ann3"]]


def test_who_has_nothing_keeps_its_room_from_small_jobs_of_another() -> None:
    """They use more with one of theirs than the submitter of the job in front does."""
    of = full(user_fairness=True)
    big = of.job("big", leader=EIGHT, workers=1, worker=EIGHT, min_workers=1, equals=True, of_queue="q", user="bob")
    big = of.state.jobs[big.uid]
    of.settle()
    assert ends_in_turn(of, ["ann0"]) and big.uid not in running(of)
