"""How long room may be reserved for a pod group (`scheduleTimeoutSeconds`), and what follows."""

import pytest

from arranger.events import kinds as k
from arranger.kube.pod_groups import pod_group_seen
from arranger.lifecycle.due import due_ms
from arranger.messages.decisions import stage_text
from arranger.model.job import Stage
from arranger.model.pod import GroupKind
from arranger.model.stages import StageReason
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.projections.jobs.records import JobRecord
from tests.unit.replay_worlds import verified
from tests.unit.test_pod_group_objects import group
from tests.unit.test_reservations import GPU, end, running, world
from tests.world import World, shape


def reserved(timeout_s: int | None) -> tuple[World, JobRecord, JobRecord, JobRecord]:
    """A node of four GPUs, on which `first` has two. The group `train` of four has the reservation, `behind` needs the
    free ones and waits for that."""
    of = world()
    first = running(of, "first", 2, expected_s=1000)
    for number in range(4):
        train = of.pod_to_place(f"p{number}", of=GPU, group="train", group_kind=GroupKind.COSCHEDULING)
    of.pod_group("train", 4, schedule_timeout_s=timeout_s)
    behind = of.pod_to_place("behind", of=shape(cpu=1, gpus=2), priority=-1)
    of.cycle()
    assert [*of.state.reservations] == [train.uid] and not behind.placements
    return of, first, train, behind


def test_a_reservation_ends_after_its_time_and_the_group_backs_off() -> None:
    of, _, train, behind = reserved(60)
    of.pass_time(40)
    of.cycle()  # revised, which doesn't begin its time again
    assert due_ms(of.state, train, of.lifecycle, of.now_ms) == of.now_ms + 20_000
    assert of.control() == []
    of.pass_time(20)
    (decided,) = of.control()
    assert isinstance(decided, k.StageDecided) and decided.reason == StageReason.RESERVATION_OVER
    assert "in the 60 s" in stage_text(decided) and train.stage == Stage.PENDING
    assert not of.state.reservations and train.not_before_ms == of.now_ms + decided.back_off_ms > of.now_ms
    of.cycle()
    assert behind.placements and not train.placements
    validate(of.state)
    restored = snapshot.restore(snapshot.encode(of.state))
    assert snapshot.digest(restored) == of.digest()
    assert verified(of.entries).sound


def test_the_group_is_back_after_its_back_off_and_backs_off_longer_the_next_time() -> None:
    of, first, train, _ = reserved(60)
    of.pass_time(60)
    (once,) = of.control()
    of.wait_for_back_offs()
    of.cycle()
    assert [*of.state.reservations] == [train.uid]
    assert of.control() == [], "its time begins again"
    of.pass_time(60)
    (twice,) = of.control()
    assert isinstance(once, k.StageDecided) and isinstance(twice, k.StageDecided)
    assert twice.back_off_ms == 2 * once.back_off_ms
    of.wait_for_back_offs()
    end(of, first)
    of.cycle()
    assert len(train.placements) == 4 or of.state.reservations


@pytest.mark.parametrize("limit_s", [None, 10_000])
def test_without_such_a_limit_or_before_it_the_reservation_stays(limit_s: int | None) -> None:
    of, _, train, _ = reserved(limit_s)
    of.pass_time(3600)
    assert of.control() == []
    of.cycle()
    assert [*of.state.reservations] == [train.uid]


@pytest.mark.parametrize(
    ("kind", "seconds", "limit_s"),
    [
        (GroupKind.COSCHEDULING, 10, 10),
        (GroupKind.COSCHEDULING, 0, None),
        (GroupKind.COSCHEDULING, None, None),
        (GroupKind.VOLCANO, 10, None),
    ],
)
def test_a_podgroup_of_coscheduling_names_the_limit(kind: GroupKind, seconds: int | None, limit_s: int | None) -> None:
    seen = pod_group_seen(kind, group({"minMember": 1, "scheduleTimeoutSeconds": seconds}), 1)
    assert seen.facts.schedule_timeout_s == limit_s
