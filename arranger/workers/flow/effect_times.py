"""How long the changes of the cluster take that a process makes: an applier that is slow says so."""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median

from arranger.clock import Clock

#: A process is slow if half of its effects take this long, of at least so many in so many seconds.
_SLOW_S, _LEAST, _WITHIN_S = 2.0, 5, 60.0
#: The times of so many effects are kept.
_KEPT = 256


class EffectTimes:
    """How long the effects of this process take, without their wait for a request slot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When each of the last effects ended, and how long it took, in seconds.
        self._ended: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        #: When each effect began that hasn't ended.
        self._begun: dict[object, float] = {}

    @contextmanager
    def timed(self) -> Generator[None, None, None]:
        """The time of one effect."""
        key = object()
        self._begun[key] = self._clock.monotonic_s()
        try:
            yield
        finally:
            now_s = self._clock.monotonic_s()
            self._ended.append((now_s, now_s - self._begun.pop(key)))

    def slow_s(self) -> float:
        """The median time of an effect in the last minute, with those that haven't ended, in seconds, if that is long;
        0 otherwise, and for few effects."""
        now_s = self._clock.monotonic_s()
        times = [took_s for ended_s, took_s in self._ended if now_s - ended_s < _WITHIN_S]
        times += [now_s - began_s for began_s in self._begun.values()]
        middle_s = median(times) if len(times) >= _LEAST else 0.0
        return middle_s if middle_s >= _SLOW_S else 0.0
