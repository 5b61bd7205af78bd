"""Who had which part of all that is held of a resource, over time.

At each moment the parts of all holders sum to one, and a holder's share of a time is the integral of its part. So
shares of parts of a time sum to that of the whole, whoever came and went meanwhile. An account may be of several
resources: while nobody holds any of the first one, the parts are those of the second, and so on.

That is only true among those who count. Of shares of everything that is held, those of others can't be taken away
afterwards: a moment would weigh the less, the more these held then. So there is an account for each group of waiting
jobs for which the same counts.
"""

from collections.abc import Hashable
from typing import TypeVar

import msgspec

#: How much of each resource of an account, in its order.
Amounts = tuple[int, ...]
#: A share of one millisecond, of a job that holds everything; others have parts of it.
WHOLE = 1 << 40

_Key = TypeVar("_Key", bound=Hashable)


class _Held(msgspec.Struct):
    """What a holder has since `began_ms`. `share` is that up to `since`, by the clock of the account."""

    began_ms: int
    since: int
    amounts: Amounts
    share: int = 0


class _Clock(msgspec.Struct):
    """What a holder of one unit has had a share of: it runs the faster, the less is held in all. The unit is the first
    resource of which anything is held; with none, `unit` is -1 and the clock stands still, for `idle_ms` up to now."""

    since_ms: int
    unit: int = -1
    total: int = 0
    passed: int = 0
    idle_ms: int = 0

    def at(self, time_ms: int) -> int:
        return self.passed + ((time_ms - self.since_ms) * WHOLE // self.total if self.total else 0)

    def idle_until(self, time_ms: int) -> int:
        return self.idle_ms + (0 if self.total else time_ms - self.since_ms)

    def turn(self, totals: Amounts, time_ms: int) -> None:
        """Go on with these totals."""
        self.passed, self.idle_ms, self.since_ms = self.at(time_ms), self.idle_until(time_ms), time_ms
        self.unit = unit_of(totals)
        self.total = totals[self.unit] if self.unit >= 0 else 0


class Reading(msgspec.Struct, frozen=True):
    """An account at a time: the shares of those who held something then, how many had stopped before, and for how long
    nobody had held anything."""

    shares: dict[str, int]
    stopped: int
    idle_ms: int


class Account:
    """What some jobs (UIDs) hold of so many resources, from `time_ms` on."""

    def __init__(self, time_ms: int, resources: int) -> None:
        self._clock = _Clock(time_ms)
        self._none = (0,) * resources
        self._totals: Amounts = self._none
        self._held: dict[str, _Held] = {}
        #: Each time that a job held something which is over: its UID, when it began, and its share.
        self._stopped: list[tuple[str, int, int]] = []

    def set(self, uid: str, amounts: Amounts, began_ms: int, time_ms: int) -> None:
        """From now on, a job holds these amounts. It began with that at `began_ms`, unless it held some before."""
        held = self._held.get(uid)
        had = held.amounts if held is not None else self._none
        if amounts == had:
            return
        totals = changed(self._totals, had, amounts)
        if unit_of(totals) != self._clock.unit:  # from now on, another amount counts
            for of in self._held.values():
                self._settle(of, time_ms)
        if held is None:
            held = self._held[uid] = _Held(began_ms, self._clock.at(time_ms), self._none)
        self._settle(held, time_ms)
        held.amounts, self._totals = amounts, totals
        if not any(amounts):
            del self._held[uid]
            self._stopped.append((uid, held.began_ms, held.share))
        self._clock.turn(totals, time_ms)

    def _settle(self, held: _Held, time_ms: int) -> None:
        held.share, held.since = self._share(held, time_ms), self._clock.at(time_ms)

    def _share(self, held: _Held, time_ms: int) -> int:
        amount = held.amounts[self._clock.unit] if self._clock.unit >= 0 else 0
        return held.share + amount * (self._clock.at(time_ms) - held.since)

    def read(self, time_ms: int) -> Reading:
        """The account at a time that isn't before its last change."""
        shares = {uid: self._share(held, time_ms) for uid, held in self._held.items()}
        return Reading(shares, len(self._stopped), self._clock.idle_until(time_ms))

    def since(self, reading: Reading, time_ms: int) -> tuple[dict[tuple[str, int], int], int]:
        """The shares of the time since a reading, by the UID and when it began to hold what it had, as many times
        `WHOLE` as milliseconds; and for how many milliseconds nobody held anything."""
        before, found = dict(reading.shares), dict[tuple[str, int], int]()
        now = [(uid, held.began_ms, self._share(held, time_ms)) for uid, held in self._held.items()]
        for uid, began_ms, share in self._stopped[reading.stopped :] + now:
            amount = share - before.pop(uid, 0)  # its first time since then may have begun before
            if amount:
                found[uid, began_ms] = found.get((uid, began_ms), 0) + amount
        return found, self._clock.idle_until(time_ms) - reading.idle_ms


def unit_of(totals: Amounts) -> int:
    """The first resource of which there is anything; -1 for none."""
    return next((unit for unit, total in enumerate(totals) if total), -1)


def changed(totals: Amounts, had: Amounts, has: Amounts) -> Amounts:
    """Totals in which one amount is replaced by another."""
    return tuple(total + now - before for total, before, now in zip(totals, had, has, strict=True))


def shared_out(total: int, weights: dict[_Key, int]) -> dict[_Key, int]:
    """A whole number in parts that are proportional to weights and sum exactly to it: each is rounded down, and the
    largest remainders get one more, the first of equals first."""
    whole = sum(weights.values())
    if not whole:
        return {}
    parts = {key: total * weight // whole for key, weight in weights.items()}
    rest = total - sum(parts.values())
    by_remainder = sorted(weights, key=lambda key: -(total * weights[key] % whole))
    for key in by_remainder[:rest]:
        parts[key] += 1
    return {key: part for key, part in parts.items() if part}
