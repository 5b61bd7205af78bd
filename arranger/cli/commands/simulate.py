"""`arranger simulate`: show what the scheduler would do, without a cluster or a log."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from arranger.cli.inputs.alternative import with_switch
from arranger.cli.inputs.flags import setting_flags
from arranger.cli.rendering.output import FiniteRange, output_option
from arranger.errors import UsageError
from arranger.settings import load_settings

_CSV = click.Path(path_type=Path)

#: Parameter → flag, for flags that only one of the two uses of the command has.
_OF_FILES = {
    "cycles": "--cycles",
    "queue_policy": "--queue-policy",
    "weights": "--weights",
    "preemption": "--preemption",
    "backfill": "--backfill",
    "reservations": "--reservations",
    "volumes": "--volumes",
    "devices": "--devices",
    "config": "--config",
}
_OF_TRACES = {"load": "--load", "seed": "--seed", "seeds": "--seeds"}


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--cycles",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Run this many cycles. Each cycle keeps what earlier cycles placed.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Pod policy of jobs that name none. [default: the setting pod_policy] For traces: how nodes are chosen; "
    "repeat --policy to compare. [default: FragmentGradient]",
)
@setting_flags("queue_policy", "weights", "preemption", "backfill", "reservations", "volumes", "devices")
@click.option("--trace-nodes", type=_CSV, metavar="CSV", help="Nodes: sn,cpu_milli,memory_mib,gpu,model.")
@click.option(
    "--trace-pods", type=_CSV, metavar="CSV", help="Pods: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]."
)
@click.option(
    "--load",
    type=FiniteRange(0, 10, min_open=True),
    default=1.3,
    show_default=True,
    help="Traces: pods arrive until they request this many times the cluster's GPUs.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 30) - 1),
    default=42,
    show_default=True,
    help="Traces: the seed that decides the order of arrival.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Traces: run this many seeds, starting at --seed.",
)
@output_option
@click.pass_context
def command(ctx: click.Context, /, *, files: tuple[str, ...], output: str, **options: Any) -> int:
    r"""Show what the scheduler would do with the cluster and the jobs in FILEs, or with a trace.

    FILEs hold Nodes, Pods, PodGroups, ResourceQuotas, LimitRanges, PriorityClasses, RuntimeClasses, Queues, Namespaces
    and TYJobs as kubectl prints them: YAML or JSON, with Lists and any number of documents. A FILE can be a folder of
    such files, or - for standard input. Pods without a node that name Arranger as their scheduler (the setting
    scheduler_names) are placed like TYJobs, alone or as groups that their labels or PodGroups make. What has no part in
    the plan is listed at the end with the reason, and in the JSON output as notSimulated. With the setting volumes,
    PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes in FILEs decide on nodes, and with the
    setting devices ResourceSlices, DeviceClasses, ResourceClaims and their templates. The command needs no cluster. It
    lists jobs in the order in which the cycle took them, with the node of every placed pod. For every other pod, it
    shows how many nodes refuse the pod for each reason. Then it shows the use of every node. Pods never end here, but
    those of jobs that give room to others (--preemption) leave at once, unless they hang in Terminating already: the
    output names who gives room to whom, and the JSON output has it as preempted. The expected end of a job counts from
    now on. A job whose status says that it has nodes, but not since when, has them since its creation. In the JSON
    output, each reason has a text, the number of nodes, and the facts as in an event: kind, name (of a resource, say),
    needed, free. The exit status is 1 if a TYJob or a Queue is invalid.

    Traces are CSV files in the format of the openb cluster trace. The command repeats the published experiment on that
    trace: pods arrive on an empty cluster in random order, and a pod that fits nowhere is lost. The output shows, in
    percent of all GPUs, how many GPUs the arrived pods request, how many are allocated, and how many are idle but too
    fragmented for typical pods. As in the published experiment, every idle GPU counts as a fragment for a typical pod
    without GPUs.

    \b
      kubectl get nodes,pods,tyj -A -o yaml | arranger simulate - my-job.yaml
      arranger simulate cluster.yaml jobs/ --cycles 3 -o json
      arranger simulate --trace-nodes nodes.csv --trace-pods pods.csv
      arranger simulate --trace-nodes nodes.csv --trace-pods pods.csv --seeds 10 --policy BestFit --policy BinPack
    """
    flags, traces = options["flags"], (options["trace_nodes"], options["trace_pods"])
    given = {name for name in options if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE}
    given |= {name for name, value in flags.items() if value is not None}
    if traces == (None, None):
        if not files:
            raise click.UsageError("name FILEs with Nodes and TYJobs, or a trace: --trace-nodes and --trace-pods", ctx)
        _exclude(given, _OF_TRACES, "is for traces")
        return _of_files(files, options["cycles"], options["policies"], flags, output)
    if files:
        raise click.UsageError("use either FILEs or a trace", ctx)
    if None in traces:
        raise click.UsageError("a trace needs both --trace-nodes and --trace-pods", ctx)
    _exclude(given, _OF_FILES, "is for FILEs")
    _of_trace(*traces, options, output)
    return 0


def _exclude(given: set[str], others: dict[str, str], why: str) -> None:
    for name, flag in others.items():
        if name in given:
            raise click.UsageError(f"{flag} {why}")


def _of_files(files: Sequence[str], cycles: int, policies: Sequence[str], flags: dict[str, Any], output: str) -> int:
    from arranger.cli.inputs.simulate_files import simulate_files
    from arranger.plugins import inventory

    if len(policies) > 1:
        raise click.UsageError("--policy is given twice: it can be given once with FILEs")
    installed = inventory()
    for policy in policies:
        if policy not in installed.names.pod:
            names = ", ".join(installed.names.pod)
            raise UsageError(f"--policy: {policy!r} isn't installed", hint=f"allowed: one of {names}")
    settings = load_settings({**with_switch(flags), "pod_policy": policies[0] if policies else None}, os.environ)
    return simulate_files(files, settings, installed, cycles=cycles, output=output)


def _of_trace(trace_nodes: Path, trace_pods: Path, options: dict[str, Any], output: str) -> None:
    from arranger.cli.inputs.simulate_trace import simulate_trace
    from arranger.scheduling.experiment import POLICIES

    policies = options["policies"] or ("FragmentGradient",)
    for policy in policies:
        if policy not in POLICIES:
            names = ", ".join(repr(name) for name in POLICIES)
            raise click.BadParameter(f"{policy!r} is not one of {names}.", param_hint="--policy")
    if math.isnan(options["load"]):  # click's range check doesn't refuse it
        raise click.BadParameter("nan is not in the range 0<x<=10.", param_hint="--load")
    numbers = {name: options[name] for name in _OF_TRACES}
    simulate_trace(trace_nodes, trace_pods, policies, **numbers, output=output)
