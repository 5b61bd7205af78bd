"""What each queue gets in the cases of `volcano_table`, by whole cycles on the folded log with the shipped settings."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from tests.unit.volcano_table import MEASURED, PUBLISHED, Amounts, Case
from tests.world import GIB, World, shape

#: Volcano ran without its actions `preempt` and `reclaim`.
SHIPPED = msgspec.structs.replace(Settings().cycle_config(VERSIONS), preemption=None)

UNITS = {"cpu": 1000, "memory": GIB}


def in_units(amounts: Amounts) -> dict[str, int]:
    return {name: amount * UNITS.get(name, 1) for name, amount in amounts.items()}


def world_of(case: Case) -> World:
    there = World(config=SHIPPED)
    for number, amounts in enumerate(case.nodes):
        of = {"memory": 1024, **amounts}
        more = {name: amount for name, amount in of.items() if name not in UNITS}
        there.node(f"n{number}", cpu=of.get("cpu", 0), memory=of["memory"] * GIB, pods=500, **more)  # type: ignore[arg-type]
    for name, queue in case.queues.items():
        there.queue(
            name,
            parent=queue.parent,
            weight=queue.weight,
            guarantee=tuple(sorted(in_units(queue.guarantee).items())),
            deserved=tuple(sorted(in_units(queue.deserved).items())),
            capability=tuple(sorted(in_units(queue.capability).items())),
        )
    return there


def submit(there: World, case: Case, wave: int) -> None:
    created = wave * 1000
    for line, of in enumerate(case.waves[wave]):
        amounts = in_units(of.pod)
        pod = shape(cpu=amounts.pop("cpu", 0) / 1000, **amounts)  # type: ignore[arg-type]
        for number in range(of.jobs):
            created += 1
            there.job(
                f"w{wave}-{line}-{number:03}", equals=True, workers=of.pods, worker=pod, min_workers=of.least,
                of_queue=of.queue, created=created,
            )  # fmt: skip


def got(there: World) -> dict[str, dict[str, int]]:
    """Queue → what the pods of its jobs with nodes request."""
    found: dict[str, Counter[str]] = {}
    for job in there.state.jobs.values():
        for slot in job.placements:
            of = found.setdefault(job.valid_spec.queue, Counter())
            for name, amount in job.valid_spec.groups[slot[0]].shape.requests:
                of[name] += amount
    return {queue: {name: amount // UNITS.get(name, 1) for name, amount in of.items()} for queue, of in found.items()}


def told(amounts: Mapping[str, Amounts]) -> dict[str, dict[str, int]]:
    return {queue: dict(of) for queue, of in amounts.items()}


@pytest.mark.parametrize("case", [*MEASURED, *PUBLISHED], ids=lambda case: f"{case.source}: {case.name}")
def test_what_each_queue_gets(case: Case) -> None:
    there = world_of(case)
    for wave in range(len(case.waves)):
        submit(there, case, wave)
        there.settle()
    assert got(there) == told(case.others if case.ours is None else case.ours)


def test_cases_that_differ_say_why_and_the_others_are_many() -> None:
    """At least 20 cases of proportion and 20 of trees and deserved amounts are as in Volcano."""
    assert all(bool(case.why) == (case.ours is not None) for case in [*MEASURED, *PUBLISHED])
    assert all(case.ours is None or told(case.ours) != told(case.others) for case in [*MEASURED, *PUBLISHED])
    alike = Counter(case.source for case in MEASURED if case.ours is None)
    assert alike["proportion"] >= 20 and alike["capacity"] + alike["hdrf"] + alike["tree"] >= 20
