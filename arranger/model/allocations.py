"""Allocations in the form of a TYJob's status, grouped by node, and their parser.

    - node: gpu-1
      leader: true
      workers:
        - set: actors
          indices: "0-3,7"

Every node of the job has one entry, and runs of indices are ranges, so that a job of 5,000 workers stays far below the
size limit of the API server. The parser is lenient: it skips what it can't understand.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arranger.model.job import LEADER_GROUP, PlacedPods

Runs = tuple[tuple[int, int], ...]

#: Above any index that a job can have; a status with more was not written by Arranger.
_MAX_INDEX = 1_000_000
_NUMBER = re.compile("[0-9]{1,9}", re.ASCII)
_RUN = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)


def encode_allocations(allocations: Iterable[PlacedPods], group_names: Sequence[str]) -> list[dict[str, Any]]:
    """`status.allocations` for these placements; `group_names` as in `JobSpec.groups`, the leader first."""
    by_node: dict[str, dict[str, Any]] = {}
    for placed in merged(allocations):
        entry = by_node.setdefault(placed.node, {"node": placed.node})
        if placed.group == LEADER_GROUP:
            entry["leader"] = True
        else:
            workers = {"set": group_names[placed.group], "indices": text_of(placed.indices)}
            entry.setdefault("workers", []).append(workers)
    return list(by_node.values())


def decode_allocations(status: Any, group_names: Sequence[str]) -> tuple[PlacedPods, ...]:
    """The placements in a `status.allocations`, merged and in order, without sets that the job doesn't have."""
    groups = {name: number for number, name in enumerate(group_names) if number != LEADER_GROUP}
    found: list[PlacedPods] = []
    for entry in status if isinstance(status, list) else ():
        node = entry.get("node") if isinstance(entry, dict) else None
        if not isinstance(node, str) or not node:
            continue
        if entry.get("leader") is True:
            found.append(PlacedPods(node, LEADER_GROUP, ((0, 0),)))
        workers = entry.get("workers")
        for part in workers if isinstance(workers, list) else ():
            name = part.get("set") if isinstance(part, dict) else None
            group = groups.get(name) if isinstance(name, str) else None
            if group is not None and (runs := runs_of(part.get("indices"))):
                found.append(PlacedPods(node, group, runs))
    return merged(found)


def merged(allocations: Iterable[PlacedPods]) -> tuple[PlacedPods, ...]:
    """The same placements once for each node and group, sorted, with the fewest runs."""
    runs: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for placed in allocations:
        runs.setdefault((placed.node, placed.group), []).extend(placed.indices)
    return tuple(
        PlacedPods(node, group, _joined(runs[node, group])) for node, group in sorted(runs) if runs[node, group]
    )


def _joined(runs: list[tuple[int, int]]) -> Runs:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def text_of(runs: Runs) -> str:
    """Runs of indices as in a status: "0-3,7"."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def charges_text(numbers: Mapping[int, int]) -> str:
    """Numbers by ascending index as in a status: "0-2:1,7:3"."""
    parts: list[tuple[int, int, int]] = []
    for index, number in numbers.items():
        if parts and parts[-1][1:] == (index - 1, number):
            parts[-1] = (parts[-1][0], index, number)
        else:
            parts.append((index, index, number))
    return ",".join(f"{text_of(((first, last),))}:{number}" for first, last, number in parts)


def charges_of(text: Any) -> tuple[tuple[int, int, int], ...]:
    """First index, last index and number of each part of such a text; empty for any other text."""
    if not isinstance(text, str) or not text:
        return ()
    found = []
    for part in text.split(","):
        indices, _, number = part.partition(":")
        runs = runs_of(indices)
        if not runs or not _NUMBER.fullmatch(number):
            return ()
        found.append((*runs[0], int(number)))
    return tuple(found)


def runs_of(indices: Any) -> Runs:
    """The runs in a text like "0-3,7"; empty for any other text."""
    if not isinstance(indices, str):
        return ()
    runs = []
    for part in indices.split(","):
        found = _RUN.fullmatch(part)
        if found is None:
            return ()
        first, last = int(found.group(1)), int(found.group(2) or found.group(1))
        if not first <= last < _MAX_INDEX:
            return ()
        runs.append((first, last))
    return tuple(runs)
