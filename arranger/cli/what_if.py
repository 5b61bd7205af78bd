"""`arranger what-if`: a cycle of the past by another policy or configuration, or with a job or node more or less."""

import asyncio
import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from arranger.cli.alternative import other_configuration
from arranger.cli.cluster_files import read_objects
from arranger.cli.cluster_input import described
from arranger.cli.output import At, local_time, output_option, print_json, print_table, print_text
from arranger.cli.reading import (
    NotFound,
    before_beginning,
    begin,
    end_offset,
    feed,
    opened,
    point_of,
    point_option,
    position_before,
)
from arranger.errors import LogError, UsageError
from arranger.events import kinds as k
from arranger.events.log import Log, Position
from arranger.model.config import CycleConfig
from arranger.model.names import KIND
from arranger.model.validation import tyjob_checks
from arranger.plugins import inventory
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.explain import jobs_named
from arranger.replay.history import END, Journey, Point
from arranger.replay.overrides import Overrides
from arranger.replay.what_if import Inputs, JobDifference, JobPlan, Plan, Scout, Variation, differences, take_plan, vary
from arranger.scheduling.registry import Policies
from arranger.settings import Settings


@click.command("what-if")
@other_configuration
@point_option("--at", "The cycle recorded there, or one taken at this point. [default: the end of the log]")
@click.option(
    "--with", "manifests", multiple=True, metavar="FILE", help="TYJobs, Nodes and Pods that are there too, or changed."
)
@click.option("--without", "jobs", multiple=True, metavar="[NS/]JOB", help="A job that isn't there, nor its pods.")
@click.option("--without-node", "nodes", multiple=True, metavar="NODE", help="A node that isn't there, nor its pods.")
@click.option("--all", "everything", is_flag=True, help="Show jobs too about which the plans agree.")
@output_option
def command(target: str | None, settings: Settings, other: Overrides, output: str, **options: Any) -> None:
    r"""Take a cycle of the past as it was, and with something otherwise, and show both plans side by side.

    An --at that is the offset of a cycle, or of one of its decisions, takes that cycle again on its own base. Anywhere
    else a cycle is taken on the state at that point, by the configuration of the last one before it.

    A policy applies to jobs that name none. A TYJob or Node in FILE that is there at the point is taken for an edit of
    it; a new TYJob without creationTimestamp is created at the point.

    \b
      arranger what-if --at 4711 --queue-policy DRF          the cycle at offset 4711, by DRF
      arranger what-if --at "10m ago" --without team-a/train --log run.log
      arranger what-if --with my-job.yaml -o json            a job more, now
    """
    asked = _Asked(other, options)
    answer = asyncio.run(_what_if(target, settings, asked))
    if output == "json":
        print_json(answer.json())
    else:
        answer.print(everything=options["everything"])


class _Asked:
    """What is to be otherwise, as it was given."""

    def __init__(self, other: Overrides, options: dict[str, Any]) -> None:
        self.other = other
        self.at: At | None = options["at"]
        self.manifests: Sequence[str] = options["manifests"]
        self.jobs: Sequence[str] = options["jobs"]
        self.nodes: Sequence[str] = options["nodes"]

    @property
    def words(self) -> str:
        """What is otherwise, in words."""
        parts = [self.other.text] if self.other else []
        parts += [f"with {name}" for name in self.manifests]
        parts += [f"without {name}" for name in self.jobs]
        parts += [f"without node {name}" for name in self.nodes]
        return ", ".join(parts) or "nothing"

    def variation(self, state: State, told_ms: int) -> Variation:
        """The same for a state. Raises `NotFound` for a job or node that isn't there, `UsageError` for a manifest."""
        return Variation(
            self.other,
            tuple(_added(self.manifests, state, told_ms)),
            tuple(_job(state, name) for name in self.jobs),
            tuple(_node(state, name) for name in self.nodes),
        )


