"""A line of the log as JSON for programs."""

from typing import Any

import msgspec

from arranger.cli.rendering.output import local_time
from arranger.replay.reading.listing import EventLine, ListedEvent


def as_json(line: EventLine) -> dict[str, Any]:
    """The line as an object, also with its time as text."""
    return {**msgspec.structs.asdict(ListedEvent.of(line)), "time": local_time(line.time_ms)}
