"""Two projections compared field by field.

Digests can't do that: they are made of the bytes of a snapshot, and what a snapshot forgets has no part in them.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from arranger.model.decayed_usage import DecayedUsage
from arranger.projections.cluster.device_table import DeviceTable
from arranger.projections.cluster.nodes import NodeTable
from arranger.projections.jobs.parts import SetRecord, SlotTable
from arranger.projections.jobs.records import JobRecord
from arranger.projections.queues.use import QueueUse
from arranger.projections.state import State

#: Fields that belong to one process, and not to the projected state.
OF_PROCESS = {
    State: {"scheduling_changes", "_tree"},
    SlotTable: {"pod_changes"},
    DeviceTable: {"version"},
    QueueUse: {"_totals", "_paths"},
}

#: Dicts whose order is a part of the state.
IN_ORDER = {State: {"assumed", "run_times"}}

#: Dicts in which an item of this value is as good as none.
NOTHING = {JobRecord: {"sets": SetRecord()}, SlotTable: {"ready_counts": 0}}

#: What `nodes_of` takes of a table of nodes, and what a table keeps for itself: which rows are free, and what it would
#: otherwise compute again.
NODE_PARTS = {
    *("columns", "rows", "names", "facts", "uids", "versions", "allocatable", "used", "down_ms", "holders"),
    "_elsewhere",
}
NODE_CACHES = {
    *("_free", "_vectors", "_names_kept", "_allocatables", "_name_order", "changes", "_changed", "facts_version"),
    "names_version",
}


def nodes_of(table: NodeTable) -> dict[str, Any]:
    """The nodes by name, whatever rows and columns they have."""
    columns = sorted(table.columns.items())

    def amounts(of: Any, more: Mapping[str, int]) -> dict[str, int]:
        found = {name: int(of[column]) for name, column in columns if of[column]}
        return found | more

    return {
        name: {
            "name": table.names[row],
            "facts": table.facts[row],
            "uid": table.uids[row],
            "version": table.versions[row],
            "down_ms": table.down_ms[row],
            "holders": table.holders[row],
            "allocatable": amounts(table.allocatable[row], {}),
            "used": amounts(table.used[row], table.elsewhere(row)),
        }
        for name, row in table.rows.items()
    }


def part_of(owner: Any, name: str) -> Any:
    """A field in its normal form."""
    value, nothing = getattr(owner, name), NOTHING.get(type(owner), {})
    return {key: item for key, item in value.items() if item != nothing[name]} if name in nothing else value


def differences(one: Any, other: Any, at: str = "state") -> Iterator[str]:
    """The fields in which two states differ, each with its path and both values."""
    if type(one) is not type(other):
        yield f"{at}: {one!r} and {other!r}"
    elif isinstance(one, NodeTable):
        yield from differences(nodes_of(one), nodes_of(other), at)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in OF_PROCESS.get(type(one), ()):
                mine, its = part_of(one, field.name), part_of(other, field.name)
                yield from differences(mine, its, f"{at}.{field.name}")
                if field.name in IN_ORDER.get(type(one), ()) and list(mine) != list(its):
                    yield f"{at}.{field.name}: {list(mine)} and {list(its)}, in this order"
    elif isinstance(one, DecayedUsage):
        for name in DecayedUsage.__slots__:
            yield from differences(getattr(one, name), getattr(other, name), f"{at}.{name}")
    elif isinstance(one, dict):
        for key in one.keys() | other.keys():
            if key not in one or key not in other:
                yield f"{at}[{key!r}]: only {'before' if key in one else 'afterwards'}"
            else:
                yield from differences(one[key], other[key], f"{at}[{key!r}]")
    elif one != other:
        yield f"{at}: {one!r} and {other!r}"
