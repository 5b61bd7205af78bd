"""Overrides of a recorded configuration and of the queues: the replaced parts; all other parts stay as recorded."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from arranger.events.kinds import QueueSeen
from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.model.queue import Preemption, ScheduledFailed
from arranger.projections.state import State
from arranger.scheduling import Policies

#: Fields that aren't parts of the configuration.
_BESIDE = ("every_job", "queues")

#: How many jobs have a reservation where the setting `backfill` allows it, and a log in which none had one doesn't say.
_RESERVATIONS = 1

#: A field that does nothing sensible without another one, that one, and its value where there is none.
_NEEDED_BY = (("preemption", "room_bound_ms", 60_000), ("reservations", "reservation_refresh_ms", 30_000))


class OtherQueues(msgspec.Struct, frozen=True):
    """Queues that are created or get another spec, and the names of those that are removed."""

    seen: tuple[QueueSeen, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Each change in words: "queue rl as in the file", "without queue vision"."""
        return [*(f"queue {of.name} as in the file" for of in self.seen), *(f"without queue {of}" for of in self.gone)]

    @contextmanager
    def over(self, state: State) -> Iterator[None]:
        """Replace the queues of a state, inside a `with` block."""
        recorded = state.queues
        if self.words:
            state.queues = {name: of for name, of in recorded.items() if name not in self.gone}
            state.queues |= {of.name: of for of in self.seen}
            state.tree_changed()
        try:
            yield
        finally:
            if self.words:
                state.queues = recorded
                state.tree_changed()


class Overrides(msgspec.Struct, frozen=True):
    """The replaced parts of a cycle's configuration; None leaves a part as recorded. `queues` are the replaced ones.

    With `every_job`, the policies also replace those that jobs select themselves.
    """

    queue_policy: str | None = None
    pod_policy: str | None = None
    weights: tuple[tuple[str, int], ...] | None = None
    infeasible_grace_ms: int | None = None
    refusal_avoid_ms: int | None = None
    search_steps: int | None = None
    preemption: Preemption | None = None
    #: The setting: "Guests", "Known" or "Off".
    backfill: str | None = None
    reservations: int | None = None
    reservation_refresh_ms: int | None = None
    learned_runtimes: bool | None = None
    room_bound_ms: int | None = None
    scheduled_failed: ScheduledFailed | None = None
    filter_order: tuple[str, ...] | None = None
    qos_order: bool | None = None
    min_runtime_ms: int | None = None
    every_job: bool = False
    queues: OtherQueues = OtherQueues()

    def __bool__(self) -> bool:
        return bool(self.given or self.queues.words)

    @property
    def given(self) -> dict[str, object]:
        """The replaced fields of the configuration, and the setting `backfill`, with their values."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None and name not in _BESIDE}

    @property
    def text(self) -> str:
        """The replaced fields in words: "queue_policy DRF, weights cpu=1"."""
        parts = [f"{name.removesuffix('_ms')} {_words(value)}" for name, value in self.given.items()]
        if self.every_job:
            parts[-1] += " for every job"
        return ", ".join([*parts, *self.queues.words])

    def of(self, config: CycleConfig, policies: Policies) -> tuple[CycleConfig, Policies]:
        """The recorded configuration with the overrides, and the policies for it: all installed queue and pod policies,
        but the recorded filters, group checks and permits, so that nothing else differs."""
        by = dataclasses.replace(policies.closest(config), queue=policies.queue, pod=policies.pod)
        given = self.given
        given |= _backfilling(
            given.pop("backfill", None), given.get("reservations", config.reservations or _RESERVATIONS)
        )
        for name, without, value in _NEEDED_BY:
            if given.get(name) and getattr(config, without) == 0:
                given.setdefault(without, value)
        return by.usable(msgspec.structs.replace(config, **given, versions=by.versions())), by

    def spec(self, spec: JobSpec | None) -> JobSpec | None:
        """A job's spec without the policies that are replaced for every job."""
        if spec is None or not self.every_job:
            return spec
        return msgspec.structs.replace(
            spec,
            queue_policy="" if self.queue_policy is not None else spec.queue_policy,
            pod_policy="" if self.pod_policy is not None else spec.pod_policy,
        )

    @contextmanager
    def over(self, state: State) -> Iterator[None]:
        """Apply the overrides to the jobs of a state, inside a `with` block."""
        specs = {uid: job.spec for uid, job in state.jobs.items() if self.every_job}
        for uid, spec in specs.items():
            state.jobs[uid].spec = self.spec(spec)
        try:
            with self.queues.over(state):
                yield
        finally:
            for uid, spec in specs.items():
                state.jobs[uid].spec = spec


def _backfilling(backfill: object, reservations: object) -> dict[str, object]:
    """The fields that the setting decides; so many jobs have `reservations` if any may."""
    if backfill is None:
        return {}
    return {"reservations": 0 if backfill == "Off" else reservations, "guests": backfill == "Guests"}


def _words(value: object) -> str:
    if isinstance(value, Preemption):
        value = tuple(msgspec.structs.asdict(value).items())
    if isinstance(value, tuple):
        return ",".join(one if isinstance(one, str) else "{}={}".format(*one) for one in value)
    return str(value)
