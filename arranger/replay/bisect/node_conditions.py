"""Conditions on a node in a state, and the facts that a state has about a node."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from arranger.model.accelerators import is_accelerator
from arranger.model.config import ANY_ACCELERATOR
from arranger.model.quantity import amount_text
from arranger.model.taints import taint_text
from arranger.projections.state import State
from arranger.replay.bisect.conditions import Condition, Facts

#: Comparison signs in user input, the longer ones first.
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip

#: All accelerators of a node together.
GPUS = ANY_ACCELERATOR


class NodeIs(Condition):
    """Holds where a node exists (or pods still use it) and its row in the table passes `test`."""

    def __init__(self, name: str, text: str, test: Callable[[State, int], bool]) -> None:
        super().__init__(f"node {name} {text}", subject=f"node {name}")
        self._name = name
        self._test = test

    def holds(self, state: State) -> bool:
        return state.nodes.has(self._name) and self._test(state, state.nodes.rows[self._name])

    def facts(self, state: State) -> Facts:
        return facts_of_node(state, self._name)


def cordoned(node: str) -> Condition:
    return NodeIs(node, "is cordoned", lambda state, row: state.nodes.facts[row].cordoned)


def not_ready(node: str) -> Condition:
    return NodeIs(node, "is not ready", lambda state, row: not state.nodes.facts[row].ready)


def tainted(node: str, key: str = "") -> Condition:
    """The node has a taint, with this key if one is given."""
    text = f"has a taint {key}" if key else "has a taint"
    return NodeIs(node, text, lambda state, row: any(key in ("", taint.key) for taint in state.nodes.facts[row].taints))


def node_there(node: str) -> Condition:
    return NodeIs(node, "exists", lambda state, row: True)


def free(node: str, resource: str, sign: str, desired: int) -> Condition:
    """Compare a node's free amount of a resource, in its unit, with `desired`; `GPUS` sums all
    accelerators."""
    compare = COMPARISONS[sign]

    def test(state: State, row: int) -> bool:
        amounts = state.nodes.amounts(row).items()
        return compare(sum(there_is - used for name, (used, there_is) in amounts if _is(name, resource)), desired)

    return NodeIs(node, f"has {resource} free {sign} {amount_text(resource, desired)}", test)


def _is(name: str, resource: str) -> bool:
    return is_accelerator(name) if resource == GPUS else name == resource


def facts_of_node(state: State, name: str) -> Facts:
    nodes = state.nodes
    of_node = nodes.facts_of(name)
    if of_node is None:
        return {"node": "not there"}
    health = "ready" if of_node.ready else "not ready"
    facts = {"node": "there", "health": health + (", cordoned" if of_node.cordoned else "")}
    facts["taints"] = ", ".join(map(taint_text, of_node.taints)) or "none"
    for resource, (used, there_is) in nodes.amounts(nodes.rows[name]).items():
        facts[f"{resource} free"] = (
            f"{amount_text(resource, max(there_is - used, 0))} of {amount_text(resource, there_is)}"
        )
    return facts
