"""The answers to `explain`. Who asks again, about the same job at a later point, gets one that goes on from the last:
the log is folded from the job's beginning only the first time.
"""

import asyncio
from operator import itemgetter
from typing import Any

import msgspec

from arranger.cli.inputs.reading import (
    NotFound,
    as_of,
    before_beginning,
    begin_early,
    begin_without,
    feed,
    job_index_of,
    job_label,
    stand_at,
    unknown_job_at,
    unknown_node,
)
from arranger.cli.inputs.start_forecast import with_forecast
from arranger.cli.rendering.output import local_time
from arranger.errors import LogError, UsageError
from arranger.events.log import Entry, Log, Position
from arranger.model.config import CycleConfig
from arranger.model.job import Stage
from arranger.model.near_names import did_you_mean, near_names
from arranger.model.stages import StageReason
from arranger.plugins import installed
from arranger.projections.state import State
from arranger.replay.explain.answer import Explanation, explanation, jobs_named, pod_names
from arranger.replay.explain.job_history import AskedJob, JobHistories
from arranger.replay.explain.story import Deletion, Story
from arranger.replay.explain.waiting import Helped
from arranger.replay.reading.describe import as_object, label
from arranger.replay.reading.history import Point
from arranger.replay.what_if.hypothesis import private_copy
from arranger.replay.what_if.one_cycle import Inputs, Scout
from arranger.workers.log.last_config import last_config

#: If no single event was found that keeps a job waiting, and one before those that were read may, so many events before
#: the point are read, from a snapshot before them on.
LOOK_BACK = 50_000


def as_json(answer: Explanation) -> dict[str, Any]:
    """The answer as `-o json` and the API give it."""
    return {**as_object(answer), "time": local_time(answer.time_ms)}


