"""Open a log by what a user types: a Redis URL, or the path of a file."""

from pathlib import Path

from arranger.errors import UsageError
from arranger.events.file_log import FileLog
from arranger.events.redis_connection import SCHEMES, redacted, scheme_of
from arranger.events.redis_log import RedisLog


async def open_log(target: str, cluster: str, *, read_only: bool = False) -> RedisLog | FileLog:
    """The open log at a Redis URL (where it is the cluster's of that name) or in a file.

    With `read_only` nothing is created or written. Raises `UsageError` for a target that can't be used or, with
    `read_only`, that holds no log, and `LogUnavailable` when the server doesn't answer.
    """
    scheme = scheme_of(target)
    if scheme and scheme not in SCHEMES:
        raise UsageError(
            f"{redacted(target)!r} is no place of a log", hint="give redis://, rediss://, unix:// or a file's path"
        )
    log = RedisLog(target, cluster, read_only=read_only) if scheme else FileLog(Path(target), read_only=read_only)
    try:
        await log.open()
    except BaseException:
        await log.close()
        raise
    return log
