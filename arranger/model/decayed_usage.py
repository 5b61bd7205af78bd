"""Usage that decays: how much was used before, with a half-life, in integers and from event times alone.

The decayed usage at time t is the integral of use(x) * 2^-((t - x) / H) over all x before t, with the half-life H.
Divided by the integral of 2^-(x / H) over all x > 0, which is H / ln 2, it is an average of the use, in which the past
counts less and less.

To decay a number again and again rounds each time, so the result depends on how often that was done. Here time has
weights instead, which grow towards the future (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009). The
sum of use * weight grows by the use times a difference: the weight of all time until the end, less that until the
begin. Such differences add up exactly, however an interval is divided. For the weights not to grow without bound, they
begin again at 1 with each period, a multiple of H since 1970, and there the sum is halved. That rounds at the same
times, whatever was asked and changed in between.

Within a period the weight is constant in 256 steps, each 2^(1/256) times the one before. So the decayed usage is at
most 0.28 % more or less than the exact integral, and the average at most 0.14 % less or 0.42 % more than the exact one,
both rounded down to their unit. A sum is at most twice the highest use times the weight of one period: its bits are
bounded.
"""

from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from math import isqrt

_STEPS = 256
_BITS = 32


def _root_of_two(step: int) -> int:
    """2^(step/256), in 2^-32 and rounded down: its 256th power by eight square roots, each rounded down."""
    power = 1 << (step + _BITS * _STEPS)
    for _ in range(_STEPS.bit_length() - 1):
        power = isqrt(power)
    return power


@cache
def _weights() -> list[int]:
    """The weight of each step. Only who uses a half-life needs them, and they take longer than most modules' import."""
    return [_root_of_two(step) for step in range(_STEPS)]


@cache
def _sums() -> list[int]:
    """The weights of the first so many steps together."""
    return list(accumulate(_weights(), initial=0))


class DecayedUsage:
    """The decayed usage of one queue.

    It is told what the queue uses just before that changes, and at no other time: two processes at the same offset then
    have the same `time_ms` and `sums`. The half-life, in milliseconds and more than 0, is the same in all calls until
    `rebase`. Times are in milliseconds since 1970. A time before the last one counts as the last one.
    """

    __slots__ = ("sums", "time_ms")

    def __init__(self, time_ms: int = 0, sums: Mapping[str, int] | None = None) -> None:
        #: The last change.
        self.time_ms = time_ms
        #: Resource → weighted sum of its use, in base units times 2^-32 / 256 milliseconds; more than 64 bits.
        self.sums = dict(sums or {})

    def change(self, used: Mapping[str, int], time_ms: int, half_life_ms: int) -> None:
        """What the queue uses is about to change; until this time it was `used`, in base units."""
        if time_ms > self.time_ms:
            self.sums = self._sums(used, time_ms, half_life_ms)
            self.time_ms = time_ms

    def usage(self, used: Mapping[str, int], time_ms: int, half_life_ms: int) -> dict[str, int]:
        """Resource → decayed usage at this time, in base units times milliseconds. `used`: what the queue uses since
        the last change."""
        unit = _weight(self._at(time_ms), half_life_ms) * _STEPS
        return {resource: total // unit for resource, total in self._sums(used, time_ms, half_life_ms).items()}

    def averages(self, used: Mapping[str, int], time_ms: int, half_life_ms: int) -> dict[str, int]:
        """Resource → average use at this time, in thousandths of the base unit. `used`: as for `usage`."""
        weight = _weight(self._at(time_ms), half_life_ms) * _sums()[_STEPS] * half_life_ms
        sums = self._sums(used, time_ms, half_life_ms)
        return {resource: (1000 * total << _BITS) // weight for resource, total in sums.items()}

    def rebase(self, used: Mapping[str, int], time_ms: int, half_life_ms: int, new_half_life_ms: int) -> None:
        """From this time on there is another half-life. The averages at this time stay."""
        self.change(used, time_ms, half_life_ms)
        old = _weight(self.time_ms, half_life_ms) * half_life_ms
        new = _weight(self.time_ms, new_half_life_ms) * new_half_life_ms
        self.sums = {resource: total * new // old for resource, total in self.sums.items()}

    def _at(self, time_ms: int) -> int:
        return max(time_ms, self.time_ms)

    def _sums(self, used: Mapping[str, int], time_ms: int, half_life_ms: int) -> dict[str, int]:
        """The weighted sums at a time; resources of which nothing is left are dropped."""
        time_ms = self._at(time_ms)
        periods = time_ms // half_life_ms - self.time_ms // half_life_ms
        since, until = _passed(self.time_ms, half_life_ms), _passed(time_ms, half_life_ms)
        whole = _sums()[_STEPS] * half_life_ms
        sums = {}
        for resource in {**self.sums, **used}:
            total, now = self.sums.get(resource, 0), used.get(resource, 0)
            if periods:
                # Each period after the first halves the sum and what is used in it: it halves their difference.
                total = (total + now * (whole - since)) >> 1
                total = now * whole + ((total - now * whole) >> (periods - 1)) + now * until
            else:
                total += now * (until - since)
            if total:
                sums[resource] = total
        return sums


def _step(time_ms: int, half_life_ms: int) -> tuple[int, int]:
    """The step of the period at a time, and the rest in it, in 1/256 milliseconds."""
    return divmod(time_ms % half_life_ms * _STEPS, half_life_ms)


def _weight(time_ms: int, half_life_ms: int) -> int:
    """The weight of a time, in 2^-32."""
    return _weights()[_step(time_ms, half_life_ms)[0]]


def _passed(time_ms: int, half_life_ms: int) -> int:
    """The weight of all time of a period until then, in 2^-32 / 256 milliseconds."""
    step, rest = _step(time_ms, half_life_ms)
    return _sums()[step] * half_life_ms + _weights()[step] * rest
