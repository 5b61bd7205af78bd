"""A candidate change, and lists and combinations of changes of one kind."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import msgspec

from arranger.events import kinds as k
from arranger.model.config import CycleConfig

_Edited = TypeVar("_Edited", bound=msgspec.Struct)


@dataclass(frozen=True)
class Change:
    """A change that might help. `undoes` is the offset of the event that it reverts, 0 if none is known, and `undone`
    describes that event. `several`: it reverts several events, of which `undoes` is the newest. `alone` then reverts
    the newest only; it is empty if another change does that. `taking` begins the text instead where the job would take
    room from others."""

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
    taking: str = ""
    #: The names of the nodes that it adds to the cluster and that no node had.
    added: frozenset[str] = frozenset()
    #: The same with one step more, or what does more. It is tried only if this change doesn't help: no remedy names a
    #: needless step.
    further: "Change | None" = None
    #: Changes that do less of the same, ascending. The first one that is enough is desired instead of this change.
    lesser: "Sequence[Change]" = ()


Join = Callable[[Sequence[Change]], Change]


class ChangeSteps(Sequence[Change]):
    """An ordered list of changes, each made when it is accessed."""

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
    """Changes of one kind, the likeliest first. Each is tried alone. If none is enough, `together` joins as many of
    them as are needed, from the first on."""

    alone: Sequence[Change]
    together: Join | None = None
    #: The changes grow from first to last; only the first one that is enough is wanted.
    least: bool = False
    #: With `least`: the places, ascending, of changes that may be enough where later ones, which do more, aren't.
    early: tuple[int, ...] = ()
    #: With `least`: what is sought next, with the change at that place.
    then: Callable[[int], "Family"] | None = None
    #: With `least`: of what is sought next, the last change is the one that has just been found.
    goes_on: bool = False
    #: With `least`: what is tried instead if none of the changes is enough.
    otherwise: Callable[[], Change | None] | None = None
    #: With `least`: the last change is wanted too where it takes room from fewer jobs.
    whole: bool = False
    #: With `least`: where the first one that is enough takes room from others, the first one that takes none is desired
    #: too; likely it is at this place. None if there is none.
    from_none: int | None = None
    #: Of a job that no cluster of these nodes could hold: the first change with which one could is desired too, if none
    #: gives nodes, or with `least` in any case.
    feasible: bool = False
    #: The changes grow from first to last; desired is the first one with which the job only gets a reservation.
    reserves: bool = False


def least_of_each(
    ranges: Sequence[Sequence[int]],
    change: Callable[[Sequence[int]], Change],
    *,
    whole: bool = False,
    early: tuple[int, ...] = (),
) -> Family:
    """Changes with one value of each range, which ascend: of the first range the least one that is enough with the
    last ones of the others, and so on. `early` as in `Family`, for each range."""
    known = tuple(of[-1] for of in ranges)
    open_ranges = [at for at, of in enumerate(ranges) if len(of) > 1]

    def family(values: tuple[int, ...], number: int) -> Family:
        at = open_ranges[number]

        def with_value(place: int) -> tuple[int, ...]:
            return (*values[:at], ranges[at][place], *values[at + 1 :])

        steps = ChangeSteps(len(ranges[at]), lambda place: change(with_value(place)))
        more = number + 1 < len(open_ranges)
        then = (lambda place: family(with_value(place), number + 1)) if more else None
        return Family(steps, least=True, early=early, then=then, goes_on=number > 0, whole=whole and not number)

    if not open_ranges:
        return Family([change(known)] if known else [])
    return family(known, 0)


def reverting(
    now: _Edited, before: _Edited, after: _Edited, later: Iterable[_Edited | None], *, only: tuple[str, ...] = ()
) -> _Edited:
    """The present value without an edit: the fields that it changed, of `only` if given, have their former values,
    unless one of the `later` edits changed them too. Those are given by what they left, None for something invalid."""
    kept = [value for value in later if value is not None]
    fields = [of for of in only or before.__struct_fields__ if getattr(before, of) != getattr(after, of)]
    fields = [of for of in fields if all(getattr(value, of) == getattr(after, of) for value in kept)]
    return msgspec.structs.replace(now, **{of: getattr(before, of) for of in fields})


def join_all(kind: str, words: str) -> Join:
    """A function that joins changes of a kind into one. The text is `words` and the subjects of the changes."""

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
    """Names in words; of more than four, three and a count."""
    listed = list(names)
    if len(listed) > 4:
        return f"{', '.join(listed[:3])} and {len(listed) - 3} more"
    return " and ".join(part for part in (", ".join(listed[:-1]), listed[-1]) if part) if listed else ""
