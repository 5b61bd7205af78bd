"""The decisions of a busy hour in words, one a line: what was decided, not how the log says it.

`python -m tests.decisions` writes them to `tests/histories/busy-hour.decisions`. The inputs are the same in each run,
so a change of the log's format, or of where the code stands, leaves the file as it is; a change of it is a change of
what Arranger decides, and belongs in a commit that says so.
"""

from collections.abc import Iterator
from pathlib import Path

from arranger.events import kinds as k
from arranger.projections.state import State
from arranger.replay.reading.listing import EventFilter, Listing
from tests.busy_log import Busy

FILE = Path(__file__).with_name("histories") / "busy-hour.decisions"
#: As many rounds of `Busy` as an hour has.
_ROUNDS = 180
_KINDS = (k.Placed, k.Preempted, k.Waits, k.Reserved, k.LimitKept, k.StageDecided, k.WorkersReplaced, k.StartForecast)


def decisions() -> Iterator[str]:
    """Each decision: seconds since the log's beginning, kind, job, what was decided, and whether it counts."""
    listing, entries = Listing(State(), EventFilter()), Busy().entries(_ROUNDS)
    for entry in entries:
        for line in listing.feed(entry):
            if isinstance(line.event, _KINDS):
                at_s = (line.time_ms - entries[0].batch.time_ms) // 1000
                text = line.text.replace(".cluster.lab.example", "")
                verdict = f"{line.verdict}, {line.reason}" if line.reason else line.verdict
                yield f"{at_s:>4} {line.kind} {line.subject}: {text} ({verdict})"


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in decisions()))
