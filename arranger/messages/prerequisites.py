"""What keeps a job out of the order of waiting jobs, in one line: jobs that have to end first, a PriorityClass that
or RuntimeClass that isn't known or contradicts its template, and a Queue that it can't use."""

from arranger.events.kinds import GROUP_WATCHES, PodGroupSeen, Watched
from arranger.messages.queues import denial_text
from arranger.model.pod import NATIVE_VERSIONS, GroupKind, PodToPlace
from arranger.model.pods_to_place import group_kind, group_name, name_of_group, pod_of
from arranger.model.text import counted
from arranger.projections.derived.dependencies import awaited_jobs
from arranger.projections.derived.queue_membership import kept_out
from arranger.projections.jobs.records import JobRecord
from arranger.projections.observed.priorities import lacks_class
from arranger.projections.observed.runtime_classes import contradicted, missing_classes
from arranger.projections.state import State

#: The HTTP status of a kind that the API server doesn't have.
_NOT_FOUND = 404
#: So many jobs are named at most.
_NAMED = 5


def prerequisites_text(state: State, job: JobRecord) -> str:
    """What a job waits for before it is in the queue; empty if it waits for nothing of that."""
    pod = state.pods.get(pod_of(job.uid)) if job.of_pods and job.stands_still else None
    if pod is not None and pod.asks is not None:
        return _held_back(pod.asks)
    if job.pods_lacking:
        return _lacking(state, job)
    names = [of.name for of in awaited_jobs(job)]
    jobs = [_job(state, job, name) for name in names[:_NAMED]]
    more = f"; for {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    parts = [f"waits for {'; for '.join(jobs)}{more}"] if jobs else []
    if lacks_class(job):
        parts.append(_class(state, job))
    if missing := missing_classes(job):
        classes = ", ".join(missing)
        parts.append(f"waits for RuntimeClass {classes}, which doesn't exist: create it, or edit the template")
    for name, key, own, other in contradicted(state, job):
        parts.append(
            f"nodeSelector {key}={own} of its template contradicts RuntimeClass {name}, which has {key}={other}, so "
            "the API server would refuse its pods: edit the template"
        )
    if (denial := kept_out(state, job)) is not None:
        inherited = "" if job.valid_spec.queue else job.seen.namespace
        parts.append(denial_text(denial, state.unwatched.get(Watched.QUEUE, 0), of_namespace=inherited))
    return "; ".join(parts)


def without_pods_texts(state: State, namespace: str | None, name: str) -> tuple[str, str] | None:
    """That the PodGroup whose record would have this name has no pods yet and who makes them, and what that one may
    wait for; None if there is no such group, or if it has pods."""
    for uid, group in sorted(state.pod_groups.items()):
        if group_name(group.name) == name and namespace in (None, group.namespace) and uid not in state.jobs:
            return _without_pods(group), _lets_in(group)
    return None


def _without_pods(group: PodGroupSeen) -> str:
    kind = group.owner_kind.partition(".")[0]
    makes = f"its owner {kind} {group.owner} makes them" if group.owner else "no pod names it"
    return f"PodGroup {group.namespace}/{group.name} of {group.group_kind} has no pods yet; {makes}"


def _lets_in(group: PodGroupSeen) -> str:
    if group.group_kind != GroupKind.VOLCANO or group.phase not in ("", "Pending"):
        return ""
    phase = f"its phase is {group.phase or 'empty'}, and operators wait for Inqueue"
    return f"{phase}, which Arranger sets if the pod templates of the owner name one of scheduler_names"


def _held_back(asks: PodToPlace) -> str:
    if asks.gates:
        return f"waits for its scheduling gates to be removed: {', '.join(asks.gates)}"
    claims = f"{counted(len(asks.claims), 'resource claim')} ({', '.join(asks.claims)})"
    return f"can't be placed: it has {claims}, and the setting devices is off; use extended resources"


