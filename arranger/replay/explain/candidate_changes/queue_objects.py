"""Changes to Queues and to the job's namespace: what keeps the job out of its queue, and limits."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from arranger.events import kinds as k
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.quantity import amount_text
from arranger.model.queue import DEFAULT_SPEC, NamespaceRule, NonPreemptible, QueueSpec, QueueState
from arranger.model.quota import LimitKind, QuotaLack
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.derived.queue_membership import Denial, DenialKind, kept_out
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.tree import QueueProblemKind
from arranger.projections.queues.use import JOBS, is_non_preemptible, non_preemptible_amounts, resource_of
from arranger.projections.state import State
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import (
    Change,
    ChangeSteps,
    Family,
    join_all,
    least_of_each,
    reverting,
)
from arranger.replay.explain.candidate_changes.in_line import for_others_too
from arranger.replay.explain.candidate_changes.job import own_edits, raised_quotas
from arranger.replay.explain.cluster_context import NamespaceEdit, QueueEdit
from arranger.replay.reading.edits import (
    namespace_changed,
    namespace_told_from_before,
    queue_changed,
    queue_told_from_before,
)
from arranger.replay.what_if import hypothesis
from arranger.scheduling import quorum_lacks, turn_of

#: The number of changes of queues that are reverted, the newest first.
_REVERTED = 8
#: The first time that is waited for an average to fall is this part of a half-life, and each further one is twice as
#: long.
_PART_OF_HALF_LIFE = 8
_WAITS = 7
#: The most values of a limit among which the least is sought, each by halves.
_RAISES = 1_024
#: The most guarantees of which a part is given up beside raised limits.
_MOST_UNUSED = 8


def reverted(case: WaitingCase) -> list[Change]:
    """Revert a change of a queue or of the job's namespace: first of the queues above the job, the newest first. What a
    later change undid or overwrote has no effect any more, and isn't reverted."""
    way, around = _way(case.state, queue_of(case.state, case.job)), case.around
    queues = [
        (name not in way, -edit.offset, name, edit, of[number + 1 :])
        for name, of in around.queue_edits.items()
        for number, edit in enumerate(of)
    ]
    found = [
        _without_edit(case, name, edit, later)
        for _, _, name, edit, later in sorted(queues, key=lambda one: one[:2])[:_REVERTED]
    ]
    of_namespace = around.namespace_edits.get(case.job.seen.namespace, [])
    found += [_without_relabelling(case, edit, of_namespace[at + 1 :]) for at, edit in enumerate(of_namespace)]
    return [change for change in found if change is not None]


def usable(case: WaitingCase) -> Iterator[Change]:
    """Let a job use its queue: revert what keeps it out, or else change what does."""
    state, uid = case.state, case.job.uid
    denial = kept_out(state, case.job)
    if denial is None:
        return
    helping = []
    for change in (*reverted(case), *own_edits(case)):
        fork = hypothesis.supposed(state, change.events)
        if kept_out(fork, fork.jobs[uid]) is None:
            helping.append(change)
    yield from helping
    text, events = _opened(case, denial)
    if events and not helping:
        way = _way(state, denial.queue)
        edits = [edit.offset for name in way for edit in case.around.queue_edits.get(name, ())]
        last, created = max(edits, default=0), case.story.created_at
        undone = (
            f"it was created in queue {denial.queue}" if created >= last else f"a queue of {', '.join(way)} changed"
        )
        yield Change("queue", text, events, max(last, created), undone)


class _Limit(NamedTuple):
    """A limit of a queue to be raised: of its capability of a resource, of what it deserves where that limits some jobs
    (`non_preemptible_amounts`), or of the number of its jobs (`JOBS`). `values` begin with the present one; with the
    last one, nobody else needs to give back what counts there. `unused`: they are of what a queue gives up of its
    guarantee instead, up to all that it doesn't use."""

    queue: str
    resource: str
    values: Sequence[int]
    unused: bool = False


def raised_queues(case: WaitingCase, others: Sequence[JobRecord] = ()) -> Family:
    """Raise the limits on the way from the job's queue to the root, each as little as the quorum needs it, or one more
    pod. Others below the same limit may give room to the job, so less may be enough than beside all of them. What keeps
    the job waiting then is changed with them: quotas of its namespace, and guarantees of other queues.
    For `others`, jobs ahead, limits are raised by as much more at most as they need."""
    limits = list(_limits(case, others))
    if not limits:
        return Family(())
    quotas = next(raised_quotas(case), None)
    most = _raised(case.state, limits, quotas, [of.values[-1] for of in limits])
    unused = list(_unused(case, hypothesis.supposed(case.state, most.events)))
    limits += unused
    early = (0,) if unused else ()
    change = partial(_raised, case.state, limits, quotas)
    return least_of_each([of.values for of in limits], change, whole=True, early=early)


