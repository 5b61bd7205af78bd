"""A job that a limit keeps waiting is told whether the nodes have too little for it as well: then more of the limit
alone gives it nothing."""

from collections.abc import Callable

import msgspec
import pytest

from arranger.events import kinds as k
from arranger.events.facts import BeyondLimit
from arranger.messages.shortages import waits_text
from arranger.model.queue import NonPreemptible
from arranger.model.quota import LimitKind
from arranger.model.reasons import Reason, ReasonKind
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Reservation, State
from arranger.replay.explain.in_queue import KeptBy
from arranger.replay.ledger.causes import Cause, causes_of
from arranger.replay.ledger.waits import WaitLedger
from arranger.replay.reading.history import Span
from arranger.scheduling.cycle import VERSIONS
from arranger.scheduling.search import placer
from arranger.settings import Settings
from tests.unit.replay_worlds import explained
from tests.world import World, shape

GPU = "nvidia.com/gpu"
CONFIG = msgspec.structs.replace(Settings().cycle_config(VERSIONS), preemption=None, reservations=0)


def _capability(world: World) -> None:
    world.queue("p", capability=((GPU, 24),))


def _capability_above(world: World) -> None:
    world.queue("all", capability=((GPU, 24),))
    world.queue("p", parent="all")


def _max_running(world: World) -> None:
    world.queue("p", max_running=1)


def _quota(world: World) -> None:
    world.queue("p")
    world.quota("gpus", {f"requests.{GPU}": 24})


def _world(limit: Callable[[World], None]) -> World:
    """Four nodes of 8 GPUs, one of them cordoned, and a job that has 8 GPUs of what the limit leaves."""
    world = World(config=CONFIG)
    limit(world)
    for number in range(1, 5):
        world.node(f"n{number}", gpus=8, cordoned=number == 4)
    assert _job(world, "first", pods=1).placements == {} and world.cycle()
    return world


def _job(world: World, name: str, *, pods: int = 3, created: int = 0, preemptible: bool = True) -> JobRecord:
    """A job of pods that take a whole node each."""
    return world.job(
        name, of_queue="p", workers=pods, min_workers=pods, worker=shape(cpu=1, gpus=8), created=created,
        preemptible=preemptible,
    )  # fmt: skip


def _limit_of(job: JobRecord) -> BeyondLimit:
    assert job.waits is not None and isinstance(job.waits.shortage, BeyondLimit)
    return job.waits.shortage


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        (_capability, LimitKind.CAPABILITY),
        (_capability_above, LimitKind.CAPABILITY),
        (_max_running, LimitKind.MAX_RUNNING),
        (_quota, LimitKind.QUOTA),
    ],
)
def test_a_limit_beside_which_nodes_have_too_little_is_not_told_as_all_that_lacks(
    limit: Callable[[World], None], kind: LimitKind
) -> None:
    world = _world(limit)
    big = _job(world, "big", created=1)
    world.cycle()
    told = _limit_of(big)
    assert told.quota.limit == kind and told.nodes is not None and (told.nodes.found, told.nodes.asked) == (3, 4)
    assert waits_text(big).endswith(
        f"; nodes have too little as well: 3 of 4 required pods fit; beside them, actors: 0 of 4 nodes fit: "
        f"3 insufficient {GPU} (needs 8, at most 0 free), 1 cordoned"
    )
    world.node("n4", gpus=8)
    world.pass_time(1)
    world.cycle()
    assert _limit_of(big).nodes is None and "nodes" not in waits_text(big).replace("with nodes", "")


def test_what_may_not_be_used_without_preemption_is_told_with_what_nodes_lack() -> None:
    world = _world(lambda of: of.queue("p", deserved=((GPU, 8),), non_preemptible=NonPreemptible.WITHIN_DESERVED))
    big = _job(world, "big", created=1, preemptible=False)
    world.cycle()
    assert _limit_of(big).quota.limit == LimitKind.NON_PREEMPTIBLE and _limit_of(big).nodes is not None


def test_further_workers_beyond_a_limit_are_told_whether_a_node_would_take_them() -> None:
    world = World(config=CONFIG)
    world.queue("p", capability=((GPU, 8),))
    world.node("n1", gpus=8)
    grown = world.job("grown", of_queue="p", workers=3, min_workers=1, worker=shape(cpu=1, gpus=8))
    world.cycle()
    assert len(grown.placements) == 2 and _limit_of(grown).further and _limit_of(grown).nodes is not None
    world.node("n2", gpus=8)
    world.pass_time(1)
    world.cycle()
    assert _limit_of(grown).nodes is None


