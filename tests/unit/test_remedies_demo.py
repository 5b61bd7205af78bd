"""What `explain` says would give a job nodes, on the log of the demo: what it costs others, and what it supposes."""

from arranger.cli.inputs.explainer import Explainer
from arranger.events.file_log import FileLog
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.explain.job_history import AskedJob
from arranger.replay.explain.waiting import Waiting
from arranger.replay.reading.history import Point
from tests.servers import REPOSITORY

LOG = REPOSITORY / "tests" / "histories" / "demo.log"


async def waiting_at(name: str, at: int) -> Waiting:
    log = FileLog(LOG)
    await log.open()
    answer = await Explainer(log).explain(AskedJob(name, "default"), Point(offset=at))
    await log.close()
    assert answer.waiting is not None
    return answer.waiting


async def test_added_nodes_are_for_as_many_jobs_ahead_as_the_page_lists() -> None:
    """Offset 62: sweep-2 was ahead until this cycle, which placed it."""
    waiting = await waiting_at("never-fits", 62)
    assert (waiting.position, [one.job for one in waiting.ahead]) == (2, ["default/waits-its-turn"])
    assert [one.text for one in waiting.remedies] == [
        "learner asking for 8 nvidia.com/gpu instead of 64; then it waits for room",
        "2 more nodes like node-4 with 64 nvidia.com/gpu (one of them for a job ahead of it and default/sweep-2, "
        "which was ahead of it before this cycle)",
    ]


async def test_a_job_that_has_ended_gives_room_once_its_pods_have_left() -> None:
    """Offset 160 and 163: goes-first has ended, and one of its pods is still to be deleted; 162: so it is, but the
    cycle was taken just before; 166: the pod is being deleted."""
    for at in (160, 162, 163, 166):
        waiting = await waiting_at("waits-its-turn", at)
        first, *others = [one.text for one in waiting.remedies]
        assert first == "when the pod that leaves is gone: default/goes-first-actors-0 (8 nvidia.com/gpu on node-2)"
        assert not any("goes-first" in other for other in others)
        assert waiting.in_queue is not None and waiting.in_queue.kept_by == KeptBy.LEAVING


async def test_room_that_a_job_ahead_takes_after_its_dry_run_is_promised_to_nobody_behind_it() -> None:
    """Offset 105: segment, of a queue that is ahead, takes the node of sweep-2 as soon as its dry run is made."""
    waiting = await waiting_at("waits-its-turn", 105)
    assert [one.job for one in waiting.ahead] == ["default/segment"]
    (text,) = [one.text for one in waiting.remedies if one.text.startswith("priority")]
    assert text == (
        "priority 9 would let it take room from default/goes-first (Priority, 2 pods, 96.72 GPU seconds of work lost)"
    ), "not 8, and not from sweep-2"