def _lacking(state: State, job: JobRecord) -> str:
    if not job.valid_spec.group_known:
        return _missing_group(state, job)
    least, lacking = job.valid_spec.min_workers, job.pods_lacking
    pods = [state.pods[uid] for uid in job.slots.members]
    asked = [pod.asks for pod in pods if pod.asks is not None and not pod.node]
    held = {
        "scheduling gates": sum([bool(asks.gates) for asks in asked]),
        "resource claims": sum([bool(asks.claims) for asks in asked]),
    }
    tasks = [f"{counted(of, 'more pod')} of its task {name}" for name, of in job.tasks_lacking.items()]
    if tasks:
        words = f"waits for {', '.join(tasks)}"
    else:
        words = f"waits for {counted(lacking, 'more pod')} of its group, which needs {least} and has {least - lacking}"
    causes = [f"{counted(of, 'pod')} of it can't be placed because of {what}" for what, of in held.items() if of]
    return "; ".join([words, *causes])


def _missing_group(state: State, job: JobRecord) -> str:
    kind, name = group_kind(job.uid), name_of_group(job.seen.name)
    words = f"waits for PodGroup {name} of {kind}"
    refused = state.unwatched.get(GROUP_WATCHES[kind], 0)
    if refused == _NOT_FOUND and kind == GroupKind.NATIVE:
        versions = f"{', '.join(NATIVE_VERSIONS[:-1])} or {NATIVE_VERSIONS[-1]}"
        missing = f"{words}: the API server has no such kind as {versions} (404)"
        return f"{missing}; enable one of these versions and its feature gate GenericWorkload"
    if refused == _NOT_FOUND:
        return f"{words}: the API server has no such kind (404); install its CustomResourceDefinition or API"
    if refused:
        return f"{words}: the API server doesn't let Arranger list them ({refused})"
    return f"{words}, which doesn't exist: create it"


def short_text(job: JobRecord, *, queue: str = "") -> str:
    """The same by names alone; `queue` is one that the job can't use, if any."""
    names = [f"job {of.name}" for of in awaited_jobs(job)]
    names += [f"PriorityClass {job.valid_spec.priority_class}"] if lacks_class(job) else []
    names += [f"RuntimeClass {name}" for name in missing_classes(job)]
    names += [f"queue {queue}"] if queue else []
    return f"waits for {', '.join(names)}" if names else ""


def _class(state: State, job: JobRecord) -> str:
    name, refused = job.valid_spec.priority_class, state.unwatched.get(Watched.PRIORITY_CLASS, 0)
    if refused:  # the HTTP status
        return f"waits for the value of PriorityClass {name}: the API server doesn't let Arranger list them ({refused})"
    return f"waits for PriorityClass {name}, which doesn't exist: create it, or edit spec.priorityClassName"


def _job(state: State, job: JobRecord, name: str) -> str:
    of = state.find_job(job.seen.namespace, name)
    if of is None:
        return f"job {name}, which doesn't exist: create it, or edit spec.after"
    if circle := " → ".join(_circle(state, job, of)):
        return f"job {name}, which waits for this one ({circle}): edit spec.after of one of them"
    return f"job {name}, which is {'suspended' if of.suspended else of.stage}"


def _circle(state: State, job: JobRecord, first: JobRecord) -> list[str]:
    """The names of jobs from `first` to the job itself, each of which waits for the next; empty if there is no such
    way."""
    found: list[JobRecord] = [first]
    before: dict[str, JobRecord] = {}  # by UID, the job that waits for it on the way from the first one
    for of in found:
        if of.uid == job.uid:
            break
        for each in awaited_jobs(of):
            after = state.find_job(job.seen.namespace, each.name)
            if after is not None and after.uid not in before and after.uid != first.uid:
                before[after.uid] = of
                found.append(after)
    if job.uid not in before:
        return []
    way = [job]
    while way[-1].uid != first.uid:
        way.append(before[way[-1].uid])
    return [of.seen.name for of in reversed(way)]
