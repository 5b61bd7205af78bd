"""The story that the demo tells as it runs says the same as the commands that read its log later."""

import asyncio
import re
from pathlib import Path

import pytest

from arranger.cli.commands.demo import environment
from arranger.cli.rendering.demo_story import DemoStory, LongestWait
from arranger.cli.rendering.output import duration
from arranger.events.file_log import FileLog
from tests.commands import Run
from tests.unit.replay_worlds import explained, preempting

LOG = Path(__file__).parents[1] / "histories" / "demo.log"
AGAIN = "has all of its pods again"
_WAITED = re.compile(r"(\S+) runs; it waited( again)? for (\S+)")


async def lines_of(story: DemoStory) -> list[list[str]]:
    """The lines of each entry."""
    log = FileLog(LOG)
    await log.open()
    entries = await log.read(await log.start())
    return [[*story.feed(entry)] for entry in entries]


def test_the_story_tells_that_all_pods_are_there_again_once_the_table_beside_it_shows_that() -> None:
    """The status of a job, which the table shows, is written once a second at most."""
    at_once = asyncio.run(lines_of(DemoStory()))
    when = next(place for place, lines in enumerate(at_once) if any(AGAIN in line for line in lines))
    shown: list[bool] = []
    late = DemoStory(shows_all=lambda name: name == "loses-a-worker" and bool(shown))
    told = asyncio.run(lines_of(late))
    assert not any(AGAIN in line for lines in told for line in lines)
    assert [*late.shown()] == []
    shown.append(True)
    assert [*late.shown()] == at_once[when]
    assert [*late.shown()] == []


def test_a_point_at_which_a_job_waits_is_none_at_which_it_runs_for_longer() -> None:
    """A victim waits for a moment, runs for long, and waits again."""
    world = preempting()
    low = world.state.jobs["uid-low"]
    found = LongestWait("uid-low")
    for entry in world.entries:
        found.feed(entry)
    assert found.at is not None and low.waits is not None
    assert explained([of for of in world.entries if of.last <= found.at], "low").waiting is not None
    ran = LongestWait("uid-wide")
    for entry in world.entries:
        ran.feed(entry)
    assert ran.at is None


async def waits_told() -> list[tuple[str, bool, str]]:
    log, story = FileLog(LOG), DemoStory()
    await log.open()
    entries = await log.read(await log.start())
    told = [line for entry in entries for line in story.feed(entry)]
    return [(found[1], bool(found[2]), found[3]) for line in told if (found := _WAITED.match(line))]


def test_a_wait_in_the_story_is_that_of_explain(capsys: pytest.CaptureFixture[str]) -> None:
    told = asyncio.run(waits_told())
    assert len(told) >= 2
    for name, again, waited in told:
        explained = Run(capsys, "explain", name, "--log", str(LOG), "-o", "json").json
        stage = "Rescheduling" if again else "Pending"
        assert waited == duration(sum(one["span_ms"] for one in explained["spent"] if one["stage"] == stage))


def test_the_demo_forecasts_as_its_environment_says_and_takes_no_log_from_it() -> None:
    given = {"PATH": "/bin", "ARRANGER_FORECAST_EVERY_S": "0", "ARRANGER_REDIS_URL": "redis://mine"}
    assert environment(given) == {"PATH": "/bin", "ARRANGER_FORECAST_EVERY_S": "0"}
