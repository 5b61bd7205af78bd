"""Changes to the job's spec, and to its namespace's quotas."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from arranger.events import kinds as k
from arranger.messages.shortages import affinity_text
from arranger.model.job import WHOLE_JOB, Stage, Topology, TopologyMode, TopologyScope
from arranger.model.near_names import near_names
from arranger.model.pod import PodShape
from arranger.model.quantity import amount_text
from arranger.model.quota import LimitKind, unit_of
from arranger.projections.cluster.remembered import remembered
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, Family, names_text, reverting
from arranger.replay.explain.candidate_changes.in_line import for_others_too
from arranger.replay.explain.candidate_changes.node_labels import may_run_on
from arranger.replay.reading.edits import changed, told_from_before
from arranger.replay.what_if import hypothesis
from arranger.scheduling import quorum_lacks

#: The least time in which a run time that is offered can be set, in seconds. A tenth of the time is left, if that is
#: more.
_TIME_TO_SET_S = 10

#: Key → the values of nodes' labels.
_Labels = Mapping[str, Mapping[str, None]]


def own_edits(case: WaitingCase) -> Iterator[Change]:
    """Revert one of the last edits of the job's spec, as far as no later one overwrote it."""
    edits, now = case.edits(case.job)[-4:], case.job.valid_spec
    for at in range(len(edits) - 1, -1, -1):
        before, after, edit = edits[at].before, edits[at].after, edits[at]
        if before is None or after is None:
            continue
        former = reverting(now, before, after, [of.after for of in edits[at + 1 :]])
        if former != now:
            what = told_from_before(former, now)
            seen = hypothesis.job_seen(case.job, case.state, former)
            yield Change(
                "spec",
                f"{what}, as before its edit",
                (seen,),
                edit.offset,
                f"its spec was edited: {changed(before, after)}",
            )


