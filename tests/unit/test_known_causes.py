"""In logs of 100,000 events, explain and bisect name exactly the event that is the cause of what became of a job."""

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.projections.state import State
from arranger.replay.bisect.conditions import Condition, Negated
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.bisect.search import Refinement, Search
from arranger.replay.explain.answer import Explanation, explanation
from arranger.replay.explain.job_history import Asked, JobHistories
from arranger.replay.reading.history import Point, Span
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
    job_histories = JobHistories(State(), Asked("victim"))
    for entry in entries:
        job_histories.feed(entry)
    job_histories.finish()
    story = job_histories.stories["uid-victim"]
    job = story.state.jobs[story.uid]
    return explanation(story, job, job_histories.retaken(job.uid, job.attempt))


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


def _bisected(entries: list[Entry]) -> int:
    """The offset of the event since which the victim is blocked, as `arranger bisect --job victim --blocked` finds it
    from where the victim came."""
    offset, first = next(
        (entry.first + number, event)
        for entry in entries
        for number, event in enumerate(entry.batch.events)
        if isinstance(event, k.JobSeen) and event.name == "victim"
    )

    def conditions() -> list[Condition]:
        return [Negated(QuorumFits(first)), Negated(WouldBePlaced(QuorumFits(first)))]

    search = Search(State(), conditions(), Span(first=Point(offset=offset)), first_only=False)
    for entry in entries:
        search.feed(entry)
    which = next(number for number, run in enumerate(search.runs) if run.holds)
    refinement = Refinement(State(), conditions()[which], search.runs[which].last)
    for entry in entries:
        if not refinement.feed(entry):
            break
    assert refinement.found is not None
    return refinement.found.event.offset


@pytest.mark.parametrize("name", list(WAITS))
def test_bisect_names_the_event_that_keeps_a_job_waiting(name: str, hay: Haystack) -> None:
    entries, cause = _with(WAITS[name], hay)
    # A job whose pod was refused has its nodes until the controller decides on it, which is the next event.
    assert _bisected(entries) == (cause + 1 if name == "refused_node" else cause)
