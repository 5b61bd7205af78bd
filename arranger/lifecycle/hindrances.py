"""What becomes of failed workers, and of a job whose pods their kubelets can't start if that lasts; and what its user
can do, in words."""

from arranger.events.kinds import PodSeen
from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.replacements import awaits_decision, outlook, restart_limit
from arranger.lifecycle.stages import IMAGE_ERRORS, pod_without_image
from arranger.lifecycle.start_timeouts import gives_up_ms
from arranger.messages.decisions import limit_text
from arranger.messages.failures import Again
from arranger.messages.readiness import below_quorum_text, crashing_text, failed_workers_text
from arranger.model.job import Stage
from arranger.model.text import rfc3339_from
from arranger.projections.derived.unable_pods import unable_slots
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import State

_DEFAULTS = LifecycleConfig()


def gives_up_text(state: State, job: JobRecord, config: LifecycleConfig, no_image_ms: int | None = None) -> str:
    """When the job fails or gives its nodes up; empty if it does neither. `no_image_ms` is as in `next_decision`, and
    None if it isn't known."""
    if job.of_pods or job.ended or job.spec is None:
        return ""
    if pod_without_image(state, job) is not None:
        grace_ms = config.image_grace_ms
        if no_image_ms is None:
            return f"if that lasts, the job fails after {grace_ms // 1000} s of it"
        return f"if that lasts, the job fails soon after {rfc3339_from(no_image_ms + grace_ms)}"
    at_ms = gives_up_ms(state, job, config, state.time_ms)
    return f"if that lasts, it gives its nodes up soon after {rfc3339_from(at_ms)}" if at_ms else ""


def hindered_text(state: State, job: JobRecord, config: LifecycleConfig) -> str:
    """The same for a status, which is short: with the remedy in a few words."""
    then = gives_up_text(state, job, config)
    return f"{then}; to correct a template, delete the job and create it again" if then else ""


def start_remedy_text(state: State, job: JobRecord) -> str:
    """What can be done about the first pod that can't start; empty for none."""
    unable = unable_slots(state, job) if not (job.of_pods or job.ended) and job.spec is not None else []
    if not unable:
        return ""
    if state.pods[job.bound[unable[0]]].waiting in IMAGE_ERRORS:
        outside, wrong = "the registry or the secret that pulls the image", "the image or imagePullSecrets"
    else:
        outside, wrong = "the ConfigMap, Secret or other object that the pod lacks", "the template"
    return (
        f"mend {outside}, and the pod starts by itself; if {wrong} in the job must change, delete the job, correct it "
        "and create it again: templates can't be changed once it has started"
    )


def to_be_replaced_text(state: State, job: JobRecord) -> str:
    """What becomes of failed workers and when, by worker set, and how the first of them failed."""
    if not job.failing or job.spec is None or job.ended:
        return ""
    failed: dict[tuple[int, Again, int], list[tuple[int, PodSeen]]] = {}
    for slot, uid in sorted(job.bound.items()):
        pod, (number, index) = state.pods.get(uid), slot
        if number and pod is not None and awaits_decision(job, slot, pod):
            again, due_ms = outlook(job, slot, _DEFAULTS, state.time_ms)
            failed.setdefault((due_ms, again, number), []).append((index, pod))
    return "; ".join(
        failed_workers_text(
            job.valid_spec.groups[number].name,
            of,
            again,
            due_ms,
            limit_text(restart_limit(job.valid_spec, number)),
            led=job.valid_spec.has_leader,
        )
        for (due_ms, again, number), of in sorted(failed.items(), key=lambda one: one[0])
    )


def stuck_of(state: State, job: JobRecord) -> str:
    """The first of its pods that a kubelet can't start, or that isn't ready after a failure, and what
    becomes of failed workers, with the reasons; empty for none, and for a job that has ended."""
    parts = () if job.ended else (crashing_text(state, job), to_be_replaced_text(state, job))
    return "; ".join(part for part in parts if part)


def trouble_of(state: State, job: JobRecord) -> str:
    """What is wrong with the pods of a job that starts or runs: how far it is below its quorum, and as `stuck_of`.
    Empty for nothing."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING) or job.pods_ready >= job.pods_desired():
        return ""  # at once: a cluster has thousands of jobs, and most are well
    return "; ".join(part for part in (below_quorum_text(state, job), stuck_of(state, job)) if part)
