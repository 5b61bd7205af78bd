"""Tells a webhook of stage changes: fills the outbox from the log, and delivers what is in it.

The two are tasks of their own, with the outbox between them. An event leaves the outbox once the receiver has accepted
it, so it may be sent twice, and never too few times. The next event of a job is sent only after that. So a receiver
that drops IDs that it has seen gets each change once, and the changes of each job in order, even from two senders.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp
import msgspec

from arranger.clock import Clock
from arranger.errors import LogError, UsageError
from arranger.events.log import Entry
from arranger.feeds.cloud_events import CONTENT_TYPE, GAP, of_gap, of_stage
from arranger.feeds.following import Cursor, Gap
from arranger.feeds.outbox import WAITING_MOST, Outbox, OutboxEvent
from arranger.feeds.stage_changes import StageChanges, present
from arranger.logs import log_event
from arranger.metrics import Metrics
from arranger.projections.state import Changes, State
from arranger.workers.flow.backoff import Backoff

_log = logging.getLogger(__name__)

#: How many events one step puts into the outbox, and how many are read from it at once.
_PUT_MOST, _READ_MOST = 1000, 256
#: Events of so many jobs are in flight at once.
IN_FLIGHT = 8
#: The bounds of the waits between two tries.
_FIRST_S, _LONGEST_S = 1.0, 60.0
#: How long the receiver may ask us to wait.
_PATIENCE_S = 3600.0
_ANSWER_S = 30.0
#: How often an empty outbox is looked at, and a full one.
_LOOK_S = 1.0


class Filling:
    """Puts stage changes into the outbox: the receiver of a `Following`."""

    def __init__(self, outbox: Outbox, *, cluster: str, clock: Clock, metrics: Metrics) -> None:
        self._outbox = outbox
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._changes = StageChanges(State())
        self._cursor: Cursor | None = None
        #: Offset and content of the events that aren't in the outbox yet.
        self._made: list[tuple[int, bytes]] = []

    async def cursor(self) -> Cursor | None:
        self._cursor = await self._outbox.cursor()
        return self._cursor

    async def begin(self, state: State, gap: Gap | None) -> None:
        self._changes, self._made = StageChanges(state), []
        if gap is None:
            return
        self._metrics.webhook_gaps.inc()
        told = [of_gap(gap, self._cluster)]
        told += [of_stage(one, self._cluster, gap.epoch, gap.offset, repeated=True) for one in present(state)]
        began = Cursor(gap.epoch, gap.offset)
        if await self._outbox.put(self._cursor, began, [event.encoded() for event in told]) != self._cursor:
            raise LogError("another process moved the webhook's cursor")
        self._cursor = began

    async def take(self, state: State, entry: Entry, changes: Changes) -> None:
        for change in self._changes.after(state, changes.jobs):
            event = of_stage(change, self._cluster, state.epoch, entry.last)
            self._made.append((entry.last, event.encoded()))
        if len(self._made) >= _PUT_MOST:
            await self.passed(entry.last)

    async def passed(self, offset: int) -> None:
        while self._cursor is not None and offset > self._cursor.offset:
            while (waiting := await self._outbox.waiting()) >= WAITING_MOST:
                await self._clock.sleep(_LOOK_S)
            self._metrics.webhook_waiting.set(waiting + len(self._made))
            before, after = self._cursor, Cursor(self._cursor.epoch, offset)
            made = [content for at, content in self._made if at > before.offset]
            held = await self._outbox.put(before, after, made)
            if held == before:
                self._cursor, self._made = after, []
            elif held is None or held.epoch != before.epoch:
                raise LogError("another process moved the webhook's cursor")
            else:  # another sender was faster
                self._cursor = held


class _Sent(msgspec.Struct):
    """The head of an event, for its order."""

    id: str
    type: str
    partitionkey: str = ""


class Delivery:
    """Delivers what is in the outbox, oldest first."""

    def __init__(
        self,
        outbox: Outbox,
        url: str,
        *,
        clock: Clock,
        metrics: Metrics,
        token: Callable[[], str] = str,
        first_s: float = _FIRST_S,
    ) -> None:
        """`token` gives the bearer token, "" for none; it is asked before each request. `first_s` is the wait after
        the first failure, in seconds."""
        self._outbox = outbox
        self._url = url
        self._clock = clock
        self._metrics = metrics
        self._token = token
        self._first_s = first_s
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        #: Why the last try failed, empty if it didn't.
        self.problem = ""
        #: The events that were read and aren't delivered, the oldest first: since when each waits.
        self._since_ms: dict[str, int] = {}
        metrics.webhook_age.set_function(self._age_s)

    async def run(self) -> None:
        """Deliver until cancelled."""
        backoff = Backoff(self._clock)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session:
            while True:
                failed, delivered = False, False
                try:
                    delivered = await self._some(session)
                    backoff.reset()
                except* LogError as problems:
                    problem = problems.exceptions[0]
                    log_event(_log, "the outbox can't be read", level=logging.WARNING, problem=problem)
                    failed = True
                if failed:
                    await backoff.wait()
                elif not delivered:
                    await self._outbox.added(_LOOK_S)

    async def _some(self, session: aiohttp.ClientSession) -> bool:
        """Deliver the oldest events; returns False if there are none."""
        events = await self._outbox.first(_READ_MOST)
        self._since_ms = {event.id: event.since_ms for event in events}
        self._metrics.webhook_waiting.set(await self._outbox.waiting())
        jobs: dict[str, list[tuple[_Sent, OutboxEvent]]] = {}
        for event in events:
            head = msgspec.json.decode(event.content, type=_Sent)
            if head.type == GAP:  # before everything that comes after it
                await self._deliver_all(session, jobs)
                jobs = {}
                await self._deliver_all(session, {"": [(head, event)]})
            else:
                jobs.setdefault(head.partitionkey, []).append((head, event))
        await self._deliver_all(session, jobs)
        return bool(events)

    async def _deliver_all(
        self, session: aiohttp.ClientSession, jobs: dict[str, list[tuple[_Sent, OutboxEvent]]]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for events in jobs.values():
                group.create_task(self._deliver(session, events))

    async def _deliver(self, session: aiohttp.ClientSession, events: Sequence[tuple[_Sent, OutboxEvent]]) -> None:
        """Deliver the events of one job, each after the one before was accepted."""
        for head, event in events:
            backoff = Backoff(self._clock, first_s=self._first_s, longest_s=_LONGEST_S)
            while True:
                async with self._turns:
                    problem, wait_s = await self._try(session, event)
                self._metrics.webhook_events.labels("failed" if problem else "delivered").inc()
                if problem and not self.problem:
                    log_event(_log, "the webhook fails", level=logging.WARNING, event=head.id, problem=problem)
                elif self.problem and not problem:
                    log_event(_log, "the webhook answers again", event=head.id)
                self.problem = problem
                if not problem:
                    break
                await self._clock.sleep(max(wait_s, backoff.next_s()))
            await self._outbox.remove(event)
            del self._since_ms[event.id]

    async def _try(self, session: aiohttp.ClientSession, event: OutboxEvent) -> tuple[str, float]:
        """Send an event; returns the problem, "" if it was accepted, and the wait that the receiver asks for."""
        headers = {"Content-Type": CONTENT_TYPE}
        try:
            if token := self._token():
                headers["Authorization"] = f"Bearer {token}"
            async with session.post(self._url, data=event.content, headers=headers, allow_redirects=False) as answer:
                if 200 <= answer.status < 300:
                    return "", 0.0
                return f"HTTP status {answer.status}", self._asked_wait_s(answer.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, TimeoutError, OSError, UsageError) as problem:
            return str(problem) or type(problem).__name__, 0.0

    def _asked_wait_s(self, text: str) -> float:
        """The wait that the header Retry-After asks for, in seconds: a number of them, or a date."""
        try:
            wait_s = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - self._now_s()
        except (ValueError, TypeError):
            return 0.0
        return min(max(wait_s, 0.0), _PATIENCE_S)

    def _age_s(self) -> float:
        """For how many seconds the oldest event has been waiting."""
        return max(0.0, self._now_s() - next(iter(self._since_ms.values())) / 1000) if self._since_ms else 0.0

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def url_of(text: str) -> str:
    """The URL of a webhook: `text`, or with `file:PATH` what is in that file. Raises `UsageError` if it is none."""
    url = read_secret(Path(text.removeprefix("file:"))) if text.startswith("file:") else text
    if not url.startswith(("http://", "https://")):
        raise UsageError("the webhook's URL can't be used", hint="it begins with https:// or http://")
    return url


def read_secret(path: Path) -> str:
    """What is in a file, without white space around it. Raises `UsageError`."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"can't read {path}: {problem}") from problem