class _Reading:
    """One pass over the log for one question, from `position` on. It can go on to a later point."""

    def __init__(self, state: State, position: Position, config: CycleConfig | None, asked: AskedJob) -> None:
        """`config` has the settings of the last cycle up to the state; None before the first one."""
        self.position = position
        #: The least offset that it may go on to: in a batch, each means the batch's end.
        self.least = position.offset
        self.asked = asked
        #: Deleted jobs of the name: the explanations just before.
        self.gone: list[Explanation | NotFound] = []
        #: The last of them that waited to start: its UID, and the state and the configuration of cycles just before.
        self._left: tuple[str, State, CycleConfig] | None = None
        self.job_histories = JobHistories(state, asked, config, policies=installed(), leaving=self._leaving)
        #: Of a job that failed, by the offset of its last wait: what would have helped it.
        self.helped: dict[tuple[str, int], Helped] = {}
        self._scout, self._point = Scout(), Point()
        #: The state that the cycle at the last point was taken on, at its time; None if no cycle is recorded there.
        self._recorded: State | None = None

    async def read(self, log: Log, point: Point) -> None:
        """Read up to a point. Cancelled, it can be told again."""
        self._recorded, self._point = None, point
        await feed(log, self.position, self._feed, until=point, doing="reading the job's life")
        self.job_histories.finish(await as_of(log, point, self.position))
        if (cycle := self._cycle()) is not None and any(map(self._waits, self.job_histories.stories)):
            self._recorded = await self._base_of(cycle, log)

    def _feed(self, entry: Entry) -> None:
        self._scout.feed(entry)
        if (cycle := self._cycle()) is not None:
            self.job_histories.keep(cycle.base)
        self.job_histories.feed(entry)
        self.position, self.least = Position(self.position.epoch, entry.last, entry.chain), entry.first

    def _waits(self, uid: str) -> bool:
        job = self.job_histories.state.jobs.get(uid)
        return job is not None and job.active and len(job.placements) < job.pods_desired()

    def _cycle(self) -> Inputs | None:
        """The inputs of the cycle at the point, if the last entry is its record."""
        found = self._scout.cycle(self._point.event) if self._point.event is not None else None
        return found[0] if found is not None else None

    async def _base_of(self, cycle: Inputs, log: Log) -> State | None:
        """The state that a recorded cycle was taken on, at its time; None if it can't be taken again."""
        if (kept := self.job_histories.kept(cycle.base, cycle.time_ms)) is not None:
            return kept
        try:
            base, _ = await stand_at(log, Point(offset=cycle.base), doing="going to the cycle's base")
        except LogError:  # the log begins behind it
            return None
        base.time_ms = cycle.time_ms
        return base if base.offset == cycle.base else None

    def answer(self, deleted: Deletion | None = None) -> Explanation | None:
        """The explanation of the job that exists at the end, or else of the last deleted one; None if there is none.
        `deleted` follows the end."""
        found = jobs_named(self.job_histories.state, self.asked.name, self.asked.namespace)
        if len(found) > 1:
            labels = ", ".join(label(job) for job in found)
            hint = "choose one with --namespace"
            raise UsageError(f"there are several jobs {self.asked.name!r}: {labels}", hint=hint)
        if found:
            return self._explained(self.job_histories.stories[found[0].uid], deleted)
        answer = self.gone[-1] if self.gone else None
        if isinstance(answer, NotFound):
            raise answer
        return answer

    def _leaving(self, story: Story, deleted: Deletion) -> None:
        try:
            answer = self._explained(story, deleted)
            self.gone.append(answer)
            if answer.start is not None:
                self._left = (story.uid, private_copy(story.state), story.around.config)
        except NotFound as problem:
            self.gone.append(problem)

    def _explained(self, story: Story, deleted: Deletion | None = None) -> Explanation:
        job, pod = story.state.jobs[story.uid], self.asked.pod
        if pod and pod not in (known := pod_names(story, job)):
            raise NotFound(f"job {label(job)} has no pod {pod!r}", hint=did_you_mean(near_names(pod, known, most=3)))
        if self.asked.node and not pod and self.asked.node not in story.state.nodes.rows:
            raise unknown_node(self.asked.node, story.state)
        retaken = self.job_histories.retaken(job.uid, None if pod else job.attempt)
        node, recorded = self.asked.node, self._recorded
        return explanation(story, job, retaken, policies=installed(), node=node, recorded=recorded, deleted=deleted)

    def with_forecast(self, answer: Explanation) -> Explanation:
        """With a forecast of the start, if the log has none: of the state at the end, or that before the deletion."""
        if self._left is not None and self._left[0] == answer.standing.uid:
            return with_forecast(answer, *self._left[1:])
        story = self.job_histories.stories.get(answer.standing.uid)
        there = story is not None and answer.standing.uid in story.state.jobs
        return with_forecast(answer, story.state, story.around.config) if story is not None and there else answer


