"""Queues as tables: the tree with bars on a terminal, one queue in detail, and who holds what."""

import sys
from collections.abc import Sequence

from arranger.cli.rendering.output import fitting, local_time, print_table, print_text, say
from arranger.model.quantity import amount_text
from arranger.model.text import counted
from arranger.replay.reading.describe import amounts_text, priority_text
from arranger.replay.reading.queues import (
    GPUS,
    QueueDetail,
    QueueHoldings,
    QueueLine,
    QueueList,
    Sums,
    WaitingJob,
    amount_of,
    default_resource,
)
from arranger.scheduling import HolderView

#: The width of a bar, in cells.
_BAR = 20
_LEGEND = (
    "the share is what a queue is entitled to now: █ used within it, ▓ used above it, ░ not used of it; a whole bar is "
    "the cluster"
)
#: The number of holders and of waiting jobs of one queue that are shown.
_TOP = 10
#: Columns that narrow terminals don't show: the message says whatever of the state isn't Open.
_LEFT_OUT = ("use", "weight", "state", "demand")
#: The name of all pods that fill no slot of a job.
_OTHERS, _LEAVING = "(other pods)", "(pods that leave)"


def print_queues(found: QueueList, resource: str) -> None:
    """The tree, with the amounts of one resource: a name, `GPUS`, or empty for `default_resource`."""
    resource = resource or default_resource(found.total, found.others)
    leaving = amount_of(found.leaving, resource)
    more = f"; beside what queues use, pods that leave have {_text(resource, leaving)}" if leaving else ""
    print_text(_heading(found, resource) + _beside(found, resource) + more)
    if found.refused:
        print_text(f"the API server doesn't let Arranger list queues ({found.refused}): only default is known")
    say()
    _print_tree(found.queues, found.total, resource)


def print_queue(found: QueueDetail, resource: str, *, everything: bool) -> None:
    """One queue: its fields, the queues below it, its largest holders, and its waiting jobs."""
    resource = resource or default_resource(found.total, found.others)
    queue = found.queue
    print_text(f"queue {queue.name}: {_heading(found, resource)}{_beside(found, resource)}")
    say()
    state = f"{queue.state}: {queue.message}" if queue.message else queue.state
    facts = [
        ("state", state),
        ("parent", queue.parent or "(root)"),
        ("weight", queue.weight or "-"),
        *((name, _claims(amounts)) for name, amounts in _claims_of(queue) if amounts),
        *queue.fields.items(),
        ("used", _claims(queue.used) or "-"),
        ("share", _claims(_share(queue)) or "-"),
        ("demand", _claims(queue.demand) or "-"),
        *([("used before", _claims(queue.usage))] if queue.usage else []),
        ("jobs", f"{queue.waiting} waiting, {queue.running} running or starting"),
    ]
    print_table(("what", "now"), facts)
    if found.below:
        say()
        _print_tree((queue, *found.below), found.total, resource)
    limit = None if everything else _TOP
    say()
    _print_holders(found.holders[:limit], found.total, resource, ("job", "queue"), empty="no job of it has nodes")
    _print_more(len(found.holders), limit, "job")
    say()
    print_table(
        ("position", "job", "queue", "submitter", "priority", "message"),
        [_waiting_cells(of) for of in found.waiting[:limit]],
        right=("position", "priority"),
        empty="no job of it waits",
        optional=("submitter", "priority", "queue"),
    )
    _print_more(len(found.waiting), limit, "job")


def _waiting_cells(of: WaitingJob) -> tuple[object, ...]:
    priority = priority_text(of.priority, of.own_priority)
    return of.position or "-", of.job, of.queue, of.submitter, priority, of.message


def print_holdings(found: QueueHoldings, *, everything: bool) -> None:
    """Who holds the resource, and what they hold of cpu and memory beside it."""
    print_text(_heading(found, found.resource))
    say()
    limit = None if everything else 3 * _TOP
    columns = (str(found.by), "queue") if found.by == "job" else (str(found.by),)
    _print_holders(found.holders[:limit], found.total, found.resource, columns, empty="nobody holds anything")
    _print_more(len(found.holders), limit, "holder")


