"""Another configuration than the recorded one: what of it is replaced, everything else as it was."""

import msgspec

from arranger.model.config import CycleConfig
from arranger.scheduling.registry import Policies


class Overrides(msgspec.Struct, frozen=True):
    """The parts of a cycle's configuration that are replaced; None leaves a part as it was recorded."""

    queue_policy: str | None = None
    pod_policy: str | None = None
    weights: tuple[tuple[str, int], ...] | None = None
    infeasible_grace_ms: int | None = None
    refusal_avoid_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, object]:
        """What is replaced, by field."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    @property
    def text(self) -> str:
        """The same in words: "queue_policy DRF, weights cpu=1"."""
        return ", ".join(f"{name.removesuffix('_ms')} {_words(value)}" for name, value in self.given.items())

    def of(self, config: CycleConfig, policies: Policies) -> tuple[CycleConfig, Policies]:
        """The recorded configuration with the replacements, and what to take it by: any queue or pod policy that is
        installed here, and the filters that the recorded one had, so that nothing else differs."""
        had = policies if policies.missing(config) else policies.recorded(config)
        by = Policies(policies.queue, policies.pod, had.filters)
        return by.usable(msgspec.structs.replace(config, **self.given, versions=by.versions())), by


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{name}={weight}" for name, weight in value)
    return str(value)