def _raised(state: State, limits: Sequence[_Limit], quotas: Change | None, values: Sequence[int]) -> Change:
    """The queues with these values of the limits, and these quotas. Limits that stay as they are don't count."""
    specs: dict[str, QueueSpec] = {}
    words = [quotas.text] if quotas is not None else []
    for (name, resource, known, unused), value in zip(limits, values, strict=True):
        if value == known[0]:
            continue
        spec = specs.get(name, state.queue_tree.specs[name])
        if unused:
            specs[name], subject = _given_up(spec, name, resource, value)
            words.append(f"give up {subject}")
        elif resource == JOBS:
            specs[name] = msgspec.structs.replace(spec, max_running=value)
            words.append(f"raise maxRunning of queue {name} to {value}")
        else:
            field, of = "deserved" if is_non_preemptible(resource) else "capability", resource_of(resource)
            specs[name] = msgspec.structs.replace(spec, **{field: _with(getattr(spec, field), of, value)})
            what = "what queue {} deserves" if is_non_preemptible(resource) else "the capability of queue {}"
            words.append(f"raise {of} of {what.format(name)} to {amount_text(of, value)}")
    events = [hypothesis.queue_seen(state, name, spec) for name, spec in specs.items()]
    return Change("queue", " and ".join(words), (*(quotas.events if quotas is not None else ()), *events))


def _given_up(spec: QueueSpec, name: str, resource: str, amount: int) -> tuple[QueueSpec, str]:
    """A queue that is guaranteed so much less, and that in words."""
    left = dict(spec.guarantee)[resource] - amount
    subject = f"{amount_text(resource, amount)} {resource} of the guarantee of queue {name}, which it doesn't use"
    return msgspec.structs.replace(spec, guarantee=_with(spec.guarantee, resource, left)), subject


def _unused(case: WaitingCase, state: State) -> Iterator[_Limit]:
    """What other queues are guaranteed and don't use, of the resources that the job lacks because of that in a state:
    of each resource those of the queues with the most, of which the one with the most is given up last."""
    job, group = state.jobs[case.job.uid], case.lack.group if case.lack is not None else 0
    lacks = quorum_lacks(state, job, case.policies.pod_policy(job, case.config), group)
    for resource in dict.fromkeys(lack.resource for lack in lacks if lack.limit == LimitKind.GUARANTEES):
        unused = _unused_guarantees(state, job, resource)[:_MOST_UNUSED]
        part = math.gcd(part_of(state, job, resource), *(amount for amount, _ in unused))
        for amount, name in reversed(unused):
            yield _Limit(name, resource, values_up_to(0, amount, part), unused=True)


def _unused_guarantees(state: State, job: JobRecord, resource: str) -> list[tuple[int, str]]:
    """What each other queue is guaranteed of a resource and doesn't use, the most first."""
    tree, found = state.queue_tree, list[tuple[int, str]]()
    own = tree.paths.get(queue_of(state, job), ())
    for name in (name for name in tree.paths if name not in own and not tree.is_closed(name)):
        used = state.queue_totals.get(name, {}).get(resource, 0)
        found.append((used - dict(tree.specs[name].guarantee).get(resource, 0), name))
    return [(-left, name) for left, name in sorted(found) if left < 0]


def raised_for_others_too(case: WaitingCase) -> Change | None:
    """The same for jobs ahead too that wait for one of these limits, the smallest first."""
    limits, amounts = list(_limits(case)), dict[str, int]()
    for job in case.ahead if limits else ():
        lacked = [] if job.placements else [_lacked(case, job)]
        amounts[job.uid] = sum(_of_others(lacked, limit.queue, limit.resource) for limit in limits)
    others = sorted((job for job in case.ahead if amounts.get(job.uid)), key=lambda job: amounts[job.uid])
    return for_others_too(case, others, lambda some: raised_queues(case, some).alone[-1])


