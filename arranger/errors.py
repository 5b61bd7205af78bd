"""The errors that Arranger raises on purpose: one small hierarchy, each with advice for the next step.

The command line prints `message` and `hint` on one line and exits with `exit_status`; any other exception is a bug
and shows its traceback.
"""


class ArrangerError(Exception):
    """The problem (`message`) and what the reader can do about it (`hint`)."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class UsageError(ArrangerError):
    """An unusable setting, flag, URL, file or kubeconfig: nothing was started. Exit status 2."""

    exit_status = 2


class NoLog(UsageError):
    """No log exists at a place to read from."""


class LogError(ArrangerError):
    """The event log can't be read or written as requested."""


class LogUnavailable(LogError):
    """The log's server can't be reached now, or refuses writes now. Retry with back-off."""


class WritesRefused(LogUnavailable):
    """The log's server responds but refuses writes: it is full, a replica, or can't save to its disk."""


class EpochLost(LogError):
    """The log's epoch or tail is not the one that the caller has read: a new epoch has begun, or must begin."""


class EntriesTrimmed(LogError):
    """Entries that the caller hasn't read were trimmed: start again from the newest snapshot, in the same epoch."""


class TooOld(LogError):
    """A point of the log was asked for that is before everything that is still stored."""


class OutdatedAppend(LogError):
    """The same writer has already appended a later batch: two processes use one writer name, or an append is late."""


class WatchSuperseded(LogError):
    """An append under a term that isn't its watch's current one: another process has claimed the watch since."""


class ClockOff(LogError):
    """The clock of this machine differs from that of the log's server by more than the bound: it must not write.

    `offset_ms` is how far the clock is ahead (negative: behind); None while the server's time is unknown.
    """

    def __init__(self, offset_ms: int | None) -> None:
        told = "isn't compared with" if offset_ms is None else f"is {offset_ms / 1000:+.1f} s off from"
        super().__init__(
            f"the clock of this machine {told} that of the log's server",
            hint="see whether NTP runs here and on the log's server (chronyc tracking, timedatectl)",
        )
        self.offset_ms = offset_ms


class DamagedEntry(LogError):
    """An entry that can't be decoded, or whose chain hash doesn't follow from the entry before it."""

    def __init__(
        self,
        offset: int,
        reason: str,
        *,
        hint: str = "docs/operations.md, When something is missing or broken, says how to go on",
    ) -> None:
        super().__init__(f"log entry at offset {offset} can't be read: {reason}", hint=hint)
        self.offset = offset
        self.reason = reason


class ForgedEntry(DamagedEntry):
    """An entry or a snapshot that isn't what a process with a key of the log wrote there: nothing is done for it."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(
            offset,
            f"it isn't authentic: {reason}",
            hint="see who can write to Redis, and whether every process has the same log_key; docs/operations.md, "
            "When an entry is not authentic, says how to go on",
        )


class UnknownEvent(DamagedEntry):
    """An event kind or version that this program doesn't know: the fold stops and does not skip it."""

    def __init__(
        self, offset: int, reason: str, *, hint: str = "run the version of Arranger that wrote it, or a newer one"
    ) -> None:
        super().__init__(offset, reason, hint=hint)


class ClusterError(ArrangerError):
    """The Kubernetes API refused a request or can't be reached."""
