"""`arranger what-if`: a cycle of the past by another policy or configuration, or with a job or node more or less."""

import asyncio
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from click.shell_completion import CompletionItem

from arranger.cli.alternative import other_configuration
from arranger.cli.cluster_files import read_objects
from arranger.cli.cluster_input import described
from arranger.cli.output import (
    AT_ALLOWED,
    At,
    DurationType,
    Times,
    Told,
    duration,
    local_time,
    output_option,
    parse_at,
    parse_duration,
    print_json,
    print_table,
    print_text,
)
from arranger.cli.plot import check_plot, plot
from arranger.cli.reading import (
    NotFound,
    end_offset,
    feed,
    opened,
    point_of,
    point_option,
    position_before,
    progress,
    stand_at,
)
from arranger.clock import SystemClock
from arranger.errors import LogError, UsageError
from arranger.events import kinds as k
from arranger.events.log import Log, Position
from arranger.model.config import CycleConfig
from arranger.model.names import KIND
from arranger.model.node import NodeFacts
from arranger.model.pod import PodShape
from arranger.model.validation import tyjob_checks
from arranger.plugins import inventory
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.continuation import Continuation, Future
from arranger.replay.course import Course, Likeness, Meter, likeness, typical_pods
from arranger.replay.explain import jobs_named
from arranger.replay.history import END, Point
from arranger.replay.overrides import Overrides
from arranger.replay.recording import Recording
from arranger.replay.what_if import (
    Inputs,
    JobDifference,
    JobPlan,
    Plan,
    Scout,
    Variation,
    differences,
    edit_text,
    take_plan,
    vary,
)
from arranger.scheduling.fragmentation import Mix
from arranger.scheduling.registry import Policies
from arranger.settings import Settings

_DRAINED = "drained"

#: Jobs without an end that are named.
_NAMES_SHOWN = 5


class Until(msgspec.Struct, frozen=True):
    """How far to go on: a point of the log, so long, or (with neither) until nothing happens any more."""

    at: At | None = None
    span_ms: int | None = None


