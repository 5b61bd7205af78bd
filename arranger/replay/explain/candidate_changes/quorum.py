"""Smaller quorums: another policy than Gang, fewer workers in all, and fewer of worker sets."""

from collections.abc import Iterator, Mapping

import msgspec

from arranger.model.job import GANG, JobSpec, PodGroup, Stage, with_needed
from arranger.model.tyjob import refused_change
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, Family
from arranger.replay.what_if import hypothesis


def smaller_quorums(case: WaitingCase) -> Iterator[Family]:
    """Need no workers of certain sets, or fewer in all."""
    spec, job = case.spec, case.job
    gang = (spec.pod_policy or case.config.pod_policy) == GANG
    packed = msgspec.structs.replace(spec, pod_policy="BinPack") if gang else spec
    if job.of_pods or job.quorum_placed() or (job.stage != Stage.PENDING and refused_change(spec, packed)):
        return
    if not gang and spec.has_minimums and sum(group.count > 0 for group in spec.groups[1:]) > 1:
        text = f"minWorkersNum {spec.min_workers} without a minCount of each set"
        of_any = dict.fromkeys(range(len(spec.groups)), 0)
        yield Family([_changed(case, text, _needing(spec, spec.min_workers, of_any))])
    yield Family(_fewer(case, packed), least=True)


def _fewer(case: WaitingCase, packed: JobSpec) -> ChangeSteps:
    """Need one worker less at each step: first of those that any set may provide, then of each set's minimum, from that
    of the set whose pod finds no node. `packed` is the spec with another policy than Gang, which may be enough."""
    spec, gang = case.spec, packed is not case.spec
    of_sets, fewest = sum(group.min_count for group in spec.groups), 0 if spec.has_leader else 1
    of_any = spec.min_workers - max(of_sets, fewest)
    numbers = sorted(range(len(spec.groups)), key=lambda number: case.lack is None or number != case.lack.group)
    steps = [(number, left) for number in numbers for left in _down(spec.groups[number])]
    first = 0 if gang and spec.min_workers < spec.total_workers else 1

    def fewer(at: int) -> Change:
        of_all = min(at + first, of_any)
        lowered = dict(steps[: at + first - of_all])
        left = of_sets - sum(spec.groups[number].min_count - least for number, least in lowered.items())
        workers = max(left, fewest) if lowered else spec.min_workers - of_all
        words = ["pod policy BinPack instead of Gang"] if gang else []
        text = " and ".join([*words, *_words(spec, workers, lowered)])
        if lowered and spec.min_workers == of_sets:  # it may be unset, and then follows from the minCounts
            text += f" (and minWorkersNum {workers}, if that is set)"
        return _changed(case, text, _needing(packed, workers, lowered))

    return ChangeSteps(of_any + len(steps) + 1 - first, fewer)


def _down(group: PodGroup) -> range:
    """The smaller minimums of a set, in whole worker groups, descending."""
    return range(group.min_count - group.group_size, -1, -group.group_size)


def _words(spec: JobSpec, workers: int, lowered: Mapping[int, int]) -> Iterator[str]:
    """The fields that change, as they are in the manifest: a minCount counts worker groups."""
    for number, least in sorted(lowered.items()):
        group = spec.groups[number]
        now, was = least // group.group_size, group.min_count // group.group_size
        yield f"minCount {now} instead of {was} of worker set {group.name}"
    if spec.min_workers > (sum(group.min_count for group in spec.groups) if lowered else workers):
        yield f"minWorkersNum {workers} instead of {spec.min_workers}"


def _needing(spec: JobSpec, workers: int, minimums: Mapping[int, int]) -> JobSpec:
    """The spec with so many workers needed in all, and these minimums of its sets."""
    groups = tuple(
        msgspec.structs.replace(group, min_count=minimums.get(number, group.min_count), needed=0)
        for number, group in enumerate(spec.groups)
    )
    return msgspec.structs.replace(spec, groups=with_needed(groups, workers), min_workers=workers)


def _changed(case: WaitingCase, text: str, spec: JobSpec) -> Change:
    return Change("spec", text, (hypothesis.job_seen(case.job, case.state, spec),))
