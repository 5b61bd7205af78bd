"""Overrides of a recorded configuration: the replaced parts; all other parts stay as recorded."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.projections.state import State
from arranger.scheduling import Policies


class Overrides(msgspec.Struct, frozen=True):
    """The replaced parts of a cycle's configuration; None leaves a part as recorded.

    With `every_job`, the policies also replace those that jobs select themselves.
    """

    queue_policy: str | None = None
    pod_policy: str | None = None
    weights: tuple[tuple[str, int], ...] | None = None
    infeasible_grace_ms: int | None = None
    refusal_avoid_ms: int | None = None
    search_steps: int | None = None
    every_job: bool = False

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, object]:
        """The replaced fields with their values."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None and name != "every_job"}

    @property
    def text(self) -> str:
        """The replaced fields in words: "queue_policy DRF, weights cpu=1"."""
        parts = [f"{name.removesuffix('_ms')} {_words(value)}" for name, value in self.given.items()]
        return ", ".join(parts) + (" for every job" if self.every_job else "")

    def of(self, config: CycleConfig, policies: Policies) -> tuple[CycleConfig, Policies]:
        """The recorded configuration with the overrides, and the policies for it: all installed queue and pod policies,
        but the recorded filters, so that nothing else differs."""
        by = Policies(policies.queue, policies.pod, policies.closest(config).filters)
        return by.usable(msgspec.structs.replace(config, **self.given, versions=by.versions())), by

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
            yield
        finally:
            for uid, spec in specs.items():
                state.jobs[uid].spec = spec


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{name}={weight}" for name, weight in value)
    return str(value)