def shorter_runs(case: WaitingCase) -> Iterator[Change]:
    """Let the job end before room is reserved that it could use until then, the longest such time first: at a deadline,
    which is what counts beside guests, else by what it says itself. It is shorter than what a cycle would accept now,
    because somebody has to set it first."""
    now_ms, spec, known = case.state.time_ms, case.spec, case.state.reservations
    field, name = (
        ("deadline_s", "activeDeadlineSeconds") if case.config.guests else ("expected_s", "expectedRuntimeSeconds")
    )
    before = getattr(spec, field)
    ends = [of.decided.start_ms for uid, of in known.items() if uid != case.job.uid and of.decided.start_ms > now_ms]
    for left in sorted({(end_ms - now_ms) // 1000 for end_ms in ends}, reverse=True):
        margin = max(left // 10, _TIME_TO_SET_S)
        seconds = left - margin
        if seconds > 0 and (before is None or before > seconds):
            told = "" if before is None else f" instead of {before}"
            seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(spec, **{field: seconds}))
            text = f"{name} {seconds} (or less){told}, set within {margin} s, if it ends in that time"
            yield Change("spec", text, (seen,))


def as_guest(case: WaitingCase) -> Iterator[Change]:
    """Declare that the job may give room to others: then it may use room that is reserved for them."""
    others = [uid for uid in (*case.state.reservations, *case.state.kept_limits) if uid != case.job.uid]
    if others and case.config.guests:
        of_limit = case.lack is not None and case.lack.quota is not None
        where = "by a limit that is kept for a job before it" if of_limit else "in reserved room"
        yield from _as_preemptible(case, f"as a guest {where}, which leaves once that is needed")


def as_preemptible(case: WaitingCase) -> Iterator[Change]:
    """Declare that the job may give room to others, where a queue limits what others use together."""
    lack = case.lack.quota if case.lack is not None else None
    if lack is not None and lack.limit == LimitKind.NON_PREEMPTIBLE and not case.job.of_pods:
        yield from _as_preemptible(case, f"which isn't limited by what queue {lack.queue} deserves")


def _as_preemptible(case: WaitingCase, how: str) -> Iterator[Change]:
    if not case.spec.preemptible:
        seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(case.spec, preemptible=True))
        yield Change("spec", f"preemptible true instead of false, {how}", (seen,))


def looser_topologies(case: WaitingCase) -> Family:
    """Let the pods of units go to several domains, first those of the unit that finds no node. A required topology also
    keeps a job from nodes where a cycle names another reason, such as room that is reserved."""
    spec, lack = case.spec, case.lack
    assert lack is not None
    of = {number: group.topology for number, group in enumerate(spec.groups)} | {WHOLE_JOB: spec.topology}
    required = {number: one for number, one in of.items() if one is not None and one.mode == TopologyMode.REQUIRED}
    of_job = lack.group not in required or (lack.topology is not None and lack.topology.within == TopologyScope.JOB)
    first = WHOLE_JOB if of_job else lack.group

    def loosened(numbers: Sequence[int]) -> Change:
        looser = {number: msgspec.structs.replace(required[number], mode=TopologyMode.PREFERRED) for number in numbers}
        groups = tuple(
            msgspec.structs.replace(group, topology=looser.get(number, group.topology))
            for number, group in enumerate(spec.groups)
        )
        edited = msgspec.structs.replace(spec, groups=groups, topology=looser.get(WHOLE_JOB, spec.topology))
        whose = names_text("the job" if number == WHOLE_JOB else spec.groups[number].name for number in sorted(numbers))
        text = f"topology Preferred instead of Required{'' if list(numbers) == [WHOLE_JOB] else f' for {whose}'}"
        return Change("spec", text, (hypothesis.job_seen(case.job, case.state, edited),), subject=str(numbers[0]))

    numbers = sorted(required, key=lambda number: number != first) if case.job.stage == Stage.PENDING else []
    return Family([loosened([number]) for number in numbers], lambda parts: loosened([int(of.subject) for of in parts]))


def meant_labels(case: WaitingCase) -> Iterator[Change]:
    """Labels that nodes have, which were probably meant by those that no node has, in selectors and in topologies."""
    there = _labels(case)
    yield from _meant_selectors(case, there)
    yield from _meant_levels(case, there)


def _meant_selectors(case: WaitingCase, there: _Labels) -> Iterator[Change]:
    meant = {of: _meant_label(*of, there) for of in _unknown_labels(case, there)}
    if any(meant.values()):
        yield _selecting_by(case, meant)


def _meant_levels(case: WaitingCase, there: _Labels) -> Iterator[Change]:
    spec, told = case.spec, dict[str, None]()

    def meant(topology: Topology | None) -> Topology | None:
        if topology is None:
            return None
        close = {key: near_names(key, there) for key in topology.levels if key not in there}
        instead = {key: names[0] for key, names in close.items() if names and names[0] not in topology.levels}
        told.update(dict.fromkeys(f"topology level {new} instead of {key}" for key, new in instead.items()))
        return msgspec.structs.replace(topology, levels=tuple(instead.get(key, key) for key in topology.levels))

    groups = tuple(msgspec.structs.replace(group, topology=meant(group.topology)) for group in spec.groups)
    edited = msgspec.structs.replace(spec, groups=groups, topology=meant(spec.topology))
    if told and case.job.stage == Stage.PENDING:
        yield Change("spec", " and ".join(told), (hypothesis.job_seen(case.job, case.state, edited),))


def without_selectors(case: WaitingCase) -> Iterator[Change]:
    """Don't select by labels that no node has, nor by a node affinity that selects none of the others."""
    wrong = dict.fromkeys(_unknown_labels(case, _labels(case)))
    dead = [group.name for group in case.spec.groups if _selects_none(case, _with_selector(group.shape, wrong))]
    if case.job.stage == Stage.PENDING and (wrong or dead):
        yield _selecting_by(case, wrong, dead)


def _selects_none(case: WaitingCase, shape: PodShape) -> bool:
    """Whether the pod has a required node affinity that no node meets."""
    nodes = case.state.nodes
    there = [
        (nodes.names[row], nodes.facts[row]) for row in nodes.by_name().tolist() if shape.required_terms is not None
    ]
    return bool(there) and not any(may_run_on(shape, name, dict(facts.labels)) for name, facts in there)


def _labels(case: WaitingCase) -> _Labels:
    """The labels of the present nodes, found once for the version of the nodes' facts."""
    nodes = case.state.nodes

    def found() -> _Labels:
        there: dict[str, dict[str, None]] = {}
        for row in nodes.by_name().tolist():
            for key, value in nodes.facts[row].labels:
                there.setdefault(key, {})[value] = None
        return there

    return remembered(nodes.facts_version, _labels, found)


def _unknown_labels(case: WaitingCase, there: _Labels) -> dict[tuple[str, str], None]:
    """The labels by which pods select and that no node has; none once the job can't change any more."""
    groups = case.spec.groups if case.job.stage == Stage.PENDING else ()
    return {of: None for group in groups for of in group.shape.node_selector if of[1] not in there.get(of[0], {})}


def _meant_label(key: str, value: str, there: _Labels) -> tuple[str, str] | None:
    """The label of a node that was probably meant by one that no node has."""
    if key in there:
        values = near_names(value, there[key], digits=True) or (list(there[key]) if len(there[key]) == 1 else [])
        return (key, values[0]) if values else None
    return next(((of, value) for of in near_names(key, there, most=3) if value in there[of]), None)


def _with_selector(shape: PodShape, instead: Mapping[tuple[str, str], tuple[str, str] | None]) -> PodShape:
    selector = {of: None for one in shape.node_selector if (of := instead.get(one, one)) is not None}
    return msgspec.structs.replace(shape, node_selector=tuple(sorted(selector)))


def _selecting_by(
    case: WaitingCase, instead: Mapping[tuple[str, str], tuple[str, str] | None], dead: Collection[str] = ()
) -> Change:
    """Let all pods select by other labels, or not by these, and those of `dead` groups by no node affinity."""
    groups, told = [], dict[str, None]()
    for (key, value), of in instead.items():
        told[f"nodeSelector {f'{of[0]}={of[1]} instead of' if of is not None else 'without'} {key}={value}"] = None
    for group in case.spec.groups:
        shape = _with_selector(group.shape, instead)
        if group.name in dead:
            told[f"without the required node affinity {affinity_text(shape)}"] = None
            shape = msgspec.structs.replace(shape, required_terms=None)
        groups.append(msgspec.structs.replace(group, shape=shape))
    seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(case.spec, groups=tuple(groups)))
    return Change("spec", " and ".join(told), (seen,))


