"""Turns among lanes: one lane with many items delays the others by one item a turn, and nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from arranger.workers.flow.turns import Turns


def taken(turns: Turns[int, None]) -> list[int]:
    """Every item, in the order of the turns."""
    found = []
    while (item := turns.take()) is not None:
        found.append(item[0])
    return found


def of_lanes(lanes: list[int]) -> Turns[int, None]:
    """Item n in the n-th of these lanes."""
    turns: Turns[int, None] = Turns()
    for item, lane in enumerate(lanes):
        turns.put(lane, item, None)
    return turns


def test_the_only_item_of_a_lane_waits_for_one_of_each_other_lane() -> None:
    lanes = ["storm"] * 1_000 + ["other"] * 5 + ["quiet"]
    turns: Turns[int, None] = Turns()
    for item, lane in enumerate(lanes):
        turns.put(lane, item, None)
    assert [lanes[item] for item in taken(turns)[:4]] == ["storm", "other", "quiet", "storm"]


@given(st.lists(st.integers(0, 5), max_size=60))
def test_an_item_waits_for_one_of_each_other_lane_for_itself_and_each_before_it_in_its_lane(lanes: list[int]) -> None:
    order = taken(of_lanes(lanes))
    assert sorted(order) == list(range(len(lanes))), "each once"
    for item, lane in enumerate(lanes):
        before = order[: order.index(item)]
        own = sum(lanes[other] == lane for other in before)
        assert own == lanes[:item].count(lane), "within a lane, the first to come is the first to go"
        for other_lane in set(lanes) - {lane}:
            assert sum(lanes[other] == other_lane for other in before) <= own + 1


@given(st.lists(st.integers(0, 3), max_size=60))
def test_no_lane_starves_while_others_never_end(lanes: list[int]) -> None:
    turns: Turns[int, None] = Turns()
    for lane in range(4):
        turns.put(lane, lane, None)
    turns.put("quiet", -1, None)
    for times, lane in enumerate(lanes):
        assert (-1 in turns) == (times < 5)
        turns.put(lane, 4 + times, None)
        turns.take()


def test_a_lane_that_may_have_no_turn_keeps_its_items_and_its_turn() -> None:
    turns = of_lanes([1, 1, 2])
    assert turns.take(lambda lane: lane != 1) == (2, None)
    assert turns.take(lambda lane: lane != 1) is None
    assert taken(turns) == [0, 1]


def test_an_item_keeps_its_position_with_a_new_value_and_goes_to_the_end_of_another_lane() -> None:
    turns: Turns[str, int] = Turns()
    for key in "ab":
        turns.put(1, key, 0)
    turns.put(2, "c", 0)
    turns.put(1, "a", 5)
    turns.put(2, "b", 6)
    assert len(turns) == 3
    assert [turns.take(), turns.take(), turns.take(), turns.take()] == [("a", 5), ("c", 0), ("b", 6), None]


def test_an_item_that_is_dropped_has_no_turn() -> None:
    turns = of_lanes([1, 2, 2, 2])
    assert turns.oldest_of_longest() == 1
    turns.drop(turns.oldest_of_longest())
    assert taken(turns) == [0, 2, 3]
    turns.put(1, 7, None)
    turns.clear()
    assert not turns and turns.take() is None
