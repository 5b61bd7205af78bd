"""Who gives room and who runs in the cases of `volcano_room_table`, by whole cycles with the shipped settings."""

from collections import Counter
from collections.abc import Mapping

import pytest

from arranger.events import kinds as k
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import expand
from tests.unit import preemption_table
from tests.unit.preemption_table import NOBODY
from tests.unit.test_preemption_cases import Told, begin, running, settle
from tests.unit.volcano_room_table import PREEMPT, RECLAIM, Case, Outcome
from tests.world import World

CASES = [*PREEMPT, *RECLAIM]


class Given(Told):
    """Counts also how many pods each job gave."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: Counter[str] = Counter()

    def note(self, there: World, event: k.Preempted) -> None:
        super().note(there, event)
        for victim in event.victims:
            self.pods[there.state.jobs[victim.job_uid].seen.name] += len(expand(victim.pods))


def world_of(case: Case) -> World:
    """The world as the waiting jobs come; those that run have their pods on the nodes of the case."""
    there = begin(
        preemption_table.Case(
            case.name, "Volcano", case.nodes, case.running, case.waiting, NOBODY, "",
            queues=case.queues, labels=case.labels,
        )
    )  # fmt: skip
    for job in case.running:
        nodes = sorted(there.state.jobs[f"uid-{job.name}"].placements.values())
        assert nodes == sorted(job.on.split()), f"{job.name} runs on {nodes}"
    return there


def counted(case: Case, text: str) -> dict[str, int]:
    """What one part of an outcome says: kind of jobs → pods."""
    pods = kinds({job.name: job.pods for job in (*case.running, *case.waiting)})
    parts = [name.partition(":") for name in text.split()]
    return {name: int(count) if colon else pods[name] for name, colon, count in parts}


def kinds(pods: Mapping[str, int]) -> dict[str, int]:
    """Job → pods, with equal jobs as one."""
    found: Counter[str] = Counter()
    for name, count in pods.items():
        found[name.rstrip("0123456789")] += count
    return dict(found)


def told(case: Case, outcome: Outcome) -> tuple[dict[str, int], dict[str, int]]:
    return counted(case, outcome.gave), counted(case, outcome.runs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_gives_room_and_who_runs(case: Case) -> None:
    there, given = world_of(case), Given()
    expected = told(case, case.ours or case.others)
    settle(there, given)
    validate(there.state)
    assert (kinds(given.pods), kinds(running(there))) == expected
    for _ in range(2):
        there.pass_time(31)
        settle(there, given)
    assert (kinds(given.pods), kinds(running(there))) == expected, "it changes later"


def test_cases_that_differ_say_why_and_the_others_are_many() -> None:
    """Of both actions at least 15 come out as in Volcano."""
    assert all(bool(case.why) == (case.ours is not None) for case in CASES)
    assert all(case.ours is not None or not case.also for case in CASES), "Volcano isn't of one mind"
    assert all(case.ours is None or told(case, case.ours) != told(case, case.others) for case in CASES)
    assert max(Counter(case.name for case in CASES).values()) == 1
    for cases in (PREEMPT, RECLAIM):
        assert sum(case.ours is None for case in cases) >= 15
