"""What explain says of room that is kept, once its time has come."""

import msgspec

from arranger.replay.explain.room_words import start_rows, waiting_rows
from arranger.replay.explain.taken_room import KeptFor, KeptReservation, LimitForIt
from tests.unit.replay_worlds import explained
from tests.unit.test_remedies_of_reservations import waiting_for_an_endless_job


def test_a_start_that_has_passed_is_not_said_to_come() -> None:
    answer = explained(waiting_for_an_endless_job().entries, "large")
    now_ms, waiting = answer.time_ms, answer.waiting
    assert waiting is not None

    def told(start_ms: int) -> list[str]:
        others = tuple(KeptFor("default/first", start_ms, nodes, ("default/runs",)) for nodes in (("n1",), ()))
        own = KeptReservation(7, 0, start_ms, 0, ("n3",), ("default/runs",), (), 0)
        of = msgspec.structs.replace(
            answer,
            start=None,
            kept=own,
            kept_limit=LimitForIt("a limit", start_ms, ()),
            waiting=msgspec.structs.replace(waiting, reserved=others, takes_none=()),
        )
        assert of.waiting is not None
        rows = [*start_rows(of, str), *waiting_rows(of.waiting, of.time_ms, str)]
        return [text for name, text in rows if name != "requests"]

    assert told(now_ms + 1) == [
        f"n3, expected to start at {now_ms + 1} (offset 7); after the end of default/runs",
        f"a limit; enough is expected to be left at {now_ms + 1}",
        f"default/first, which is expected to start there at {now_ms + 1}, after the end of default/runs: n1",
        f"default/first; enough is expected to be left at {now_ms + 1}, after the end of default/runs",
    ]
    assert told(now_ms) == [
        f"n3, where it was expected to start at {now_ms} (offset 7); after the end of default/runs",
        f"a limit; enough was expected to be left at {now_ms}",
        f"default/first, which was expected to start there at {now_ms}, after the end of default/runs, and hasn't yet"
        ": n1",
        f"default/first; enough was expected to be left at {now_ms}, after the end of default/runs",
    ]