def raised_quotas(case: WaitingCase) -> Iterator[Change]:
    """Raise all the namespace's quotas by what the quorum lacks, or by what one more pod lacks; if jobs ahead would
    take that, by what those of these need too that can start then."""
    assert case.lack is not None and case.lack.quota is not None
    namespace, told = case.job.seen.namespace, case.lack.quota
    policy = case.policies.pod_policy(case.job, case.config)
    missing: dict[tuple[str, str], int] = {}
    for lack in (told, *quorum_lacks(case.state, case.job, policy, case.lack.group)):
        key = (lack.quota, lack.resource)
        missing[key] = max(missing.get(key, 0), lack.needed - lack.left)
    needed: dict[str, dict[tuple[str, str], int]] = {}
    ahead = [of for of in case.ahead if of.seen.namespace == namespace and not of.placements]
    for job in ahead:
        lacks = quorum_lacks(case.state, job, case.policies.pod_policy(job, case.config), 0)
        of_quotas = {(of.quota, of.resource): of.needed for of in lacks if (of.quota, of.resource) in missing}
        if of_quotas:
            needed[job.uid] = of_quotas

    def raised(others: Sequence[JobRecord]) -> Change | None:
        more = [needed[job.uid] for job in others]
        return _raised(case, {key: lack + sum(of.get(key, 0) for of in more) for key, lack in missing.items()})

    change = raised(())
    if change is not None:
        first = sorted((of for of in ahead if of.uid in needed), key=lambda of: sorted(needed[of.uid].values()))
        yield replace(change, further=for_others_too(case, first, raised))


def _raised(case: WaitingCase, missing: Mapping[tuple[str, str], int]) -> Change | None:
    """Raise the namespace's quotas (name and resource) by these amounts."""
    events, words = list[k.Event](), list[str]()
    for name, quota in sorted(case.state.quotas.get(case.job.seen.namespace, {}).items()):
        hard = {resource: limit + missing.get((name, resource), 0) for resource, limit in quota.hard}
        if hard != dict(quota.hard):
            events.append(msgspec.structs.replace(quota, hard=tuple(sorted(hard.items()))))
            words += [
                f"raise {resource} of quota {name} by {_of_quota(resource, hard[resource] - limit)}"
                f" to {_of_quota(resource, hard[resource])}"
                for resource, limit in quota.hard
                if hard[resource] != limit
            ]
    return Change("quota", " and ".join(words), tuple(events)) if events else None


def _of_quota(resource: str, value: int) -> str:
    return amount_text(unit_of(resource), value)
