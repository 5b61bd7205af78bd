"""`arranger simulate FILES…`: show the plan for a cluster that files describe."""

from collections.abc import Iterable, Sequence

import msgspec

from arranger.cli.inputs.cluster_files import read_objects
from arranger.cli.inputs.cluster_input import described, left_out_lines, say_left_out
from arranger.cli.rendering.output import print_json, print_table, print_text, resource_columns, say
from arranger.clock import SystemClock
from arranger.model.text import counted
from arranger.model.validation import tyjob_checks
from arranger.plugins import Installed
from arranger.replay.what_if.simulation import (
    GivenRoom,
    JobOutcome,
    QueueOutcome,
    Simulation,
    SimulationOutcome,
    UnplacedPod,
)
from arranger.settings import Settings
from arranger.workers.deciding.device_matcher import matches


def simulate_files(names: Sequence[str], settings: Settings, installed: Installed, *, cycles: int, output: str) -> int:
    """Take the cycles and print the plan. Returns the exit status, 1 if a TYJob or a Queue is invalid."""
    checks = tyjob_checks(installed.names)
    volumes, devices = settings.volumes, settings.devices
    now_ms = SystemClock().now_ms()  # ages count: of jobs that run, and of pods that are being deleted
    cluster = described(
        read_objects(names),
        checks,
        schedulers=settings.schedulers,
        with_volumes=volumes,
        with_devices=devices,
        now_ms=now_ms,
    )
    policies = installed.policies
    config = settings.cycle_config(policies.versions())
    simulation = Simulation(
        cluster.observations,
        config,
        time_ms=cluster.time_ms,
        policies=policies,
        with_volumes=volumes,
        with_devices=devices,
    )
    simulation.observe(matches(simulation.state))
    for _ in range(cycles):
        simulation.cycle()
        simulation.time_ms += round(settings.cycle_period_s * 1000)
    outcome = simulation.outcome()
    if output == "json":
        say_left_out(cluster.left_out)
        print_json({**msgspec.structs.asdict(outcome), "notSimulated": cluster.left_out})
    else:
        _print(outcome)
        for line in left_out_lines(cluster.left_out):
            print_text(line)
    state = simulation.state
    faults = [*(job.seen.faults for job in state.jobs.values()), *(queue.faults for queue in state.queues.values())]
    return 1 if any(faults) else 0


def _print(outcome: SimulationOutcome) -> None:
    columns = ("position", "job", "schedule", "placed", "unplaced", "message")
    print_table(
        columns,
        map(_job_cells, outcome.jobs),
        right=("position", "placed", "unplaced"),
        empty="no TYJobs, and no pods to place",
    )
    placed = [(f"{job.namespace}/{pod.pod}", pod.node) for job in outcome.jobs for pod in job.placed]
    if placed:
        say()
        print_table(("pod", "node"), placed)
    if outcome.preempted:
        say()
        columns = ("gives room", "to", "because of", "pods", "nodes", "lost")
        print_table(columns, map(_given_cells, outcome.preempted), right=("pods",))
    unplaced = [row for job in outcome.jobs for row in _unplaced_rows(job)]
    if unplaced:
        say()
        print_table(("not placed", "pods", "nodes refuse them because they"), unplaced, right=("pods",))
    for job in outcome.jobs:
        if job.found_room:
            print_text(_found_room(job))
    say()
    resources = resource_columns(name for node in outcome.nodes for name in node.allocatable)
    rows = [
        (node.name, *(f"{node.used.get(name, '0')}/{node.allocatable.get(name, '0')}" for name in resources))
        for node in outcome.nodes
    ]
    print_table(("node", *resources), rows, right=resources, empty="no Nodes")
    _print_queues(outcome.queues)


def _print_queues(queues: Sequence[QueueOutcome]) -> None:
    if not queues:
        return
    say()
    least = min(queue.depth for queue in queues)
    rows = [
        ("  " * (of.depth - least) + of.name, *map(_amounts, (of.used, of.share)), of.waiting, of.running, of.message)
        for of in queues
    ]
    columns = ("queue", "used", "share", "waiting", "running", "message")
    print_table(columns, rows, right=("waiting", "running"), optional=("share",))


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amounts[name]} {name}" for name in resource_columns(amounts)) or "-"


def _job_cells(job: JobOutcome) -> tuple[object, ...]:
    name = f"{job.namespace}/{job.name}"
    return (
        job.queue_position or "-", name, job.schedule_state, len(job.placed), len(job.unplaced), job.message
    )  # fmt: skip


def _given_cells(given: GivenRoom) -> tuple[object, ...]:
    nodes = ", ".join(sorted({pod.node for pod in given.pods}))
    lost = f"{given.lost_gpu_seconds:.0f} GPU seconds of work"
    to = f"{given.to.namespace}/{given.to.name}"
    return (f"{given.namespace}/{given.name}", to, given.kind.lower(), len(given.pods), nodes, lost)


def _found_room(job: JobOutcome) -> str:
    """Explain why the reasons of a job show less free room than the table of nodes."""
    pods = f"{counted(job.found_room, 'pod')} of it"
    return (
        f"{job.namespace}/{job.name}: the free amounts are those beside {pods} that would fit; they hold nothing, "
        "because the quorum isn't whole"
    )


def _unplaced_rows(job: JobOutcome) -> Iterable[tuple[object, ...]]:
    """One row for the leader and each worker set, because the pods of a group wait for the same reasons."""
    groups: dict[str, list[UnplacedPod]] = {}
    for pod in job.unplaced:
        groups.setdefault(f"{job.namespace}/{job.name} {pod.worker_set or pod.role}", []).append(pod)
    for name, pods in groups.items():
        told = ", ".join(f"{reason['nodes']} {reason['text']}" for reason in pods[0].reasons)
        yield (name, len(pods), told or "there are no nodes")
