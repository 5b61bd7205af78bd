"""A projection as canonical bytes: two processes at the same offset have the same bytes and digest.

Derived values (used amounts) are written too and checked on restoring, so a snapshot can't hide a leak of capacity.
Snapshots of earlier layouts are read (`layouts`), but never written.
"""

import contextlib
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter, itemgetter

import msgspec
import numpy as np

from arranger.events.kinds import EffectFailed, ObjectSeen, PodSeen, Preempted
from arranger.model.decayed_usage import DecayedUsage
from arranger.model.node import NodeFacts
from arranger.model.pod import TERMINAL
from arranger.projections.cluster.device_table import Holding, Matches
from arranger.projections.cluster.nodes import NOWHERE, NodeTable, Requests
from arranger.projections.derived import job_indexes
from arranger.projections.derived.queue_counts import count_all, is_other, pods_of_others
from arranger.projections.folding.placeholders import note_placeholder
from arranger.projections.formats.layouts import LAYOUT, NewerSnapshot, UnusableSnapshot, decoded, present, undecodable
from arranger.projections.formats.pod_columns import PodColumns, columns_of, pods_in
from arranger.projections.jobs.parts import SetRecord, SlotKey, SlotTable
from arranger.projections.jobs.records import JobRecord, group_of, holds
from arranger.projections.jobs.run_times import JobKind
from arranger.projections.observed import objects
from arranger.projections.state import Assumed, Forecasted, KeptLimit, NodesRequest, Reservation, State

__all__ = ["LAYOUT", "NewerSnapshot", "UnusableSnapshot"]


class NodeImage(msgspec.Struct, frozen=True, array_like=True):
    """A node in a snapshot."""

    name: str
    uid: str
    version: str
    facts: NodeFacts
    used: tuple[tuple[str, int], ...]
    holders: int
    down_ms: int


class JobImage(msgspec.Struct, frozen=True, array_like=True):
    """A job in a snapshot. All fields but `record` are those of `SlotTable`, which tells their units: `placements` are
    its `nodes`, `bound` its `pods`, `refused_slots` its `refused_ms`."""

    record: JobRecord  # without its slots, which follow in their order
    placements: tuple[tuple[SlotKey, str], ...]
    bound: tuple[tuple[SlotKey, str], ...]
    given_up: tuple[SlotKey, ...]
    refused_slots: tuple[tuple[SlotKey, int], ...]
    leaving: tuple[SlotKey, ...]
    charged: tuple[tuple[SlotKey, tuple[int, int]], ...]
    failed_before: tuple[tuple[SlotKey, int], ...]
    failures: tuple[tuple[SlotKey, int], ...]
    finished: tuple[SlotKey, ...]
    room: Preempted | None
    unevicted: EffectFailed | None
    members: tuple[tuple[str, SlotKey], ...]
    hosts: tuple[str, ...]
    took: bool
    asked: tuple[str, ...]
    lent: tuple[tuple[SlotKey, tuple[str, ...]], ...]
    done: bool


class DecayedImage(msgspec.Struct, frozen=True, array_like=True):
    """What a queue used (`DecayedUsage`) in a snapshot. The sums are hexadecimal, because they may exceed 64 bits."""

    queue: str
    time_ms: int
    sums: tuple[tuple[str, str], ...]


class RunTimesImage(msgspec.Struct, frozen=True, array_like=True):
    """The last run times of a kind of job in a snapshot, in milliseconds."""

    kind: JobKind
    times: tuple[int, ...]


