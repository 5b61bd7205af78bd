"""Lower requests of the job's pods."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from arranger.model.accelerators import is_accelerator
from arranger.model.job import PodGroup, Stage
from arranger.model.quantity import amount_text
from arranger.model.quota import unit_of
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import (
    Change,
    ChangeSteps,
    Family,
    least_of_each,
    names_text,
)
from arranger.replay.what_if import hypothesis
from arranger.scheduling import ClusterView

#: Of a resource of which a pod could have more than this, not each amount is tried.
_EACH = 4096
#: Resource → the most of it that a pod asks for.
_Most = dict[str, int]


def smaller_requests(case: WaitingCase) -> Family:
    """Lower the requests of the group that finds no node, or else those of all groups: first to the most that a node
    could ever have for a pod, then further. What is free isn't all that a cycle may find, as it may take room from
    others. Where a quota or a queue is short, lower them as far as that has them left. Where those of all groups are
    lowered alike and the job starts with it, each of them is then lowered no further than it needs to be: whether it
    ever fits isn't known so well."""
    lack, groups = case.lack, case.spec.groups
    if lack is None or case.job.stage != Stage.PENDING:
        return Family(())
    of_all = _amounts(case) if lack.quota is None else _halved(case, unit_of(lack.quota.resource))
    one, others = groups[lack.group], [of for number, of in enumerate(groups) if number != lack.group]
    of_one = [most for most in of_all if _lowers(most, [one])]
    of_all = [most for most in of_all if _lowers(most, others)]  # without the others, it is the same as before
    first, count, free = len(of_one), len(of_one) + len(of_all), _free(lack.lacks)

    def lowered(number: int) -> Change:
        if number < first:
            return _asking_for(case, [of_one[number] if group is one else {} for group in groups])
        return _asking_for(case, [of_all[number - first]] * len(groups))

    def each(number: int) -> Family:
        return _of_each(case, of_all[: number - first + 1]) if number >= first else Family(())

    early = tuple(sorted({0, max(first - 1, 0), first}))
    from_none = next((number for number, most in enumerate(of_one) if most == free), None if lack.lacks else 0)
    return Family(ChangeSteps(count, lowered), least=True, early=early, then=each, from_none=from_none, feasible=True)


def _of_each(case: WaitingCase, of_all: Sequence[_Most]) -> Family:
    """Lower the requests of all groups to the last of these amounts at most, which is known to be enough, but each only
    as far as it needs to be: those of the most pods first."""
    groups = case.spec.groups
    alike = [most for most in of_all if most.keys() == of_all[-1].keys()]
    amounts = [[_Most(), *(most for most in alike if _lowers(most, [group]))] for group in groups]
    order = sorted(range(len(groups)), key=lambda number: -groups[number].count)

    def lowered(steps: Sequence[int]) -> Change:
        chosen = dict(zip(order, steps, strict=True))
        return _asking_for(case, [amounts[number][chosen[number]] for number in range(len(groups))])

    family = least_of_each([range(len(amounts[number])) for number in order], lowered)
    return replace(family, goes_on=True)  # with all of them the lowest, it is the change that was found


def _amounts(case: WaitingCase) -> Sequence[_Most]:
    """What a pod may ask for of the resources that nodes lack, descending. Of a single one these are all numbers of an
    accelerator, else the amounts that nodes have in all and free. Of several they are those of the closest node: what
    it has without pods, if even that is too little, and what it has free. Where the closest node would take a pod, and
    a topology or a reservation keeps it off, they are those of what other nodes lack, else of what pods ask for."""
    lack = case.lack
    assert lack is not None
    closest = lack.of_empty or lack.lacks
    found: list[_Most] = []
    names = [name for name, *_ in closest] or _scarcest(case)
    if len(names) == 1:
        found += _of_resource(case, names[0])
    for lacks in (lack.of_empty, lack.lacks):
        if len(lacks) > 1 and (free := _free(lacks)):
            found.append(free)
    return found


def _halved(case: WaitingCase, name: str) -> Sequence[_Most]:
    """What a pod may ask for of a resource: each smaller number of an accelerator, else a half, a quarter and so on."""
    asked = max((of for group in case.spec.groups for of in _requests(group, name)), default=0)
    if is_accelerator(name) and asked <= _EACH:
        return [{name: of} for of in range(asked - 1, 0, -1)]
    return [{name: asked >> power} for power in range(1, 11) if asked >> power]


def _scarcest(case: WaitingCase) -> Sequence[str]:
    """What pods ask for that most nodes lack; where none lacks anything, an accelerator."""
    lacking = case.lack.resources if case.lack is not None else ()
    shapes = [case.shape, *(group.shape for group in case.spec.groups)]  # a domain may have to take those of all groups
    asked = [name for shape in shapes for name, value in shape.requests if value and is_accelerator(name)]
    return (*lacking, *asked)[:1]


def _free(lacks: Sequence[tuple[str, int, int]]) -> _Most:
    """What a node has free of all that it lacks; empty if it has nothing of some of it."""
    free = {name: free for name, _, free in lacks}
    return free if all(free.values()) else {}


def _of_resource(case: WaitingCase, name: str) -> list[_Most]:
    lack, view = case.lack, ClusterView(case.state.nodes)
    column = view.column(name)
    if lack is None or column is None:
        return []
    rows = [row for row, node in enumerate(view.names) if node in lack.candidates]
    there = {int(of[row, column]) for of in (view.allocatable, view.free) for row in rows}
    # Nobody requests that a node takes one more pod.
    asked = max((of for group in case.spec.groups for of in _requests(group, name)), default=0)
    most = min(max(there, default=0), asked - 1)
    each = range(most, 0, -1) if is_accelerator(name) and most <= _EACH else sorted(there, reverse=True)
    return [{name: of} for of in each if 0 < of < asked]


def _requests(group: PodGroup, name: str) -> list[int]:
    return [value for of, value in group.shape.requests if of == name]


def _lowers(most: _Most, groups: Sequence[PodGroup]) -> bool:
    """Whether a pod of these groups asks for more."""
    return any(of > most.get(name, of) for group in groups if group.count for name, of in group.shape.requests)


def _asking_for(case: WaitingCase, mosts: Sequence[_Most]) -> Change:
    """Let no pod of a group ask for more of a resource than the amounts of the group say."""
    spec, whose, changed = case.spec, dict[str, list[str]](), list[PodGroup]()
    for group, most in zip(spec.groups, mosts, strict=True):
        less = {name: of for name, of in group.shape.requests if of > most.get(name, of)}
        requests = tuple((name, most[name] if name in less else value) for name, value in group.shape.requests)
        shape = msgspec.structs.replace(group.shape, requests=requests)
        changed.append(msgspec.structs.replace(group, shape=shape) if less else group)
        told = [
            f"{amount_text(name, most[name])} {name} instead of {amount_text(name, of)}" for name, of in less.items()
        ]
        if told:
            whose.setdefault(", ".join(told), []).append(group.name)
    seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(spec, groups=tuple(changed)))
    text = " and ".join(f"{names_text(names)} asking for {told}" for told, names in whose.items())
    return Change("spec", text, (seen,))
