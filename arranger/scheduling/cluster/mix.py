"""The mix of requests in a cluster: the shapes of its waiting and running pods, with their counts.

It represents typical future pods, for policies that weigh how much room a placement leaves for them.
"""

from collections.abc import Iterable, Iterator, Sequence

from arranger.model.pod import PodShape
from arranger.projections.jobs.records import holds
from arranger.projections.state import State

#: Request shapes with their weights: the number of waiting and running pods of the shape.
Mix = Sequence[tuple[PodShape, int]]

#: The limit of shapes weighed, the most frequent first: each costs comparisons on every node.
MOST_SHAPES = 64


def mix_of(shapes: Iterable[tuple[PodShape, int]]) -> Mix:
    """The most frequent shapes with their counts, equal shapes added up. The input order doesn't matter."""
    counts: dict[PodShape, int] = {}
    for shape, count in shapes:
        counts[shape] = counts.get(shape, 0) + count
    # The text of a shape breaks ties, because shapes themselves have no order.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].requests, repr(item[0])))
    return ranked[:MOST_SHAPES]


def cluster_mix(state: State) -> Mix:
    """The mix of a state: all desired pods of active jobs, placed or not, and all foreign pods that use resources.

    Rules among pods are left out: here only the nodes where a shape may run matter.
    """
    return mix_of((*_desired(state), *_held(state)))


def _desired(state: State) -> Iterator[tuple[PodShape, int]]:
    for job in state.jobs.values():
        if job.active and job.spec is not None:
            for group in job.spec.groups:
                shape = group.shape
                if not group.count:
                    continue
                yield (
                    PodShape(shape.requests, shape.node_selector, shape.tolerations, shape.required_terms),
                    group.count,
                )


def _held(state: State) -> Iterator[tuple[PodShape, int]]:
    counts: dict[tuple[tuple[str, int], ...], int] = {}
    for pod in state.pods.values():
        if holds(pod) and pod.asks is None and (pod.owner is None or pod.owner.job_uid not in state.jobs):
            counts[pod.requests] = counts.get(pod.requests, 0) + 1
    return ((PodShape(requests), count) for requests, count in counts.items())
