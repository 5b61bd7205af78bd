"""Changes of the job's queue to another one that its namespace may use."""

from collections.abc import Iterator

import msgspec

from arranger.model.job import Stage
from arranger.model.near_names import near_names
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import denied
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change
from arranger.replay.what_if import hypothesis

#: So many queues are tried. Each costs a cycle.
_TRIED = 4


def other_queues(case: WaitingCase) -> Iterator[Change]:
    """Name another queue without queues below it, for a job that has no nodes and so may still change its own. One
    that was probably meant comes first."""
    job, state, spec = case.job, case.state, case.spec
    own, tree = queue_of(state, job), state.queue_tree
    if job.of_pods or job.placements or job.stage not in (Stage.PENDING, Stage.RESCHEDULING):
        return
    parents = {of.parent for of in tree.specs.values()}
    meant = near_names(own, tree.paths, digits=True)  # its own name, if such a queue exists
    tried = 0
    for name in sorted(tree.paths, key=lambda name: (name not in meant, name)):
        edited = msgspec.structs.replace(spec, queue=name)
        if name == own or name in parents or tried == _TRIED:
            continue
        seen = hypothesis.job_seen(job, state, edited)
        fork = hypothesis.supposed(state, (seen,))
        if denied(fork, fork.jobs[job.uid]) is None:
            tried += 1
            text = f"queue {name} instead of {own}"
            yield Change("spec", text, (seen,), taking=f"{text} would let it")
