"""`batch/v1` Jobs, and specs of Jobs within other objects: a job of equals, whose workers are the pods of the Job."""

import re

import msgspec

from arranger.convert.fields import ConversionProblem, Fields, NoteKind
from arranger.convert.parts import Head, deadline, point_out_hosts, precedence, suspended, tyjob, worker_set
from arranger.convert.pod_rules import OF_THE_JOB, Pods, job_label, select_own
from arranger.convert.templates import Json, Template, template_of
from arranger.convert.whole_input import Input

#: Labels of the pods of a Job with its name, and with its UID.
JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
JOB_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
#: Labels and annotations of the pods of an Indexed Job that have the pod's index.
INDEX_KEYS = ("batch.kubernetes.io/job-completion-index", "job-completion-index")
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_DEFAULT_BACKOFF_LIMIT = 6
_DISRUPTIONS = "evictions, drains and lost nodes don't count"
_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


class JobPart(msgspec.Struct):
    """What the spec of a Job says of its pods."""

    template: Template
    #: How many pods succeed in all, and how many run at once at most.
    count: int
    parallelism: int
    indexed: bool
    #: How often a pod is restarted, and whether the source said so.
    limit: int
    deadline_s: int | None
    ttl_s: int | None

    @property
    def at_once(self) -> int:
        """How many pods the Job starts with."""
        return max(1, min(self.count, self.parallelism))


def job_part(spec: Fields) -> JobPart:
    """Take the fields of a Job's spec, but for `suspend` and `successPolicy`."""
    parallelism = spec.whole("parallelism")
    completions = spec.whole("completions")
    indexed = spec.one_of("completionMode", "NonIndexed", "Indexed") == "Indexed"
    at_once = 1 if parallelism is None else parallelism
    count = at_once if completions is None else completions
    if completions == 0:
        spec.fault("completions", "0 completions: there is no pod to run")
    if completions is None and at_once > 1:
        spec.changed(
            "parallelism",
            "without completions, a Job is complete once one pod has succeeded and none runs; the TYJob once all have",
        )
    elif 0 < at_once < count:
        spec.changed(
            "parallelism",
            f"all {count} pods run as there is room: for fewer at once, limit the Queue (capability, docs/queues.md)",
        )
    limit = _limit(spec, count)
    spec.ignore("selector", "manualSelector", "podReplacementPolicy")
    spec.lost("managedBy", "Arranger runs the TYJob")
    return JobPart(
        template=template_of(spec),
        count=max(1, count),
        parallelism=at_once,
        indexed=indexed,
        limit=limit,
        deadline_s=deadline(spec),
        ttl_s=spec.whole("ttlSecondsAfterFinished"),
    )


def _limit(spec: Fields, count: int) -> int:
    """The restarts of each pod."""
    of_index, of_job = spec.whole("backoffLimitPerIndex"), spec.whole("backoffLimit")
    if of_index is not None:
        spec.lost("backoffLimit", "each pod has its own limit, that of backoffLimitPerIndex")
        spec.changed("backoffLimitPerIndex", _DISRUPTIONS)
    elif count > 1 and of_job != 0:
        words = f"restarts are counted for each pod alone, and not for all pods together; {_DISRUPTIONS}"
        spec.say(NoteKind.CHANGED, "backoffLimit", words)
    else:
        spec.changed("backoffLimit", _DISRUPTIONS)
    spec.lost("maxFailedIndexes", "all other pods run to their end, and then the job has failed")
    policy = spec.record("podFailurePolicy")
    for rule in policy.records("rules"):
        rule.ignore("action", "onExitCodes", "onPodConditions")
        if not _ignores_disruption(rule):
            words = "failures are all counted alike; those by eviction, drain or lost nodes never count"
            rule.say(NoteKind.NO_EQUIVALENT, "", words)
    limit = of_job if of_index is None else of_index
    return min(_DEFAULT_BACKOFF_LIMIT if limit is None else limit, 1_000_000)


def say_others_go_on(spec: Fields, part: JobPart, least: int | None) -> None:
    """Say that a pod without restarts left doesn't end the others, unless the quorum (`least`) needs every pod."""
    if least != part.count and "backoffLimitPerIndex" not in spec:
        words = "a pod beyond its limit is given up: the TYJob fails once the others have ended, unless too few of them"
        spec.say(NoteKind.CHANGED, "backoffLimit", f"{words} are left for its quorum. A Job fails at once")


def _ignores_disruption(rule: Fields) -> bool:
    """Whether a rule says what Arranger does anyway: that disruptions aren't counted."""
    conditions = []
    for of in rule.records("onPodConditions"):
        of.ignore("status")
        conditions.append(of.text("type"))
    return rule.text("action") == "Ignore" and conditions == ["DisruptionTarget"] and "onExitCodes" not in rule


