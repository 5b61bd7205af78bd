"""Back-off as the log has it: how many times in a row a job backed off, and until when.

Each decision records the length of its back-off (`back_off_ms`). The fold keeps the resulting end, so cycles and
readers need only the time that is passed to them.
"""

import msgspec

#: After a job had its nodes for this long in one stage, its next back-off is the first of a row.
STEADY_MS = 600_000
#: So is a back-off that begins this long after the end of the last one.
QUIET_MS = 3_600_000


class BackOff(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`times` back-offs in a row, the last of which ends at `until_ms` (milliseconds since 1970); 0 for none."""

    times: int = 0
    until_ms: int = 0

    def in_a_row(self, time_ms: int, *, held_ms: int = 0) -> int:
        """How many back-offs the next one follows in a row, for a job that has had its nodes for `held_ms`.

        0 if the job had them for at least `STEADY_MS`, or if the last back-off ended at least `QUIET_MS` ago.
        """
        steady = held_ms >= STEADY_MS or time_ms - self.until_ms >= QUIET_MS
        return 0 if steady else self.times


NO_BACK_OFF = BackOff()
