"""Counts of preemptions and reservations among the decisions that a process folds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from arranger.events.kinds import Event, Preempted, Reserved, StageDecided
from arranger.events.log import Entry
from arranger.metrics import Metrics
from arranger.model.stages import StageReason
from arranger.projections.state import Reservation, Verdict

_KINDS = (Preempted.__name__, Reserved.__name__, StageDecided.__name__)


def count_room(
    metrics: Metrics, entries: Sequence[Entry], verdicts: Iterable[Verdict], before: Mapping[str, Reservation]
) -> None:
    """Count the accepted decisions of these entries. `before` are the reservations before the first of them."""
    starts = {uid: of.decided.start_ms for uid, of in before.items()}
    for event in _accepted(entries, verdicts):
        if isinstance(event, Preempted):
            for victim in event.victims:
                metrics.preemptions.labels(str(victim.kind)).inc()
                metrics.preempted_gpu_seconds.inc(victim.lost_ms / 1000)
        elif isinstance(event, StageDecided):
            if event.reason == StageReason.ROOM_NOT_FREED:
                metrics.room_not_freed.inc()
        elif isinstance(event, Reserved):
            _count_reservation(metrics, event, starts)


def _accepted(entries: Sequence[Entry], verdicts: Iterable[Verdict]) -> Iterator[Event]:
    offsets = {verdict.offset for verdict in verdicts if verdict.accepted and verdict.kind in _KINDS}
    for entry in entries if offsets else ():
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if offset in offsets:
                yield event


def _count_reservation(metrics: Metrics, event: Reserved, starts: dict[str, int]) -> None:
    known = starts.pop(event.job_uid, None)
    if not event.pods:
        metrics.reservations.labels("ended").inc()
        return
    starts[event.job_uid] = event.start_ms
    if known is None:
        metrics.reservations.labels("made").inc()
    elif known != event.start_ms:
        metrics.reservations.labels("moved").inc()