class Explainer:
    """Explains jobs of an open log, one question after the other."""

    def __init__(self, log: Log) -> None:
        self._log = log
        #: The pass for the last question.
        self._last: _Reading | None = None

    async def explain(self, asked: AskedJob, point: Point) -> Explanation:
        """Raises `NotFound`, `UsageError` and the errors of the log."""
        reading = await self._gone_on(asked, point) or await self._read(asked, point)
        self._last = reading
        answer = reading.answer()
        lacks_event = answer is not None and answer.waiting is not None and answer.waiting.lacks_event
        if lacks_event and (earlier := await self._earlier(reading, point)) is not None:
            self._last = reading = earlier
            answer = reading.answer()
        if answer is None:  # it may have been deleted before the snapshot from which this pass began
            answer = await self._before(asked, *await self._last_gone(asked, point, reading.job_histories.state))
            if answer is None:
                name = job_label(asked.namespace, asked.name)
                raise NotFound(
                    f"no state of the log has job {name!r}", hint=f"arranger events --job {name} lists its events"
                )
        return await self._with_what_would_have_helped(reading, reading.with_forecast(answer))

    async def _before(self, asked: AskedJob, deleted: Deletion, before: int) -> Explanation | None:
        """The explanation at the offset before a deletion, at its time; None if no state there has the job."""
        point = Point(offset=before)
        reading = await self._read(asked, point)
        if then := await self._log.read(reading.position, limit=1):
            await reading.read(self._log, msgspec.structs.replace(point, time_ms=then[0].batch.time_ms))
        answer = reading.answer(deleted)
        return answer if answer is None or answer.deleted != deleted else reading.with_forecast(answer)

    async def _gone_on(self, asked: AskedJob, point: Point) -> _Reading | None:
        """The last pass, read on up to the point; None if it isn't about that, or would know less than a new one."""
        last, self._last = self._last, None
        if last is None or last.asked != asked or point.offset is None or point.offset < last.least:
            return None
        had = last.job_histories.out_of_reach
        try:
            await last.read(self._log, point)
        except asyncio.CancelledError:
            self._last = last
            raise
        except LogError:  # the log may be another one now
            return None
        # A cycle that placed the job began before the last point: only a pass that comes by there repeats it.
        return last if last.job_histories.out_of_reach == had else None

    async def _earlier(self, reading: _Reading, point: Point) -> _Reading | None:
        """A pass that begins before this one; None if there is no earlier beginning within reach."""
        least, began = reading.position.offset - LOOK_BACK, reading.job_histories.began
        try:
            if began <= max(least, (await self._log.start()).offset):
                return None
            begin = await begin_early(self._log, max(least, 0))
            return await self._read(reading.asked, point, begin) if begin[1].offset < began else None
        except LogError:  # it has just been trimmed
            return None

    async def _read(self, asked: AskedJob, point: Point, begin: tuple[State, Position] | None = None) -> _Reading:
        state, position = begin or await begin_without(self._log, point, asked.name)
        config = await last_config(self._log, state, position) if state.last_cycle else None
        reading = _Reading(state, position, config, asked)
        try:
            await reading.read(self._log, point)
        except asyncio.CancelledError:
            self._last = reading
            raise
        around = reading.job_histories.around
        if not around.is_configured:  # its jobs are in the order of the first cycle behind the point
            around.config = await last_config(self._log, reading.job_histories.state, reading.position)
        return reading

    async def _with_what_would_have_helped(self, reading: _Reading, answer: Explanation) -> Explanation:
        """With the changes that would have given a job nodes that failed for want of them, tried while it waited."""
        waits = [one for one in answer.waited if one.for_quorum]
        if answer.standing.stage != Stage.FAILED or answer.standing.reason != StageReason.UNSCHEDULABLE or not waits:
            return answer
        key = answer.standing.uid, waits[0].offset
        if key not in reading.helped:
            then = (await self._read(reading.asked, Point(offset=key[1]))).answer()
            if then is None or then.waiting is None or then.standing.uid != answer.standing.uid:
                return answer
            reading.helped[key] = Helped(then.offset, then.waiting.remedies, then.waiting.tried)
        return msgspec.structs.replace(answer, would_have_helped=reading.helped[key])

    async def _last_gone(self, asked: AskedJob, point: Point, state: State) -> tuple[Deletion, int]:
        """The deletion of the last job of that name, and the offset before it. Raises `NotFound` if there was none."""
        if not state.offset:
            raise await before_beginning(self._log)
        job_index = await job_index_of(self._log, point)
        gone = [
            went
            for (namespace, name), went in job_index.jobs.items()
            if went is not None and name == asked.name and asked.namespace in (None, namespace)
        ]
        if not gone:
            name = job_label(asked.namespace, asked.name)
            raise await unknown_job_at(self._log, point, name, job_index, owner=_owner(asked, state), state=state)
        return max(gone, key=itemgetter(1))


def _owner(asked: AskedJob, state: State) -> str:
    """The label of the job that has a pod of this name; empty if none has."""
    for pod in state.pods.values():
        if pod.owner is not None and pod.name == asked.name and asked.namespace in (None, pod.namespace):
            job = state.jobs.get(pod.owner.job_uid)
            return label(job) if job is not None else ""
    return ""
