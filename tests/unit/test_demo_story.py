"""The story that the demo tells as it runs says the same as the commands that read its log later."""

import asyncio
import re
from pathlib import Path

import pytest

from arranger.cli.rendering.demo_story import Story
from arranger.cli.rendering.output import duration
from arranger.events.file_log import FileLog
from tests.commands import Run

LOG = Path(__file__).parents[1] / "histories" / "demo.log"
_WAITED = re.compile(r"(\S+) runs; it waited( again)? for (\S+)")


async def waits_told() -> list[tuple[str, bool, str]]:
    log, story = FileLog(LOG), Story()
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
