"""Opens a log that a user names: a Redis URL, the path of a log file or an export, or an archive's folder or URL."""

from pathlib import Path

from arranger.errors import UsageError
from arranger.events.archive import ArchiveLog
from arranger.events.blob_stores import BlobStore, FolderStore, ZipStore, blob_store_at, is_remote, local_path
from arranger.events.file_log import Copyable, FileLog
from arranger.events.log_keys import UNKEYED, LogKeys
from arranger.events.redis_urls import SCHEMES, scheme_of
from arranger.events.segments import parsed_name
from arranger.events.tiered_log import TieredLog

#: The beginning of every zip file.
_ZIP_MAGIC = b"PK"


async def open_log(
    target: str, cluster: str, *, archive: str = "", epoch: int | None = None, keys: LogKeys = UNKEYED
) -> Copyable:
    """Open a log for reading: a Redis URL, a log file, an export, or an archive (a folder or any other URL).

    In Redis and in an archive it is the log of the cluster of this name. A log in Redis is read together with the
    cluster's part of `archive` if that is given. `epoch` chooses an earlier epoch, which only archives have. `keys`
    check a log that is signed; without them it is read unchecked. Raises `UsageError` for a target that can't be used
    or holds no log, and `LogUnavailable` when the server doesn't respond.
    """
    log = log_at(target, cluster, archive=archive, epoch=epoch, keys=keys)
    try:
        await log.open()
    except BaseException:
        await log.close()
        raise
    return log


def log_at(
    target: str, cluster: str, *, archive: str = "", epoch: int | None = None, keys: LogKeys = UNKEYED
) -> Copyable:
    """As `open_log`, but not open yet."""
    if scheme_of(target) in SCHEMES:
        if epoch is not None:
            if not archive:
                raise UsageError("only an archive has earlier epochs", hint="name it with --archive or --log")
            return ArchiveLog(blob_store_at(archive, cluster), epoch=epoch, keys=keys)
        from arranger.events.redis_log import RedisLog  # the client is slow to import, and files don't need it

        live = RedisLog(target, cluster, read_only=True, keys=keys)
        return TieredLog(live, blob_store_at(archive, cluster), keys) if archive else live
    archived = _archive_at(target, cluster)
    return FileLog(local_path(target), keys) if archived is None else ArchiveLog(archived, epoch=epoch, keys=keys)


def _archive_at(target: str, cluster: str) -> BlobStore | None:
    """The cluster's archive at a path or URL, or the export there; None for another kind of file or a missing one."""
    if is_remote(target):
        return blob_store_at(target, cluster)
    path = local_path(target)
    if path.is_dir():
        inside = path / cluster
        return FolderStore(path) if not inside.is_dir() and _holds_archive(path) else FolderStore(inside)
    return ZipStore(path) if path.is_file() and _begins_as_zip(path) else None


def _holds_archive(folder: Path) -> bool:
    return any(parsed_name(file.name) for file in folder.iterdir())


def _begins_as_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    except OSError:
        return False
