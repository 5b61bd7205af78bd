"""Decayed usage: exact however the events come, near the integral that it stands for, and bounded."""

from itertools import pairwise
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.model.decayed_usage import DecayedUsage
from tests.depth import extent

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000

GPU = "nvidia.com/gpu"

#: What is used from each change on, and how long.
_uses = st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 10**8)), min_size=1, max_size=12)
_half_lives_ms = st.one_of(st.integers(1, 1000), st.integers(HOUR_MS, 2000 * HOUR_MS))
_times_ms = st.integers(NOW_MS, NOW_MS + 10**9)


def use(
    usage: DecayedUsage, uses: list[tuple[int, int]], begin_ms: int, half_life_ms: int
) -> tuple[dict[str, int], int]:
    """Use so much for so long; the last use and when it ends."""
    used: dict[str, int] = {}
    for amount, length_ms in uses:
        usage.change(used, begin_ms, half_life_ms)
        used, begin_ms = {GPU: amount}, begin_ms + length_ms
    return used, begin_ms


def exact(uses: list[tuple[int, int]], half_life_ms: int) -> float:
    """The integral, in units times milliseconds."""
    total, until_ms = 0.0, 0
    for amount, length_ms in reversed(uses):
        newer = 2 ** (-until_ms / half_life_ms)
        until_ms += length_ms
        total += amount * (newer - 2 ** (-until_ms / half_life_ms))
    return total * half_life_ms / log(2)


@settings(max_examples=extent(300, 3000), deadline=None)
@given(_uses, _half_lives_ms, _times_ms, st.data())
def test_the_sum_is_the_same_however_time_is_divided(
    uses: list[tuple[int, int]], half_life_ms: int, begin_ms: int, data: st.DataObject
) -> None:
    once, often = DecayedUsage(), DecayedUsage()
    used, end_ms = use(once, uses, begin_ms, half_life_ms)
    divided = []
    for amount, length_ms in uses:
        cuts = sorted([0, *data.draw(st.lists(st.integers(0, length_ms), max_size=4)), length_ms])
        divided += [(amount, end - start) for start, end in pairwise(cuts)]
    use(often, divided, begin_ms, half_life_ms)
    once.change(used, end_ms, half_life_ms)
    often.change(used, end_ms, half_life_ms)
    assert (once.time_ms, once.sums) == (often.time_ms, often.sums)


@settings(max_examples=extent(300, 3000), deadline=None)
@given(_uses, st.integers(HOUR_MS, 2000 * HOUR_MS), _times_ms)
def test_usage_is_near_the_integral(uses: list[tuple[int, int]], half_life_ms: int, begin_ms: int) -> None:
    usage = DecayedUsage()
    used, end_ms = use(usage, uses, begin_ms, half_life_ms)
    expected = exact(uses, half_life_ms)
    average = 1000 * expected * log(2) / half_life_ms
    assert abs(usage.usage(used, end_ms, half_life_ms).get(GPU, 0) - expected) <= 0.0028 * expected + 1
    found = usage.averages(used, end_ms, half_life_ms).get(GPU, 0)
    assert average * 0.9986 - 1 <= found <= average * 1.0042


@settings(max_examples=extent(300, 3000), deadline=None)
@given(_uses, _uses, _half_lives_ms, _times_ms)
def test_usages_of_queues_add_up(
    uses: list[tuple[int, int]], more: list[tuple[int, int]], half_life_ms: int, begin_ms: int
) -> None:
    """But for what the halvings at the begin of each period round down: one each, which is halved again."""
    lengths = [length for (_, length), _ in zip(uses, more, strict=False)]
    parts = [[(amount, length) for (amount, _), length in zip(one, lengths, strict=False)] for one in (uses, more)]
    parts.append([(a + b, length) for (a, length), (b, _) in zip(*parts, strict=True)])
    sums = []
    for part in parts:
        usage = DecayedUsage()
        used, end_ms = use(usage, part, begin_ms, half_life_ms)
        usage.change(used, end_ms, half_life_ms)
        sums.append(usage.sums.get(GPU, 0))
    assert 0 <= sums[2] - sums[0] - sums[1] <= 2


def test_half_is_left_after_a_half_life_and_nothing_in_the_end() -> None:
    usage = DecayedUsage()
    usage.change({}, NOW_MS, HOUR_MS)
    usage.change({GPU: 8}, NOW_MS + HOUR_MS, HOUR_MS)
    first = usage.averages({}, NOW_MS + HOUR_MS, HOUR_MS)[GPU]
    assert first == pytest.approx(4000, rel=0.003), "half a use of 8 in one half-life"
    assert usage.averages({}, NOW_MS + 2 * HOUR_MS, HOUR_MS)[GPU] == pytest.approx(first / 2, abs=1)
    assert usage.averages({}, NOW_MS + 11 * HOUR_MS, HOUR_MS)[GPU] == pytest.approx(first / 1024, abs=1)
    usage.change({}, NOW_MS + 365 * 24 * HOUR_MS, HOUR_MS)
    assert usage.sums == {}


@pytest.mark.parametrize("used", [1, 8, 2**53])
def test_a_steady_use_is_its_own_average_and_the_sum_stays_bounded(used: int) -> None:
    usage, times = DecayedUsage(), range(NOW_MS, NOW_MS + 500 * HOUR_MS, 1_234_567)
    bits = set()
    for time_ms in times:
        usage.change({GPU: used}, time_ms, HOUR_MS)
        bits.add(usage.sums.get(GPU, 0).bit_length())
    found = usage.averages({GPU: used}, times[-1], HOUR_MS)[GPU]
    assert 1000 * used - 1 <= found <= 1002.8 * used
    # A use since 1970 is the same.
    assert DecayedUsage().averages({GPU: used}, times[-1], HOUR_MS)[GPU] == pytest.approx(found, abs=1)
    assert max(bits) <= (2 * used * HOUR_MS).bit_length() + 32 + 8 + 1


def test_a_time_before_the_last_counts_as_the_last() -> None:
    usage = DecayedUsage()
    usage.change({}, NOW_MS, HOUR_MS)
    usage.change({GPU: 8}, NOW_MS + 1000, HOUR_MS)
    before = dict(usage.sums)
    usage.change({GPU: 9}, NOW_MS, HOUR_MS)
    assert (usage.time_ms, usage.sums) == (NOW_MS + 1000, before)
    assert usage.usage({GPU: 9}, NOW_MS, HOUR_MS) == usage.usage({}, NOW_MS + 1000, HOUR_MS)


def test_the_average_stays_when_the_half_life_changes() -> None:
    usage = DecayedUsage()
    usage.change({}, NOW_MS, HOUR_MS)
    usage.change({GPU: 8}, NOW_MS + HOUR_MS, HOUR_MS)
    end_ms = NOW_MS + 2 * HOUR_MS
    before = usage.averages({}, end_ms, HOUR_MS)[GPU]
    usage.rebase({}, end_ms, HOUR_MS, 7 * HOUR_MS)
    assert usage.averages({}, end_ms, 7 * HOUR_MS)[GPU] == pytest.approx(before, abs=1)
    assert usage.averages({}, end_ms + 7 * HOUR_MS, 7 * HOUR_MS)[GPU] == pytest.approx(before / 2, abs=1)
