"""The nodes that satisfy requirements on their labels and names, as in required node affinity."""

import numpy as np

from arranger.model.pod import Requirement
from arranger.model.selectors import integer
from arranger.scheduling.cluster.view import ClusterView, Mask

#: A number that no label value has.
NO_VALUE = -1


def satisfying(view: ClusterView, term: tuple[Requirement, ...]) -> Mask:
    """Nodes that satisfy every requirement of a term."""
    found = np.ones(len(view), bool)
    for requirement in term:
        found &= _holding(view, requirement)
    return found


def _holding(view: ClusterView, requirement: Requirement) -> Mask:
    """Nodes that satisfy one requirement, by Kubernetes' node selector operators; Gt and Lt compare integers only.

    Each different value of the label is checked once: a term may have many requirements, each with many values.
    """
    label = view.node_index.name_column() if requirement.field else view.node_index.label(requirement.key)
    found = np.zeros(len(label.numbers) + 1, bool)
    match requirement.operator:
        case "In" | "NotIn":
            found[[label.numbers[value] for value in requirement.values if value in label.numbers]] = True
        case "Exists" | "DoesNotExist":
            found[1:] = True
        case "Gt" | "Lt":
            bound = integer(requirement.values[0]) if requirement.values else None
            if bound is not None:
                known, amounts = label.integers()
                found = known & (amounts > bound if requirement.operator == "Gt" else amounts < bound)
    if requirement.operator in ("NotIn", "DoesNotExist"):
        found = ~found
    return found[label.codes]
