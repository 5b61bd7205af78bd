"""Room that is kept for pods that may still appear, of slots that jobs gave up, as after a drain. Time frees it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from arranger.projections.state import Assumed, State
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, names_text
from arranger.replay.reading.describe import label


def once_lapsed(case: WaitingCase) -> Iterator[Change]:
    """Wait until less and less of what the job lacks is kept for pods that may still appear."""
    kept = list[Assumed]()
    for until_ms, pods in groupby(_in_the_way(case), key=lambda pod: pod.until_ms):
        kept += pods
        yield Change("wait", _when(case.state, kept), time_ms=until_ms)


def with_kept_room(change: Change, state: State, nodes: Iterable[str]) -> Change:
    """A change of these nodes, and that the room there is free that is kept for pods that may still appear. It was the
    slots of these pods that were given up, by other events than the one that the change reverts."""
    kept = [pod for node in nodes for pod in kept_on(state, node)]
    if not kept:
        return change
    until_ms = max(pod.until_ms for pod in kept)
    text = f"{change.text}, {_when(state, kept, 'there ')}"
    return replace(change, text=text, time_ms=until_ms, several=change.undoes > 0)


def kept_on(state: State, node: str) -> list[Assumed]:
    """The pods that may still appear on a node, in the order in which these are expected no longer."""
    return [pod for pod in state.assumed.values() if pod.node == node and pod.until_ms > state.time_ms]


def _in_the_way(case: WaitingCase) -> Iterator[Assumed]:
    """Those for which something is kept that the job lacks: room on candidate nodes, or a part of its namespace's
    quota. No queue counts them."""
    lack, state = case.lack, case.state
    assert lack is not None
    for pod in state.assumed.values():
        if pod.until_ms <= state.time_ms:
            continue
        job = state.jobs.get(pod.owner.job_uid)
        if lack.quota is not None:
            within = bool(lack.quota.quota) and job is not None and job.seen.namespace == case.job.seen.namespace
        else:
            within = pod.node in lack.candidates and any(name in lack.resources for name, _ in pod.requests)
        if within:
            yield pod


def _when(state: State, kept: Iterable[Assumed], where: str = "") -> str:
    pods = list(kept)
    left_ms = max(pod.until_ms for pod in pods) - state.time_ms
    jobs = (state.jobs.get(pod.owner.job_uid) for pod in pods)
    whose = names_text(dict.fromkeys(label(job) if job is not None else "a deleted job" for job in jobs))
    return f"in {left_ms / 1000:g} s, when no room is kept {where}any more for pods of {whose} that may still appear"
