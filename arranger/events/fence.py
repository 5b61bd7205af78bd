"""The fence around a watch: the log itself refuses appends under a term that has ended.

A watcher that was paused, or whose append was delayed, doesn't know that another process has claimed its watch. So each
of its appends names its term, and the log compares that with the watch's current term in the same atomic step.
"""

import msgspec

from arranger.errors import WatchSuperseded

#: The term of a batch that claims its watch: the offset of its first event becomes the watch's current term.
CLAIM = 0


class Fence(msgspec.Struct, frozen=True):
    """The watch for which a batch is appended, and its term. The log keeps one term for each watch.

    `cursor` is the watcher's position in the API server's history, stored in the same atomic step as the observations;
    an empty one leaves the stored one unchanged. A claim has none.
    """

    watch: str
    term: int
    cursor: str = ""


def superseded(fence: Fence, present: int | None) -> WatchSuperseded:
    """The error for an append under a term that isn't the current one."""
    current = f"its current term is {present}" if present is not None else "nobody has claimed it in this log"
    return WatchSuperseded(f"watch {fence.watch} can't be continued under term {fence.term}: {current}")
