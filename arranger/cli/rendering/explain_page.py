"""The output of `arranger explain` for people: what happened to the job and why, its condition, and its life.

Events that changed nothing are only counted, and long lists are cut in the middle. `--all` shows everything.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from arranger.cli.rendering.output import (
    Times,
    ToldTime,
    duration,
    fitting,
    heading,
    local_time,
    print_table,
    print_text,
    say,
)
from arranger.events.facts import LackOfNodes, ShortageFacts
from arranger.messages.shortages import counts_text, nodes_text, reason_text, shortage_text
from arranger.model.job import Stage
from arranger.model.quantity import amount_text
from arranger.model.text import attempt_name, counted, few, states_text
from arranger.replay.explain.answer import Explanation, JobStanding
from arranger.replay.explain.causes import CausingEvent, Consequence
from arranger.replay.explain.headline import headline
from arranger.replay.explain.holders import Taker
from arranger.replay.explain.in_queue import InQueue, KeptBy, Passed, QueueAmount
from arranger.replay.explain.past_waits import Waited
from arranger.replay.explain.placement_explanations import MOST, PlacementExplanation, Ranked
from arranger.replay.explain.remedies import Remedy
from arranger.replay.explain.room_words import room_moments, room_rows, start_rows, waiting_rows
from arranger.replay.explain.shortfall import Shortfall
from arranger.replay.explain.story import Interval, StoryEvent
from arranger.replay.explain.waiting import Waiting
from arranger.replay.reading.verdicts import ACCEPTED

#: The number of rows shown at each end of a long timeline.
_SHOWN = 20

#: The number of rows shown of a list whose first rows matter most.
_FEW = 8
#: Reason counts with more letters than this appear only once on a page.
_LONG = 25
#: The number of changes shown of each kind.
_OF_A_KIND = 4
#: The number of placement explanations that are shown.
_EXPLANATIONS = 3
#: What keeps a job waiting, in words; `{queue}` is the queue that has the limit or the problem.
_KEPT_BY = {
    KeptBy.ROOM: "room: no nodes have enough for it",
    KeptBy.RESERVED: "room that is reserved for a job before it",
    KeptBy.OVERTAKEN: "room: a job that was behind it got what it needs",
    KeptBy.LEAVING: "room: pods that leave still hold what it needs",
    KeptBy.SELECTION: "its own selection of nodes: none of them is one that it selects",
    KeptBy.CLOSED_NODES: "closed nodes: they are cordoned, not ready, or have a taint that it doesn't tolerate",
    KeptBy.RULES: "rules about nodes and pods: no node is left that it may use",
    KeptBy.INFEASIBLE: "the nodes: even without pods, they couldn't hold it",
    KeptBy.ORDER: "the order: it would fit, but jobs before it get the room",
    KeptBy.USAGE: "the order: its queue used more before, so jobs of others get the room",
    KeptBy.QUOTA: "a ResourceQuota of its namespace",
    KeptBy.CAPABILITY: "the capability of {queue}",
    KeptBy.GUARANTEES: "what is guaranteed to other queues",
    KeptBy.MAX_RUNNING: "maxRunning of {queue}",
    KeptBy.MAX_WAITING: "maxWaiting of {queue}",
    KeptBy.NON_PREEMPTIBLE: "what {queue} deserves, which is all that jobs may use there that can't be preempted",
    KeptBy.PLUGIN: "a plugin of another package, which the reason names",
    KeptBy.NO_QUEUE: "its queue, which doesn't exist",
    KeptBy.PROBLEM: "a problem of {queue}",
    KeptBy.NOT_ADMITTED: "the namespaces of {queue}, which don't include the job's",
    KeptBy.CLOSED: "{queue}, which is closed",
}


class ExplanationPrinter:
    """Prints an explanation. `again` is a command line to which the offset of another point is appended. With
    `everything`, nothing is left out or cut."""

    def __init__(self, answer: Explanation, *, again: str, everything: bool, scores: bool = False) -> None:
        self._answer = answer
        self._scores = scores
        self._again = again
        self._everything = everything
        self._fitting = fitting()
        #: The page's heading has the date and the UTC offset, so times leave out what all of them share.
        self._times = Times.of(_moments(answer))
        #: Whether it waits to start.
        self._waits = answer.start is not None and answer.waiting is not None
        #: Long reason counts that are already on the page.
        self._said: dict[str, None] = {}

    def print(self) -> None:
        """What happened and why come first: of a waiting job why it waits, of any other job what became of it."""
        answer = self._answer
        print_text(headline(answer, local_time), indent=2)
        if self._waits and answer.waiting is not None:
            self._waiting(answer.waiting)
            self._consequences()
            self._facts()
        else:
            self._what_would_help()
            self._waited()
            self._consequences()
            self._facts()
            if answer.waiting is not None:
                self._waiting(answer.waiting)
        self._explanations()
        self._rejected()
        self._intervals()
        self._life()

    def _what_would_help(self) -> None:
        """What can be done about a failure, and what would have helped before it."""
        answer = self._answer
        if answer.standing.remedy:
            print_text(f"  {'remedy':<9} {answer.standing.remedy}", indent=12)
        helped = answer.would_have_helped
        if helped is not None:
            for one in helped.remedies[:_OF_A_KIND]:
                gave = f"given it {counted(one.pods, 'pod')}" if one.pods else "let it wait on"
                print_text(f"  {'':<9} tried at offset {helped.offset}, this would have {gave}: {one.text}", indent=12)

    def _facts(self) -> None:
        answer = self._answer
        job = answer.standing
        say()
        print_text(
            f"{job.job} at offset {answer.offset} of epoch {answer.epoch}, {local_time(answer.time_ms)}", indent=2
        )
        rows = [
            ("stage", f"{job.stage} for {duration(max(answer.time_ms - job.stage_since_ms, 0))}"),
            ("schedule", f"{job.schedule_state} for {duration(max(answer.time_ms - job.scheduled_since_ms, 0))}"),
            ("pods", _pods(job)),
            ("attempt", attempt_name(job.attempt) + (f"; restarts: {job.budget}" if job.budget else "")),
            ("message", self._message()),
            ("nodes", job.allocation or "-"),
        ]
        if job.unset:
            rows.append(("variables", job.unset))
        if job.labels:
            rows.append(("labels", job.labels))
        if job.created_by:
            rows.insert(0, ("created", f"by {job.created_by}"))
        self._rows(rows, 9)
        if self._waits:
            self._waited()
        self._rows(room_rows(answer, self._time), 9)
        if job.failed:
            heading("Pods of it that failed, the last first")
            failed = [(ToldTime(one.last_ms), one.pod, one.node, one.text, one.again) for one in job.failed]
            self._table(("last", "pod", "node", "how", "again"), failed)

    @staticmethod
    def _rows(rows: Iterable[tuple[str, str]], width: int) -> None:
        """Print a name and a text on each line."""
        for name, text in rows:
            print_text(f"  {name:<{width}} {text}", indent=width + 3)

    def _message(self) -> str:
        """The job's last message, without reasons that the page has already shown."""
        job, waiting = self._answer.standing, self._answer.waiting
        if not job.message:
            return "-"
        recorded, text = job.shortage, self._once(job.message, job.shortage)
        if waiting is None or waiting.shortfall is None:
            return text
        short = waiting.shortfall
        if isinstance(recorded, LackOfNodes) and not waiting.gets and _told(recorded) == _told(short):
            return text
        return text + (f" (of offset {job.message_at})" if job.message_at else "")

    def _once(self, text: str, shortage: ShortageFacts | None) -> str:
        """The text, without the reason counts if they are already on the page."""
        if not isinstance(shortage, LackOfNodes) or len(counts_text(shortage.reasons)) < _LONG:
            return text
        counts = _counts(shortage)
        if counts not in self._said:
            self._said[counts] = None
            return text
        return text.replace(counts, f"{shortage.group}: as above")

    def _time(self, time_ms: int) -> str:
        """A time within a line."""
        return self._times.text(time_ms) if self._fitting else local_time(time_ms)

    def _table(self, columns: Sequence[str], rows: Any, *, right: Sequence[str] = ()) -> None:
        print_table(columns, rows, right=right, times=self._times)

    def _waited(self) -> None:
        """Print what it waited for, the longest first: the parts add up to the time that it waited to start."""
        waited = self._answer.waited
        to_start = [one for one in waited if not one.further]
        if to_start:
            longest, *others = to_start
            self._with_command(f"it waited {_for(longest)}", longest)
            told = [_for(one) for one in others[:_OF_A_KIND]]
            if more := others[_OF_A_KIND:]:
                told.append(f"{duration(sum(one.span_ms for one in more))} for {counted(len(more), 'other thing')}")
            if told:
                print_text(f"  {'':<9} and {'; '.join(told)}", indent=12)
        for one in waited:
            if one.further:
                self._with_command(f"further pods waited {_for(one)}", one)

    def _with_command(self, words: str, waited: Waited) -> None:
        """Print a wait with the command that explains it."""
        helped = "; what would have helped" if self._answer.standing.stage == Stage.FAILED else ""
        said = f"  {'waited':<9} {words}{helped}" + (";" if ": " in words and not helped else ":")
        command = f"{self._again} {waited.offset}"
        if self._fitting and _too_wide(f"{said} {command}"):
            # On a separate line, the command can be copied.
            print_text(said, indent=12)
            say(f"    {command}")
        else:
            say(f"{said} {command}")

    def _nodes_to_come(self, waiting: Waiting) -> None:
        """What the job has asked an autoscaler for, and when it is given up without enough nodes."""
        if waiting.request:
            print_text(f"  request       {waiting.request}", indent=16)
        if waiting.infeasible_since_ms:
            since, until = self._time(waiting.infeasible_since_ms), self._time(waiting.fails_at_ms)
            gives_up = f"the first cycle from {until} on gives it up" if waiting.fails_at_ms else "no cycle gives it up"
            told = f"  infeasible    since {since}, it doesn't fit even an empty cluster of these nodes; {gives_up}"
            print_text(told, indent=16)
        if waiting.never_fits is not None:
            never = shortage_text(waiting.never_fits)
            print_text(f"  infeasible    once that is over, too: {never}", indent=16)

    def _waiting(self, waiting: Waiting) -> None:
        if not self._waits:  # further pods of it do, and this isn't the first thing on the page
            say()
        print_text(f"Why it waits: {waiting.why}", indent=2)
        short = waiting.shortfall
        if short is not None:
            self._said[_counts(short)] = None
        if waiting.position:
            self._position(waiting)
        self._rows(start_rows(self._answer, self._time), 13)
        self._rows(_node_rows(short), 13)
        self._nodes_to_come(waiting)
        if waiting.in_queue is not None:
            self._in_queue(waiting.in_queue)
        self._rows(waiting_rows(waiting, self._answer.time_ms, self._time), 13)
        self._blockers(waiting)
        self._remedies(waiting)
        if waiting.ahead:
            heading("Ahead of it in the queue")
            rows = [(one.position, one.job, one.decided_by, one.gets) for one in waiting.ahead]
            self._cut(("position", "job", "why", "gets"), rows, "arranger replay", shown=_FEW)
        if waiting.passed_by:
            heading("Other jobs that got nodes since it waits, the newest first")
            passed = [(one.offset, ToldTime(one.time_ms), one.job, *_passed_cells(one)) for one in waiting.passed_by]
            self._some(("offset", "time", "job", "why", "got"), passed, "earlier ones", right=("offset",))
        self._takers(waiting)
        if waiting.holders:
            heading("Others that hold it there, without a decision in the part of the log that was read")
            held = [(one.since or "-", one.who, _amounts(one.amounts), few(one.nodes, 3)) for one in waiting.holders]
            self._some(("offset", "who", "holds", "on"), held, "pods or jobs hold less", right=("offset",))

    def _position(self, waiting: Waiting) -> None:
        """Print the job's position in the order of the cycle, in which jobs that run and want more pods stand too."""
        own = self._answer.standing.priority
        limited = f", because of maxPriority of its queue: the job has {own};" if own != waiting.priority else ","
        keys = f"priority {waiting.priority}{limited} created {self._time(waiting.created_ms)}"
        position = f"position {waiting.position} of {waiting.queue_length} among the jobs that ask for nodes"
        print_text(f"  order         {position}, by {waiting.queue_policy} ({keys})", indent=16)

    def _in_queue(self, there: InQueue) -> None:
        """Print where the job stands in its Queue."""
        parts = [f"position {there.position} of {there.waiting}"] if there.position else []
        parts += [_of_queue(one) for one in there.amounts]
        most = f" of at most {there.max_running}" if there.max_running is not None else ""
        parts.append(f"{counted(there.running, 'job')}{most} with nodes")
        kept = f"; kept waiting by {_kept_by(there)}" if there.kept_by is not None else ""
        print_text(f"  Queue {there.queue}: {'; '.join(parts)}{kept}", indent=16)

    def _blockers(self, waiting: Waiting) -> None:
        """Print the events that keep the job waiting: those since its creation, or else the earlier ones."""
        events, when = waiting.blockers or waiting.earlier, "since" if waiting.blockers else "before"
        if events:
            without = "without this event" if len(events) == 1 else "without any one of these events"
            say()
            cause = f"What keeps it waiting (events {when} its creation)"
            print_text(f"{cause}: {without}, a cycle would give it {self._what(waiting)} now")
            rows = [(one.offset, one.text) for one in events]
            self._some(("offset", "event"), rows, "earlier events like these", right=("offset",))
        elif waiting.shortfall is not None:
            began = self._answer.began
            since = f" from offset {began + 1} on, where the part of the log that was read begins," if began else ""
            heading(f"No single event{since} was found without which a cycle would give it {self._what(waiting)} now")

    def _remedies(self, waiting: Waiting) -> None:
        """Print the changes that would help, the first few of each kind."""
        what = self._what(waiting)
        if not waiting.remedies:
            _in_vain(waiting.tried, what)
            return
        shown = [one for one in waiting.remedies if self._everything or _first_few(one, waiting.remedies)]
        self._changes(shown, what)
        hidden = len(waiting.remedies) - len(shown)
        if hidden:
            print_text(f"{hidden} more like these would help: --all")
        if waiting.untried:
            print_text(f"{waiting.untried} more like these weren't tried: there are too many")

    def _changes(self, shown: Sequence[Remedy], what: str) -> None:
        """Print changes with which the job gets `what` it waits for now or once there is room, then those that only put
        it into the queue."""
        if some := [one for one in shown if one.gives]:
            when = "" if any(one.pods for one in some) else " once there is room"
            heading(f"What would give it {what}{when}, each tried by a cycle at this point")
            rows = [(f"+{one.pods}" if one.pods else "-", *_remedy_cells(one)) for one in some]
            self._table(("pods", "undoes", "change"), rows, right=("pods",))
        if none := [one for one in shown if not one.gives]:
            heading("What would put it into the queue, each tried by a cycle at this point")
            self._table(("undoes", "change"), map(_remedy_cells, none))

    def _what(self, waiting: Waiting) -> str:
        """What the job waits for, in words: "more nodes" if it has some or gets some now."""
        return "more nodes" if waiting.gets or self._answer.standing.pods_placed else "nodes"

    def _takers(self, waiting: Waiting) -> None:
        if not waiting.takers or waiting.shortfall is None:
            return
        say()
        resources = " and ".join(waiting.shortfall.resources)
        print_text(f"Decisions that took {resources} on nodes that it may use, the newest first")
        rows = [_taker_cells(taker) for taker in reversed(waiting.takers)]
        self._some(("offset", "time", "job", "took", "on", "now"), rows, "earlier decisions", right=("offset",))

    def _some(
        self, columns: Sequence[str], rows: Sequence[tuple[object, ...]], others: str, *, right: Sequence[str] = ()
    ) -> None:
        """Print a table of the first rows, and the number of further ones."""
        shown = rows if self._everything else rows[:_FEW]
        self._table(columns, shown, right=right)
        if len(shown) < len(rows):
            print_text(f"{len(rows) - len(shown)} {others}: --all")

    def _explanations(self) -> None:
        answer = self._answer
        if answer.unexplained:
            say()
            print_text(f"{answer.unexplained} placements were decided before the oldest state in this log")
        if answer.other_versions:
            say()
            print_text(
                f"{answer.other_versions} placements were decided with policy versions that aren't installed here; "
                "arranger verify names them"
            )
        shown = answer.placement_explanations if self._everything else answer.placement_explanations[:_EXPLANATIONS]
        for placed in shown:
            self._explanation(placed)
        if len(shown) < len(answer.placement_explanations):
            nodes = len({of.node for of in answer.placement_explanations} - {of.node for of in shown})
            other = f"{counted(nodes, 'more node')} got pods of it" if nodes else "Other pods of it got these nodes too"
            heading(f"{other}: --pod NAME, or --all")
        elif len(answer.placement_explanations) == MOST:
            heading(f"The first {MOST} placements are explained; --pod explains any other")

    def _explanation(self, placed: PlacementExplanation) -> None:
        say()
        print_text(
            f"Why {placed.pod} {'is' if placed.lasts else 'was'} on {placed.node}: {placed.why}",
            indent=2,
        )
        print_text(
            f"  placed at offset {placed.offset} by the cycle at offset {placed.cycle}, on the state at offset "
            f"{placed.base}, at {self._time(placed.time_ms)}; on the same node in this step: {placed.together}",
            indent=2,
        )
        refused = ", ".join(f"{count} {reason_text(reason)}" for reason, count in placed.refused)
        print_text(
            f"  {placed.passed} of {placed.nodes} nodes could take it"
            + (f"; the others: {refused}" if refused else ""),
            indent=2,
        )
        if placed.retaken_on != placed.node:
            print_text(
                f"  in the repeated cycle, it gets {placed.retaken_on}: the record can't be repeated (arranger verify)",
                indent=2,
            )
        other = placed.compared
        if other is not None:
            stands = f"comes {_th(other.rank)} of {placed.passed}" if other.rank else f"can't take it: {other.refused}"
            print_text(f"  {other.node} {stands}", indent=2)
        if self._scores:
            self._ranking(placed)

    def _ranking(self, placed: PlacementExplanation) -> None:
        other, rows = placed.compared, list(placed.ranking)
        if other is not None and other.ranked is not None and other.rank > len(rows):
            rows.append(other.ranked)
        self._table(("node", "score", "terms"), map(_ranked_cells, rows), right=("score",))

    def _consequences(self) -> None:
        if not self._answer.consequences:
            return
        heading("What happened to it, and why")
        rows: list[tuple[object, ...]] = []
        before: Sequence[CausingEvent] = ()
        for one in self._answer.consequences:
            rows += self._consequence_rows(one, before)
            before = one.causes
        self._cut(("offset", "time", "what", "text"), rows, "--all")

    def _consequence_rows(self, one: Consequence, before: Sequence[CausingEvent]) -> Iterator[tuple[object, ...]]:
        """The rows of the causes, but for those of the decision before it, and then that of the decision."""
        for cause in (cause for cause in one.causes if cause not in before):
            yield (cause.offset or "-", ToldTime(cause.time_ms), "because", cause.text)
        budget = f" (restarts: {one.budget})" if one.budget else ""
        yield (one.offset, ToldTime(one.time_ms), one.what, f"{self._once(one.message, one.shortage)}{budget}")

    def _rejected(self) -> None:
        rejected = self._answer.rejected
        told = [moment for moment in rejected if self._everything or not moment.superseded]
        hidden = len(rejected) - len(told)
        if told:
            heading("Decisions about it that took no effect")
            rows = [(m.offset, ToldTime(m.time_ms), m.kind, m.reason, self._once(m.text, m.shortage)) for m in told]
            self._table(("offset", "time", "kind", "why", "text"), rows, right=("offset",))
        if hidden:
            say()
            print_text(
                f"{counted(hidden, 'more decision' if told else 'decision')} about it took no effect because another "
                "scheduler's cycle came first: normal with several schedulers (--all lists them)"
            )

    def _intervals(self) -> None:
        """Print the time in each state; if there are many intervals, also the sums."""
        answer = self._answer
        if len(answer.intervals) > 2 * _FEW:
            heading("Total time in each state")
            rows = [(duration(one.span_ms), one.times, one.stage, one.waiting_for) for one in answer.spent]
            self._some(("for", "times", "stage", "waiting for"), rows, "shorter ones", right=("for", "times"))
        heading("Time in each state")
        columns = ("since", "offset", "for", "stage", "schedule", "waiting for")
        self._cut(columns, [_interval_cells(one) for one in answer.intervals], "--all", shown=_FEW)

    def _life(self) -> None:
        answer = self._answer
        moments = [moment for moment in answer.timeline if self._everything or not (moment.again or moment.superseded)]
        heading("Its life" + (f" since offset {answer.began}" if answer.began else ""))
        events = f"--all, or arranger events --job {answer.standing.job}"
        if self._fitting:
            job = answer.standing.job.partition("/")[2]
            self._cut(("offset", "time", "kind", "text"), [self._short_cells(one, job) for one in moments], events)
        else:
            columns = ("offset", "time", "kind", "subject", "verdict", "text")
            self._cut(columns, [self._moment_cells(one) for one in moments], events)
        hidden = len(answer.timeline) - len(moments)
        if hidden:
            print_text(
                f"{counted(hidden, 'event')} that changed nothing {'is' if hidden == 1 else 'are'} not shown: --all"
            )

    def _moment_cells(self, moment: StoryEvent) -> tuple[object, ...]:
        text = self._once(moment.text, moment.shortage)
        text = f"{moment.reason}: {text}" if moment.reason else text
        return (moment.offset, ToldTime(moment.time_ms), moment.kind, moment.subject, moment.verdict, text)

    def _short_cells(self, moment: StoryEvent, job: str) -> tuple[object, ...]:
        """As `_moment_cells`, but narrower: the pod and an unusual verdict precede the text."""
        pod = moment.subject.removeprefix(f"{job}-")
        verdict = moment.verdict if moment.verdict != ACCEPTED else ""
        text = ": ".join(
            part for part in (pod, verdict, moment.reason, self._once(moment.text, moment.shortage)) if part
        )
        return (moment.offset, ToldTime(moment.time_ms), moment.kind, text)

    def _cut(
        self, columns: Sequence[str], rows: Sequence[tuple[object, ...]], all_of_them: str, *, shown: int = _SHOWN
    ) -> None:
        """Print a table; of many rows, only the first and the last ones."""
        if len(rows) > 2 * shown + 5 and not self._everything:
            left_out = f"{len(rows) - 2 * shown} more: {all_of_them}"
            rows = [*rows[:shown], ("…", *[""] * (len(columns) - 2), left_out), *rows[-shown:]]
        self._table(columns, rows, right=tuple(name for name in ("offset", "position", "for") if name in columns))


