"""The lack of a job whose pods keep each other from nodes. The one that finds no node may need none of those that it
could have now, because the cycle put its other pods where they leave it nothing: by rules among them, or one set of
pods with room that another set needs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from arranger.model.pod import PodShape
from arranger.replay.explain.candidate_changes.case import Lack, WaitingCase
from arranger.replay.explain.shortfall import limiting, without_nodes
from arranger.scheduling import ClusterView, Filters


def lacks(case: WaitingCase) -> Iterator[Lack]:
    """What the next pod lacks, and then, if its other pods may keep it from nodes, also what each of these could lack:
    the nodes that are open to it but for pods, and what limits the number of such pods there."""
    lack = case.lack
    assert lack is not None
    yield lack
    counts = dict[PodShape, int]()
    for number in without_nodes(case.job) if lack.quota is None else ():
        group = case.spec.groups[number]
        counts[group.shape] = counts.get(group.shape, 0) + group.count
    if len(counts) < 2 and all(shape.rules is None for shape in counts):
        return
    view = ClusterView(case.state.nodes)
    filters = Filters(view, case.policies.filters)
    nodes, resources = set(lack.candidates), dict.fromkeys(lack.resources)
    for shape, count in counts.items():
        rows = np.flatnonzero(filters.static(shape))
        nodes.update(view.names[row] for row in rows.tolist())
        resources.update(dict.fromkeys(limiting(view, shape, rows, count)))
    if nodes != lack.candidates or len(resources) > len(lack.resources):
        yield replace(lack, resources=tuple(resources), candidates=frozenset(nodes))
