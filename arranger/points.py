"""Points of a log and durations as they are typed, by which the commands and the API read them. The console reads the
same (`console/src/when.ts`); `tests/typed_points.py` has what both are held to."""

import datetime
import re

from arranger.replay.reading.history import END, Point

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d{1,9}(?:\.\d+)?) ?(ms|min|s|m|h|d|w)", re.ASCII)
_SPAN = re.compile(rf"(?:{_PART.pattern} ?)+", re.ASCII)
#: For programs, an event may be followed by the time up to which is counted, in milliseconds since 1970.
_EVENT = re.compile(r"#?([0-9]{1,15})(?:@([0-9]{1,15}))?")
#: Without a point that is shown, `-2h` is of now.
_AGO = re.compile(rf"[-−] ?{_SPAN.pattern}|{_SPAN.pattern}(?:ago)?", re.ASCII)
_MOMENT = re.compile(
    r"(?:(?P<day>today|yesterday|[12]\d{3}-\d\d-\d\d)(?:[ t](?=\d)|$))?"
    r"(?:(?P<hour>[01]?\d|2[0-3])(?P<minute>:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?)"
    r" ?(?P<zone>z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_DAYS = {"": 0, "today": 0, "yesterday": 1}


def parse_at(text: str, *, now_ms: int) -> Point:
    """An event's offset, `start`, `end`, "1h30m ago" or -1h30m, or a time: an ISO time, or a time of day, of today or
    after `yesterday`. Times are local unless they name a zone.

    Raises `ValueError` for anything else.
    """
    text = " ".join(text.split()).lower()
    if text in ("end", "now", "start"):
        return Point(offset=1) if text == "start" else END
    if event := _EVENT.fullmatch(text):
        return Point(offset=int(event[1]), time_ms=int(event[2]) if event[2] else None)
    if _AGO.fullmatch(text):
        return Point(time_ms=now_ms - _span_ms(text))
    found = _MOMENT.fullmatch(text)
    if not found or not text:
        raise ValueError(text)
    day, hour, minute, zone = found.groups(default="")
    if day in _DAYS:
        today = datetime.datetime.fromtimestamp(now_ms / 1000).date()
        day = (today - datetime.timedelta(days=_DAYS[day])).isoformat()
    moment = datetime.datetime.fromisoformat(f"{day}T{hour:0>2}{minute or ':00'}{zone.upper()}")
    return Point(time_ms=round(moment.timestamp() * 1000))


def is_point(text: str) -> bool:
    """Whether a text is a point, as `parse_at` takes it."""
    try:
        parse_at(text, now_ms=0)
    except ValueError:
        return False
    return True


def parse_duration(text: str) -> int:
    """A duration such as 90s, 1h30m or 1.5d, in milliseconds. Raises `ValueError` for anything else."""
    if not _SPAN.fullmatch(text.strip()):
        raise ValueError(text)
    return _span_ms(text)


def _span_ms(text: str) -> int:
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))
