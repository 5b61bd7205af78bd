"""What a candidate change is, and how changes of one kind are listed and joined."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from arranger.events import kinds as k
from arranger.model.config import CycleConfig


@dataclass(frozen=True)
class Change:
    """Something that could be otherwise. `undoes` is the offset of the event that it takes back, 0 if none is known,
    and `undone` says what that was. `several`: it is the newest of several events that are taken back; `alone` takes
    back no other, and is empty where that was tried as another change."""

    kind: str
    text: str
    events: tuple[k.Event, ...] = ()
    undoes: int = 0
    undone: str = ""
    subject: str = ""
    config: CycleConfig | None = None
    time_ms: int | None = None
    several: bool = False
    alone: tuple[k.Event, ...] = ()


Join = Callable[[Sequence[Change]], Change]


class Steps(Sequence[Change]):
    """Ordered changes, each made when it is looked at."""

    def __init__(self, count: int, make: Callable[[int], Change]) -> None:
        self._count = max(count, 0)
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Change]: ...

    def __getitem__(self, at: int | slice) -> Change | Sequence[Change]:
        if isinstance(at, slice):
            return [self._make(number) for number in range(*at.indices(self._count))]
        return self._make(range(self._count)[at])


@dataclass(frozen=True)
class Family:
    """Changes of one kind, the likeliest first. Each is tried alone; where none of them is enough and `together` is
    given, as many of them as it takes, from the first on."""

    alone: Sequence[Change]
    together: Join | None = None
    #: The search for the least of an ordered list: the first that is enough ends it.
    least: bool = False


def join_all(kind: str, words: str) -> Join:
    """Joins changes of a kind into one, its text these words and the names of what they concern."""

    def together(parts: Sequence[Change]) -> Change:
        newest = max(parts, key=lambda part: part.undoes)
        return Change(
            kind,
            words + "; ".join(part.subject for part in parts),
            tuple(event for part in parts for event in part.events),
            newest.undoes,
            newest.undone,
            several=len({part.undoes for part in parts}) > 1,
        )

    return together


def names_text(names: Iterable[str]) -> str:
    """A few names in words."""
    listed = list(names)
    if len(listed) > 4:
        return f"{', '.join(listed[:3])} and {len(listed) - 3} more"
    return " and ".join(part for part in (", ".join(listed[:-1]), listed[-1]) if part) if listed else ""
