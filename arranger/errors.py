"""The errors that Arranger raises on purpose: one small hierarchy, each saying what to do next.

The command line prints `message` and `hint` on one line and exits with `exit_status`; anything that is not an
`ArrangerError` is a bug and shows its traceback.
"""


class ArrangerError(Exception):
    """What went wrong (`message`) and what the reader can do about it (`hint`)."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


class UsageError(ArrangerError):
    """A setting, flag, URL, file or kubeconfig that can't be used: nothing was started. Exit status 2."""

    exit_status = 2


class NoLog(UsageError):
    """There is no log where one was to be read."""


class LogError(ArrangerError):
    """The event log can't be read or written as asked."""


class LogUnavailable(LogError):
    """The log's server can't be reached now, or refuses writes now. Worth retrying with back-off."""


class WritesRefused(LogUnavailable):
    """The log's server answers, and takes no writes: it is full, a replica, or can't save to its disk."""


class EpochLost(LogError):
    """The log's epoch or tail is not the one that the caller has read: a new epoch has begun, or must begin."""


class EntriesTrimmed(LogError):
    """Entries that the caller hasn't read were trimmed away: start again from the newest snapshot, same epoch."""


class OutdatedAppend(LogError):
    """The same writer has appended a later batch already: two processes use one writer name, or an append is late."""


class WatchSuperseded(LogError):
    """An append on behalf of a watch under a term that isn't the watch's current one: another claim has come since."""


class ClockOff(LogError):
    """The clock of this machine differs from that of the log's server by more than the bound: it may write nothing.

    `offset_ms` is how far it is ahead (negative: behind); None while the server's time isn't known yet.
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
        hint: str = "run the version of Arranger that wrote it, or restore Redis from a backup",
    ) -> None:
        super().__init__(f"log entry at offset {offset} can't be read: {reason}", hint=hint)
        self.offset = offset
        self.reason = reason


class UnknownEvent(DamagedEntry):
    """An event kind or version that this program doesn't know: the fold stops rather than skip it."""


class ClusterError(ArrangerError):
    """The Kubernetes API refused a request or can't be reached."""