class UntilType(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """The value of `--until`."""

    name = "until"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Until:
        """What the text names; click's error names the flag."""
        if isinstance(value, Until):
            return value
        if value == _DRAINED:
            return Until()
        try:
            return Until(span_ms=parse_duration(value.strip()))
        except ValueError:
            pass
        try:
            return Until(at=parse_at(value, now_ms=SystemClock().now_ms()))
        except ValueError:
            self.fail(f"{value!r} is no end; allowed: a duration such as 2h, {_DRAINED}, or {AT_ALLOWED}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The only word."""
        return [CompletionItem(word) for word in (_DRAINED,) if word.startswith(incomplete)]


@click.command("what-if")
@other_configuration
@point_option("--at", "The cycle recorded there, or one taken at this point. [default: the end of the log]")
@click.option(
    "--with", "manifests", multiple=True, metavar="FILE", help="TYJobs, Nodes and Pods that are there too, or changed."
)
@click.option("--without", "jobs", multiple=True, metavar="[NS/]JOB", help="A job that isn't there, nor its pods.")
@click.option("--without-node", "nodes", multiple=True, metavar="NODE", help="A node that isn't there, nor its pods.")
@click.option(
    "--until",
    type=UntilType(),
    metavar="OFFSET|TIME|DURATION|drained",
    help="Go on from there with both, up to this point, so long (2h), or until nothing happens any more.",
)
@click.option(
    "--lasting",
    type=DurationType(),
    metavar="DURATION",
    help="With --until: attempts that the log shows no end of last so long. [default: to the end of the horizon]",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --until: draw both courses, FILE.png or FILE.svg. Needs arranger[plot].",
)
@click.option("--all", "everything", is_flag=True, help="Show jobs too about which the plans agree.")
@output_option
def command(target: str | None, settings: Settings, other: Overrides, output: str, **options: Any) -> None:
    r"""Take a cycle of the past as it was, and with something otherwise, and show both plans side by side.

    An --at that is the offset of a cycle, or of one of its decisions, takes that cycle again on its own base. Anywhere
    else a cycle is taken on the state at that point, by the configuration of the last one before it.

    A policy applies to jobs that name none, with --every-job to all. A TYJob in FILE that is there at the point gets
    the spec in FILE, all of it. A Node that is there is edited: labels and amounts in FILE are added to those that it
    has or replace them, and where FILE says nothing of taints, unschedulable or conditions it keeps them; one with a
    metadata.uid, as `kubectl get -o yaml` gives it, is taken whole. What was edited is told. A new TYJob without
    creationTimestamp is created at the point.

    With --until both go on from there: what the log observed later comes then in both (TYJobs, nodes, strangers' pods),
    cycles are taken whenever something changed, and every attempt of a job holds its nodes as long as it did in the
    log, from its placement to its last pod's end. Told are the time that jobs wait for their quorum, the use of GPUs,
    how much of them is idle but in fragments too small for typical pods, and the time to the last end of a job. How
    close "as it was" comes to the log is told too: it differs where pods of one job end apart, workers were replaced,
    or the log's cycles came late.

    \b
      arranger what-if --at 4711 --queue-policy DRF          the cycle at offset 4711, by DRF
      arranger what-if --at "10m ago" --without team-a/train --log run.log
      arranger what-if --with my-job.yaml -o json            a job more, now
      arranger what-if --at 4711 --policy LeaderFirst --until drained --plot both.png
    """
    for name, flag in (("lasting", "--lasting"), ("picture", "--plot")):
        if options[name] is not None and options["until"] is None:
            raise click.UsageError(f"{flag} goes with --until")
    if options["picture"] is not None:
        check_plot(options["picture"])
    asked = _Asked(other, options)
    answer = asyncio.run(_what_if(target, settings, asked))
    if options["picture"] is not None and answer.sequel is not None:
        plot(options["picture"], [("as it was", answer.sequel.one), ("what if", answer.sequel.other)])
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
        self.until: Until | None = options["until"]
        self.lasting_ms: int | None = options["lasting"]

    @property
    def words(self) -> str:
        """What is otherwise, in words."""
        parts = [self.other.text] if self.other else []
        parts += [f"with {name}" for name in self.manifests]
        parts += [f"without {name}" for name in self.jobs]
        parts += [f"without node {name}" for name in self.nodes]
        return ", ".join(parts) or "nothing"

    def variation(self, state: State, told_ms: int, edits: list[str]) -> Variation:
        """The same for a state; what it edits is added to `edits`, in words.

        Raises `NotFound` for a job or node that isn't there, `UsageError` for a manifest.
        """
        return Variation(
            self.other,
            tuple(_added(self.manifests, state, told_ms, edits)),
            tuple(_job(state, name) for name in self.jobs),
            tuple(_node(state, name) for name in self.nodes),
        )


class Sequel(msgspec.Struct, frozen=True):
    """How both go on, and how close the unchanged one comes to the log."""

    one: Course
    other: Course
    alike: Likeness
    #: It was to go on until nothing happens any more.
    drained: bool = False

    def json(self) -> dict[str, Any]:
        """Both courses and the likeness as one object."""
        courses = [
            {name: value for name, value in msgspec.structs.asdict(course).items() if name != "starts"}
            for course in (self.one, self.other)
        ]
        return {"asItWas": courses[0], "whatIf": courses[1], "likenessToLog": self.alike}

    def print(self, lasting_ms: int | None) -> None:
        """The figures side by side, and what they rest on."""
        rows = [
            ("from", *(Told(course.begin_ms) for course in (self.one, self.other))),
            ("to", *(Told(course.end_ms) for course in (self.one, self.other))),
            *((name, *(words(course) for course in (self.one, self.other))) for name, words in _FIGURES),
        ]
        print_table(("course", "as it was", "what if"), rows, times=Times.of([]))
        click.echo()
        for line in self._notes(lasting_ms):
            print_text(line, indent=2)

    def _notes(self, lasting_ms: int | None) -> Iterator[str]:
        if self.one.waiting_at_end or self.other.waiting_at_end:
            yield "jobs that still wait at the end count with what they have waited so far"
        held = dict.fromkeys((*self.one.endless_jobs, *self.other.endless_jobs))
        if held and self.drained:
            yield (
                f"it stopped where nothing was left that could happen: the log shows no end of {_listed(list(held))}, "
                "so what they hold is never free again; --lasting gives them an end"
            )
        elif self.one.endless or self.other.endless:
            yield "attempts without an end in the log last to the end of the horizon; --lasting says otherwise"
        elif lasting_ms is not None:
            yield f"attempts without an end in the log last {duration(lasting_ms)}"
        alike = self.alike
        total = alike.common + alike.only_log
        if total:
            yield (
                f"as it was and the log: {alike.equal} of {total} starts within a second of each other, the farthest "
                f"{duration(alike.farthest_ms)} apart; {alike.only_log} only in the log, {alike.only_here} only here"
            )


def _listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _started(course: Course) -> str:
    """Jobs that got their quorum, and how many of the starts are of jobs that were scheduled again."""
    again = course.started - course.jobs_started
    return f"{course.jobs_started}, and {again} again" if again else str(course.started)


_FIGURES: tuple[tuple[str, Callable[[Course], object]], ...] = (
    ("jobs started", _started),
    ("jobs ended", lambda course: course.ended),
    ("jobs that wait at the end", lambda course: course.waiting_at_end),
    ("wait, mean", lambda course: duration(course.wait_mean_ms)),
    ("wait, p50", lambda course: duration(course.wait_p50_ms)),
    ("wait, p95", lambda course: duration(course.wait_p95_ms)),
    ("GPUs in use", lambda course: _part(course.gpu_utilisation)),
    ("GPUs idle in fragments", lambda course: _part(course.gpu_fragmentation)),
    ("makespan", lambda course: duration(course.makespan_ms) if course.makespan_ms is not None else "-"),
    ("attempts without an end", lambda course: course.endless),
)


class Answer(msgspec.Struct):
    """Both plans. `recorded`: the first is that of the cycle recorded at `inputs.cycle`; `reproduced` whether it came
    out so."""

    inputs: Inputs
    otherwise: str
    one: Plan
    other: Plan
    reproduced: bool | None
    edits: list[str] = []
    sequel: Sequel | None = None
    lasting_ms: int | None = None

    def json(self) -> dict[str, Any]:
        """The answer as one object."""
        return {
            "base": self.inputs.base,
            "cycle": self.inputs.cycle,
            "told_ms": self.inputs.told_ms,
            "time": local_time(self.inputs.told_ms),
            "otherwise": self.otherwise,
            "edits": self.edits,
            "reproduced": self.reproduced,
            "asItWas": self.one,
            "whatIf": self.other,
            "differences": differences(self.one, self.other),
            "until": self.sequel.json() if self.sequel is not None else None,
        }

    def print(self, *, everything: bool) -> None:
        """The answer for people."""
        inputs = self.inputs
        which = f"the cycle at offset {inputs.cycle}" if inputs.cycle else "a cycle"
        print_text(f"{which} on the state at offset {inputs.base}, told {local_time(inputs.told_ms)}")
        print_text(f"otherwise: {self.otherwise}")
        for edit in self.edits:
            print_text(f"  {edit}", indent=4)
        if self.reproduced is False:
            print_text("as it was, it doesn't come out as recorded: arranger verify says where")
        click.echo()
        print_summary(self.one, self.other)
        click.echo()
        print_jobs(self.one, self.other, everything=everything)
        if self.sequel is not None:
            click.echo()
            self.sequel.print(self.lasting_ms)


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
    known = [row for row in rows if any(cell not in ("", "nothing") for cell in row[1:])]
    print_table(("plan", *heads), known)


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
        print_text(f"about {len(same)} more job{plural} the plans agree")


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
    policies = inventory().policies
    async with opened(target, settings) as log:
        inputs, record, state, position = await cut(log, asked.at)
        content = snapshot.encode(state)
        changed = snapshot.restore(content)
        edits: list[str] = []
        variation = asked.variation(changed, inputs.told_ms, edits)
        recording = await _read_on(log, position, content, asked, inputs) if asked.until is not None else None
    had = policies if policies.missing(inputs.config) else policies.recorded(inputs.config)
    usual = had.usable(inputs.config)
    one, events = take_plan(state, usual, inputs.told_ms, policies=had)
    vary(changed, variation, inputs.told_ms)
    config, by = variation.overrides.of(inputs.config, policies)
    other = take_plan(changed, config, inputs.told_ms, policies=by)[0]
    answer = Answer(inputs, asked.words, one, other, events == record if record is not None else None, edits)
    if recording is not None:
        answer.lasting_ms = asked.lasting_ms
        future = Future(recording.observations, recording.stints, asked.lasting_ms)
        horizon_ms = _horizon_ms(asked, inputs, recording)
        typical = typical_pods(_shapes(state, recording))
        courses = [
            _go_on(_Variant(*variant), future, typical, inputs, horizon_ms)
            for variant in ((state, usual, had, Variation()), (changed, config, by, variation))
        ]
        alike = likeness(recording.starts(courses[0].end_ms), courses[0].starts)
        drained = asked.until == Until()
        answer.sequel = Sequel(courses[0], courses[1], alike, drained)
    return answer


class _Variant(NamedTuple):
    state: State
    config: CycleConfig
    policies: Policies
    variation: Variation


def _go_on(variant: _Variant, future: Future, typical: Mix, inputs: Inputs, horizon_ms: int | None) -> Course:
    continuation = Continuation(
        variant.state,
        future,
        variant.config,
        Meter(typical, inputs.told_ms),
        begin_ms=inputs.told_ms,
        until_ms=horizon_ms,
        variation=variant.variation,
        policies=variant.policies,
    )
    doing = "going on with something otherwise" if variant.variation else "going on as it was"
    with progress(doing, len(future.observations)) as moved:
        return continuation.run(moved, cycle_first=bool(inputs.cycle))


async def _read_on(log: Log, after: Position, content: bytes, asked: _Asked, inputs: Inputs) -> Recording:
    """What the log says came after, to its end: how long jobs run may only show later than the horizon."""
    assert asked.until is not None
    offset = asked.until.at.offset if asked.until.at is not None else None
    recording = Recording(snapshot.restore(content), begin_ms=inputs.told_ms, until_offset=offset)
    if after.offset < await end_offset(log):
        await feed(log, after, recording.feed, until=END, doing="reading what came after")
    recording.finish()
    return recording


def _horizon_ms(asked: _Asked, inputs: Inputs, recording: Recording) -> int | None:
    until = asked.until
    assert until is not None
    if until.span_ms is not None:
        return inputs.told_ms + until.span_ms
    if until.at is None:
        return None
    moment_ms = until.at.told_ms or recording.told_at
    if not moment_ms:
        raise LogError(f"--until: the log has no offset {until.at.offset} after the point", hint="ask for a later one")
    if moment_ms < inputs.told_ms:
        raise UsageError(f"--until: {local_time(moment_ms)} lies before the point, {local_time(inputs.told_ms)}")
    return moment_ms


def _shapes(state: State, recording: Recording) -> Iterator[tuple[PodShape, int]]:
    """The pods of all jobs that were there or came."""
    specs = {job.uid: job.spec for job in state.jobs.values() if job.active}
    specs |= {event.uid: event.spec for _, event in recording.observations if isinstance(event, k.JobSeen)}
    for spec in specs.values():
        for group in spec.groups if spec is not None else ():
            yield group.shape, group.count


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
    state, last = await stand_at(log, base, doing="going to the point")
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


def _added(manifests: Sequence[str], state: State, told_ms: int, edits: list[str]) -> list[k.Event]:
    """The observations of what the files hold, as edits of what is there already, which are told in `edits`."""
    if not manifests:
        return []
    # Rounded up: a job that comes at the point comes after all that is there.
    created = datetime.fromtimestamp(-(-told_ms // 1000), UTC).isoformat()
    objects, nodes = [], {}
    for found in read_objects(manifests):
        metadata = found.item.get("metadata")
        if found.kind == KIND and isinstance(metadata, dict) and not metadata.get("creationTimestamp"):
            item = {**found.item, "metadata": {**metadata, "creationTimestamp": created}}
            found = msgspec.structs.replace(found, item=item)  # noqa: PLW2901
        if found.kind == "Node" and isinstance(metadata, dict) and not metadata.get("uid"):
            nodes[str(metadata.get("name"))] = found.item
        objects.append(found)
    cluster = described(objects, tyjob_checks(inventory().names))
    if cluster.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in cluster.ignored.items())
        click.echo(f"arranger: ignored: {kinds} (a plan depends on Nodes, Pods and TYJobs)", err=True)
    added = [_as_edit(event, state, nodes) for event in cluster.observations]
    edits += [edit for event in added if (edit := edit_text(event, state))]
    return added


def _as_edit(event: k.Event, state: State, nodes: Mapping[str, Mapping[str, Any]]) -> k.Event:
    if isinstance(event, k.JobSeen):
        if event.invalid:
            raise UsageError(f"TYJob {event.namespace}/{event.name} is invalid: {event.invalid}")
        job = state.find_job(event.namespace, event.name)
        if job is not None and not job.ended:
            return msgspec.structs.replace(
                job.seen, spec=event.spec, invalid="", generation=job.seen.generation + 1, status=None
            )
    if isinstance(event, k.NodeSeen) and state.nodes.has(event.name):
        row = state.nodes.rows[event.name]
        facts = event.facts
        if event.name in nodes:
            facts = _edited(state.nodes.facts[row], facts, nodes[event.name])
        return msgspec.structs.replace(event, uid=state.nodes.uids[row], facts=facts)
    if isinstance(event, k.PodSeen):
        same = [pod for pod in state.pods.values() if (pod.namespace, pod.name) == (event.namespace, event.name)]
        if same:
            return msgspec.structs.replace(event, uid=same[0].uid)
    return event


def _edited(had: NodeFacts, given: NodeFacts, manifest: Mapping[str, Any]) -> NodeFacts:
    """A node's facts after an edit by a manifest written by hand: what that leaves out stays."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    amounts = dict(had.allocatable)
    written = status.get("allocatable") or status.get("capacity") or {}
    # The number of pods is put in by default: only what was written counts.
    amounts |= {name: amount for name, amount in given.allocatable if name in written}
    return NodeFacts(
        allocatable=tuple(sorted(amounts.items())),
        ready=given.ready if status.get("conditions") else had.ready,
        cordoned=given.cordoned if "unschedulable" in spec else had.cordoned,
        labels=tuple(sorted((dict(had.labels) | dict(given.labels)).items())),
        taints=given.taints if "taints" in spec else had.taints,
    )
