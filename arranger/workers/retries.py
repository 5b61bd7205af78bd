"""When each of many keys whose work fails may be tried again: ever later, up to a bound, and never in step.

Work that comes for a key while it rests is put off, however it came: by the watch, by a sweep over all keys, by a
timer. Otherwise whoever looks at all keys every few seconds would bring those that rest into step again.
"""

import msgspec

from arranger.clock import Clock
from arranger.workers.backoff import Backoff

#: A key rests for so long at first, then ever longer, up to a bound.
_FIRST_S, _LONGEST_S = 1.0, 30.0
#: A server that asks for a longer rest is mistaken: nothing here may stand still for hours by one answer.
_LONGEST_ASKED_S = 120.0


class _Rest(msgspec.Struct):
    """Of one key: its back-off, until when it rests, and until when it does though there is news."""

    backoff: Backoff
    version: int
    until_s: float
    at_least_until_s: float


class Retries:
    """A back-off for each key that failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def failed(self, key: str, *, version: int, asked_s: float = 0.0) -> float:
        """Note a failure of work on that version of a key. Returns how long it rests now.

        `asked_s` is what the server asked to wait (Retry-After): the key rests for that, up to a bound, and for its
        own wait, so that those who were asked the same don't come back together.
        """
        asked_s = min(asked_s, _LONGEST_ASKED_S)
        rest = self._rests.get(key)
        if rest is None:
            backoff = Backoff(self._clock, first_s=_FIRST_S, longest_s=_LONGEST_S)
            rest = self._rests[key] = _Rest(backoff, version, 0.0, 0.0)
        now_s = self._clock.monotonic_s()
        rest.version = version
        rest.at_least_until_s = now_s + asked_s
        rest.until_s = rest.at_least_until_s + rest.backoff.next_s()
        return rest.until_s - now_s

    def rest_s(self, key: str, *, version: int) -> float:
        """How long a key still rests; 0 if it may be tried. News, which is another version, ends what is our own wait
        and not what the server asked for."""
        rest = self._rests.get(key)
        if rest is None:
            return 0.0
        until_s = rest.until_s if version == rest.version else rest.at_least_until_s
        return max(0.0, until_s - self._clock.monotonic_s())

    def forget(self, key: str) -> None:
        """The work on a key went well, or isn't ours any more."""
        self._rests.pop(key, None)

    def failing(self) -> list[str]:
        """The keys that failed last."""
        return list(self._rests)

    def clear(self) -> None:
        self._rests.clear()
