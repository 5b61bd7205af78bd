"""Whether the rules among a quorum's own pods keep it from ever fitting: proved on the nodes without pods.

Only rules count that other pods can't ease: anti-affinity and host ports, and affinity while nobody else's pods are
there that may be joined. Without the other rules more fits, so a proof holds with them too.
"""

from dataclasses import replace

from arranger.projections.jobs.records import JobRecord
from arranger.scheduling.cluster.neighbours import Neighbours, neighbour_of
from arranger.scheduling.filters.nodes import Counts
from arranger.scheduling.placing.needs import Quorum, quorum_needs
from arranger.scheduling.placing.placement_try import PlacementTry
from arranger.scheduling.placing.pods import Placing
from arranger.scheduling.search.complete_search import holds_volumes_or_devices
from arranger.scheduling.search.rules import Arrangement, RuleKind
from arranger.scheduling.search.rules_question import Rules, interact, joined
from arranger.scheduling.search.rules_search import place_by_rules


def may_forbid(job: JobRecord) -> bool:
    """Whether rules among the pods of a job may be judged by themselves: the search knows nothing of volumes that pods
    share, nor of other ways to take whole worker groups from several sets. One whose workers have finished has run."""
    spec = job.valid_spec
    if job.slots.finished or (spec.has_worker_groups and len(spec.groups) > 2):
        return False
    shapes = [group.shape for group in spec.groups]
    return any(shape.rules for shape in shapes) and not any(map(holds_volumes_or_devices, shapes))


def joins_nobody(job: JobRecord, neighbours: Neighbours) -> bool:
    """Whether no pod is there that pods of the job must join."""
    for number, group in enumerate(job.valid_spec.groups):
        terms = group.shape.rules.affinity if group.shape.rules is not None else ()
        if terms and neighbours.count(joined(terms, neighbour_of(job, number))).any():
            return False
    return True


def forbid(empty: Placing, tried: PlacementTry, bound: int, *, joining: bool) -> tuple[bool, int]:
    """Whether a search of so many steps proves that the quorum fits no nodes without pods, and how many it took.
    `joining`: affinity counts."""
    quorum = Quorum.of(tried, quorum_needs(tried.job, tried.policy))
    rooms = {
        group: empty.filters.room(tried.groups[group].shape, empty.pod(tried.job, group), ever=True)
        for group in quorum.indices
    }
    answer = arranged(empty, tried, quorum, rooms, bound, joining=joining)
    return (answer.pods is None and answer.complete, answer.steps) if answer is not None else (False, 0)


def arranged(
    empty: Placing, tried: PlacementTry, quorum: Quorum, rooms: dict[int, Counts], bound: int, *, joining: bool
) -> Arrangement | None:
    """How the pods of a quorum may be placed in these rooms by such rules; None if they have none."""
    if not interact(empty, tried, quorum):
        return None
    question = Rules(empty, tried, quorum, rooms).question()
    kinds = (RuleKind.APART, RuleKind.JOIN) if joining else (RuleKind.APART,)
    rules = tuple(rule for rule in question.rules if rule.kind in kinds and rule.counted)
    return place_by_rules(replace(question, rules=rules), bound) if rules else None
