"""The ends and chains of the entries of one epoch: the index by which a log without a server judges a position."""

from array import array
from bisect import bisect_left, bisect_right

from arranger.errors import EntriesTrimmed, EpochLost
from arranger.events.log import EVENTS_A_READ, Position

#: Bytes of a chain, which is a SHA-1.
_CHAIN = 20


class EntryIndex:
    """Ends of the entries of one epoch, oldest first, after `start` (trimmed entries are before it).

    It takes 28 bytes per entry: a log of ten million events has a million entries.
    """

    def __init__(self, start: Position) -> None:
        self.start = start
        self.lasts = array("q")
        self._chains = bytearray()

    def __len__(self) -> int:
        return len(self.lasts)

    @property
    def end(self) -> Position:
        return self.position(len(self) - 1)

    def position(self, entry: int) -> Position:
        """The position after the entry of this number; -1 is the start."""
        if entry < 0:
            return self.start
        chain = self._chains[entry * _CHAIN : (entry + 1) * _CHAIN]
        return Position(self.start.epoch, self.lasts[entry], chain.hex())

    def add(self, last: int, chain: str) -> None:
        self.lasts.append(last)
        self._chains += bytes.fromhex(chain)

    def after(self, position: Position) -> int:
        """The number of the entry after a position. Raises `EpochLost` or `EntriesTrimmed` as `Log.read` does."""
        check_epoch(self, position.epoch)
        offset = position.offset
        if offset < self.start.offset:
            raise EntriesTrimmed(f"events up to offset {self.start.offset} were trimmed; read up to {offset}")
        entry = -1 if offset == self.start.offset else bisect_left(self.lasts, offset)
        if entry == len(self) or self.position(entry).offset != offset:
            raise EpochLost(f"the log has no entry that ends at offset {offset}: its tail was lost")
        if self.position(entry).chain != position.chain:
            raise EpochLost(f"the log up to offset {offset} is not the one that was read: it was written again")
        return entry + 1

    def bounds(self, position: Position, *, limit: int) -> tuple[int, int]:
        """The numbers of one read's first entry after a position, and of the first beyond it; raises like `after`."""
        first = self.after(position)
        # At least one entry; otherwise no more events than one read may bring into memory.
        within = bisect_right(self.lasts, position.offset + EVENTS_A_READ)
        return first, min(max(within, first + 1), first + limit, len(self))


def check_epoch(index: EntryIndex | None, epoch: int) -> EntryIndex:
    """The index, if it is of this epoch; raises `EpochLost` otherwise."""
    index = check_begun(index)
    if index.start.epoch != epoch:
        raise EpochLost(f"the log is in epoch {index.start.epoch}, not {epoch}")
    return index


def check_begun(index: EntryIndex | None) -> EntryIndex:
    """The index, if there is an epoch at all; raises `EpochLost` otherwise."""
    if index is None:
        raise EpochLost("the log is empty: it has no epoch")
    return index
