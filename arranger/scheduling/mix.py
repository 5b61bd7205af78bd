"""The mix of requests in a cluster: what its waiting and running pods ask for, and how many ask for it.

It stands for the pods that typically come, for policies that weigh what a placement leaves to others.
"""

from collections.abc import Iterable, Iterator, Sequence

from arranger.model.pod import PodShape
from arranger.projections.jobs import holds
from arranger.projections.state import State

#: Request shapes with their weights: how many waiting and running pods ask for that.
Mix = Sequence[tuple[PodShape, int]]

#: As many shapes are weighed at most, the most frequent: each costs comparisons on every node.
MOST_SHAPES = 64


def mix_of(shapes: Iterable[tuple[PodShape, int]]) -> Mix:
    """The most frequent shapes with their counts, equal ones added up. The order in which they come doesn't matter."""
    counts: dict[PodShape, int] = {}
    for shape, count in shapes:
        counts[shape] = counts.get(shape, 0) + count
    # Among equally many the text decides which are kept: shapes have no order of their own, but all have a text.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].requests, repr(item[0])))
    return ranked[:MOST_SHAPES]


def cluster_mix(state: State) -> Mix:
    """The mix of a state: every pod that an active job wants, placed or not, and every stranger's that holds room.

    What pods ask of each other is left out: of a shape that comes again only where it may run matters here.
    """
    return mix_of((*_desired(state), *_held(state)))


def _desired(state: State) -> Iterator[tuple[PodShape, int]]:
    for job in state.jobs.values():
        if job.active and job.spec is not None:
            for group in job.spec.groups:
                shape = group.shape
                yield (
                    PodShape(shape.requests, shape.node_selector, shape.tolerations, shape.required_terms),
                    group.count,
                )


def _held(state: State) -> Iterator[tuple[PodShape, int]]:
    counts: dict[tuple[tuple[str, int], ...], int] = {}
    for pod in state.pods.values():
        if holds(pod) and (pod.owner is None or pod.owner.job_uid not in state.jobs):
            counts[pod.requests] = counts.get(pod.requests, 0) + 1
    return ((PodShape(requests), count) for requests, count in counts.items())
