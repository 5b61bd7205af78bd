"""Changes to what queues are entitled to: weights, and what they deserve."""

from collections.abc import Mapping, Sequence

import msgspec

from arranger.model.quantity import amount_text
from arranger.model.queue import QueueSpec
from arranger.projections.derived.queue_counts import queue_of
from arranger.projections.queues.use import Use
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, Family, least_of_each
from arranger.replay.explain.candidate_changes.queue_objects import part_of, values_up_to
from arranger.replay.what_if import hypothesis

#: The highest weight that a queue may have.
_HEAVIEST = 65_535


def heavier(case: WaitingCase, name: str) -> Family:
    """Raise the weight of a queue on the job's way to the root: to the first power of two that is enough, and then to
    the least weight."""
    state, spec = case.state, case.state.queue_tree.specs[name]
    powers = [weight for power in range(17) if (weight := min(1 << power, _HEAVIEST)) > spec.weight]

    def weighing(weights: Sequence[int]) -> Sequence[Change]:
        def weighs(number: int) -> Change:
            more = hypothesis.queue_seen(state, name, msgspec.structs.replace(spec, weight=weights[number]))
            return Change("queue", f"weight {weights[number]} of queue {name} instead of {spec.weight}", (more,))

        return ChangeSteps(len(weights), weighs)

    def between(number: int) -> Family:
        return Family(weighing(range([spec.weight, *powers][number] + 1, powers[number])), least=True)

    return Family(weighing(powers), least=True, then=between)


def way_of(case: WaitingCase, above: Mapping[str, object]) -> tuple[str, ...]:
    """The queues whose weights decide the order between the job and others; without other jobs before it, those that
    would be above their shares with it, if that keeps it from reclaiming room."""
    state = case.state
    if not state.queues:
        return ()
    return state.queue_tree.paths.get(queue_of(state, case.job), ()) if case.ahead else tuple(above)


def deserving(case: WaitingCase, above: Mapping[str, Mapping[str, int]]) -> Family:
    """Let the queues deserve what they would use with the job, where that would be `above` their shares, and those
    above them as much, or as much less of each resource as is enough. Where no queue deserves anything, weights divide
    all."""
    specs = case.state.queue_tree.specs
    more = _deserved(case, above) if any(spec.deserved for spec in specs.values()) else {}
    limits = {name: dict(specs[name].capability) for name in more}
    if any(amount > limits[name].get(of, amount) for name in more for of, amount in more[name].items()):
        return Family(())  # no queue may deserve more than its capability
    stated = {name: dict(specs[name].deserved) for name in more}
    parts = [(name, of) for name in more for of in more[name]]

    def deserves(values: Sequence[int]) -> Change:
        words, edited = list[str](), dict[str, QueueSpec]()
        for (name, of), amount in zip(parts, values, strict=True):
            if amount == (before := stated[name].get(of, 0)):
                continue
            spec = edited.get(name, specs[name])
            deserved = tuple(sorted({**dict(spec.deserved), of: amount}.items()))
            edited[name] = msgspec.structs.replace(spec, deserved=deserved)
            instead = f" instead of {amount_text(of, before)}" if of in stated[name] else ""
            words.append(f"deserved {amount_text(of, amount)} {of} of queue {name}{instead}")
        events = tuple(hypothesis.queue_seen(case.state, name, spec) for name, spec in edited.items())
        return Change("queue", " and ".join(words), events)

    def values(name: str, of: str) -> Sequence[int]:
        return values_up_to(stated[name].get(of, 0), more[name][of], part_of(case.state, case.job, of))

    return least_of_each([values(name, of) for name, of in parts], deserves)


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
