"""What explain says of room that is kept, once its time has come, and of room that was given to others."""

import msgspec

from arranger.replay.explain.room_words import room_rows, start_rows, waiting_rows
from arranger.replay.explain.taken_room import KeptFor, KeptReservation, LimitForIt
from tests.unit.replay_worlds import explained
from tests.unit.test_preemption import preempted, running, waiting, world
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


def test_a_gang_that_is_lost_for_one_gpu_is_told_that_its_queue_was_above_its_share() -> None:
    """Nobody else could give that GPU: the others keep within their shares."""
    of = world(nodes=4, gpus=8)
    of.queue("own", deserved=(("nvidia.com/gpu", 23),))
    of.queue("other", deserved=(("nvidia.com/gpu", 9),))
    running(of, "gang", 24, of_queue="own")
    running(of, "small", 8, of_queue="other")
    waiting(of, "one", 1, of_queue="other")
    decision = preempted(of)
    assert decision is not None
    assert [victim.job_uid for victim in decision.victims] == ["uid-gang"]
    [told] = [text for name, text in room_rows(explained(of.entries, "gang"), str) if name == "gave room"]
    assert "whose queue other is below its share, while its own queue was above, by however little: jobs aren't" in told
