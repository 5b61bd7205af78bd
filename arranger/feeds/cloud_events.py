"""Stage changes as CloudEvents 1.0.2 in the JSON format (https://github.com/cloudevents/spec, tag v1.0.2).

The identity of an event is its source and its ID. It depends only on the log, so whoever reads the same entry again
makes the same event. Of the documented extensions, `partitionkey` is the UID of the job: order counts within it.
"""

import datetime

import msgspec

from arranger.feeds.following import Gap
from arranger.feeds.stage_changes import StageChange

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

STAGE, DELETED, GAP = "dev.arranger.tyjob.stage.v1", "dev.arranger.tyjob.deleted.v1", "dev.arranger.gap.v1"


class CloudEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attributes of an event, in the names of the specification."""

    id: str
    source: str
    type: str
    time: str
    data: dict[str, object]
    subject: str = ""
    partitionkey: str = ""
    specversion: str = "1.0"
    datacontenttype: str = "application/json"

    def encoded(self) -> bytes:
        return msgspec.json.encode({name: value for name in self.__struct_fields__ if (value := getattr(self, name))})


def of_stage(change: StageChange, cluster: str, epoch: int, offset: int, *, repeated: bool = False) -> CloudEvent:
    """The event for a change by the entry that ends at an offset. `repeated`: the job is in this stage after a gap,
    and may have been in it before."""
    data: dict[str, object] = {
        "epoch": epoch,
        "offset": offset,
        "uid": change.uid,
        "namespace": change.namespace,
        "name": change.name,
        "stage": change.stage,
        "attempt": change.attempt,
    }
    optional = {"previousStage": change.before, "reason": change.reason, "message": change.message}
    if change.deleted:
        optional = {}
    data |= {name: value for name, value in optional.items() if value}
    if repeated:
        data["repeated"] = True
    number = "present" if repeated else change.number
    return CloudEvent(
        id=f"{epoch}-{offset}-{change.uid}-{number}",
        source=_source(cluster),
        type=DELETED if change.deleted else STAGE,
        time=_time(change.time_ms),
        data=data,
        subject=f"{change.namespace}/{change.name}",
        partitionkey=change.uid,
    )


def of_gap(gap: Gap, cluster: str) -> CloudEvent:
    """The event that says which changes were not told, before the present stage of every job is."""
    data: dict[str, object] = {"epoch": gap.epoch, "offset": gap.offset}
    if gap.after is not None:
        data["after"] = {"epoch": gap.after.epoch, "offset": gap.after.offset}
    return CloudEvent(
        id=f"{gap.epoch}-{gap.offset}-gap",
        source=_source(cluster),
        type=GAP,
        time=_time(gap.time_ms),
        data=data,
    )


def _time(ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _source(cluster: str) -> str:
    return f"/arranger/clusters/{cluster}"
