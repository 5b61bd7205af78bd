"""Forecasts of waiting jobs: worlds in which schedulers make them, and what must be true of each.

A forecast changes nothing but what people read. So an entry with forecasts leaves the same state as one whose forecasts
are void, but for the starts that it tells, and each cycle decides the same where no forecast is known. A forecast of a
job that was edited or got nodes meanwhile is void. Made again from the log at the offset on which it was made, it has
the same events. No start is expected of a job that must not start before one has succeeded whose deadline will fail
it. A status shows what the log's last valid forecast says, unless a reservation promises a start; nothing
of a job whose pods the API server refuses, or whose reservation waits for an end of which nothing is known.

A forecast runs in a side thread. Here its result comes up to some seconds later, so other entries are often between its
base and its own entry.
"""

import dataclasses
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from arranger.events import kinds as k
from arranger.events.log import Entry
from arranger.kube.cluster import TYJOBS
from arranger.model.config import CycleConfig
from arranger.model.job import OnFailure
from arranger.model.text import rfc3339
from arranger.projections import snapshot
from arranger.projections.derived.awaited_room import refused_by_dry_run, refused_when_started
from arranger.projections.fold import apply_entry
from arranger.projections.folding.forecasts import promises_start
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Changes, State, Verdict
from arranger.replay.forecast.starts import Forecast, forecast
from arranger.scheduling.cycle import take_cycle
from arranger.scheduling.queues.registry import Policies
from arranger.settings import Settings
from arranger.workers.deciding.forecaster import news
from tests.simulation.promises import cycle_of
from tests.simulation.upgrades import EVERY

if TYPE_CHECKING:
    from tests.simulation.world import World

#: In a run that is about these, schedulers make forecasts.
TOLD, TOO_LATE = "a forecast is recorded", "a forecast of a job that changed meanwhile"
#: In a run that is about this, jobs run for longer than their deadlines let them, and others wait for their success.
IN_VAIN = "a job is expected to reach its deadline"
#: How many worlds have forecasts, and how often these make one, in seconds.
_PART, _EVERY_S = 0.2, 45
#: After how many seconds the result of a forecast comes.
_TAKES_S = (0.0, 0.0, 2.0, 8.0)


@dataclasses.dataclass(frozen=True)
class Made:
    """A forecast that some process made: its base, a digest of the state there, its inputs and its events."""

    epoch: int
    offset: int
    digest: str
    config: CycleConfig
    time_ms: int
    policies: Policies
    events: tuple[k.StartForecast, ...]


