"""Smaller quorums: another policy than Gang, fewer workers in all, and fewer of worker sets."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from arranger.model.job import GANG, JobSpec, PodGroup, Stage, with_needed
from arranger.model.tyjob import refused_change
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, Family, least_of_each
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
    yield _fewer(case, packed)


def _fewer(case: WaitingCase, packed: JobSpec) -> Family:
    """Need the most workers that find nodes: first the most in all, then of each set's minimum, and last of that set
    whose pod finds no node. `packed` is the spec with another policy than Gang, which may be enough."""
    spec, gang = case.spec, packed is not case.spec
    of_sets, fewest = sum(group.min_count for group in spec.groups), 0 if spec.has_leader else 1
    follows = spec.min_workers == of_sets  # it may be unset, and is the sum of the minCounts then
    of_all = (spec.min_workers,) if follows else range(spec.min_workers, fewest - 1, -1)
    numbers = [number for number, group in enumerate(spec.groups) if group.min_count]
    numbers.sort(key=lambda number: (case.lack is not None and number == case.lack.group, number))

    def fewer(values: Sequence[int]) -> Change:
        minimums = dict(zip(numbers, values[1:], strict=True))
        workers = max(0 if follows else values[0], sum(minimums.values()), fewest)
        lowered = {number: least for number, least in minimums.items() if least < spec.groups[number].min_count}
        words = ["pod policy BinPack instead of Gang"] if gang else []
        words += _words(spec, lowered)
        if workers < spec.min_workers and not follows:
            words.append(f"minWorkersNum {workers} instead of {spec.min_workers}")
        text = " and ".join(words)
        if lowered and follows:
            text += f" (and minWorkersNum {workers}, if that is set)"
        return _changed(case, text, _needing(packed, workers, lowered))

    ranges = [of_all, *(_down(spec.groups[number]) for number in numbers)]
    open_ranges = sum(len(of) > 1 for of in ranges)
    if not (gang or open_ranges):
        return Family(())
    if not gang and open_ranges == 1:  # what it needs now isn't enough
        return least_of_each([of[1:] if len(of) > 1 else of for of in ranges], fewer)
    return least_of_each(ranges, fewer, early=(0,))


def _down(group: PodGroup) -> range:
    """The minimum of a set and the smaller ones, in whole worker groups, descending."""
    return range(group.min_count, -1, -group.group_size)


def _words(spec: JobSpec, lowered: Mapping[int, int]) -> Iterator[str]:
    """The minimums that change, as they are in the manifest: a minCount counts worker groups."""
    for number, least in sorted(lowered.items()):
        group = spec.groups[number]
        now, was = least // group.group_size, group.min_count // group.group_size
        yield f"minCount {now} instead of {was} of worker set {group.name}"


def _needing(spec: JobSpec, workers: int, minimums: Mapping[int, int]) -> JobSpec:
    """The spec with so many workers needed in all, and these minimums of its sets."""
    groups = tuple(
        msgspec.structs.replace(group, min_count=minimums.get(number, group.min_count), needed=0)
        for number, group in enumerate(spec.groups)
    )
    return msgspec.structs.replace(spec, groups=with_needed(groups, workers), min_workers=workers)


def _changed(case: WaitingCase, text: str, spec: JobSpec) -> Change:
    return Change("spec", text, (hypothesis.job_seen(case.job, case.state, spec),))