def _heading(found: QueueList | QueueDetail | QueueHoldings, resource: str) -> str:
    total = _text(resource, amount_of(found.total, resource))
    return f"offset {found.offset}, {local_time(found.time_ms)}; the nodes offer {total} {_word(resource)}"


def _beside(found: QueueList | QueueDetail, resource: str) -> str:
    """What the nodes have beside the total for jobs."""
    others = amount_of(found.others, resource)
    return f" to jobs, and other pods hold {_text(resource, others)}" if others else ""


def _print_tree(lines: Sequence[QueueLine], total: Sums, resource: str) -> None:
    least = min((line.depth for line in lines if line.depth), default=1)
    whole = amount_of(total, resource)
    bars = fitting() and sys.stdout.isatty() and whole > 0
    rows = [
        (
            "  " * max(line.depth - least, 0) + line.name,
            line.state,
            line.weight or "-",
            *(_text(resource, amount_of(amounts, resource)) for amounts in (line.used, line.share, line.demand)),
            line.waiting,
            line.running,
            *([bar(amount_of(line.used, resource), amount_of(line.share, resource), whole)] if bars else []),
            line.message,
        )
        for line in lines
    ]
    names = ("weight", f"used {_word(resource)}", "share", "demand", "waiting", "running")
    columns = ("queue", "state", *names, *(["use"] if bars else []), "message")
    shown = print_table(columns, rows, right=names, styles=_style, optional=_LEFT_OUT)
    if "use" in shown:
        print_text(_LEGEND)


def _style(row: Sequence[object]) -> str:
    return "red" if row[1] == "Unusable" else ""


def bar(used: int, share: int, total: int) -> str:
    """A bar of `_BAR` cells for the cluster's total. A part that isn't zero has at least one cell."""
    within, above, left = min(used, share), max(used - share, 0), max(share - used, 0)
    cells = [max(round(part * _BAR / total), 1) if part else 0 for part in (within, above, left)]
    return "".join(mark * count for mark, count in zip("█▓░", cells, strict=True))[:_BAR]


def _print_holders(
    holders: Sequence[HolderView], total: Sums, resource: str, columns: Sequence[str], *, empty: str
) -> None:
    whole = amount_of(total, resource)
    others = sorted({name for name in ("cpu", "memory") if name != resource})
    rows = [
        (
            *(of.name or (_LEAVING if of.leaving else _OTHERS), of.queue or "-")[: len(columns)],
            *([] if "job" in columns else [of.jobs or "-"]),
            of.pods,
            _text(resource, amount_of(of.amounts, resource)),
            f"{amount_of(of.amounts, resource) * 100 / whole:.0f}%" if whole and not of.leaving else "-",
            *(_text(name, of.amounts.get(name, 0)) for name in others),
        )
        for of in holders
    ]
    numbers = (*(() if "job" in columns else ("jobs",)), "pods", _word(resource), "of all", *others)
    print_table((*columns, *numbers), rows, right=numbers, empty=empty, optional=(*reversed(others), "of all", "pods"))


def _print_more(count: int, limit: int | None, noun: str) -> None:
    if limit is not None and count > limit:
        print_text(f"and {counted(count - limit, f'more {noun}')}: --all shows all of them")


def _claims_of(queue: QueueLine) -> list[tuple[str, Sums]]:
    return [("guarantee", queue.guarantee), ("deserved", queue.deserved), ("capability", queue.capability)]


def _share(queue: QueueLine) -> Sums:
    """A queue's share, without nothing of what it neither uses nor asks for."""
    asked = {**queue.used, **queue.demand}
    return {resource: amount for resource, amount in queue.share.items() if amount or asked.get(resource)}


def _claims(amounts: Sums) -> str:
    return amounts_text(tuple(amounts.items()))


def _word(resource: str) -> str:
    return "GPUs" if resource == GPUS else resource


def _text(resource: str, amount: int) -> str:
    return str(amount) if resource == GPUS else amount_text(resource, amount)
