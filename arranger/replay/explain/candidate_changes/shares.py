"""Changes to what queues are entitled to: weights, and what they deserve."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from arranger.model.quantity import amount_text
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.queues.use import Use
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps
from arranger.replay.what_if import hypothesis

#: The highest weight that a queue may have.
_HEAVIEST = 65_535


def heavier(case: WaitingCase, name: str) -> Sequence[Change]:
    """Raise the weight of a queue on the job's way to the root, in steps that double it."""
    state, spec = case.state, case.state.queue_tree.specs[name]
    weights = [weight for power in range(17) if (weight := min(1 << power, _HEAVIEST)) > spec.weight]

    def weighing(number: int) -> Change:
        more = hypothesis.queue_seen(state, name, msgspec.structs.replace(spec, weight=weights[number]))
        return Change("queue", f"weight {weights[number]} of queue {name} instead of {spec.weight}", (more,))

    return ChangeSteps(len(weights), weighing)


def way_of(case: WaitingCase, above: Mapping[str, object]) -> tuple[str, ...]:
    """The queues whose weights decide the order between the job and others; without other jobs before it, those that
    would be above their shares with it, if that keeps it from reclaiming room."""
    state = case.state
    if not state.queues:
        return ()
    return state.queue_tree.paths.get(queue_of(state, case.job), ()) if case.ahead else tuple(above)


def deserving(case: WaitingCase, above: Mapping[str, Mapping[str, int]]) -> Iterator[Change]:
    """Let the queues deserve what they would use with the job, where that would be `above` their shares, and those
    above them as much. Where no queue deserves anything, weights divide all."""
    specs = case.state.queue_tree.specs
    more = _deserved(case, above) if any(spec.deserved for spec in specs.values()) else {}
    edited = {
        name: msgspec.structs.replace(specs[name], deserved=tuple(sorted({**dict(specs[name].deserved), **of}.items())))
        for name, of in more.items()
    }
    limits = {name: dict(specs[name].capability) for name in more}
    if not more or any(amount > limits[name].get(of, amount) for name in more for of, amount in more[name].items()):
        return  # no queue may deserve more than its capability
    words = [
        f"deserved {amount_text(of, amount)} {of} of queue {name}{_instead(dict(specs[name].deserved).get(of), of)}"
        for name in more
        for of, amount in more[name].items()
    ]
    events = tuple(hypothesis.queue_seen(case.state, name, spec) for name, spec in edited.items())
    yield Change("queue", " and ".join(words), events)


def _deserved(case: WaitingCase, above: Mapping[str, Mapping[str, int]]) -> Use:
    """What queues would have to deserve that state less. What one deserves counts only as far as those above it
    deserve that, if they say so."""
    tree, more = case.state.queue_tree, Use()
    for name, amounts in above.items():
        for each in tree.paths[name]:
            stated = dict(tree.specs[each].deserved)
            for resource, amount in amounts.items():
                least = max(stated.get(resource, 0), more.get(each, {}).get(resource, 0))
                if amount > least and (each == name or resource in stated):
                    more.setdefault(each, {})[resource] = amount
    return more


def _instead(stated: int | None, resource: str) -> str:
    return f" instead of {amount_text(resource, stated)}" if stated is not None else ""