def test_explain_says_of_both_that_they_keep_a_job_waiting() -> None:
    world = _world(_capability)
    _job(world, "big", created=1)
    world.cycle()
    found = explained(world.entries, "big").waiting
    assert found is not None and found.in_queue is not None
    assert (found.in_queue.kept_by, found.in_queue.no_nodes) == (KeptBy.CAPABILITY, True)
    assert "nodes have too little as well: 3 of 4 required pods fit" in found.why
    world.node("n4", gpus=8)
    found = explained(world.entries, "big").waiting
    assert found is not None and found.in_queue is not None
    assert (found.in_queue.kept_by, found.in_queue.no_nodes) == (KeptBy.CAPABILITY, False)


def test_a_cycle_asks_nodes_for_so_many_quorums_alone_and_keeps_what_is_recorded_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placer, "SOUGHT", 1)
    world = _world(_capability)
    big, other = _job(world, "big", created=1), _job(world, "other", pods=4, created=2)
    world.cycle()
    assert _limit_of(big).nodes is not None and _limit_of(other).nodes is None
    world.job_gone(big)
    world.pass_time(1)
    world.cycle()
    assert _limit_of(other).nodes is not None
    _job(world, "large", pods=5)
    world.pass_time(1)
    world.cycle()
    assert _limit_of(other).nodes is not None


def test_older_logs_name_the_limit_alone() -> None:
    world = _world(_capability)
    world.config = msgspec.structs.replace(CONFIG, beside_limits=False)
    big = _job(world, "big", created=1)
    world.cycle()
    assert _limit_of(big).nodes is None


def test_a_limit_and_nodes_that_both_have_too_little_share_the_time_that_a_job_waits() -> None:
    world = _world(_capability)
    big = _job(world, "big", created=1)
    world.cycle()
    causes = dict(causes_of(world.state, big))
    assert causes.keys() > {Cause.CAPABILITY}
    assert causes.pop(Cause.CAPABILITY) == sum(causes.values())


def test_closed_nodes_beside_a_limit_count_only_while_they_have_room() -> None:
    world = _world(_capability)
    big = _job(world, "big", created=1)
    world.cycle()
    assert dict(causes_of(world.state, big)) == {Cause.CAPABILITY: 2, Cause.CLOSED: 1, Cause.ROOM: 1}
    world.pass_time(8)
    world.pod("other", node="n4", gpus=8)
    assert dict(causes_of(world.state, big)) == {Cause.CAPABILITY: 1, Cause.ROOM: 1}
    world.pass_time(4)
    world.node("n9", cpu=1)
    ledger = WaitLedger(State(), Span(), CONFIG)
    for entry in world.entries:
        ledger.feed(entry)
    ledger.finish()
    told = {line.cause: line.wait_ms for line in ledger.lines if line.waiter.job == "default/big"}
    assert (told[Cause.CAPABILITY], told[Cause.CLOSED]) == (4_000 + 2_000, 2_000)


def test_room_reserved_for_others_counts_beside_a_limit_as_long_as_they_have_reservations() -> None:
    world = _world(_capability)
    big, ahead, other = (_job(world, name, created=1) for name in ("big", "ahead", "other"))
    world.cycle()
    assert big.waits is not None
    nodes = _limit_of(big).nodes
    assert nodes is not None
    reserved = msgspec.structs.replace(nodes, reasons=((Reason(ReasonKind.RESERVED), 2),), kept_by=(ahead.uid,))
    big.waits = msgspec.structs.replace(big.waits, shortage=msgspec.structs.replace(_limit_of(big), nodes=reserved))
    for job in (ahead, other):
        decided = k.Reserved(job.uid, job.version, 0, ())
        world.state.reservations[job.uid] = Reservation(decided, 0, 0)
    assert dict(causes_of(world.state, big)) == {Cause.CAPABILITY: 2, Cause.RESERVATION: 2}
    ledger = WaitLedger(world.state, Span(), CONFIG)
    assert ledger._kept_for(big) == (ahead.uid,)
    del world.state.reservations[ahead.uid]
    assert dict(causes_of(world.state, big)) == {Cause.CAPABILITY: 1}
