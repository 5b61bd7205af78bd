"""What is typed as a point of the log: one table for the commands and for the console, each held to it by a test.

It is typed at `NOW_MS`, which is also the time of the log's end, in `ZONE`. The console has a third value where it
differs: it counts from the point that is shown, of `SHOWN_MS`, and a time of day is of that point's day.
"""

from datetime import datetime

from arranger.replay.reading.history import END, Point

ZONE = "Europe/Berlin"
NOW_MS = 1_780_000_000_000  # 2026-05-28T20:26:40Z
SHOWN_MS = 1_777_881_600_500  # 2026-05-04T08:00:00.500Z

#: The offset of an event, a time, a point with both, or "end"; None is refused.
Meant = int | str | Point | None

_CASES: list[tuple[str, Meant] | tuple[str, Meant, Meant]] = [
    # Events.
    ("77", 77),
    ("#77", 77),
    ("77@1777881600500", Point(offset=77, time_ms=SHOWN_MS), None),
    ("77@", None),
    ("77@10:30", None),
    (" 77 ", 77),
    ("# 77", None),
    ("-5", None),
    ("1.5", None),
    ("0", 0, None),
    ("999999999999999", 999_999_999_999_999),
    ("9999999999999999", None),
    ("٧٧", None),
    # The ends.
    ("start", 1),
    ("end", "end"),
    ("now", "end"),
    ("  End", "end"),
    ("end 5", None),
    ("start ago", None),
    # Ago.
    ("2h ago", "2026-05-28T18:26:40Z"),
    ("2hago", "2026-05-28T18:26:40Z"),
    ("2 h ago", "2026-05-28T18:26:40Z"),
    ("2H ago", "2026-05-28T18:26:40Z"),
    ("2h Ago", "2026-05-28T18:26:40Z"),
    ("2h", "2026-05-28T18:26:40Z"),
    ("1h30m ago", "2026-05-28T18:56:40Z"),
    ("1h  30min\tago", "2026-05-28T18:56:40Z"),
    ("1h30m", "2026-05-28T18:56:40Z"),
    ("90s ago", "2026-05-28T20:25:10Z"),
    ("250ms ago", "2026-05-28T20:26:39.750Z"),
    ("0.5d ago", "2026-05-28T08:26:40Z"),
    ("1.5h ago", "2026-05-28T18:56:40Z"),
    ("1w ago", "2026-05-21T20:26:40Z"),
    ("2w 1d ago", "2026-05-13T20:26:40Z"),
    (".5h ago", None),
    ("1,5h ago", None),
    ("10 minutes ago", None),
    ("2h 30 ago", None),
    ("ago", None),
    ("h ago", None),
    ("٢h ago", None),
    ("9999999999d ago", None),
    # Counted from now, or from what is shown.
    ("-2h", "2026-05-28T18:26:40Z", "2026-05-04T06:00:00.500Z"),
    ("- 2h", "2026-05-28T18:26:40Z", "2026-05-04T06:00:00.500Z"),
    ("−2h", "2026-05-28T18:26:40Z", "2026-05-04T06:00:00.500Z"),
    ("-1h 30m", "2026-05-28T18:56:40Z", "2026-05-04T06:30:00.500Z"),
    ("-0.25s", "2026-05-28T20:26:39.750Z", "2026-05-04T08:00:00.250Z"),
    ("-2h ago", None),
    ("--2h", None),
    ("-", None),
    ("+2h", None, "2026-05-04T10:00:00.500Z"),
    ("+10m", None, "2026-05-04T08:10:00.500Z"),
    # Days.
    ("today", "2026-05-27T22:00:00Z"),
    ("yesterday", "2026-05-26T22:00:00Z"),
    ("yesterday 15:00", "2026-05-27T13:00:00Z"),
    ("Yesterday  15:00", "2026-05-27T13:00:00Z"),
    ("yesterday 9:30", "2026-05-27T07:30:00Z"),
    ("yesterday 9:30:15", "2026-05-27T07:30:15Z"),
    ("yesterday 15:00Z", "2026-05-27T15:00:00Z"),
    ("today 22:26:40", "2026-05-28T20:26:40Z"),
    ("tomorrow", None),
    ("yesterday noon", None),
    ("yesterday 15", None),
    ("yesterday 1500", None),
    ("yesterday 15:00 ago", None),
    ("yesterday2", None),
    # Times of day, of today, or of the day that is shown.
    ("15:00", "2026-05-28T13:00:00Z", "2026-05-04T13:00:00Z"),
    ("9:30", "2026-05-28T07:30:00Z", "2026-05-04T07:30:00Z"),
    ("9:30:15", "2026-05-28T07:30:15Z", "2026-05-04T07:30:15Z"),
    ("22:26:40.250", "2026-05-28T20:26:40.250Z", "2026-05-04T20:26:40.250Z"),
    ("15:00+00:00", "2026-05-28T15:00:00Z", "2026-05-04T15:00:00Z"),
    ("0:00", "2026-05-27T22:00:00Z", "2026-05-03T22:00:00Z"),
    ("24:00", None),
    ("25:00", None),
    ("15:60", None),
    ("15:00:60", None),
    ("15:0", None),
    ("15:", None),
    ("T15:00", None),
    # ISO times. In March the hour after 2:00 is missing, in October it is there twice.
    ("2026-05-04", "2026-05-03T22:00:00Z"),
    ("2026-05-04T10:30", "2026-05-04T08:30:00Z"),
    ("2026-05-04T10:30:00", "2026-05-04T08:30:00Z"),
    ("2026-05-04t9:30", "2026-05-04T07:30:00Z"),
    ("2026-05-04 10:30:00", "2026-05-04T08:30:00Z"),
    ("2026-05-04T10:30:00Z", "2026-05-04T10:30:00Z"),
    ("2026-05-04T10:30:00z", "2026-05-04T10:30:00Z"),
    ("2026-05-04 10:30:00.250+02:00", "2026-05-04T08:30:00.250Z"),
    ("2026-05-04 22:26:40 +02:00", "2026-05-04T20:26:40Z"),
    ("2026-05-04T10:30-0530", "2026-05-04T16:00:00Z"),
    ("2026-05-04T10:30+02", "2026-05-04T08:30:00Z"),
    ("2026-01-15 12:00", "2026-01-15T11:00:00Z"),
    ("2026-03-29 02:30", "2026-03-29T01:30:00Z"),
    ("2026-10-25 02:30", "2026-10-25T00:30:00Z"),
    ("2026-13-01", None),
    ("2026-02-30", None),
    ("2026-02-30T10:00", None),
    ("2026-5-4", None),
    ("2026-05-04T", None),
    ("2026-05-04T24:00", None),
    ("2026-05-04 noon", None),
    ("2026-05-04T10:30+25:00", None),
    ("2026-05-04T10:30 CET", None),
    ("04.05.2026", None),
    ("99999-01-01", None),
    ("0000-01-01", None),
    # Nothing.
    ("", None),
    ("  ", None),
    ("nonsense", None),
]


def _point(meant: Meant) -> Point | None:
    if meant == "end" or meant is None:
        return END if meant else None
    if isinstance(meant, Point):
        return meant
    if isinstance(meant, int):
        return Point(offset=meant)
    return Point(time_ms=round(datetime.fromisoformat(meant).timestamp() * 1000))


FOR_COMMANDS = [(typed, _point(meant[0])) for typed, *meant in _CASES]
FOR_CONSOLE = [(typed, _point(meant[-1])) for typed, *meant in _CASES]