class Answer(msgspec.Struct):
    """Both plans. `recorded`: the first is that of the cycle recorded at `inputs.cycle`; `reproduced` whether it came
    out so."""

    inputs: Inputs
    otherwise: str
    one: Plan
    other: Plan
    reproduced: bool | None

    def json(self) -> dict[str, Any]:
        """The answer as one object."""
        return {
            "base": self.inputs.base,
            "cycle": self.inputs.cycle,
            "told_ms": self.inputs.told_ms,
            "time": local_time(self.inputs.told_ms),
            "otherwise": self.otherwise,
            "reproduced": self.reproduced,
            "asItWas": self.one,
            "whatIf": self.other,
            "differences": differences(self.one, self.other),
        }

    def print(self, *, everything: bool) -> None:
        """The answer for people."""
        inputs = self.inputs
        which = f"the cycle at offset {inputs.cycle}" if inputs.cycle else "a cycle"
        print_text(f"{which} on the state at offset {inputs.base}, told {local_time(inputs.told_ms)}")
        print_text(f"otherwise: {self.otherwise}")
        if self.reproduced is False:
            print_text("as it was, it doesn't come out as recorded: arranger verify says where")
        click.echo()
        print_summary(self.one, self.other)
        click.echo()
        print_jobs(self.one, self.other, everything=everything)


def print_summary(one: Plan, other: Plan, heads: tuple[str, str] = ("as it was", "what if")) -> None:
    """The figures of two plans."""
    rows = [
        ("queue policy", one.queue_policy, other.queue_policy),
        ("pod policy", one.pod_policy, other.pod_policy),
        ("weights", _weights(one), _weights(other)),
        ("jobs that get their quorum", one.quorums, other.quorums),
        ("pods placed", one.pods, other.pods),
        ("given", one.given or "nothing", other.given or "nothing"),
        ("jobs that wait, or in part", one.waiting, other.waiting),
    ]
    print_table(("plan", *heads), rows)


def print_jobs(one: Plan, other: Plan, *, everything: bool, heads: tuple[str, str] = ("as it was", "what if")) -> None:
    """Two plans job by job, one below the other."""
    found = {difference.job: difference for difference in differences(one, other)}
    same = [plan for plan in one.jobs if plan.job not in found]
    rows = [row for difference in found.values() for row in _rows(difference, heads)]
    if everything:
        rows += [_row(plan, plan.job, "both") for plan in same]
    columns = ("job", "plan", "queue", "pods", "what becomes of it")
    print_table(columns, rows, right=("queue",), empty="the plans don't differ")
    if same and not everything:
        plural = "" if len(same) == 1 else "s"
        print_text(f"about {len(same)} more job{plural} the plans agree (--all shows them)")


def _rows(difference: JobDifference, heads: tuple[str, str]) -> list[tuple[object, ...]]:
    return [_row(difference.one, difference.job, heads[0]), _row(difference.other, "", heads[1])]


def _row(plan: JobPlan | None, job: str, head: str) -> tuple[object, ...]:
    if plan is None:
        return (job, head, "-", "-", "it isn't in the plan")
    return (job, head, plan.queue or "-", f"{plan.held}+{plan.placed}/{plan.wanted}", _words(plan))


def _weights(plan: Plan) -> str:
    return ",".join(f"{name}={weight}" for name, weight in plan.weights)


def _words(plan: JobPlan) -> str:
    parts = [f"{node}: {pods}" for node, pods in plan.nodes.items()]
    if plan.waits:
        parts.append(f"waits: {plan.waits}")
    return "; ".join(parts) or "nothing"


# --- reading -------------------------------------------------------------------------------------------------


async def _what_if(target: str | None, settings: Settings, asked: _Asked) -> Answer:
    async with opened(target, settings) as log:
        inputs, record, state, _ = await cut(log, asked.at)
    policies = inventory().policies
    content = snapshot.encode(state)
    had = policies if policies.missing(inputs.config) else policies.recorded(inputs.config)
    one, events = take_plan(state, had.usable(inputs.config), inputs.told_ms, policies=had)
    changed = snapshot.restore(content)
    variation = asked.variation(changed, inputs.told_ms)
    other = _other_plan(changed, variation, inputs, policies)
    reproduced = events == record if record is not None else None
    return Answer(inputs, asked.words, one, other, reproduced)


def _other_plan(state: State, variation: Variation, inputs: Inputs, policies: Policies) -> Plan:
    vary(state, variation, inputs.told_ms)
    config, by = variation.overrides.of(inputs.config, policies)
    return take_plan(state, config, inputs.told_ms, policies=by)[0]


