"""Changes to what forbids that others give room to the job: `preemption` of its queue or in the configuration, and
`reclaimable` of the queues of others."""

from collections.abc import Iterator

import msgspec

from arranger.model.queue import PreemptionMode
from arranger.projections.derived.queue_counts import queue_of
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change
from arranger.replay.what_if import hypothesis

_ALLOWED = PreemptionMode.ALLOWED
#: The ways in which room is taken back, those first that cost others the least.
_WAYS = ("surplus", "priority", "reclaim")
#: So many queues are tried that aren't reclaimable. Each costs a cycle.
_MOST_QUEUES = 4


def allowed(case: WaitingCase) -> Iterator[Change]:
    """Let room be taken back for the job in a way that its queue or the configuration forbids."""
    state, config = case.state, case.config
    name = queue_of(state, case.job)
    spec = state.queue_tree.specs.get(name)
    if spec is None or config.preemption is None or not _may_be_given(case):
        return
    for way in _WAYS:
        words, of_queue, of_all = list[str](), spec.preemption, config.preemption
        if getattr(of_queue, way) != _ALLOWED:
            of_queue = msgspec.structs.replace(of_queue, **{way: _ALLOWED})
            words.append(f"preemption.{way} Allowed of queue {name}")
        if getattr(of_all, way) != _ALLOWED:
            of_all = msgspec.structs.replace(of_all, **{way: _ALLOWED})
            words.append(f"{way} Allowed in the setting preemption")
        if words:
            text = " and ".join(words)
            edited = msgspec.structs.replace(spec, preemption=of_queue)
            yield Change(
                "queue" if of_queue != spec.preemption else "config",
                text,
                (hypothesis.queue_seen(state, name, edited),) if edited != spec else (),
                config=msgspec.structs.replace(config, preemption=of_all) if of_all != config.preemption else None,
                taking=f"{text} would let it",
            )


def reclaimable(case: WaitingCase) -> Iterator[Change]:
    """Let queues give room to others that have said that they don't, each with those above it."""
    state, specs = case.state, case.state.queue_tree.specs
    if not _may_be_given(case):
        return
    own, tried = state.queue_tree.paths.get(queue_of(state, case.job), ()), dict[tuple[str, ...], None]()
    for job in state.jobs.values():
        path = state.queue_tree.paths.get(queue_of(state, job), ()) if job.placements else ()
        closed = tuple(name for name in path if name not in own and name in specs and not specs[name].reclaimable)
        if not closed or closed in tried or len(tried) == _MOST_QUEUES:
            continue
        tried[closed] = None
        edited = [msgspec.structs.replace(specs[name], reclaimable=True) for name in closed]
        events = tuple(hypothesis.queue_seen(state, name, of) for name, of in zip(closed, edited, strict=True))
        text = f"reclaimable true of queue {' and '.join(closed)}"
        yield Change("queue", text, events, subject=" and ".join(closed), taking=f"{text} would let it")


def _may_be_given(case: WaitingCase) -> bool:
    """Whether others have nodes, and the job none: only a quorum takes room."""
    return not case.job.placements and any(of.placements for of in case.state.jobs.values())