def _of_queue(one: QueueAmount) -> str:
    used, share = amount_text(one.resource, one.used), amount_text(one.resource, one.share)
    limit = f", capability {amount_text(one.resource, one.capability)}" if one.capability is not None else ""
    return f"{one.resource} {used} used, share {share}{limit}"


def _kept_by(there: InQueue) -> str:
    assert there.kept_by is not None
    nodes = ", and by room: without that, nodes would have too little" if there.no_nodes else ""
    return _KEPT_BY[there.kept_by].format(queue=f"queue {there.kept_at}") + nodes


def _passed_cells(one: Passed) -> tuple[str, str]:
    often = f", {one.times} times by now" if one.times > 1 else ""
    return one.why, f"{_amounts(dict(one.amounts)) or 'nodes'} on {few(one.nodes, 3)}{often}"


def _node_rows(short: Shortfall | None) -> Iterator[tuple[str, str]]:
    """The node that lacks the least, and the one that was asked for: a name and a text each."""
    if short is not None and short.closest is not None:
        more = f" (and {short.closest.alike} more like it)" if short.closest.alike else ""
        yield "closest node", f"{short.closest.node}{more}: {short.closest.text}"
    if short is not None and short.node is not None:
        yield "node", f"{short.node.node}: {short.node.refused}"


