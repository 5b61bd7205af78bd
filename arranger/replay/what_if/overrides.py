"""Another configuration than the recorded one: what of it is replaced, everything else as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from arranger.model.config import CycleConfig
from arranger.model.job import JobSpec
from arranger.projections.state import State
from arranger.scheduling import Policies


class Overrides(msgspec.Struct, frozen=True):
    """The parts of a cycle's configuration that are replaced; None leaves a part as it was recorded.

    With `every_job` the policies replace those that jobs name themselves too.
    """

    queue_policy: str | None = None
    pod_policy: str | None = None
    weights: tuple[tuple[str, int], ...] | None = None
    infeasible_grace_ms: int | None = None
    refusal_avoid_ms: int | None = None
    every_job: bool = False

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, object]:
        """What is replaced, by field."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None and name != "every_job"}

    @property
    def text(self) -> str:
        """The same in words: "queue_policy DRF, weights cpu=1"."""
        parts = [f"{name.removesuffix('_ms')} {_words(value)}" for name, value in self.given.items()]
        return ", ".join(parts) + (" for every job" if self.every_job else "")

    def of(self, config: CycleConfig, policies: Policies) -> tuple[CycleConfig, Policies]:
        """The recorded configuration with the replacements, and what to take it by: any queue or pod policy that is
        installed here, and the filters that the recorded one had, so that nothing else differs."""
        by = Policies(policies.queue, policies.pod, policies.closest(config).filters)
        return by.usable(msgspec.structs.replace(config, **self.given, versions=by.versions())), by

    def spec(self, spec: JobSpec | None) -> JobSpec | None:
        """A job's spec as it is then: without the policies that it names, where they are replaced."""
        if spec is None or not self.every_job:
            return spec
        return msgspec.structs.replace(
            spec,
            queue_policy="" if self.queue_policy is not None else spec.queue_policy,
            pod_policy="" if self.pod_policy is not None else spec.pod_policy,
        )

    @contextmanager
    def over(self, state: State) -> Iterator[None]:
        """For as long as this lasts, the jobs of a state are as they are then."""
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
