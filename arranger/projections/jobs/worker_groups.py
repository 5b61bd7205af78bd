"""Worker groups: the pods of a worker set that are placed, restarted and given up together."""

from collections import Counter
from collections.abc import Collection, Iterable

from arranger.model.job import JobSpec
from arranger.projections.jobs.parts import SlotKey


def only_whole(spec: JobSpec, slots: Collection[SlotKey], counts: list[int]) -> list[int]:
    """The numbers of these slots by group (`counts`), of worker groups only those that are there as a whole."""
    found = list(counts)
    for number, of in enumerate(spec.groups):
        if of.group_size > 1 and 0 < counts[number] < of.count:
            sizes = Counter(index // of.group_size for group, index in slots if group == number)
            found[number] = of.group_size * sum(size == of.group_size for size in sizes.values())
    return found


def with_whole(spec: JobSpec, slots: Iterable[SlotKey]) -> set[SlotKey]:
    """The slots with all others of their worker groups."""
    return {(group, other) for group, index in slots for other in spec.groups[group].worker_group(index)}


def parted(spec: JobSpec, slots: Collection[SlotKey]) -> list[SlotKey]:
    """Those of the slots whose worker group has others that aren't among them, in order."""
    if not spec.has_worker_groups:
        return []
    sizes = [of.group_size for of in spec.groups]
    there = Counter((group, index // sizes[group]) for group, index in slots)
    return sorted((group, index) for group, index in slots if there[group, index // sizes[group]] < sizes[group])
