"""How far a running job is from the quorum that it needs ready, in one line."""

from arranger.model.job import LEADER_GROUP
from arranger.model.pod import Phase
from arranger.projections.job_parts import LEADER
from arranger.projections.jobs import JobRecord, by_group
from arranger.projections.state import State


def below_quorum_text(state: State, job: JobRecord) -> str:
    """Which pods of its quorum a running job lacks now; empty for a job that has it or isn't running."""
    if not job.below_quorum:
        return ""
    spec, ready, finished = job.valid_spec, job.ready_or_finished, finished_workers(state, job)
    parts = [] if ready[LEADER_GROUP] or not spec.has_leader else ["the leader isn't ready"]
    for group, lacking in enumerate(spec.pods_missing(ready)):
        if lacking and group != LEADER_GROUP:
            of = spec.groups[group]
            size, what = of.group_size, "worker group" if of.group_size > 1 else "worker"
            counts = ready[group] // size, of.min_count // size, finished[group] // size
            parts.append(_of(*counts, f" of set {of.name}", what))
    if spec.min_workers > sum(ready[1:]):
        parts.append(_of(sum(ready[1:]), spec.min_workers, sum(finished)))
    return f"running below its quorum: {', '.join(parts)}"


def held_text(job: JobRecord) -> str:
    """Which worker sets aren't started yet, and what they wait for; empty if none waits for another."""
    groups = job.valid_spec.groups
    held = [of for of in groups if of.start_after is not None and of.count and not job.may_start_after(of)]
    return "; ".join(f"set {of.name} starts once {_awaited(job, of.start_after or LEADER_GROUP)} ready" for of in held)


def _awaited(job: JobRecord, group: int) -> str:
    return f"set {job.valid_spec.groups[group].name} is" if group != LEADER_GROUP else "the leader is"


def finished_workers(state: State, job: JobRecord) -> list[int]:
    """How many workers have finished that don't count towards the quorum, by group."""
    pods = state.pods
    ended = [slot for slot, uid in job.bound.items() if slot != LEADER and pods[uid].phase == Phase.SUCCEEDED]
    return by_group(job.valid_spec, ended)


def _of(ready: int, needed: int, finished: int, of_set: str = "", what: str = "worker") -> str:
    workers, are = what if needed == 1 else f"{what}s", "is" if 1 in (ready, needed) else "are"
    done = f" ({finished_text(finished)})" if finished else ""
    return f"{ready} of {needed} {workers}{of_set} {are} ready{done}"


def finished_text(finished: int) -> str:
    return f"{finished} {'has' if finished == 1 else 'have'} finished"
