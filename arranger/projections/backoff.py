"""Back-off as the log has it: how often in a row a job was told to wait before it is scheduled again, and until when.

Whoever decides says for how long (`back_off_ms` of the decision). The fold keeps what this comes to, so cycles and
readers need no clock of their own but the time that they were told.
"""

import msgspec

from arranger.events.kinds import QUIET_MS, STEADY_MS


class BackOff(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`times` back-offs in a row, the last of which ends at `until_ms` (milliseconds since 1970); 0 for none."""

    times: int = 0
    until_ms: int = 0

    def in_a_row(self, time_ms: int, *, held_ms: int = 0) -> int:
        """How many of them the next one follows in a row, of a job that has now held its nodes for `held_ms`.

        None, where it held them long enough (`STEADY_MS`), or when the last has been over for `QUIET_MS`.
        """
        steady = held_ms >= STEADY_MS or time_ms - self.until_ms >= QUIET_MS
        return 0 if steady else self.times


NO_BACK_OFF = BackOff()