def _limits(case: WaitingCase, others: Sequence[JobRecord] = ()) -> Iterator[_Limit]:
    """The limits on the job's way to the root that its quorum, or one more pod, doesn't fit into; up to what `others`
    need beside it."""
    assert case.lack is not None and case.lack.quota is not None
    job, state = case.job, case.state
    lacks = (case.lack.quota, *quorum_lacks(state, job, case.policies.pod_policy(job, case.config), case.lack.group))
    needed = _needed(lacks, LimitKind.CAPABILITY, LimitKind.GUARANTEES)
    needed |= non_preemptible_amounts(_needed(lacks, LimitKind.NON_PREEMPTIBLE).items())
    begins = any(lack.limit == LimitKind.MAX_RUNNING for lack in lacks)
    beside = partial(_of_others, [_lacked(case, of) for of in others])
    for name in state.queue_tree.paths.get(queue_of(state, job), ()):
        seen = state.queues.get(name)
        if seen is None or seen.spec is None:
            continue
        used = state.queue_totals.get(name, {})
        for resource, limit in (*seen.spec.capability, *non_preemptible_amounts(seen.spec.most_non_preemptible)):
            most = used.get(resource, 0) + needed.get(resource, 0)
            if resource in needed and most > limit:
                most += beside(name, resource)
                yield _Limit(name, resource, values_up_to(limit, most, part_of(state, job, resource_of(resource))))
        most = used.get(JOBS, 0) + 1
        if begins and seen.spec.max_running is not None and most > seen.spec.max_running:
            yield _Limit(name, JOBS, values_up_to(seen.spec.max_running, most + beside(name, JOBS), 1))


#: The queues on the way of a job without nodes to the root, and what it lacks of their limits, as resources of these.
_Lacked = tuple[tuple[str, ...], Mapping[str, int]]


def _lacked(case: WaitingCase, job: JobRecord) -> _Lacked:
    state = case.state
    lacks = quorum_lacks(state, job, case.policies.pod_policy(job, case.config), 0)
    needed = _needed(lacks, LimitKind.CAPABILITY, LimitKind.GUARANTEES)
    needed |= non_preemptible_amounts(_needed(lacks, LimitKind.NON_PREEMPTIBLE).items())
    return state.queue_tree.paths.get(queue_of(state, job), ()), needed | {JOBS: 1}


def _of_others(others: Iterable[_Lacked], queue: str, resource: str) -> int:
    """How much of a limit of a queue others lack."""
    return sum(lacked.get(resource, 0) for way, lacked in others if queue in way)


def _needed(lacks: Sequence[QuotaLack], *limits: LimitKind) -> dict[str, int]:
    return {lack.resource: lack.needed for lack in lacks if lack.limit in limits}