def jobs_of(root: Fields, around: Input) -> list[Json]:
    """The TYJob of a Job."""
    head, spec = Head(root, around), root.record("spec")
    suspend = suspended(head, spec)
    part = job_part(spec)
    if part.template.spec.get("restartPolicy") == "Always":
        words = "Unsupported value: a Job needs OnFailure or Never"
        spec.notes.fault(ConversionProblem((f"{part.template.path}.spec.restartPolicy", words)))
    if part.parallelism == 0:
        spec.changed("parallelism", "the TYJob is suspended: a Job with parallelism 0 runs no pods")
        suspend = True
    first = _first(spec, part)
    names = head.named(["first", "worker"] if first else ["worker"])
    meet = bool(part.template.spec.get("subdomain")) and part.indexed
    if part.indexed:
        index = "$(TYJOB_RANK)" if first else "$(TYJOB_WORKER_INDEX)"
        part.template.answer_references(dict.fromkeys(INDEX_KEYS, index))
        part.template.tell({INDEX_VARIABLE: index})
    else:
        part.template.answer_references({})
    if meet:
        _rename(head, part, names, first)
    own = job_label({head.source_name: (head.name,)})
    labels = dict.fromkeys(JOB_NAME_LABELS, own) | dict.fromkeys(JOB_UID_LABELS, OF_THE_JOB)
    select_own(part.template, Pods(labels, (head.name,)), head.name, names[0])
    least = _least(head, spec, part, meet=meet)
    say_others_go_on(spec, part, part.count if least is None and part.count == 1 else least)
    sets = [
        worker_set(
            name, part.template, count, restart={"limit": part.limit}, minCount=minimum, rendezvous={} if meet else None
        )
        for name, count, minimum in _divided(names, part.count, first, least)
    ]
    made = {
        "queue": head.queue,
        **precedence(head, [part.template]),
        "suspend": suspend,
        "successPolicy": {"type": "Sets", "sets": ["first"]} if first else None,
        "cleanPodPolicy": "Running",
        "activeDeadlineSeconds": part.deadline_s,
        "ttlSecondsAfterFinished": part.ttl_s,
        "workerSets": sets,
    }
    return [tyjob(head, made)]


def _divided(names: list[str], count: int, first: int, least: int | None) -> list[tuple[str, int, int | None]]:
    """Name, count and minimum of each worker set: one, or the first pods and the others."""
    if not first:
        return [(names[0], count, least)]
    of_first = None if least is None else min(first, least)
    of_others = None if least is None or of_first is None else least - of_first
    return [(names[0], first, of_first), (names[1], count - first, of_others)]


def _least(head: Head, spec: Fields, part: JobPart, *, meet: bool) -> int | None:
    """How many pods start together: those that Kueue admits together, or that need each other; None for one."""
    given = head.annotations.text(_MIN_PARALLELISM)
    if given.isdecimal() and int(given):
        return min(int(given), part.count)
    if part.at_once == 1 or not (head.kueue or meet):
        return None
    pods = f"all {part.count}" if part.at_once == part.count else f"{part.at_once} of {part.count}"
    why = "because they find each other by host names" if meet else "as Kueue admits them"
    spec.changed("parallelism", f"{pods} pods start together (minCount), {why}: without it, as there is room for each")
    return part.at_once


def _first(spec: Fields, part: JobPart) -> int:
    """How many first pods decide about the success; 0 if all do."""
    policy = spec.record("successPolicy")
    rules = policy.records("rules")
    for rule in rules:
        indexes, number = rule.text("succeededIndexes"), rule.whole("succeededCount")
        match = re.fullmatch(r"0(?:-(\d+))?", indexes)
        first = int(match[1] or 0) + 1 if match else 0
        if len(rules) == 1 and 0 < first < part.count and number in (None, first):
            return first
        if first != part.count or number not in (None, first):
            rule.say(NoteKind.NO_EQUIVALENT, "", "the TYJob has succeeded when all of its pods have")
    return 0


def _rename(head: Head, part: JobPart, names: list[str], first: int) -> None:
    """Host names: a rendezvous gives pods other ones than the Job does."""
    subdomain = part.template.spec.pop("subdomain")
    path = f"{part.template.path}.spec.subdomain"
    words = f"pods have the host names {names[-1]}-N.{head.name}; the Service {subdomain} isn't needed any more"
    part.template.notes.add(NoteKind.CHANGED, path, words)

    def renamed(match: re.Match[str]) -> str:
        index = int(match[1])
        return f"{names[0]}-{index}.{head.name}" if index < first else f"{names[-1]}-{index - first}.{head.name}"

    own = re.escape(head.source_name)
    part.template.rename_hosts(re.compile(rf"(?<![\w.-]){own}-(\d+)(?:\.{re.escape(subdomain)})?(?![\w-])"), renamed)
    point_out_hosts(head, part.template)
