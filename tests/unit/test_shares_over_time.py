"""Queues get what they are entitled to over days, and with a half-life one that was away catches up."""

import pytest

from tests.depth import extent
from tests.shares_over_time import FLAT, TREE, Predicted, catching_up, over_days

#: Days of thousands of jobs.
pytestmark = pytest.mark.slow

_SEEDS = extent((1,), soak=(1, 2, 3, 4, 5))


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("queues", [FLAT, TREE], ids=["flat", "tree"])
def test_those_who_always_want_more_use_gpu_hours_by_weight(queues: dict, seed: int) -> None:
    off = over_days(queues, seed=seed, days=extent(1, soak=10))
    assert {name: more for name, more in off.items() if abs(more) > 0.02} == {}


@pytest.mark.parametrize("seed", _SEEDS)
def test_who_was_away_catches_up_as_the_half_life_says(seed: int) -> None:
    for what, used, predicted in catching_up(seed=seed):
        assert used == pytest.approx(predicted, rel=0.03), what


def test_of_equals_the_one_that_was_away_for_a_half_life_gets_half_as_much_again_at_first() -> None:
    """By hand: the averages are (1/2, 5/4, 5/4) of a share then, and use + average is the same for all."""
    predicted = Predicted(dict.fromkeys("abc", 1.0), gpus=300, half_life_h=24)
    predicted.run(24 * 30, "abc")
    predicted.run(24, "bc")
    first = predicted.run(1 / 60, "abc")
    assert [round(60 * hours) for hours in first.values()] == [150, 75, 75]
