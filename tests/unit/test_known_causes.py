"""In logs of 100,000 events, explain and bisect name exactly the event that is the cause of what became of a job."""

import copy
import itertools

import pytest

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.model.config import CycleConfig
from arranger.projections.state import State
from arranger.replay.bisect.conditions import Condition, Negated
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.bisect.search import Refinement, Search
from arranger.replay.explain.answer import Explanation, explanation
from arranger.replay.explain.job_history import AskedJob, JobHistories
from arranger.replay.reading.history import Point, Span
from tests.unit.haystack import HAPPENED, WAITS, Haystack, Scene
from tests.unit.replay_worlds import first_config


class Hay:
    """The hay, which is the same for all scenes and is read once, and the scenes in it, each of which is made once."""

    def __init__(self) -> None:
        self._hay = Haystack()
        self._scenes: dict[Scene, tuple[list[Entry], int]] = {}
        self._read = JobHistories(State(), AskedJob("victim"), first_config(self.entries))
        for entry in self.entries:
            self._read.feed(entry)

    @property
    def entries(self) -> list[Entry]:
        return self._hay.entries

    def state(self) -> State:
        """The state at the end of the hay."""
        return self._hay.after().state

    def job_histories(self) -> JobHistories:
        """What `explain` knows at the end of the hay."""
        kept = {id(entry): entry for entry in self.entries}
        return copy.deepcopy(self._read, kept)

    def scene(self, scene: Scene) -> tuple[list[Entry], int]:
        """The entries after the hay, and the offset of the cause."""
        if scene not in self._scenes:
            world = self._hay.after()
            cause = scene(world)
            assert world.state.offset > 100_000
            self._scenes[scene] = world.entries[len(self.entries) :], cause
        return self._scenes[scene]


@pytest.fixture(scope="module")
def hay() -> Hay:
    return Hay()


def _explained(job_histories: JobHistories, entries: list[Entry]) -> Explanation:
    for entry in entries:
        job_histories.feed(entry)
    job_histories.finish()
    story = job_histories.stories["uid-victim"]
    job = story.state.jobs[story.uid]
    return explanation(story, job, job_histories.retaken(job.uid, job.attempt))


@pytest.mark.parametrize("name", list(WAITS))
def test_explain_names_the_event_that_keeps_a_job_waiting(name: str, hay: Hay) -> None:
    entries, cause = hay.scene(WAITS[name])
    waiting = _explained(hay.job_histories(), entries).waiting
    assert waiting is not None
    assert [blocker.offset for blocker in waiting.blockers] == [cause]
    assert waiting.blockers[0].text
    assert [remedy.undoes for remedy in waiting.remedies if remedy.undoes >= cause]


@pytest.mark.parametrize("name", list(HAPPENED))
def test_explain_names_the_event_that_a_job_was_restarted_or_failed_for(name: str, hay: Hay) -> None:
    entries, cause = hay.scene(HAPPENED[name])
    consequence = _explained(hay.job_histories(), entries).consequences[0]
    assert [one.offset for one in consequence.causes if one.text != "it was started"] == [cause]
    assert consequence.offset > cause


def _bisected(hay: Hay, entries: list[Entry]) -> int:
    """The offset of the event since which the victim is blocked, as `arranger bisect --job victim --blocked` finds it
    from where the victim came."""
    offset, first = next(
        (entry.first + number, event)
        for entry in entries
        for number, event in enumerate(entry.batch.events)
        if isinstance(event, k.JobSeen) and event.name == "victim"
    )

    def conditions() -> list[Condition]:
        found: list[Condition] = [
            Negated(QuorumFits(first, CycleConfig())),
            Negated(WouldBePlaced(QuorumFits(first, CycleConfig()))),
        ]
        for condition, entry in itertools.product(found, hay.entries):
            condition.note(entry)
        return found

    search = Search(hay.state(), conditions(), Span(first=Point(offset=offset)), first_only=False)
    for entry in entries:
        search.feed(entry)
    which = next(number for number, run in enumerate(search.runs) if run.holds)
    refinement = Refinement(hay.state(), conditions()[which], search.runs[which].last)
    for entry in entries:
        if not refinement.feed(entry):
            break
    assert refinement.found is not None
    return refinement.found.event.offset


@pytest.mark.parametrize("name", list(WAITS))
def test_bisect_names_the_event_that_keeps_a_job_waiting(name: str, hay: Hay) -> None:
    entries, cause = hay.scene(WAITS[name])
    # A job whose pod was refused has its nodes until the controller decides on it, which is the next event.
    assert _bisected(hay, entries) == (cause + 1 if name == "refused_node" else cause)
