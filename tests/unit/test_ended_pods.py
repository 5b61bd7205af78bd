"""Pods of others that have ended weren't deleted: what `explain` and the console say of them."""

import pytest

from arranger.projections.state import State
from arranger.replay.console.gantt import GanttIndex
from arranger.replay.explain.answer import explanation
from arranger.replay.explain.headline import headline
from arranger.replay.explain.job_history import AskedJob, JobHistories, Retaken
from arranger.replay.explain.story import Deletion, Story
from tests.unit.replay_worlds import first_config
from tests.world import World


def said(world: World, name: str) -> str:
    """The headline of the answer about a job that is gone, at its end."""
    found: list[str] = []

    def leaving(story: Story, deleted: Deletion) -> None:
        found.append(headline(explanation(story, story.state.jobs[story.uid], Retaken(), deleted=deleted), str))

    histories = JobHistories(State(), AskedJob(name), first_config(world.entries), leaving=leaving)
    for entry in world.entries:
        histories.feed(entry)
    histories.finish()
    return found[-1]


@pytest.mark.parametrize(("group", "name"), [("", "pod:p0"), ("train", "group:train")])
@pytest.mark.parametrize(("phase", "words"), [("Failed", "failed"), ("Succeeded", "succeeded"), ("", "")])
def test_pods_that_ended_are_told_apart_from_deleted_ones(group: str, name: str, phase: str, words: str) -> None:
    world, index = World(), GanttIndex()
    world.node("n1", cpu=4)
    job = world.pod_to_place("p0", group=group)
    world.cycle()
    world.pod_to_place("p0", "n1", group=group)
    index.note(world.state, {job.uid: None})
    if phase:
        world.change_pod("uid-p0", phase=phase)
    else:
        world.change_pod("uid-p0", deleting=True)
        world.change_pod("uid-p0", phase="Failed")  # a kubelet ends it, then it is gone
        world.pod_gone("uid-p0")
    index.note(world.state, {job.uid: None})
    gone = "ended" if phase else "was deleted"
    assert said(world, name).startswith(f"default/{name} {gone} at ")
    assert (f"when its last pod {words};" in said(world, name)) == bool(phase)
    assert bool(index.gantt(0, world.now_ms, complete=True).deleted) != bool(phase)
