"""A log and its archive, read as one: trimmed entries are read from the archive.

The archive is used only for entries that the stream doesn't have, so recent events stay readable while the archive is
unavailable. If the two have a gap between them, reading across it raises a `DamagedEntry` that names the missing part.
"""

from collections.abc import Sequence

from arranger.errors import DamagedEntry, EntriesTrimmed, UsageError
from arranger.events.archive import ArchiveLog
from arranger.events.blob_stores import BlobStore
from arranger.events.codec import StoredEntry
from arranger.events.file_log import Copyable
from arranger.events.log import Entry, OnlyRead, Position, SnapshotMark, StoredSnapshot
from arranger.events.log_keys import UNKEYED, Authenticity, LogKeys


class TieredLog(OnlyRead):
    """The log `live` (open) with the archive of its epoch behind it. Nothing is ever written."""

    live = True

    def __init__(self, live: Copyable, blob_store: BlobStore, keys: LogKeys = UNKEYED) -> None:
        self._live = live
        self._own_keys = keys
        #: What checks the entries that were read last.
        self.keys = live.keys
        self._blob_store = blob_store
        #: The archive that was found, and its epoch. Whoever reads on for months may see another epoch begin, and an
        #: archive come.
        self._archive: ArchiveLog | None = None
        self._epoch = 0

    async def open(self) -> Position:
        end = await self._live.open()
        self.keys = self._live.keys
        return end

    @property
    def authenticity(self) -> Authenticity:
        live = self._live.authenticity
        return min(live, self._archive.authenticity) if self._archive is not None else live

    async def end(self) -> Position:
        return await self._live.end()

    async def _archived(self, *, again: bool = False) -> ArchiveLog | None:
        """The archive of the live log's epoch; None if it has none."""
        epoch = (await self._live.end()).epoch
        if self._archive is None or self._epoch != epoch:
            await self.close()
            self._archive, self._epoch = None, epoch
            archive = ArchiveLog(self._blob_store, epoch=epoch, keys=self._own_keys)
            try:
                await archive.open()
                self._archive = archive
            except UsageError:
                await archive.close()
        elif again:
            await self._archive.refresh()
        return self._archive

    async def start(self) -> Position:
        live = await self._live.start()
        if live.offset == 0:
            return live
        archive = await self._archived()
        return await archive.start() if archive is not None and archive.reach[0] < live.offset else live

    async def read(self, after: Position, *, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Entry]:
        archive = await self._behind(after)
        if archive is not None:
            return await archive.read(after, limit=limit)
        try:
            return await self._live.read(after, limit=limit, wait_s=wait_s)
        except EntriesTrimmed:
            archive = await self._behind(after)  # trimmed meanwhile, and archived before that
            if archive is None:
                raise
            return await archive.read(after, limit=limit)

    async def read_stored(self, after: Position, *, limit: int = 1000) -> Sequence[StoredEntry]:
        archive = await self._behind(after)
        if archive is not None:
            stored = await archive.read_stored(after, limit=limit)
            self.keys = archive.keys
            return stored
        self.keys = self._live.keys
        return await self._live.read_stored(after, limit=limit)

    async def _behind(self, after: Position) -> ArchiveLog | None:
        """The archive, if it has the entries after a position and the live log doesn't."""
        live = await self._live.start() if self._archive is None or after.offset >= self._archive.reach[1] else None
        if live is not None and after.offset >= live.offset:
            return None
        archive = await self._archived()
        if archive is None or after.offset < archive.reach[0]:
            return None
        if after.offset >= archive.reach[1]:
            archive = await self._archived(again=True)
            assert archive is not None and live is not None
            if after.offset >= archive.reach[1]:
                lacking = f"offsets {after.offset + 1} to {live.offset} were trimmed from the stream"
                raise DamagedEntry(
                    after.offset + 1,
                    f"{lacking}, and the archive at {self._blob_store.where} lacks them",
                    hint="restore the archive's files from a copy",
                )
        return archive

    async def snapshot_marks(self) -> Sequence[SnapshotMark]:
        archive = await self._archived()
        archived = await archive.snapshot_marks() if archive is not None else ()
        found = {mark.offset: mark for mark in (*await self._live.snapshot_marks(), *archived)}
        return [found[offset] for offset in sorted(found)]

    async def newest_snapshot(self, *, at_most: int | None = None) -> StoredSnapshot | None:
        found = await self._live.newest_snapshot(at_most=at_most)
        if found is not None:
            return found  # every archived snapshot came from the live log: none is newer
        archive = await self._archived()
        return await archive.newest_snapshot(at_most=at_most) if archive is not None else None

    async def close(self) -> None:
        if self._archive is not None:
            await self._archive.close()
        await self._live.close()

    def read_from(self) -> str:
        return "a log with its archive"