def _for(waited: Waited) -> str:
    """How long, and for what."""
    return f"{duration(waited.span_ms)} for {waited.text}"


def _too_wide(line: str) -> bool:
    from arranger.cli.rendering.terminal import terminal_width  # only terminals need it

    return len(line) > terminal_width()


def _th(rank: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th") if rank % 100 not in (11, 12, 13) else "th"
    return f"{rank}{ending}"


def _told(short: LackOfNodes | Shortfall) -> tuple[object, ...]:
    return short.group, short.reasons, short.found, short.asked


def _counts(short: LackOfNodes | Shortfall) -> str:
    """The reason counts as they appear in messages."""
    return nodes_text(short.group, short.reasons, alone=short.topology is not None)


def _moments(answer: Explanation) -> Iterator[int]:
    """All times on a page, in milliseconds since 1970."""
    yield answer.time_ms
    yield from room_moments(answer)
    yield from (interval.since_ms for interval in answer.intervals)
    yield from (moment.time_ms for moment in answer.timeline)
    yield from (placed.time_ms for placed in answer.placement_explanations)
    for one in answer.consequences:
        yield from (one.time_ms, *(cause.time_ms for cause in one.causes))
    waiting = answer.waiting
    if waiting is not None:
        yield from (waiting.created_ms, waiting.infeasible_since_ms, waiting.fails_at_ms)
        yield from (taker.time_ms for taker in waiting.takers)


def _pods(job: JobStanding) -> str:
    if not job.ended:
        earlier = job.pods_earlier
        names = f"{'is' if len(earlier) == 1 else 'are'} still there: {few(earlier, 3)}"
        also = f"; of its earlier attempt, {len(earlier)} {names}" if earlier else ""
        there = states_text(job.pods_running, job.pods_failed)
        seen = f"{job.pods_seen} were seen" + (f": {there}" if there else "")
        return f"{job.pods_placed} of {job.pods_desired} have nodes, {seen}{also}"
    if job.pods_desired == 0:
        return "it had no nodes when it ended" if job.had_nodes else "it never had nodes"
    left = job.pods_present
    still = f"{left} of its pods still {'exists' if left == 1 else 'exist'}" if left else "its pods are gone"
    had = f"it had {job.pods_desired}; " if job.pods_desired is not None else ""
    return f"{had}the job has ended, {still}"


def _in_vain(tried: int, what: str) -> None:
    """Say that none of the changes that were tried helps."""
    if tried > 1:
        heading(f"None of the {tried} changes that a cycle tried at this point gives it {what}")
    elif tried:
        heading(f"The one change that a cycle tried at this point doesn't give it {what}")


def _first_few(remedy: Remedy, remedies: Sequence[Remedy]) -> bool:
    """Whether the remedy is among the first few of its kind."""
    return remedy in [one for one in remedies if one.kind == remedy.kind][:_OF_A_KIND]


def _remedy_cells(remedy: Remedy) -> tuple[object, ...]:
    undoes = f"offset {remedy.undoes}" + (" and others" if remedy.several else "") if remedy.undoes else "-"
    return (undoes, remedy.text)


def _taker_cells(taker: Taker) -> tuple[object, ...]:
    given_back = f"freed it at offset {taker.freed_at}" if taker.freed_at else "has freed it"
    part = "" if taker.held == taker.amounts else f": {_amounts(taker.held) or 'nothing'}"
    has = f"its pods still exist{part}" if taker.leaving else f"holds {f'the rest{part}' if part else 'it'}"
    now = has if taker.holds else given_back
    if taker.holds and not taker.since_created:
        now += ", since before this job was created"
    return (taker.offset, ToldTime(taker.time_ms), taker.job, _amounts(taker.amounts), few(taker.nodes, 3), now)


def _amounts(amounts: dict[str, int]) -> str:
    return ", ".join(f"{amount_text(name, value)} {name}" for name, value in amounts.items())


def _ranked_cells(ranked: Ranked) -> tuple[object, ...]:
    terms = ", ".join(f"{term.weight} × {term.shown} {term.name}" for term in ranked.terms)
    return (ranked.node, f"{ranked.score:.4f}", terms or "no requested resource has a weight")


def _interval_cells(one: Interval) -> tuple[object, ...]:
    span = duration(max(one.until_ms - one.since_ms, 0)) + (" so far" if one.lasts else "")
    return (ToldTime(one.since_ms), one.since_offset, span, one.stage, one.schedule_state, one.waiting_for)
