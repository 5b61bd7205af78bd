"""For how long a job waited, and for what: explain and the accounts of a log agree, and the parts are the whole."""

from pathlib import Path

import msgspec
import pytest

from arranger.model.queue import QueueSpec
from arranger.projections.state import State
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.headline import headline
from arranger.replay.ledger.waits import WaitLedger
from arranger.replay.reading.history import Span
from tests.commands import Run, to_file
from tests.unit.replay_worlds import GPU, explained, gpu_job
from tests.unit.test_preemption import CONFIG
from tests.world import World, shape


def _said(answer: Explanation) -> str:
    return headline(answer, str).rpartition("; ")[2]


def _account_ms(world: World) -> int:
    ledger = WaitLedger(State(), Span(), world.config)
    for entry in world.entries:
        ledger.feed(entry)
    ledger.finish()
    return ledger.wait_ms


def test_time_in_which_it_is_suspended_is_no_time_that_it_waited() -> None:
    world = World()
    world.node("n1", gpus=1)
    gpu_job(world, "j", 1, suspend=True)
    world.control()
    world.pass_time(8)
    gpu_job(world, "j", 1)
    world.pass_time(2)
    world.settle()
    answer = explained(world.entries, "j")
    assert _said(answer) == "it waited 2.0s"
    assert sum(one.span_ms for one in answer.waited) == _account_ms(world) == 2000
    assert [(one.waiting_for, one.span_ms) for one in answer.spent if one.waits] == [("a first scheduling cycle", 2000)]


def test_what_was_suspended_while_it_waited_counts_without_that() -> None:
    world = World()
    world.node("n1", gpus=1, cordoned=True)
    gpu_job(world, "j", 1)
    world.cycle()
    world.pass_time(3)
    gpu_job(world, "j", 1, suspend=True)
    world.control()
    world.pass_time(30)
    gpu_job(world, "j", 1)
    world.cycle()
    world.pass_time(4)
    world.node("n1", gpus=1)
    world.settle()
    answer = explained(world.entries, "j")
    assert _said(answer) == "it waited 7.0s"
    assert sum(one.span_ms for one in answer.waited) == _account_ms(world) == 7000


def test_a_wait_that_is_over_is_told_while_the_job_waits_for_the_same_again() -> None:
    world = World()
    world.node("n1", gpus=1, cordoned=True)
    gpu_job(world, "j", 1)
    world.cycle()
    world.pass_time(19)
    world.node("n1", gpus=1)
    world.settle()
    gpu_job(world, "j", 1, suspend=True)
    world.settle()
    world.node("n1", gpus=1, cordoned=True)
    gpu_job(world, "j", 1)
    world.cycle()
    world.pass_time(5)
    world.node("n2", cordoned=True)
    answer = explained(world.entries, "j")
    waits = [one for one in answer.waited if one.for_quorum]
    assert [(one.reasons, one.span_ms) for one in waits] == [("cordoned", 19_000)]
    assert sum(one.span_ms for one in answer.spent if one.waits) == _account_ms(world) == 24_000


@pytest.fixture
def misspelt() -> World:
    """A job that waited for a queue that didn't exist, and then a little for room."""
    world = World()
    world.watch_queues()
    world.queue("default", QueueSpec())
    world.node("n1", gpus=1)
    gpu_job(world, "first", 1)
    world.settle()
    gpu_job(world, "j", 1, of_queue="nosuch")
    world.cycle()
    world.pass_time(23)
    gpu_job(world, "j", 1, of_queue="default")
    world.pass_time(1)
    world.cycle()
    world.pass_time(3)
    world.node("n2", gpus=1)
    world.settle()
    return world


def test_the_longest_wait_is_named_first_and_all_of_them_are_the_whole(misspelt: World) -> None:
    answer = explained(misspelt.entries, "j")
    assert [(one.text, one.span_ms, one.what) for one in answer.waited] == [
        ("a queue that it can use", 23_000, "Queue"),
        (GPU, 3000, "QuorumNodes"),
        ("a first scheduling cycle", 1000, "FirstCycle"),
    ]
    assert _said(answer) == "it waited 27.0s"


