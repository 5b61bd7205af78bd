"""The priority that counts in a job's queue (`maxPriority`) is what people are told, with the job's own beside it, also
of jobs that run, of what a page plays, and where the queue changed last."""

from arranger.cli.rendering.overview_page import _job_cells
from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.console.playback import PlaybackIndex, Step
from arranger.replay.reading.difference import picture
from arranger.replay.reading.overview import overview
from arranger.replay.what_if.one_cycle import take_plan
from tests.world import World, shape


def interns() -> World:
    """One job runs, and two wait, of which the last has a lower priority than its queue allows."""
    world = World()
    world.node("n1", gpus=2)
    world.queue("interns", max_priority=2)
    for name, own in (("runs", 9), ("waits", 8), ("low", 1)):
        world.job(name, of_queue="interns", priority=own, leader=shape(gpus=2))
        world.settle()
    return world


PRIORITIES = {"runs": (2, 9), "waits": (2, 8), "low": (1, 1)}


def played(world: World) -> list[Step]:
    index = PlaybackIndex(State())
    for entry in world.entries:
        index.feed(entry)
    playback = index.playback()
    return [job.steps[-1] for job in playback.jobs]


def test_the_played_page_has_the_priority_that_counts() -> None:
    world = interns()
    assert [(job.priority, job.own_priority) for job in played(world)] == [*PRIORITIES.values()]
    world.queue("interns", max_priority=5)  # no job changes by this alone
    assert [(job.priority, job.own_priority) for job in played(world)] == [(5, 9), (5, 8), (1, 1)]


def test_a_played_job_that_was_deleted_has_its_last_priority() -> None:
    world = interns()
    world.job_gone(world.state.jobs["uid-runs"])
    world.queue("interns", max_priority=5)
    assert (played(world)[0].priority, played(world)[0].own_priority) == (2, 9)


def test_a_replay_and_a_plan_have_the_priority_that_counts_of_jobs_that_wait_and_that_run() -> None:
    world = interns()
    lines = {line.name: line for line in overview(world.state, world.config).jobs}
    assert {name: (line.priority, line.own_priority) for name, line in lines.items()} == PRIORITIES
    assert {name: _job_cells(line)[4] for name, line in lines.items()} == {
        "runs": "2 (job: 9)",
        "waits": "2 (job: 8)",
        "low": "1",
    }
    facts = {of.label: of.facts["priority"] for of in picture(world.state, world.config).jobs.values()}
    assert facts == {"default/runs": "2 (job: 9)", "default/waits": "2 (job: 8)", "default/low": "1"}
    plan, _ = take_plan(world.state, CycleConfig(), world.now_ms)
    assert {job.job: job.priority for job in plan.jobs} == {"default/waits": 2, "default/low": 1}
