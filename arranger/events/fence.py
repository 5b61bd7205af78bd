"""The fence around a watch: the log itself refuses what is appended under a term that has ended.

A watcher that was paused, or whose append stayed on its way, doesn't know that another has claimed its watch. So each
of its appends names its term, and the log compares that with the watch's current term in the same atomic step.
"""

import msgspec

from arranger.errors import WatchSuperseded

#: The term of a batch that claims its watch: the offset of its first event becomes the watch's current term.
CLAIM = 0


class Fence(msgspec.Struct, frozen=True):
    """The watch on whose behalf a batch is appended, and the term under which. The log keeps one term for each watch.

    `cursor` is the watcher's place in the API server's history, stored in the same atomic step as what it observed;
    empty leaves the stored one as it is. A claim carries none.
    """

    watch: str
    term: int
    cursor: str = ""


class HeldWatch(msgspec.Struct, frozen=True):
    """What a log stores of one watch: the current term, and the cursor up to which its observations were appended."""

    term: int
    cursor: str

    def encoded(self) -> str:
        """As one text, which logs in files store."""
        return f"{self.term}:{self.cursor}"

    @classmethod
    def decoded(cls, text: str) -> "HeldWatch":
        """The watch that `encoded` wrote; one without a term for any other text."""
        term, colon, cursor = text.partition(":")
        return cls(int(term), cursor) if colon and term.isdecimal() else cls(CLAIM, "")


def check_fence(fence: Fence | None, held: HeldWatch | None) -> None:
    """Raises `WatchSuperseded` if the watch's current term is not that of the fence. A claim is never refused."""
    if fence is None or fence.term == CLAIM:
        return
    if held is None or held.term != fence.term:
        raise superseded(fence, held.term if held is not None else None)


def after_append(fence: Fence | None, held: HeldWatch | None, first: int) -> HeldWatch | None:
    """What the log stores of the fence's watch once a batch whose first event has offset `first` was appended."""
    if fence is None:
        return None
    if fence.term == CLAIM:
        return HeldWatch(first, held.cursor if held is not None else "")
    return HeldWatch(fence.term, fence.cursor) if fence.cursor else held


def cursor_of_claim(fence: Fence | None, held: HeldWatch | None, first: int) -> str:
    """The cursor that a claim at offset `first` returns: empty once another claim has come, and for what is none."""
    claims = fence is not None and fence.term == CLAIM and held is not None and held.term == first
    return held.cursor if claims and held is not None else ""


def superseded(fence: Fence, present: int | None) -> WatchSuperseded:
    """The error for an append under a term that isn't the current one."""
    current = f"its current term is {present}" if present is not None else "nobody has claimed it in this log"
    return WatchSuperseded(f"watch {fence.watch} can't be continued under term {fence.term}: {current}")
