"""In logs of 100,000 events, explain names exactly the event that is the cause of what became of a job."""

import pytest

from arranger.events.log import Entry
from arranger.projections.state import State
from arranger.replay.explain import Explanation, explanation
from arranger.replay.lives import Asked, Lives
from tests.unit.haystack import HAPPENED, WAITS, Haystack, Scene


@pytest.fixture(scope="module")
def hay() -> Haystack:
    return Haystack()


def _with(scene: Scene, hay: Haystack) -> tuple[list[Entry], int]:
    world = hay.after()
    cause = scene(world)
    assert world.state.offset > 100_000
    return world.entries, cause


def _explained(entries: list[Entry]) -> Explanation:
    lives = Lives(State(), Asked("victim"))
    for entry in entries:
        lives.feed(entry)
    lives.finish()
    story = lives.stories["uid-victim"]
    job = story.state.jobs[story.uid]
    return explanation(story, job, lives.retaken(job.uid, job.attempt))


@pytest.mark.parametrize("name", list(WAITS))
def test_explain_names_the_event_that_keeps_a_job_waiting(name: str, hay: Haystack) -> None:
    entries, cause = _with(WAITS[name], hay)
    waiting = _explained(entries).waiting
    assert waiting is not None
    assert [blocker.offset for blocker in waiting.blockers] == [cause]
    assert waiting.blockers[0].text
    assert [remedy.undoes for remedy in waiting.remedies if remedy.undoes >= cause]


@pytest.mark.parametrize("name", list(HAPPENED))
def test_explain_names_the_event_that_a_job_was_restarted_or_failed_for(name: str, hay: Haystack) -> None:
    entries, cause = _with(HAPPENED[name], hay)
    consequence = _explained(entries).consequences[0]
    assert [one.offset for one in consequence.causes if one.text != "it was started"] == [cause]
    assert consequence.offset > cause
