"""Whether the batches that this process appended are in the log that it reads.

A server may lose batches that it has acknowledged, and other processes may append in their place before this process
has read that far. The log's length then looks right, so only the writer of an entry reveals the loss.
"""

from collections import deque
from collections.abc import Sequence

from arranger.errors import EpochLost
from arranger.events.kinds import Batch
from arranger.events.log import Entry, Position

#: The number of folded entries whose writers are remembered.
_REMEMBERED = 4096


def not_folded(entries: Sequence[Entry], at: Position) -> Sequence[Entry]:
    """Entries without our own that were folded, up to `at`, during the read. Raises `EpochLost` if the log has others
    in their place."""
    if not entries or entries[0].first == at.offset + 1:
        return entries
    for entry in entries:
        if entry.first <= at.offset <= entry.last and (entry.last, entry.chain) != (at.offset, at.chain):
            raise EpochLost(f"the log up to offset {at.offset} is not the one that was appended to")
    return [entry for entry in entries if entry.first > at.offset]


class OwnBatches:
    """The last folded entries, and our own batches that are still to be read."""

    def __init__(self) -> None:
        self._folded: deque[tuple[int, str, int]] = deque(maxlen=_REMEMBERED)
        #: Last offset → writer and number of the batch that was appended there.
        self._awaited: dict[int, tuple[str, int]] = {}

    def clear(self) -> None:
        self._folded.clear()
        self._awaited.clear()

    def expect(self, batch: Batch, last: int) -> None:
        """The batch was appended up to this offset, and is still to be read."""
        self._awaited[last] = (batch.writer, batch.seq)

    def check(self, batch: Batch, last: int) -> None:
        """The batch was appended up to this offset, which was folded already. Raises `EpochLost` if another was."""
        # None if it was folded long ago, or before a snapshot.
        there = next((entry for entry in reversed(self._folded) if entry[0] <= last), None)
        if there is not None and there != (last, batch.writer, batch.seq):
            raise _lost(last)

    def fold(self, entries: Sequence[Entry]) -> None:
        """These entries are folded next. Raises `EpochLost` if they lack an awaited batch."""
        for last in [last for last in self._awaited if last <= entries[-1].last]:
            written = next(((e.batch.writer, e.batch.seq) for e in entries if e.last == last), None)
            if written != self._awaited.pop(last):
                raise _lost(last)
        self._folded.extend((entry.last, entry.batch.writer, entry.batch.seq) for entry in entries)


def _lost(offset: int) -> EpochLost:
    return EpochLost(f"what was appended here at offset {offset} is not in the log any more")
