"""What a waiting job requests and no node has: with the names that were probably meant, and as words for it."""

from collections.abc import Collection

import msgspec

from arranger.messages.shortages import meant_text
from arranger.model.job import JobSpec, Stage
from arranger.model.reasons import similar_resource
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import names_text
from arranger.scheduling import ClusterView


def respelt(case: WaitingCase) -> tuple[JobSpec, str]:
    """The job's spec with the resources that it probably means instead of similar ones that no node has, and that
    change in words. The present spec, and no words, if no name is similar or the requests can't change any more."""
    if case.job.stage != Stage.PENDING:
        return case.spec, ""
    known, names, groups = ClusterView(case.state.nodes).known, {}, []
    for group in case.spec.groups:
        asked = dict(group.shape.requests)
        for name, value in asked.items():
            meant = similar_resource(name, known) if value and name not in known else ""
            if meant and meant not in asked:
                names[name] = meant
        requests = tuple(sorted((names.get(name, name), value) for name, value in asked.items()))
        groups.append(msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, requests=requests)))
    if not names:
        return case.spec, ""
    whose = [old.name for old, new in zip(case.spec.groups, groups, strict=True) if old != new]
    asking = " and ".join(f"{meant} instead of {name}" for name, meant in names.items())
    words = f"{names_text(whose)} asking for {asking}, which no node has"
    return msgspec.structs.replace(case.spec, groups=tuple(groups)), words


def unknown_text(case: WaitingCase, asked: Collection[str]) -> str:
    """In words, that no node has some of these resources, and which ones were probably meant, or else which extended
    resources the nodes have; "" if they have all."""
    known = ClusterView(case.state.nodes).known
    if known.issuperset(asked):
        return ""
    if meant := meant_text([name for name in asked if name not in known], known):
        return f", which no node has{meant}"
    extended = sorted(name for name in known if "/" in name)
    there = f"the nodes have {names_text(extended)}" if extended else "the nodes have no extended resources"
    return f", which no node has ({there})"
