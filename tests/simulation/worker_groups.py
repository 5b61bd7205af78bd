"""Worker groups in the simulated world: jobs that have them, and checks that each is there as a whole or not at all."""

import random
from collections.abc import Iterator
from typing import Any

from arranger.events import kinds as k
from arranger.model.job import FREEING
from arranger.projections.jobs.records import JobRecord, SlotKey, expand
from arranger.projections.state import State

#: A slot's worker group: the number of the set, and the indices.
_Group = tuple[int, range]


def draw(chance: random.Random, sets: list[Any], *, always: bool = False) -> None:
    """Let some worker sets have worker groups; what counted workers counts worker groups then."""
    for each in sets:
        if chance.random() < 0.65 and not always:
            continue
        each["groupSize"] = chance.choice((1, 2, 2, 2, 3))
        each["counts"] = min(each["counts"], 2)
        each["minCount"] = chance.randrange(0, each["counts"] + 1)
        if each["groupSize"] > 1 and (each.get("restart") or {}).get("scope") == "Worker":
            each["restart"]["scope"] = "Group"
        if each.get("rendezvous") and chance.random() < 0.6:
            each["rendezvous"]["scope"] = "Group"


def of(job: JobRecord, slots: Any) -> list[_Group]:
    """The worker groups of several pods that these slots are in, each once and in order."""
    groups = job.valid_spec.groups
    found = {(group, groups[group].worker_group(index).start) for group, index in slots}
    ranges = [(group, groups[group].worker_group(first)) for group, first in sorted(found)]
    return [(group, indices) for group, indices in ranges if len(indices) > 1]


def placed_in_part(job: JobRecord, event: k.Placed) -> list[SlotKey]:
    """The slots without a node of worker groups of which an accepted decision placed others."""
    pods = expand(event.pods)
    return [(group, index) for group, indices in of(job, pods) for index in indices if (group, index) not in pods]


def replaced_in_part(job: JobRecord, event: k.WorkersReplaced) -> list[str]:
    """What an accepted decision left of worker groups, for a job as it is then."""
    hows = {(worker.slot.group, worker.slot.index): worker.how for worker in event.workers}
    found = []
    for group, indices in of(job, hows):
        slots = [(group, index) for index in indices]
        if any(hows.get(slot) in FREEING for slot in slots):
            found += [f"{slot} has a node" for slot in slots if slot in job.placements]
        else:
            found += [f"{slot} keeps its pod" for slot in slots if job.bound.get(slot, "") not in ("", *job.retired)]
        if 0 < sum(slot in job.slots.given_up for slot in slots) < len(slots):
            found.append(f"a part of {slots} is given up")
    return found


def unsettled(state: State) -> Iterator[tuple[str, str]]:
    """Parts of worker groups at a good end; a finished worker needs no node."""
    for uid, job in state.jobs.items():
        for group, indices in of(job, job.placements) if job.active else ():
            there = [index for index in indices if (group, index) in job.provided]
            if len(there) < len(indices):
                yield uid, f"{job.seen.name} has only {there} of the worker group {indices} of group {group}"
