"""Two plans side by side for people: their figures, and the result for each job."""

from arranger.cli.rendering.output import print_table, print_text
from arranger.model.text import counted, few
from arranger.replay.what_if.one_cycle import CyclePlan, JobDifference, JobPlan, differences

#: So many jobs that give room are named.
_NAMES_SHOWN = 3


def print_summary(one: CyclePlan, other: CyclePlan, heads: tuple[str, str] = ("as it was", "what if")) -> None:
    queues = sorted(one.queues.keys() | other.queues.keys())
    rows = [
        ("default queue policy", one.queue_policy, other.queue_policy),
        ("default pod policy", one.pod_policy, other.pod_policy),
        ("weights", _weights(one), _weights(other)),
        ("jobs that get their quorum", one.quorums, other.quorums),
        ("pods placed", one.pods, other.pods),
        ("resources placed", one.given or "nothing", other.given or "nothing"),
        *((f"  by queue {name}", *(plan.queues.get(name, "nothing") for plan in (one, other))) for name in queues),
        ("jobs that give room", *(few(plan.preempted, _NAMES_SHOWN) or "nothing" for plan in (one, other))),
        ("jobs that wait, at least in part", one.waiting, other.waiting),
    ]
    known = [row for row in rows if any(cell not in ("", "nothing") for cell in row[1:])]
    print_table(("plan", *heads), known)


def print_jobs(
    one: CyclePlan,
    other: CyclePlan,
    *,
    everything: bool,
    heads: tuple[str, str] = ("as it was", "what if"),
    always: str = "",
) -> None:
    """Print two plans by job, one below the other: the jobs that differ, and this one `always`."""
    found = {difference.job: difference for difference in differences(one, other)}
    same = [plan for plan in one.jobs if plan.job not in found]
    rows = [row for difference in found.values() for row in _rows(difference, heads)]
    shown = [plan for plan in same if everything or plan.job == always]
    rows += [_row(plan, plan.job, "both") for plan in shown]
    if not found:
        print_text("the plans don't differ")
    if always and not _is_planned(always, one, other):
        print_text(f"{always} asks for no nodes at this point: it has them, or has ended; --at names an earlier point")
    columns = ("job", "plan", "position", "pods", "result")
    if rows:
        print_table(columns, rows, right=("position",))
    if more := len(same) - len(shown):
        print_text(f"the plans agree on {counted(more, 'more job')}")


def _is_planned(job: str, *plans: CyclePlan) -> bool:
    return any(plan.job == job for of in plans for plan in of.jobs)


def _rows(difference: JobDifference, heads: tuple[str, str]) -> list[tuple[object, ...]]:
    return [_row(difference.one, difference.job, heads[0]), _row(difference.other, "", heads[1])]


def _row(plan: JobPlan | None, job: str, head: str) -> tuple[object, ...]:
    if plan is None:
        return (job, head, "-", "-", "not in the plan")
    return (job, head, plan.queue or "-", f"{plan.held}+{plan.placed}/{plan.desired}", plan_text(plan))


def _weights(plan: CyclePlan) -> str:
    return ",".join(f"{name}={weight}" for name, weight in plan.weights)


def plan_text(plan: JobPlan) -> str:
    """What a job gets in a plan, where, and why no more."""
    parts = [f"{node}: {pods}" for node, pods in plan.nodes.items()]
    if plan.room_from:
        parts.append(f"room from {'; '.join(plan.room_from)}")
    if plan.waits:
        parts.append(f"waits: {plan.waits}")
    return "; ".join(parts) or "nothing"