def values_up_to(limit: int, most: int, part: int) -> tuple[int, ...]:
    """The present value of a limit, and higher ones up to `most`, in multiples of `part` below it."""
    step = part * (-(-(most - limit) // (part * _RAISES)))
    return (limit, *reversed(range(most, limit, -step)))


def part_of(state: State, job: JobRecord, resource: str) -> int:
    """What the pods with nodes and those of the job request of a resource are multiples of this."""
    jobs = (of for of in state.jobs.values() if of.spec is not None and (of.placements or of is job))
    return (
        math.gcd(*(dict(group.shape.requests).get(resource, 0) for of in jobs for group in of.valid_spec.groups)) or 1
    )


def more_considered(case: WaitingCase) -> Sequence[Change]:
    """Raise the `maxWaiting` that leaves the job out, in the smallest steps."""
    lack, state = case.lack.quota if case.lack is not None else None, case.state
    seen = state.queues.get(lack.queue) if lack is not None and lack.limit == LimitKind.MAX_WAITING else None
    if lack is None or seen is None or seen.spec is None:
        return ()
    name, spec = lack.queue, seen.spec

    def raised(number: int) -> Change:
        most = lack.hard + 1 + number
        more = hypothesis.queue_seen(state, name, msgspec.structs.replace(spec, max_waiting=most))
        return Change("queue", f"raise maxWaiting of queue {name} to {most}", (more,))

    return ChangeSteps(len(case.ahead) + 1 - lack.hard, raised)


def borrowing(case: WaitingCase) -> Iterator[Change]:
    """Let jobs borrow that can't be preempted, in the queues on the job's way that keep them from it."""
    lack, state = case.lack.quota if case.lack is not None else None, case.state
    if lack is None or lack.limit != LimitKind.NON_PREEMPTIBLE:
        return
    way = [state.queues[name] for name in state.queue_tree.paths[queue_of(state, case.job)] if name in state.queues]
    specs = {of.name: of.spec for of in way if of.spec is not None and of.spec.most_non_preemptible}
    events = [
        hypothesis.queue_seen(state, name, msgspec.structs.replace(spec, non_preemptible=NonPreemptible.MAY_BORROW))
        for name, spec in specs.items()
    ]
    yield Change("queue", " and ".join(f"nonPreemptible MayBorrow of queue {name}" for name in specs), tuple(events))


def lowered_guarantees(case: WaitingCase) -> Family:
    """Give up what is guaranteed to other queues and not used, those with the most first, and no more than is enough:
    of several queues all but of the last."""
    lack, state = case.lack.quota if case.lack is not None else None, case.state
    if lack is None or lack.limit != LimitKind.GUARANTEES:
        return Family(())
    resource, unused = lack.resource, _unused_guarantees(state, case.job, lack.resource)
    stated = (dict(spec.guarantee).get(resource, 0) for spec in state.queue_tree.specs.values())
    part = math.gcd(part_of(state, case.job, resource), lack.hard, *stated)

    def given_up(name: str, amount: int) -> Change:
        fewer, subject = _given_up(state.queue_tree.specs[name], name, resource, amount)
        return Change("queue", f"give up {subject}", (hypothesis.queue_seen(state, name, fewer),), subject=subject)

    def up_to(name: str, most: int) -> Change:
        values = values_up_to(0, most, part)[1:-1]
        lesser = ChangeSteps(len(values), lambda number: given_up(name, values[number]))
        return replace(given_up(name, most), lesser=lesser)

    def together(parts: Sequence[Change]) -> Change:
        *whole, last = parts
        lesser = ChangeSteps(len(last.lesser), lambda number: join([*whole, last.lesser[number]]))
        return replace(join(parts), lesser=lesser)

    join = join_all("queue", "give up: ")
    return Family([up_to(name, amount) for amount, name in unused], together)


def kept_by_usage(case: WaitingCase) -> bool:
    """Whether a cycle would place the job if nothing counted that queues used before."""
    state = case.state
    if not state.queue_use.decayed or not case.ahead:
        return False
    fork = hypothesis.supposed(state, ())
    fork.queue_use.decayed = {}
    tried = turn_of(fork, case.job.uid, case.config, state.time_ms, policies=case.policies)
    return tried is not None and tried.quorum_stands


def less_usage(case: WaitingCase) -> Sequence[Change]:
    """Wait until what the job's queue used before counts less, for twice as long each time."""
    half_life_ms = case.state.queue_use.half_life_ms
    if not kept_by_usage(case):
        return ()

    def later(number: int) -> Change:
        left_ms = half_life_ms * (1 << number) // _PART_OF_HALF_LIFE
        name = queue_of(case.state, case.job)
        text = f"in {left_ms / 1000:g} s, when what queue {name} used before counts less"
        return Change("wait", text, time_ms=case.state.time_ms + left_ms)

    return ChangeSteps(_WAITS, later)


def _with(amounts: tuple[tuple[str, int], ...], resource: str, amount: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({**dict(amounts), resource: amount}.items()))


def _way(state: State, name: str) -> list[str]:
    """The queues from this one to the root, as far as they exist."""
    found = [name]
    while (spec := state.queue_tree.specs.get(found[-1])) is not None and spec.parent not in ("", *found):
        found.append(spec.parent)
    return found


def _without_edit(case: WaitingCase, name: str, edit: QueueEdit, later: Sequence[QueueEdit]) -> Change | None:
    """Revert an edit of a queue, its creation or its deletion, unless that object is gone after `later` edits. Its
    creation matters to other jobs by its guarantee."""
    before, after, state = edit.before, edit.after, case.state
    known = state.queues.get(name)
    if any(other.before is None or other.after is None for other in later):
        return None
    if after is None:
        if before is None or known is not None:
            return None
        back = hypothesis.retold(before, state)
        return Change("queue", f"create queue {name} again", (back,), edit.offset, f"queue {name} was deleted")
    if known is None:
        return None
    if before is None:
        if after.spec is None or not after.spec.guarantee:
            return None
        gone = hypothesis.queue_gone(state, name)
        return Change("queue", f"without queue {name}", (gone,), edit.offset, f"queue {name} was created")
    return _without_change(case, edit, known, later)


def _without_change(
    case: WaitingCase, edit: QueueEdit, known: k.QueueSeen, later: Sequence[QueueEdit]
) -> Change | None:
    """Revert an edit of a queue's spec, as far as no later edit overwrote it."""
    before, after = edit.before, edit.after
    if before is None or before.spec is None or after is None:
        return None
    former, spec, name = "the former spec", before.spec, known.name
    if after.spec is not None and known.spec is not None:
        specs = [of.after.spec for of in later if of.after is not None]
        spec = reverting(known.spec, before.spec, after.spec, specs)
        if spec == known.spec:
            return None
        former = queue_told_from_before(spec, known.spec)
    undone = f"queue {name}: {queue_changed(before.spec, after.spec)}"
    back = hypothesis.queue_seen(case.state, name, spec)
    return Change("queue", f"queue {name}: {former}, as before its edit", (back,), edit.offset, undone)


def _without_relabelling(case: WaitingCase, edit: NamespaceEdit, later: Sequence[NamespaceEdit]) -> Change | None:
    """Revert an edit of the job's namespace."""
    before, after, known = edit.before, edit.after, case.state.namespaces.get(case.job.seen.namespace)
    if before is None or after is None or known is None or any(of.after is None for of in later):
        return None
    former = reverting(known, before, after, [of.after for of in later], only=("labels", "queue"))
    if former == known:
        return None
    back = hypothesis.retold(former, case.state)
    text = f"namespace {after.name}: {namespace_told_from_before(former, known)}, as before its edit"
    undone = f"namespace {after.name}: {namespace_changed(before, after)}"
    return Change("queue", text, (back,), edit.offset, undone)


def _opened(case: WaitingCase, denial: Denial) -> tuple[str, tuple[k.Event, ...]]:
    """What lets a job use the queue that denies it, and the events of that; nothing if that isn't known."""
    state, name = case.state, denial.queue
    specs = state.queue_tree.specs
    if denial.kind == DenialKind.NO_QUEUE:
        meant = did_you_mean(near_names(name, specs, digits=True))
        text = f"create queue {name}{f' ({meant})' if meant else ''}"
        return text, (hypothesis.queue_seen(state, name, DEFAULT_SPEC),)
    if denial.kind == DenialKind.CLOSED:
        closed = [each for each in state.queue_tree.paths[name] if specs[each].state == QueueState.CLOSED]
        opened = [msgspec.structs.replace(specs[each], state=QueueState.OPEN) for each in closed]
        events = tuple(hypothesis.queue_seen(state, of, spec) for of, spec in zip(closed, opened, strict=True))
        return " and ".join(f"open queue {each}" for each in closed), events
    if denial.kind == DenialKind.NOT_ADMITTED:
        return _admitted(state, name, specs[name], case.job.seen.namespace)
    problem = denial.problem
    if problem is not None and problem.kind == QueueProblemKind.UNKNOWN_PARENT:
        return f"create queue {problem.parent}", (hypothesis.queue_seen(state, problem.parent, DEFAULT_SPEC),)
    if problem is not None and (spec := specs.get(problem.queue)) is not None and spec.parent:
        below_root = msgspec.structs.replace(spec, parent="")
        text = f"queue {problem.queue} without the parent {problem.parent}"
        return text, (hypothesis.queue_seen(state, problem.queue, below_root),)
    return "", ()


def _admitted(state: State, name: str, spec: QueueSpec, namespace: str) -> tuple[str, tuple[k.Event, ...]]:
    """Let a queue admit the jobs of a namespace: by its name, or by labels that a simple selector needs."""
    rule, seen = spec.namespaces or NamespaceRule(), state.namespaces.get(namespace)
    if rule.selector is None:
        wider = msgspec.structs.replace(spec, namespaces=NamespaceRule(names=(*rule.names, namespace)))
        text = f"add {namespace} to spec.namespaces.names of queue {name}"
        return text, (hypothesis.queue_seen(state, name, wider),)
    if seen is None or any(one.operator != "In" for one in rule.selector):
        return "", ()
    labels = dict(seen.labels) | {one.key: one.values[0] for one in rule.selector}
    missing = ",".join(f"{one.key}={one.values[0]}" for one in rule.selector)
    labelled = msgspec.structs.replace(hypothesis.retold(seen, state), labels=tuple(sorted(labels.items())))
    return f"label namespace {namespace} with {missing}", (labelled,)
