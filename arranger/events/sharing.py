"""Equal parts of different events as one object: most pods of a cluster, and most jobs, are like many others."""

from functools import lru_cache
from typing import TypeVar

from arranger.model.job import JobSpec
from arranger.model.pod import PodTraits

_Part = TypeVar("_Part")

#: Larger parts aren't cached for sharing: few pods have them, and one can be a megabyte.
LARGE = 64


@lru_cache(maxsize=16384)
def shared(part: _Part) -> _Part:
    """One shared object for all equal ones, while it is in the cache."""
    return part


def shared_requests(requests: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """One object for all equal requests of pods, unless they are large."""
    return shared(requests) if len(requests) <= LARGE else requests


def shared_traits(traits: PodTraits) -> PodTraits:
    """One object for all equal traits, unless they are large."""
    affecting = traits.host_ports or traits.anti_affinity
    return traits if len(traits.labels) > LARGE or (affecting and _asks_much(traits)) else shared(traits)


def _asks_much(traits: PodTraits) -> bool:
    """Whether a pod has more ports or terms than most."""
    if max(len(traits.host_ports), len(traits.anti_affinity)) > LARGE:
        return True
    selectors = [(*(term.selector or ()), *(term.namespace_selector or ())) for term in traits.anti_affinity]
    return any(len(asked.values) > LARGE for selector in selectors for asked in selector)


def asks_little(spec: JobSpec) -> bool:
    """Whether the groups are small, as those of most jobs are."""
    if len(spec.groups) > LARGE:
        return False
    for group in spec.groups:
        shape = group.shape
        if shape.required_terms is not None or shape.rules is not None or shape.preferred:
            return False
        parts = (shape.requests, shape.node_selector, shape.tolerations, shape.labels, group.traits.limits)
        if max(map(len, parts)) > LARGE:
            return False
    return True
