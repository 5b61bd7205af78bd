"""The output of `arranger replay`: the cluster at a point of the log, for people."""

from collections.abc import Iterator, Sequence

from arranger.cli.rendering.output import local_time, print_table, print_text, resource_columns, say, screen_lines
from arranger.cli.rendering.terminal import folded, terminal_width
from arranger.model.job import ENDED
from arranger.model.quantity import amount_text
from arranger.model.text import counted, states_text
from arranger.replay.reading.describe import amounts_text, priority_text
from arranger.replay.reading.overview import JobLine, NodeLine, Overview

#: Lines of the page beside jobs, nodes and texts: three empty lines, two heads, two lines on columns that have no room,
#: what is left out, and the prompt.
_AROUND = 9
#: The most cells by which a text's further lines are indented.
_INDENT = 9
#: At least so many jobs and so many nodes are shown.
_LEAST = 3


def print_overview(seen: Overview, *, everything: bool) -> None:
    """Totals, the jobs in queue order, and the nodes: as many as fit on a screen, or everything."""
    head = list(_head(seen))
    for text, indent in head:
        print_text(text, indent=indent)
    say()
    other_pods = _others(seen) if seen.other_pods else ""
    texts = [text for text, _ in head] + [other_pods]
    jobs, nodes = (len(seen.jobs), len(seen.nodes)) if everything else _shares(seen, texts)
    print_table(
        ("position", "job", "stage", "schedule", "priority", "attempt", "pods", "message"),
        [_job_cells(job) for job in seen.jobs[:jobs]],
        right=("position", "priority", "attempt"),
        empty="no jobs",
        optional=() if everything else ("attempt", "priority", "schedule", "pods", "message"),
        cut=not everything,
    )
    say()
    resources = resource_columns(name for node in seen.nodes for name in node.used)
    print_table(
        ("node", "health", *resources),
        [_node_cells(node, resources) for node in seen.nodes[:nodes]],
        right=resources,
        empty="no nodes",
        optional=() if everything else resources[:-1],
        cut=not everything,
    )
    if other_pods:
        say()
        print_text(other_pods)
    if left := _left_out(("job", len(seen.jobs), jobs), ("node", len(seen.nodes), nodes)):
        print_text(f"{' and '.join(left)} left out: --all shows them")


def _left_out(*parts: tuple[str, int, int]) -> list[str]:
    """In words, what isn't shown: of each kind its name, how many there are and how many are shown."""
    return [f"{count - shown} of {counted(count, what)}" for what, count, shown in parts if shown < count]


def _head(seen: Overview) -> Iterator[tuple[str, int]]:
    """The lines above the tables, each with the indentation of its further lines."""
    yield f"offset {seen.offset} of epoch {seen.epoch}, {local_time(seen.time_ms)}, digest {seen.digest}", 2
    if not seen.synced:
        yield "not everything had been listed in this epoch yet, so there were no decisions", 0
    totals = seen.totals
    if totals is None:
        return
    stages = ", ".join(f"{number} {stage}" for stage, number in totals.jobs.items())
    jobs = f"{len(seen.jobs)}: {stages}; {totals.waiting} waiting for nodes" if seen.jobs else "none"
    closed = totals.nodes - totals.nodes_open
    nodes = f"{totals.nodes}: {totals.nodes_open} take pods" + (f", {closed} closed" if closed else "")
    left = totals.gpus - totals.gpus_used - totals.gpus_idle
    idle = f"{totals.gpus_idle} idle" + (f", {left} on closed nodes" if left else "")
    gpus = f"{totals.gpus}: {totals.gpus_used} used, {idle}; {totals.gpus_reserved} reserved for waiting jobs"
    yield f"  jobs   {jobs}", 9
    yield f"  nodes  {nodes if totals.nodes else 'none'}", 9
    yield f"  GPUs   {gpus if totals.gpus else 'none'}", 9


def _shares(seen: Overview, texts: Sequence[str]) -> tuple[int, int]:
    """How many jobs and how many nodes fit on the screen beside these texts, a line each."""
    around = _AROUND + sum(len(folded(text, terminal_width() - _INDENT)) for text in texts)
    room = max(screen_lines() - around, 2 * _LEAST)
    jobs, nodes = len(seen.jobs), len(seen.nodes)
    of_nodes = min(nodes, max(room - jobs, room // 3, _LEAST))
    return min(jobs, room - of_nodes), of_nodes


def _others(seen: Overview) -> str:
    """The use by foreign pods in words, with the largest ones by name."""
    named = [
        f"{pod.namespace}/{pod.name} ({amounts_text(tuple(pod.holds.items()))} on {pod.node})"
        for pod in seen.largest_other_pods
    ]
    more = seen.other_pods - len(named)
    be, hold = ("is", "holds") if seen.other_pods == 1 else ("are", "hold")
    return (
        f"{counted(seen.other_pods, 'pod')} that {be} not Arranger's also {hold} resources: "
        f"{', '.join(named)}{f' and {more} smaller' if more else ''}"
    )


def _job_cells(job: JobLine) -> tuple[object, ...]:
    there = states_text(job.pods_running, job.pods_failed)
    pods = f"{job.pods_placed} of {job.pods_desired} placed" + (f", {there}" if there else "")
    if job.stage in ENDED:
        had = [] if job.pods_desired is None else [f"had {job.pods_desired or 'none in the end'}"]
        pods = ", ".join([*had, *([f"{job.pods_seen} still there"] if job.pods_seen else [])]) or "-"
    name, priority = f"{job.namespace}/{job.name}", priority_text(job.priority, job.own_priority)
    return (job.queue or "-", name, job.stage, job.schedule_state, priority, job.attempt, pods, job.message)


def _node_cells(node: NodeLine, resources: tuple[str, ...]) -> tuple[object, ...]:
    health = "gone" if not node.present else "ready" if node.ready else "not ready"
    health += ", cordoned" if node.cordoned else ""
    health += "".join(f", taint {taint}" for taint in node.taints)
    return (node.name, health, *(_use(node, name) if name in node.used else "-" for name in resources))


def _use(node: NodeLine, resource: str) -> str:
    """What is used of a resource. What pods leave, and others have already, is told beside it."""
    used, there = node.used[resource], node.allocatable.get(resource, 0)
    left = min(max(used - there, 0), node.leaving.get(resource, 0))
    leaving = f" and {amount_text(resource, left)} leaving" if left else ""
    return f"{amount_text(resource, used - left)}/{amount_text(resource, there)}{leaving}"
