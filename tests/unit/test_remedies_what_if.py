"""The changes that explain names and what-if are answers about the same cycle: they say the same."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.cli.inputs.cycle_at import cycle_at
from arranger.cli.inputs.explainer import Explainer
from arranger.cli.inputs.variation import job_edit
from arranger.events.file_log import FileLog
from arranger.events.kinds import CycleTaken, PodsTried
from arranger.model.config import CycleConfig
from arranger.model.job import Slot
from arranger.model.queue import QueueSpec
from arranger.plugins import installed
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State
from arranger.replay.explain import remedies
from arranger.replay.explain.candidate_changes.change import Change
from arranger.replay.explain.job_history import AskedJob
from arranger.replay.explain.remedies import Remedy
from arranger.replay.reading.describe import label
from arranger.replay.reading.history import Point
from arranger.replay.what_if.hypothesis import private_copy
from arranger.replay.what_if.one_cycle import JobPlan, Variation, changed_plan, take_plan, vary
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import GPU, world
from tests.world import World

LOG = Path(__file__).parents[1] / "histories" / "demo.log"

#: An offset by which the demo has a cycle.
WITH_A_CYCLE = 56
Tried = list[tuple[Change, Remedy]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Tried:
    return noted(monkeypatch)


def noted(monkeypatch: pytest.MonkeyPatch) -> Tried:
    """The changes that helped when they were tried, with what is told of them."""
    found: Tried = []
    original = remedies._Search._tried

    def tried(self: remedies._Search, change: Change) -> list[Remedy]:
        helps = original(self, change)
        found.extend((change, one) for one in helps)
        return helps

    monkeypatch.setattr(remedies._Search, "_tried", tried)
    return found


class Cycle(msgspec.Struct):
    """A cycle of a what-if: the state that it is taken on, at its time."""

    state: State
    config: CycleConfig
    time_ms: int

    def of(self, variation: Variation, job: JobRecord) -> tuple[JobPlan | None, JobPlan | None]:
        """What the job gets as it was, and with the change."""
        policies = installed().closest(self.config)
        config = policies.usable(self.config)
        one, _ = take_plan(self.state, config, self.time_ms, policies=policies)
        changed = private_copy(self.state)
        vary(changed, variation, self.time_ms)
        other, _ = changed_plan(changed, self.state, one, config, policies)
        gets = _of(other.jobs, job)
        waits = {plan.job for plan in one.jobs if plan.untried and plan.job != label(job)}
        if gets is not None and any(of.untried and of.job in waits for of in other.jobs):
            # A job ahead, or one ahead of its further pods, takes room once its dry run is made: explain tells what
            # holds then too.
            asked = [msgspec.structs.replace(of, untried=of.untried and of.job not in waits) for of in one.jobs]
            then = msgspec.structs.replace(one, jobs=tuple(asked))
            changed = private_copy(self.state)
            vary(changed, variation, self.time_ms)
            other, _ = changed_plan(changed, self.state, then, config, policies)
            gets = _of(other.jobs, job) if pods(gets) > pods(_of(one.jobs, job)) else gets
        return _of(one.jobs, job), gets

    def of_change(self, change: Change, job: JobRecord) -> JobPlan | None:
        at = Cycle(self.state, change.config or self.config, change.time_ms or self.time_ms)
        return at.of(Variation(added=change.events), job)[1]

    def enough(self, job: JobRecord) -> Iterator[int]:
        """The priorities with which the job gets nodes."""
        for priority in range(job.valid_spec.priority + 1, 11):
            edit = job_edit({"job": label(job), "priority": priority, "queue": None, "gpus": None})
            assert edit is not None
            if pods(self.of(Variation(added=(edit.seen(job)[0],)), job)[1]):
                yield priority


def _of(plans: Sequence[JobPlan], job: JobRecord) -> JobPlan | None:
    return next((plan for plan in plans if plan.job == label(job)), None)


def givers(plan: JobPlan | None) -> tuple[str, ...]:
    return plan.room_from if plan is not None else ()


def pods(plan: JobPlan | None) -> int:
    return plan.placed if plan is not None else 0


def agree(cycle: Cycle, job: JobRecord, changes: Tried, said: Sequence[Remedy]) -> Iterator[str]:
    """Where explain and what-if differ, in words."""
    was, _ = cycle.of(Variation(), job)
    for change, remedy in changes:
        would = cycle.of_change(change, job)
        if remedy in said and (pods(would) - pods(was), givers(would)) != (remedy.pods, remedy.room_from):
            yield f"{cycle.state.offset} {label(job)}: {remedy} and not {would}"
    told = [int(one.text.split()[1]) for one in said if one.text.startswith("priority ")]
    # Explain tries no changes for a job that has nodes and waits for others to leave them.
    if not pods(was) and job.slots.room is None and told != (least := [*cycle.enough(job)][:1]):
        yield f"{cycle.state.offset} {label(job)}: priority {told}, but {least} is the least"


async def test_explain_and_what_if_say_the_same_of_each_change_at_each_event_of_the_demo(told: Tried) -> None:
    log = FileLog(LOG)
    await log.open()
    explainer, wrong, kinds = Explainer(log), list[str](), set[str]()
    done: set[tuple[int, int, str]] = set()
    for at in range(WITH_A_CYCLE, (await log.end()).offset + 1):
        inputs, _, base, _ = await cycle_at(log, point := Point(offset=at))
        cycle = Cycle(base, inputs.config, inputs.time_ms)
        for job in base.jobs.values():
            key = inputs.base, inputs.cycle, job.uid
            if not job.active or len(job.placements) >= job.pods_desired() or key in done:
                continue
            done.add(key)
            told.clear()
            answer = await explainer.explain(AskedJob(job.seen.name, job.seen.namespace), point)
            if answer.waiting is not None:
                kinds |= {one.kind for one in answer.waiting.remedies}
                wrong += agree(cycle, job, told, answer.waiting.remedies)
    await log.close()
    assert not wrong, "\n".join(wrong)
    assert kinds >= {"queue", "capacity"}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Jobs of several priorities and queues in a small cluster; the API server was asked about some of them."""
    of = world(draw(st.integers(1, 3)), dry_run=True)
    queues = draw(st.sampled_from([("",), ("", "one", "two")]))
    for name in queues[1:]:
        of.queue(name, QueueSpec(weight=draw(st.integers(1, 3))))
    for number in range(draw(st.integers(2, 7))):
        workers = draw(st.integers(1, 6))
        job = of.job(
            f"j{number}", workers=workers, worker=GPU, min_workers=draw(st.integers(1, workers)), equals=True,
            priority=draw(st.integers(1, 9)), queue=draw(st.sampled_from(queues)),
        )  # fmt: skip
        match draw(st.sampled_from(["taken", "refused", "unasked", "unasked"])):
            case "unasked":
                pass
            case answer:
                of.say(PodsTried(job.uid, 1, *((Slot(1, 0), 403, "Forbidden", "no") if answer == "refused" else ())))
        match draw(st.sampled_from(["settle", "cycle", "nothing"])):
            case "settle":
                of.settle()
                of.pass_time(draw(st.integers(0, 30)))
            case "cycle":
                of.cycle()
    of.cycle()
    return of


@settings(max_examples=60)
@given(of=worlds())
def test_explain_and_what_if_say_the_same_in_any_small_world(of: World) -> None:
    config = next(e.config for entry in of.entries for e in entry.batch.events if isinstance(e, CycleTaken))
    cycle = Cycle(of.state, config, of.state.time_ms)
    for job in of.state.jobs.values():
        with pytest.MonkeyPatch.context() as patch:
            changes = noted(patch)
            found = explained(of.entries, job.seen.name).waiting
        if found is not None:
            assert not [*agree(cycle, job, changes, found.remedies)]