class StateImage(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot. The fields that a bridge of `layouts` leaves out are the last, with defaults. There is none yet."""

    layout: int
    epoch: int
    offset: int
    time_ms: int
    last_cycle: int
    terms: dict[str, int]
    listed: dict[str, bool]
    verdicts: dict[str, list[int]]
    nodes: list[NodeImage]
    pods: PodColumns
    jobs: list[JobImage]
    assumed: tuple[Assumed, ...]  # in the order in which they end
    objects: tuple[ObjectSeen, ...]  # by kind, in the order of `objects.KINDS`, each as in `objects.every`
    unwatched: dict[str, int]
    cluster: str
    half_life_ms: int
    decayed: tuple[DecayedImage, ...]
    run_times: tuple[RunTimesImage, ...]  # in the order in which the kinds of jobs ended last
    reservations: tuple[Reservation, ...]  # by UID of the job
    kept_limits: tuple[KeptLimit, ...]  # by UID of the job
    forecasts: tuple[Forecasted, ...]  # by UID of the job
    with_volumes: bool
    requests: tuple[NodesRequest, ...]  # by UID of the job
    selected_ms: tuple[tuple[tuple[str, str], int], ...]  # by namespace and name
    with_devices: bool
    matches: tuple[tuple[str, Matches], ...]  # by UID of the slice
    decided: tuple[tuple[str, Holding], ...]  # by UID of the claim, or the decision for a slot
    unread: tuple[str, ...]
    heard: dict[str, int]
    orphaned: dict[str, int]
    room_news: int = 0


#: An unchanged worker set, which isn't written.
_UNTOUCHED = SetRecord()

#: What a snapshot has as the state does.
_SAME = (
    "epoch", "offset", "time_ms", "last_cycle", "terms", "listed", "verdicts", "unwatched", "cluster", "with_volumes",
    "with_devices", "heard", "orphaned", "room_news",
)  # fmt: skip

#: The index of the state's time in a snapshot.
_TIME = StateImage.__struct_fields__.index("time_ms")

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(StateImage)
_fields = attrgetter(*(field.name for field in dataclasses.fields(JobRecord)))
_raw = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode(state: State) -> bytes:
    """The snapshot of a state."""
    return _encoder.encode(
        StateImage(
            layout=LAYOUT,
            **{name: getattr(state, name) for name in _SAME},
            nodes=_node_images(state.nodes),
            pods=columns_of([state.pods[uid] for uid in sorted(state.pods)]),
            jobs=[_job_image(state.jobs[uid]) for uid in sorted(state.jobs)],
            assumed=tuple(state.assumed.values()),
            objects=tuple([seen for kind in objects.KINDS for seen in objects.every(state, kind)]),
            half_life_ms=state.queue_use.half_life_ms,
            decayed=tuple(_decayed_image(queue, usage) for queue, usage in sorted(state.queue_use.decayed.items())),
            run_times=tuple(RunTimesImage(kind, times) for kind, times in state.run_times.items()),
            reservations=tuple(reservation for _, reservation in sorted(state.reservations.items())),
            kept_limits=tuple(kept for _, kept in sorted(state.kept_limits.items())),
            forecasts=tuple(forecast for _, forecast in sorted(state.forecasts.items())),
            selected_ms=tuple(sorted(state.volumes.selected_ms.items())),
            requests=tuple(request for _, request in sorted(state.requests.items())),
            matches=tuple(sorted(state.devices.matches.items(), key=itemgetter(0))),
            decided=tuple(sorted(state.devices.decided.items(), key=itemgetter(0))),
            unread=tuple(state.devices.unread),
        )
    )


def digest(state: State) -> str:
    """32 hexadecimal digits that are equal exactly when the states are."""
    return hashlib.blake2b(encode(state), digest_size=16).hexdigest()


def image_of(content: bytes) -> StateImage:
    """A snapshot as a plain record of the present layout, so that it can be changed. Raises `UnusableSnapshot`."""
    return _read(content)[0]


def _read(content: bytes) -> tuple[StateImage, bytes]:
    """The record of a snapshot, and its bytes in the present layout, which most have already."""
    with contextlib.suppress(UnusableSnapshot):
        image = decoded(_decoder, content)
        if image.layout == LAYOUT:
            return image, content
    # A bridged snapshot may lack fields; encoding its image adds their defaults.
    image = decoded(_decoder, present(content))
    return image, encode_image(image)


def encode_image(image: StateImage) -> bytes:
    """The inverse of `image_of`."""
    return _encoder.encode(image)


def time_ms(content: bytes) -> int:
    """The time of a snapshot's state, without restoring it. Raises `UnusableSnapshot`."""
    try:
        return msgspec.msgpack.decode(_raw.decode(present(content))[_TIME], type=int)
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as err:
        raise undecodable(err) from err


def restore(content: bytes) -> State:
    """The state that `encode` wrote, now or in a version with an earlier layout that is still read.

    Raises `UnusableSnapshot`, and `NewerSnapshot` if a version with a later layout wrote it.
    """
    image, expected = _read(content)
    try:
        state = _state(image)
    except (OverflowError, LookupError, ValueError) as err:
        raise UnusableSnapshot(f"the snapshot names what isn't in it: {err}") from err
    if encode(state) != expected:
        raise UnusableSnapshot("the snapshot's used amounts and order don't follow from its pods and placements")
    return state


def mentions(content: bytes, name: str) -> bool:
    """Whether a snapshot may contain this string as a whole value (not as part of a longer one), without restoring it.
    False is certain."""
    return msgspec.msgpack.encode(name) in content


def _state(image: StateImage) -> State:
    state = State(**{name: getattr(image, name) for name in _SAME})
    for seen in image.objects:
        objects.restore(state, seen)
    for node in image.nodes:
        if node.uid:  # one without a UID is only mentioned, by pods
            state.nodes.see(node.name, node.uid, node.version, node.facts, time_ms=node.down_ms)
    for pod in pods_in(image.pods):
        _restore_pod(state, pod)
    for job in image.jobs:
        _restore_job(state, job)
    state.assumed = {(pod.owner, pod.node): pod for pod in image.assumed}
    others = pods_of_others(state)
    state.nodes.hold_all(others + Counter(_held(state)))
    count_all(state, others)
    _restore_use(state, image)
    state.run_times = {times.kind: times.times for times in image.run_times}
    state.reservations = {reservation.decided.job_uid: reservation for reservation in image.reservations}
    state.kept_limits = {kept.decided.job_uid: kept for kept in image.kept_limits}
    state.forecasts = {forecast.decided.job_uid: forecast for forecast in image.forecasts}
    state.volumes.selected_ms = dict(image.selected_ms)
    state.devices.matches = dict(image.matches)
    state.devices.unread = dict.fromkeys(image.unread)
    for uid, holding in image.decided:
        state.devices.put_decided(uid, holding)
    state.requests = {request.decided.job_uid: request for request in image.requests}
    for node in image.nodes:  # nodes without a UID have a row only now; for the others `see` couldn't know the time
        state.nodes.down_ms[state.nodes.rows[node.name]] = node.down_ms
    return state


def _restore_use(state: State, image: StateImage) -> None:
    state.queue_use.time_ms, state.queue_use.half_life_ms = image.time_ms, image.half_life_ms
    for usage in image.decayed:
        sums = {resource: int(total, 16) for resource, total in usage.sums}
        state.queue_use.decayed[usage.queue] = DecayedUsage(usage.time_ms, sums)


def _decayed_image(queue: str, usage: DecayedUsage) -> DecayedImage:
    sums = tuple((resource, f"{total:x}") for resource, total in sorted(usage.sums.items()))
    return DecayedImage(queue, usage.time_ms, sums)


def _restore_pod(state: State, pod: PodSeen) -> None:
    state.pods[pod.uid] = pod
    note_placeholder(state, pod)
    if pod.traits.anti_affinity:
        state.repelling[pod.uid] = pod
    if pod.deleting:
        state.deleting[pod.uid] = None
    if pod.phase in TERMINAL and (group := group_of(pod)):
        state.finished.setdefault(group, {})[pod.uid] = None
    if pod.owner is not None:
        state.pods_of.setdefault(pod.owner.job_uid, {})[pod.uid] = pod


def _job_image(job: JobRecord) -> JobImage:
    bare, slots = JobRecord(*_fields(job)), job.slots
    bare.slots = SlotTable()
    bare.sets = {name: of for name, of in job.sets.items() if of != _UNTOUCHED}
    return JobImage(
        record=bare,
        placements=tuple(sorted(slots.nodes.items())),
        bound=tuple(sorted(slots.pods.items())),
        given_up=tuple(sorted(slots.given_up)),
        refused_slots=tuple(sorted(slots.refused_ms.items())),
        leaving=slots.leaving,
        charged=tuple(sorted(slots.charged.items())),
        failed_before=tuple(sorted(slots.failed_before.items())),
        failures=tuple(sorted(slots.failures.items())),
        finished=tuple(sorted(slots.finished)),
        room=slots.room,
        unevicted=slots.unevicted,
        members=tuple(sorted(slots.members.items())),
        hosts=slots.hosts,
        took=slots.took,
        asked=slots.asked,
        lent=tuple(sorted(slots.lent.items())),
        done=slots.done,
    )


def _restore_job(state: State, image: JobImage) -> None:
    job = image.record
    job.slots = SlotTable(
        nodes=dict(image.placements),
        pods=dict(image.bound),
        given_up=dict.fromkeys(image.given_up),
        refused_ms=dict(image.refused_slots),
        leaving=image.leaving,
        charged=dict(image.charged),
        failed_before=dict(image.failed_before),
        failures=dict(image.failures),
        finished=dict.fromkeys(image.finished),
        room=image.room,
        unevicted=image.unevicted,
        members=dict(image.members),
        hosts=image.hosts,
        took=image.took,
        asked=image.asked,
        lent=dict(image.lent),
        done=image.done,
    )
    for uid, slot in image.members:
        if uid not in state.pods:
            raise UnusableSnapshot(f"the snapshot has no pod {uid}, which is in the group {job.uid}")
        job.slots.names[slot] = state.pods[uid].name
    state.jobs[job.uid] = job
    if image.room is not None:
        state.awaiting[job.uid] = None
    if job.taken is not None:
        state.takers[job.uid] = None
    job_indexes.enter(state, job)
    for slot, uid in job.bound.items():
        if slot not in job.placements or uid not in state.pods:
            raise UnusableSnapshot(f"the snapshot has no placement or no pod for slot {slot} of job {job.uid}")
        job.slots.note(slot, state.pods[uid])
    if job.placements and job.spec is None:
        raise UnusableSnapshot(f"the snapshot has placements of job {job.uid}, which has no spec")


def _held(state: State) -> Iterator[tuple[str, Requests]]:
    """What Arranger's own work uses, as (node, requests): observed pods, unbound placements and assumed pods."""
    for pod in state.pods.values():
        if not is_other(pod) and holds(pod):
            yield pod.node, pod.requests
    for job in state.jobs.values():
        if len(job.bound) < len(job.placements) and job.spec is not None:
            for slot, node in job.placements.items():
                if slot not in job.bound:
                    yield node, job.spec.groups[slot[0]].shape.requests
    for assumed in state.assumed.values():
        yield assumed.node, assumed.requests


def _node_images(nodes: NodeTable) -> list[NodeImage]:
    images = []
    names = sorted(nodes.columns.keys() - {NOWHERE})
    columns = [nodes.columns[name] for name in names]
    rows = sorted(nodes.rows.items())
    every = nodes.used[np.ix_([row for _, row in rows], columns)].tolist() if rows else []
    for (name, row), amounts in zip(rows, every, strict=True):
        used = tuple((resource, amount) for resource, amount in zip(names, amounts, strict=True) if amount)
        elsewhere = nodes.elsewhere(row)
        if elsewhere:
            used = tuple(sorted((*used, *elsewhere.items())))
        images.append(
            NodeImage(
                name=name,
                uid=nodes.uids[row],
                version=nodes.versions[row],
                facts=nodes.facts[row],
                used=used,
                holders=nodes.holders[row],
                down_ms=nodes.down_ms[row],
            )
        )
    return images