class Forecasts:
    """The forecasts of a world, and the checks of them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed} forecasts")
        self.are_made = self._chance.random() < _PART or world.faults.often(TOLD, TOO_LATE, IN_VAIN)
        self._made: list[Made] = []
        #: Each forecast that was made → the job as it was then.
        self._seen: dict[k.StartForecast, k.JobSeen] = {}
        #: The valid forecasts of this epoch with their offsets, in the order of the log.
        self._valid: list[tuple[int, k.StartForecast]] = []
        #: How many forecasts were made again.
        self.again = 0

    def settings(self, settings: Settings) -> Settings:
        """The settings of this world's processes."""
        every_s = _EVERY_S if self.are_made else 0
        return msgspec.structs.replace(settings, forecast_every_s=every_s, forecast_jobs=30)

    def draw(self, spec: dict[str, Any]) -> None:
        """Let a job run for longer than its deadline lets it, if this run is about that."""
        if self._world.faults.often(IN_VAIN):
            spec |= {"activeDeadlineSeconds": 20, "expectedRuntimeSeconds": 60}

    def takes_s(self) -> float:
        """After how many seconds the next result of a side thread comes."""
        return self._chance.choice(_TAKES_S) * self._chance.uniform(0.5, 1.0)

    def forecast(
        self,
        state: State,
        config: CycleConfig,
        time_ms: int,
        *,
        first: int,
        policies: Policies,
        enough: Callable[[], bool],
    ) -> Forecast:
        """As `starts.forecast`, and noted."""
        before = snapshot.encode(state)
        found = forecast(state, config, time_ms, first=first, policies=policies, enough=enough)
        if snapshot.encode(state) != before:
            raise AssertionError("a forecast changes the state")
        if vain := [one.job for one in found.jobs if one.expected_ms and _fails_first(state, state.jobs[one.uid])]:
            raise AssertionError(f"a start is expected of jobs that fail as others reach their deadline: {vain}")
        events = tuple(news(state, found))
        self._made.append(Made(state.epoch, state.offset, _digest(before), config, time_ms, policies, events))
        self._seen.update((event, state.jobs[event.job_uid].seen) for event in events)
        return found

    # --- the log -------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """An epoch begins."""
        self._valid.clear()

    def lose_after(self, offset: int) -> None:
        """The log lost what came after this offset."""
        self._valid = [of for of in self._valid if of[0] <= offset]

    def sway(self, state: State, entry: Entry) -> bool:
        """Whether the cycle of an entry, taken on the state before it, decides otherwise where no forecast is known."""
        cycle = cycle_of(entry) if state.forecasts else None
        if cycle is None or EVERY.missing(cycle.config):
            return False
        plain, policies = dataclasses.replace(state, forecasts={}), EVERY.recorded(cycle.config)
        return take_cycle(plain, cycle.config, cycle.time_ms, policies=policies) != entry.batch.events

    def before(self, state: State, entry: Entry) -> State | None:
        """Called before an entry is folded: the state after it if its forecasts were void; None if it has none."""
        if not any(isinstance(event, k.StartForecast) for event in entry.batch.events):
            return None
        alone = snapshot.restore(snapshot.encode(state))
        void = tuple(
            msgspec.structs.replace(event, based_on=-1) if isinstance(event, k.StartForecast) else event
            for event in entry.batch.events
        )
        batch = msgspec.structs.replace(entry.batch, events=void)
        apply_entry(alone, Entry(entry.first, entry.last, entry.chain, batch), Changes())
        return alone

    def after(
        self, state: State, entry: Entry, verdicts: Mapping[int, Verdict], alone: State | None
    ) -> tuple[str, str]:
        """Called after an entry is folded; returns the UID of a job, and what is wrong with its forecast."""
        if alone is None:
            return "", ""
        plain = dataclasses.replace(state, forecasts={}, verdicts={})
        if snapshot.encode(plain) != snapshot.encode(dataclasses.replace(alone, forecasts={}, verdicts={})):
            return "", "a forecast changes more than what is told of starts"
        for offset, event in enumerate(entry.batch.events, start=entry.first):
            if isinstance(event, k.StartForecast):
                problem = self._problem(state, event, accepted=verdicts[offset].accepted)
                if problem:
                    return event.job_uid, problem
                if verdicts[offset].accepted:
                    self._valid.append((offset, event))
        return "", ""

    def _problem(self, state: State, event: k.StartForecast, *, accepted: bool) -> str:
        """What is wrong with a forecast, or with the verdict on it; empty if nothing is."""
        if event not in self._seen:
            return "nobody made this forecast"
        known = [time_ms for time_ms in (event.earliest_ms, event.expected_ms, event.latest_ms) if time_ms]
        if known != sorted(known):
            return f"the range of a forecast doesn't have the expected start: {event}"
        job = state.jobs.get(event.job_uid)
        changed = job is None or job.ended or bool(job.placements) or _differs(self._seen[event], job.seen)
        if accepted and changed:
            return "a forecast of a job that was edited or got nodes meanwhile is valid"
        self._world.faults.hit(TOO_LATE if changed else TOLD)
        return ""

    # --- the end of an epoch, and of the run ---------------------------------------------------------------

    def made_again(self, epoch: int, entries: Sequence[Entry]) -> str:
        """Make all forecasts of an epoch again from its log; returns what differs, empty if nothing does."""
        bases: dict[int, list[Made]] = {}
        for made in self._made:
            if made.epoch == epoch:
                bases.setdefault(made.offset, []).append(made)
        self._made = [made for made in self._made if made.epoch != epoch]
        state = State(epoch=epoch)
        for entry in entries if bases else ():
            apply_entry(state, entry, Changes())
            for made in bases.get(entry.last, ()):
                if _digest(snapshot.encode(state)) != made.digest:
                    continue  # made on a tail that the log has lost
                self.again += 1
                first = self.settings(Settings()).forecast_jobs
                found = forecast(state, made.config, made.time_ms, first=first, policies=made.policies)
                again = tuple(news(state, found))
                if again != made.events:
                    return f"the forecast at {made.offset} comes out differently: {made.events} and then {again}"
        return ""

    def unsettled(self) -> list[tuple[str, str]]:
        """(UID, the problem) of each job whose status shows another start than the log."""
        state, found = self._world.oracle.state, []
        last = {event.job_uid: event for _, event in self._valid}
        for (_, name), stored in sorted(self._world.store.collection(TYJOBS).objects.items()):
            job, told = state.jobs.get(stored.uid), _told(stored.object)
            if job is None:
                continue
            starts = {0}
            if not (job.placements or job.ended or refused_by_dry_run(job) or refused_when_started(job)):
                event, reserved = last.get(job.uid), state.reservations.get(job.uid)
                if event is not None and event.based_on == job.version:
                    starts = {event.expected_ms}
                if reserved is not None and (reserved.decided.start_ms or reserved.decided.awaits):
                    reserved_ms = reserved.decided.start_ms  # 0: it waits for an end of which nothing is known
                    # Which of both counts depends on others, and on when the reservation was last looked at.
                    both = reserved_ms and starts != {0} and not promises_start(state, job)
                    starts = {reserved_ms, *(starts if both else ())}
            shown = {rfc3339(start_ms) if start_ms else "" for start_ms in starts}
            if told not in shown:
                found.append((job.uid, f"the status of {name} says that it starts {told or 'some time'}, not {shown}"))
        return found


def _fails_first(state: State, job: JobRecord) -> bool:
    """Whether a job waits for the success of one that runs for longer than its deadline lets it."""
    names = [of.name for of in job.valid_spec.unmet if of.on_failure == OnFailure.FAIL]
    first = [of for name in names if (of := state.find_job(job.seen.namespace, name)) is not None and not of.ended]
    specs = [of.spec for of in first if of.spec is not None and not of.spec.terminating]
    return any(of.deadline_s is not None and (of.expected_s or 0) > of.deadline_s for of in specs)


def _told(job: Mapping[str, Any]) -> str:
    return str((job.get("status") or {}).get("expectedStartTime", ""))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _differs(before: k.JobSeen, now: k.JobSeen) -> bool:
    """Whether a user has changed what the product reads of a TYJob; other edits only raise its generation."""
    return (before.spec, before.faults, before.deleting) != (now.spec, now.faults, now.deleting)
