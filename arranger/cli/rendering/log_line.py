"""A line of the log as programs read it."""

from typing import Any

import msgspec

from arranger.cli.rendering.output import local_time
from arranger.replay.reading.describe import as_object
from arranger.replay.reading.listing import Line


def as_json(line: Line) -> dict[str, Any]:
    """A line of the log as an object, its time readable too."""
    return {**msgspec.structs.asdict(line), "time": local_time(line.time_ms), "event": as_object(line.event)}
