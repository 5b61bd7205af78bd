"""When each of many keys whose work fails may be tried again: after growing, randomized delays, up to a bound.

New work for a key during its back-off is deferred, whether it comes from the watch, a sweep over all keys, or a timer.
Otherwise a periodic sweep would bring all failing keys into step again.
"""

from collections.abc import Collection

import msgspec

from arranger.clock import Clock
from arranger.workers.flow.backoff import Backoff

#: The first delay of a key, and the bound of its growth.
_FIRST_S, _LONGEST_S = 1.0, 30.0
#: So many delays in a row are as long as the first one while other keys succeed. On an API server that fails a part of
#: the requests, a few failures in a row are no rarity, and the next try may well succeed.
_EVEN = 4
#: The bound of a delay that a server requests: a single reply must not stop work for hours.
_LONGEST_ASKED_S = 120.0


class _Rest(msgspec.Struct):
    """Of one key: its back-off, when its delay ends, and when the part ends that news doesn't shorten."""

    backoff: Backoff
    version: int
    until_s: float
    at_least_until_s: float
    #: What failed last.
    what: frozenset[str] = frozenset()
    #: How often it failed in a row, and when it did so last.
    times: int = 0
    failed_s: float = 0.0


class Retries:
    """A back-off for each key that failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}
        #: When work on any key last succeeded, or a part of it did.
        self._succeeded_s = 0.0

    def succeeded(self) -> None:
        """Record that work on some key, or a part of it, was carried out."""
        self._succeeded_s = self._clock.monotonic_s()

    def failed(
        self,
        key: str,
        *,
        version: int,
        asked_s: float = 0.0,
        progressed: bool = False,
        what: Collection[str] = (),
    ) -> float:
        """Record a failure of work on that version of a key. Returns the delay in seconds.

        `asked_s` is the delay that the server requested (Retry-After). It is limited and added to the key's own delay,
        so that clients with the same request don't return together. The own delay grows only while the same fails: it
        is the first one again if a part of the work has succeeded (`progressed`), or if nothing of what failed now
        (`what`) failed the last time.
        """
        asked_s = min(asked_s, _LONGEST_ASKED_S)
        rest = self._rests.get(key)
        if rest is None:
            backoff = Backoff(self._clock, first_s=_FIRST_S, longest_s=_LONGEST_S)
            rest = self._rests[key] = _Rest(backoff, version, 0.0, 0.0)
        now_s = self._clock.monotonic_s()
        if progressed or (what and rest.what and rest.what.isdisjoint(what)):
            rest.times = 0
        rest.what = frozenset(what)
        rest.times += 1
        if rest.times == 1 or (rest.times <= _EVEN and self._succeeded_s > rest.failed_s):
            rest.backoff.reset()
        rest.failed_s = now_s
        if progressed:
            self.succeeded()
        rest.version = version
        rest.at_least_until_s = now_s + asked_s
        rest.until_s = rest.at_least_until_s + rest.backoff.next_s()
        return rest.until_s - now_s

    def rest_s(self, key: str, *, version: int) -> float:
        """The remaining delay of a key in seconds; 0 if it may be tried. News, which is another version, ends our own
        delay but not the one that the server requested."""
        rest = self._rests.get(key)
        if rest is None:
            return 0.0
        until_s = rest.until_s if version == rest.version else rest.at_least_until_s
        return max(0.0, until_s - self._clock.monotonic_s())

    def forget(self, key: str) -> None:
        """The work on a key succeeded, or isn't ours any more."""
        self._rests.pop(key, None)

    def failing(self) -> list[str]:
        """The keys whose last try failed."""
        return list(self._rests)

    def clear(self) -> None:
        self._rests.clear()
