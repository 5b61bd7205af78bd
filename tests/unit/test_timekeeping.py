"""A process knows how far its clock is off, at once and without asking."""

import pytest

from arranger.errors import ClockOff
from arranger.workers.members.timekeeping import Timekeeper

HOUR_MS = 3_600_000


class Machine:
    """A machine whose two clocks and the server's are moved by hand."""

    def __init__(self) -> None:
        self.passed_s = 1000.0
        self.ahead_ms = 0

    def server_ms(self) -> int:
        return 1_700_000_000_000 + round(self.passed_s * 1000)

    def now_ms(self) -> int:
        return self.server_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return self.passed_s - 900.0

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds

    def ask(self, timekeeper: Timekeeper, *, there_s: float = 0.001, back_s: float = 0.001) -> None:
        """One question to the server, and its answer."""
        asked_s = self.monotonic_s()
        self.passed_s += there_s
        told = self.server_ms()
        self.passed_s += back_s
        timekeeper.server_said(told, asked_s=asked_s)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def timekeeper(machine: Machine) -> Timekeeper:
    return Timekeeper(machine, bound_ms=10_000)


def test_before_the_server_has_told_its_time_no_time_is_given(timekeeper: Timekeeper) -> None:
    assert timekeeper.offset_ms() is None and not timekeeper.right
    with pytest.raises(ClockOff):
        timekeeper.now_ms()


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 10_100, -10_100])
def test_a_clock_beyond_the_bound_gives_no_time_and_says_how_far_it_is_off(
    machine: Machine, timekeeper: Timekeeper, ahead_ms: int
) -> None:
    machine.ahead_ms = ahead_ms
    machine.ask(timekeeper)
    with pytest.raises(ClockOff) as told:
        timekeeper.now_ms()
    assert told.value.offset_ms == pytest.approx(ahead_ms, abs=2)


@pytest.mark.parametrize("ahead_ms", [0, 9_900, -9_900])
def test_a_clock_within_the_bound_is_used_as_it_is(machine: Machine, timekeeper: Timekeeper, ahead_ms: int) -> None:
    machine.ahead_ms = ahead_ms
    machine.ask(timekeeper)
    assert timekeeper.now_ms() == machine.now_ms() and timekeeper.right


def test_a_jump_between_two_heartbeats_is_noticed_at_once_and_so_is_its_end(
    machine: Machine, timekeeper: Timekeeper
) -> None:
    machine.ask(timekeeper)
    machine.passed_s += 2.0
    machine.ahead_ms = HOUR_MS
    assert not timekeeper.right
    machine.ahead_ms = 0
    assert timekeeper.right


def test_time_that_passes_without_heartbeats_is_no_offset(machine: Machine, timekeeper: Timekeeper) -> None:
    machine.ask(timekeeper)
    machine.passed_s += 7200.0
    assert timekeeper.offset_ms() == 0


@pytest.mark.parametrize(("there_s", "back_s"), [(60.0, 0.001), (0.001, 60.0)])
def test_an_answer_that_came_late_makes_no_right_clock_wrong(
    machine: Machine, timekeeper: Timekeeper, there_s: float, back_s: float
) -> None:
    machine.ask(timekeeper, there_s=there_s, back_s=back_s)
    assert timekeeper.right


def test_an_answer_that_came_late_makes_no_wrong_clock_right(machine: Machine, timekeeper: Timekeeper) -> None:
    machine.ahead_ms = 30_000
    machine.ask(timekeeper)
    machine.ask(timekeeper, there_s=30.0, back_s=30.0)
    assert not timekeeper.right


def test_a_server_with_another_clock_is_believed_at_once(machine: Machine, timekeeper: Timekeeper) -> None:
    machine.ask(timekeeper)
    timekeeper.server_said(machine.server_ms() + HOUR_MS, asked_s=machine.monotonic_s() - 5.0)
    assert timekeeper.offset_ms() == -HOUR_MS