async def cut(log: Log, at: At | None) -> tuple[Inputs, tuple[k.Event, ...] | None, State, Position]:
    """The inputs of the cycle at a point, its record if there is one, the state at its base, and how far that is.

    Raises `LogError` where the log doesn't reach, or nothing had been listed in full yet.
    """
    point = point_of(at)
    scout = Scout()
    just_before = Point(offset=point.offset - 1) if point.offset else point
    await feed(log, await position_before(log, just_before), scout.feed, until=point, doing="going to the point")
    found = scout.cycle(point.offset) if point.offset is not None else None
    base = Point(offset=found[0].base) if found is not None else point
    state, position = await begin(log, base)
    journey = Journey(state, base)
    last = position

    def follow(entry: Any) -> bool:
        nonlocal last
        went = journey.feed(entry)
        if went:
            last = Position(last.epoch, entry.last, entry.chain)
        return went

    await feed(log, position, follow, until=base, doing="going to the point")
    state = journey.state
    if not state.offset:
        raise await before_beginning(log)
    if not state.synced:
        raise LogError(
            f"not everything had been listed yet at offset {state.offset}: nobody decided there",
            hint="arranger replay shows when it had",
        )
    if found is not None:
        inputs, record = found
        if state.offset != inputs.base:
            raise LogError(
                f"the cycle's base, offset {inputs.base}, is not the end of an entry: it can't be taken again"
            )
        return inputs, record, state, last
    config = scout.config or await _next_config(log, last) or CycleConfig()
    return Inputs(state.offset, state.told_ms, config), None, state, last


async def _next_config(log: Log, after: Position) -> CycleConfig | None:
    """The configuration of the first cycle after a position: nobody says one before it."""
    scout = Scout()
    if after.offset < await end_offset(log):
        await feed(log, after, scout.first_cycle, until=END, doing="looking for a cycle")
    return scout.config


# --- what is otherwise ---------------------------------------------------------------------------------------


def _job(state: State, wanted: str) -> str:
    namespace, _, name = wanted.rpartition("/")
    found = jobs_named(state, name, namespace or None)
    if len(found) > 1:
        places = ", ".join(f"{job.seen.namespace}/{name}" for job in found)
        raise UsageError(f"there are several jobs {name!r}: {places}", hint="say which as NAMESPACE/NAME")
    if not found:
        close = difflib.get_close_matches(name, sorted({job.seen.name for job in state.jobs.values()}), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "arranger replay lists the jobs"
        raise NotFound(f"there is no job {wanted!r} at offset {state.offset}", hint=hint)
    return found[0].uid


def _node(state: State, name: str) -> str:
    if not state.nodes.has(name):
        close = difflib.get_close_matches(name, sorted(state.nodes.rows), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "arranger replay lists the nodes"
        raise NotFound(f"there is no node {name!r} at offset {state.offset}", hint=hint)
    return name


def _added(manifests: Sequence[str], state: State, told_ms: int) -> list[k.Event]:
    """The observations of what the files hold, as edits of what is there already."""
    if not manifests:
        return []
    # Rounded up: a job that comes at the point comes after all that is there.
    created = datetime.fromtimestamp(-(-told_ms // 1000), UTC).isoformat()
    objects = []
    for found in read_objects(manifests):
        metadata = found.item.get("metadata")
        if found.kind == KIND and isinstance(metadata, dict) and not metadata.get("creationTimestamp"):
            item = {**found.item, "metadata": {**metadata, "creationTimestamp": created}}
            found = msgspec.structs.replace(found, item=item)  # noqa: PLW2901
        objects.append(found)
    cluster = described(objects, tyjob_checks(inventory().names))
    if cluster.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in cluster.ignored.items())
        click.echo(f"arranger: ignored: {kinds} (a plan depends on Nodes, Pods and TYJobs)", err=True)
    return [_as_edit(event, state) for event in cluster.observations]


def _as_edit(event: k.Event, state: State) -> k.Event:
    if isinstance(event, k.JobSeen):
        if event.invalid:
            raise UsageError(f"TYJob {event.namespace}/{event.name} is invalid: {event.invalid}")
        job = state.find_job(event.namespace, event.name)
        if job is not None and not job.ended:
            return msgspec.structs.replace(
                job.seen, spec=event.spec, invalid="", generation=job.seen.generation + 1, status=None
            )
    if isinstance(event, k.NodeSeen) and state.nodes.has(event.name):
        return msgspec.structs.replace(event, uid=state.nodes.uids[state.nodes.rows[event.name]])
    if isinstance(event, k.PodSeen):
        same = [pod for pod in state.pods.values() if (pod.namespace, pod.name) == (event.namespace, event.name)]
        if same:
            return msgspec.structs.replace(event, uid=same[0].uid)
    return event