def test_the_page_tells_them_with_the_command_for_the_longest(
    misspelt: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = to_file(misspelt.entries, tmp_path / "log")
    told = Run(capsys, "explain", "j", *log).out
    at = explained(misspelt.entries, "j").waited[0].offset
    assert (
        f"  waited    it waited 23.0s for a queue that it can use: arranger explain j {' '.join(log)} --at {at}\n"
        in told
    )
    assert f"            and 3.0s for {GPU}; 1.0s for a first scheduling cycle\n" in told


def test_of_refused_nodes_the_reasons_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1, cordoned=True)
    gpu_job(world, "j", 1)
    world.cycle()
    world.pass_time(5)
    world.node("n1", gpus=1)
    world.settle()
    told = Run(capsys, "explain", "j", *to_file(world.entries, tmp_path / "log")).out
    assert "  waited    it waited 5.0s for nodes, none of which would do: cordoned; arranger explain j " in told


def _answers(*, ago_ms: int) -> tuple[str, int, int]:
    """Of a job that is seen a minute after the beginning of the log, was created so long before that, and gets nodes
    2 s later: the first sentence, the sum of the waits, and the account of the log."""
    world = World()
    world.node("n1", gpus=1)
    world.pass_time(60)
    world.job("j", workers=1, worker=shape(gpus=1), min_workers=1, equals=True, created=world.now_ms - ago_ms)
    world.pass_time(2)
    world.settle()
    answer = explained(world.entries, "j")
    return _said(answer), sum(one.span_ms for one in answer.waited), _account_ms(world)


def test_a_job_waits_from_its_creation_though_nobody_watched_then() -> None:
    """One scheduler had ended, and no other had taken over. A creation has whole seconds."""
    assert _answers(ago_ms=5000) == ("it waited 6.0s", 6000, 6000)
    assert _answers(ago_ms=900) == ("it waited 2.0s", 2000, 2000)


def test_a_job_that_is_older_than_the_log_waits_from_its_first_observation() -> None:
    assert _answers(ago_ms=61_000) == ("it waited 2.0s", 2000, 2000)


def test_a_waiting_job_says_since_its_creation() -> None:
    world = World()
    world.pass_time(60)
    world.job("j", leader=shape(gpus=1), created=world.now_ms - 5000)
    world.cycle()
    answer = explained(world.entries, "j")
    assert headline(answer, str) == f"default/j waits since {world.now_ms - 4000}, for 4.0s"


def test_time_beside_reserved_room_is_told_apart_from_that_without_any_room() -> None:
    """A platform engineer's job waited for 56 of 76 seconds beside idle GPUs, which were reserved, and all of that was
    said to be for GPUs."""
    world = World(config=msgspec.structs.replace(CONFIG, reservations=1, reservation_refresh_ms=30_000, guests=True))
    for name in ("n1", "n2"):
        world.node(name, cpu=64, gpus=8)
    for name in ("runs", "fills"):
        world.job(name, leader=shape(gpus=8), preemptible=False)
    world.settle()
    world.job("wide", workers=2, worker=shape(gpus=8), min_workers=2, equals=True, created=1)
    world.settle()
    job = world.job("j", leader=shape(gpus=1), preemptible=False, created=2)
    world.settle()
    world.pass_time(20)
    world.job("fills", leader=shape(gpus=8), preemptible=False, terminating=True)
    world.settle()
    world.pass_time(56)
    for name in ("runs", "wide"):
        world.job_gone(world.state.jobs[f"uid-{name}"])
        world.settle()
    assert job.placements
    told = {one.text: one.span_ms // 1000 for one in explained(world.entries, "j").waited}
    assert told == {"nvidia.com/gpu": 20, "nvidia.com/gpu, some of it reserved for a job ahead of it": 56}
