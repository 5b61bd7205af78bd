"""The pace of what can wait: some at once, the others apart, and one namespace doesn't delay another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.workers.flow.pacing import Pace, Rests


def test_a_namespace_has_some_turns_at_once_and_then_one_after_the_other() -> None:
    pace = Pace(at_once=3)
    turns_s = [pace.next_s("a", 100.0, 2.0) for _ in range(6)]
    assert turns_s == pytest.approx([100, 100, 100, 100, 102, 104])


def test_turns_at_once_come_back_with_time() -> None:
    pace = Pace(at_once=3)
    for _ in range(4):
        pace.next_s("a", 100.0, 2.0)
    assert [pace.next_s("a", 104.0, 2.0) for _ in range(3)] == pytest.approx([104, 104, 106])
    assert [pace.next_s("a", 999.0, 2.0) for _ in range(4)] == pytest.approx([999] * 4)


def test_a_storm_in_one_namespace_delays_no_turn_of_another_one() -> None:
    pace = Pace()
    for _ in range(10_000):
        pace.next_s("storm", 100.0, 1.0)
    assert pace.next_s("other", 100.0, 1.0) == 100


def test_namespaces_that_all_have_much_to_do_cause_as_much_as_one_alone() -> None:
    pace = Pace()
    turns_s = [pace.next_s(namespace, 100.0, 1.0) for _ in range(100) for namespace in "abcd"]
    assert max(turns_s) == pytest.approx(100 + 4 * 99)


def test_turns_that_were_given_for_a_slow_server_are_forgotten_once_it_is_fast() -> None:
    pace = Pace(at_once=1)
    for _ in range(11):
        pace.next_s("a", 100.0, 2.0)
    assert pace.next_s("a", 100.0, 0.1) == pytest.approx(101.0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5), st.floats(0, 3)), max_size=50))
def test_a_turn_is_never_in_the_past_and_never_later_than_after_all_that_were_given(
    steps: list[tuple[str, float, float]],
) -> None:
    pace, now_s = Pace(), 100.0
    for count, (namespace, passed_s, apart_s) in enumerate(steps):
        now_s += passed_s
        assert now_s <= pace.next_s(namespace, now_s, apart_s) <= now_s + 3 * count * max(apart_s, 0.0001) + 1e-6


class _Watch:
    """Its time passes only when somebody says so, and each sleep takes a little longer than it should."""

    now_s = 0.0

    def now_ms(self) -> int:
        return round(1000 * self.now_s)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + 0.001


async def test_long_work_takes_a_fifth_of_the_time_and_its_rests_are_not_counted_as_work() -> None:
    clock = _Watch()
    rests = Rests(clock)
    for _ in range(10):
        clock.now_s += 0.02
        await rests.after_step()
    assert rests.worked_s == pytest.approx(0.2)
    assert clock.now_s == pytest.approx(5 * 0.2 + 10 * 0.001)


async def test_a_rest_is_a_second_at_most_and_all_of_them_have_a_bound() -> None:
    clock = _Watch()
    rests = Rests(clock, in_all_s=2.5)
    for rest_s in (1.0, 1.0, 0.498, 0.0, 0.0):
        clock.now_s += 3.0
        began_s = clock.now_s
        await rests.after_step()
        assert clock.now_s - began_s - 0.001 == pytest.approx(rest_s, abs=0.003)
    assert rests.worked_s == pytest.approx(15.0)
