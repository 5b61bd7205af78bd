"""Turns among lanes: which of many waiting items is next, so that one lane with many of them delays the others little.

A lane is what is treated equally, such as a namespace. Each lane gives one item in turn, so an item waits for at most
one of each other lane for every item before it in its own. Within a lane, the first to come is the first to go.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, KeysView
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Turns(Generic[_Key, _Value]):
    """The waiting items, each with a key of its own."""

    def __init__(self) -> None:
        #: The items of each lane that has any, in the order of the lanes' turns. A plain dict would take ever longer to
        #: find its first item after others were removed there.
        self._lanes: OrderedDict[Hashable, OrderedDict[_Key, _Value]] = OrderedDict()
        self._lane_of: dict[_Key, Hashable] = {}

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, key: object) -> bool:
        return key in self._lane_of

    def keys(self) -> KeysView[_Key]:
        """The keys of all items."""
        return self._lane_of.keys()

    def put(self, lane: Hashable, key: _Key, value: _Value) -> None:
        """Add an item at the end of its lane. One that waits there already keeps its position, with the new value."""
        if self._lane_of.get(key, lane) != lane:
            self.drop(key)
        self._lane_of[key] = lane
        items = self._lanes.get(lane)
        if items is None:
            items = self._lanes[lane] = OrderedDict()
        items[key] = value

    def take(self, may: Callable[[Hashable], bool] = lambda _: True) -> tuple[_Key, _Value] | None:
        """The next item of the first lane that `may` have a turn now, which is the last in turn then; None if there is
        none."""
        for lane, items in self._lanes.items():
            if may(lane):
                key = next(iter(items))
                value = self.drop(key)
                if items:
                    self._lanes.move_to_end(lane)
                return key, value
        return None

    def drop(self, key: _Key) -> _Value:
        """Remove an item that waits."""
        lane = self._lane_of.pop(key)
        items = self._lanes[lane]
        value = items.pop(key)
        if not items:
            del self._lanes[lane]
        return value

    def oldest_of_longest(self) -> _Key:
        """The first item of the lane that has most."""
        longest = max(self._lanes, key=lambda lane: len(self._lanes[lane]))
        return next(iter(self._lanes[longest]))

    def clear(self) -> None:
        """Forget every item."""
        self._lanes.clear()
        self._lane_of.clear()
