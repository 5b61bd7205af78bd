"""Who gives room in the cases of `preemption_table`, by whole cycles on the folded log with the shipped settings, until
nothing changes any more; then time passes, and still nothing changes."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import PreemptionKind
from arranger.model.job import Stage
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import expand
from arranger.scheduling.cycle import VERSIONS
from arranger.settings import Settings
from tests.unit.preemption_kai import KAI
from tests.unit.preemption_kube import KUBE
from tests.unit.preemption_kueue import KUEUE
from tests.unit.preemption_loops import LOOPS
from tests.unit.preemption_table import Amounts, Case, Job, Takes, Took
from tests.unit.preemption_volcano import VOLCANO
from tests.world import GIB, World, shape

SHIPPED = msgspec.structs.replace(Settings(min_runtime_s=0).cycle_config(VERSIONS), dry_run=False)
#: The settings with which the running jobs get their nodes.
WITHOUT = msgspec.structs.replace(SHIPPED, preemption=None, reservations=0)
CASES = {"kube-scheduler": KUBE, "Volcano": VOLCANO, "Kueue": KUEUE, "KAI": KAI, "loops": LOOPS}


class Told(dict[str, dict[str, Took]]):
    """Who took what from whom, so far. No job takes room twice."""

    def note(self, there: World, event: k.Preempted) -> None:
        assert there.verdict("Preempted").accepted, there.verdict("Preempted").reason
        name = there.state.jobs[event.placed.job_uid].seen.name
        assert name not in self, f"{name} takes room a second time"
        self[name] = {}
        for victim in event.victims:
            of, slots = there.state.jobs[victim.job_uid], expand(victim.pods)
            whole = victim.kind != PreemptionKind.SURPLUS
            took = str(victim.kind) if whole else tuple(sorted((index for _, index in slots), reverse=True))
            self[name][of.seen.name] = took


def in_units(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount * (1000 if name == "cpu" else 1)) for name, amount in amounts.items()))


def world_of(case: Case) -> World:
    there = World(config=WITHOUT)
    for name in case.nodes:
        see_node(there, case, name, cordoned=False)
    for name, queue in case.queues.items():
        amounts = {of: in_units(getattr(queue, of)) for of in ("deserved", "capability", "guarantee")}
        there.queue(name, **{**queue._asdict(), **amounts})
    for node, amounts in case.foreign.items():
        there.pod(f"foreign-{node}", node, amounts=in_units(amounts))
    return there


def see_node(there: World, case: Case, name: str, *, cordoned: bool) -> None:
    of = dict(case.nodes[name])
    labels = {"kubernetes.io/hostname": name, **case.labels.get(name, {})}
    more = {resource: amount for resource, amount in of.items() if resource not in ("cpu", "pods")}
    there.node(
        name, cpu=of.get("cpu", 0), pods=of.get("pods", 110), memory=64 * GIB, labels=labels, cordoned=cordoned, **more
    )


def submit(there: World, job: Job, created: int) -> None:
    amounts = dict(job.pod)
    pod = shape(
        cpu=amounts.pop("cpu", 0), selector=job.selector, labels=job.labels, rules=job.rules, **amounts
    )  # fmt: skip
    there.job(
        job.name, equals=True, workers=job.pods, worker=pod, min_workers=job.least or job.pods, priority=job.priority,
        of_queue=job.queue, preemptible=job.preemptible, expected_s=job.expected_s, created=created,
        checkpoint_ms=there.now_ms - job.checkpoint_s * 1000 if job.checkpoint_s else 0,
    )  # fmt: skip


def start(there: World, case: Case, job: Job, created: int) -> None:
    """Let a job start on its nodes, while the others are cordoned."""
    closed = [name for name in case.nodes if job.on and name not in job.on.split()]
    for name in closed:
        see_node(there, case, name, cordoned=True)
    submit(there, job, created)
    there.settle()
    assert there.state.jobs[f"uid-{job.name}"].stage == Stage.RUNNING, f"{job.name} doesn't start"
    for name in closed:
        see_node(there, case, name, cordoned=False)
    there.pass_time(10)


def settle(there: World, told: Told, *, leave: bool = True) -> None:
    """Repeat cycles and decisions, and what they lead to, until nothing changes; without `leave` pods neither start nor
    leave."""
    for _ in range(50):
        events = there.cycle()
        for event in events:
            if isinstance(event, k.Preempted):
                told.note(there, event)
        if events or there.control() or (leave and there.apply()):
            continue
        if not (leave and there.state.assumed):
            return
        there.wait_for_late_pods()
    raise AssertionError("the cluster doesn't settle")


def running(there: World) -> dict[str, int]:
    """The running jobs, and how many pods they have."""
    jobs = [job for job in there.state.jobs.values() if job.stage == Stage.RUNNING]
    return {job.seen.name: len(job.placements) for job in jobs}


def expected(case: Case) -> dict[str, int]:
    pods = {job.name: job.pods for job in (*case.running, *case.waiting, *case.late)}
    parts = [name.partition(":") for name in case.runs.split()]
    return {name: int(count) if colon else pods[name] for name, colon, count in parts}


def plain(takes: Takes) -> dict[str, dict[str, Took]]:
    return {name: dict(of) for name, of in takes.items()}


def begin(case: Case) -> World:
    """The world as the waiting jobs come."""
    there = world_of(case)
    for number, job in enumerate(case.running):
        start(there, case, job, number + 1)
    there.pass_time(case.after_s - 10)
    for number, job in enumerate(case.running):
        if job.checkpoint_s:
            submit(there, job, number + 1)
    there.config = SHIPPED
    for name in case.ends:
        job = there.state.jobs[f"uid-{name}"]
        there.say(k.StageDecided(job.uid, job.version, job.attempt, Stage.SUCCEEDED, StageReason.TERMINATED))
    for number, waiting in enumerate(case.waiting):
        submit(there, waiting, 1000 + number)
    return there


@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases], ids=lambda case: case.name)
def test_who_gives_room_and_who_runs(case: Case) -> None:
    there, told = begin(case), Told()
    if case.late:
        settle(there, told, leave=False)
        for number, job in enumerate(case.late):
            submit(there, job, 2000 + number)
        settle(there, told, leave=False)
    settle(there, told)
    validate(there.state)
    assert told == plain(case.takes)
    assert running(there) == expected(case)
    for _ in range(4):
        there.pass_time(31)
        settle(there, told)
    assert told == plain(case.takes), "it takes more room later"
    assert running(there) == expected(case)
    assert snapshot.restore(snapshot.encode(there.state)).awaiting == there.state.awaiting == {}


def test_cases_that_differ_say_why_and_there_are_enough_of_each_origin() -> None:
    cases = [case for of in CASES.values() for case in of]
    assert all(bool(case.why) == (case.others is not None) for case in cases)
    assert all(case.others is None or plain(case.others) != plain(case.takes) for case in cases)
    assert max(Counter(case.name for case in cases).values()) == 1
    least: Mapping[str, int] = {"kube-scheduler": 20, "Volcano": 15, "Kueue": 15, "KAI": 10, "loops": 8}
    assert all(len(CASES[origin]) >= count for origin, count in least.items())
