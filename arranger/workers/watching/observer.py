"""The observer: the work of a watcher under one term. It lists, watches, compares, and appends its observations.

Each append carries the term, and the log refuses it after another process has claimed the watch. An append of changes
also carries the resourceVersion up to which the log is then complete, in the same atomic step. So the projection and a
listing as of that version must agree; a comparison once a minute corrects any difference.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from http import HTTPStatus

from arranger.errors import ClockOff, EpochLost, WatchSuperseded
from arranger.events import kinds as k
from arranger.events.fence import Fence
from arranger.events.log import Appended
from arranger.kube.cluster import ApiError, ClusterUnavailable, Expired, Object, Watchable, WatchEvent
from arranger.kube.sources import SOURCES
from arranger.lifecycle.freshness import awaited_ms
from arranger.logs import log_event
from arranger.model.job import CleanPodPolicy
from arranger.model.validation import tyjob_checks
from arranger.workers.flow.backoff import Backoff
from arranger.workers.flow.cancelling import end
from arranger.workers.flow.pacing import Rests
from arranger.workers.log.identity import ConfirmedCluster
from arranger.workers.log.writer import Writer
from arranger.workers.parts import Parts
from arranger.workers.watching.observed import Seen, Translation, ahead_of_log, known, projected
from arranger.workers.watching.other_schedulers import OtherSchedulers

_log = logging.getLogger(__name__)

#: Changes this close together share one batch. The first after a silence is appended at once.
_GATHER_S = 0.01
#: A watch is requested for this long at most, and until the next comparison is due.
_WATCH_S = 300.0
#: The next comparison is due after this many times the work of the last one: it takes 0.5 % of the time at most.
_COMPARE_TIMES = 200
#: The objects in a page of a comparison, and the rests between its pages in all. Nobody waits for a comparison, and a
#: page delays what somebody waits for; but the API server forgets the listed version after five minutes.
_COMPARE_PAGE, _RESTS_S = 50, 60.0
#: It is not due before this many seconds.
_COMPARE_S = 60.0
#: The cursor during a listing: its pages are newer than any version from which a watch could continue.
_LISTING = "-"

#: The kinds of which the log says up to when everything is known; that is looked for this often, and after some work
#: for it not before this many times as long.
_HEARD = frozenset({k.Watched.POD, k.Watched.NODE})
_HEAR_S, _HEAR_TIMES = 1.0, 10.0
#: No question lets the next one wait longer than this: one that an outage held up says nothing of what they cost.
_HEAR_MOST_S = 30.0

#: The codes with which an API server refuses to read optional kinds, or lacks them.
_REFUSED = frozenset({403, 404, 405})
#: The changes of a watch that tell of an object.
_TOLD = frozenset({"ADDED", "MODIFIED", "DELETED"})
#: A kind that was refused is requested again after this time.
_ASK_AGAIN_S = 300.0


class _Told:
    """The objects of which the watch has told. They are known by UID, and by namespace and name too, because another
    object of the same name is later than what a comparison shows."""

    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.names: set[tuple[str, str]] = set()

    def add(self, changes: Sequence[WatchEvent]) -> None:
        """The watch tells of these changes."""
        for told in (change.object["metadata"] for change in changes if change.type in _TOLD):
            self.uids.add(told["uid"])
            self.names.add((told.get("namespace") or "", told["name"]))

    def clear(self) -> None:
        """Another comparison begins."""
        self.uids.clear()
        self.names.clear()


class _Hearing:
    """What the answers to watches say: each ends a problem, and `heard` is called. That a watch was accepted counts as
    heard too, because nothing may change for a minute; but not after one that was accepted and brought nothing, or a
    deaf watch would never be noticed."""

    def __init__(self, heard: Callable[[], None], tell_problem: Callable[[str], None]) -> None:
        self._heard, self._tell_problem = heard, tell_problem
        #: Whether the last watch was accepted and has brought nothing, and whether that was so before this one.
        self._silent = self._silent_before = False

    def begins(self) -> None:
        """Another watch is requested."""
        self._silent_before, self._silent = self._silent, False

    def accepted(self) -> None:
        self._silent = True
        if not self._silent_before:
            self._heard()
        self._tell_problem("")

    def brought(self) -> None:
        """The watch has brought something."""
        self._silent = False
        self.answered()

    def answered(self) -> None:
        """The API server has answered with objects."""
        self._heard()
        self._tell_problem("")


class Observer:
    """Observes one kind of object under one term of its watch. It reports problems of the API server to `tell_problem`.

    Each cursor begins with the UID of the observed cluster, if that is known. The log's fence knows no clusters: the
    last claim may have been another cluster's, which the fold voided, and its cursor doesn't apply to ours.
    """

    def __init__(
        self, kind: k.Watched, parts: Parts, writer: Writer, claimed: Appended, *, tell_problem: Callable[[str], None]
    ) -> None:
        assert parts.cluster is not None
        self._kind = kind
        self._resource = SOURCES[kind].resource
        self._term, cursor = claimed.first, claimed.cursor
        self._cluster: Watchable = parts.cluster
        if parts.identity is not None:
            self._cluster = ConfirmedCluster(parts.cluster, parts.identity, lambda: parts.follower.cluster)
        self._follower = parts.follower
        self._log_name = parts.hold.name if parts.hold is not None else ""
        self._writer = writer
        self._clock = parts.time
        self._metrics = parts.metrics
        self._relist_s = parts.settings.relist_s
        settings = parts.settings
        self._translation = Translation(
            kind,
            self._term,
            tyjob_checks(parts.installed.names),  # with the names of the installed policies
            CleanPodPolicy(settings.clean_pod_policy),
            settings.schedulers,
            settings.volumes,
            settings.devices,
        )
        self._others = OtherSchedulers(parts)
        self._tell_problem = tell_problem
        self._hearing = _Hearing(partial(self._metrics.heard, kind), tell_problem)
        #: The prefix of every cursor of this cluster.
        self._ours = f"{parts.identity.uid}/" if parts.identity is not None and parts.identity.uid else ""
        version = cursor.removeprefix(self._ours) if cursor.startswith(self._ours) else ""
        #: The resourceVersion up to which the log is complete; empty if only a listing can provide it.
        self._version = version if version != _LISTING and parts.follower.state.listed.get(kind, False) else ""
        self._compare_at_s = 0.0
        self._cycles, self._lifecycle = parts.settings.cycle_config(), parts.settings.lifecycle_config()
        #: The comparison that runs beside the watch, and what the watch has told since it began.
        self._comparing: asyncio.Task[None] | None = None
        self._told = _Told()
        #: Held from the choice of what is appended until it is folded: the later of two observations comes last.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Observe as long as the API server allows it; an optional kind that it refuses is requested again later.

        Ends only by an exception: `WatchSuperseded`, `EpochLost`, or an error of the API server.
        """
        if self._kind not in _HEARD:
            await self._observe()
        parts = {"observing": self._observe(), "hearing": self._hear()}
        tasks = [asyncio.create_task(part, name=f"{name}-{self._kind}") for name, part in parts.items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            self._others.end()
            await end(tasks)

    async def _observe(self) -> None:
        while True:
            try:
                await self._list_and_watch()
            except ApiError as refused:
                if self._kind not in k.OPTIONAL or refused.code not in _REFUSED:
                    raise
                if refused.code == HTTPStatus.NOT_FOUND and await self._find_version():
                    continue
                await self._tell_refused(refused)
                await self._clock.sleep(_ASK_AGAIN_S)
                self._version = ""

    async def _find_version(self) -> bool:
        """Go on with another version of the resource, if the API server has one, as it may since an upgrade. The
        resourceVersions are the same in all of them."""
        refused = self._resource
        for resource in (SOURCES[self._kind].resource, *SOURCES[self._kind].older):
            if resource == refused:
                continue
            try:
                async with aclosing(self._cluster.listing(resource, limit=1)) as pages:
                    await anext(pages)
            except ApiError as problem:
                if problem.code != HTTPStatus.NOT_FOUND:
                    raise
            else:
                self._resource = resource
                log_event(_log, "another version is watched", kind=self._kind, version=resource.api_version)
                return True
        return False

    async def _list_and_watch(self) -> None:
        """Continue where the last watcher stopped, or list; then watch, and compare periodically."""
        if not self._version:
            await self._list("first listing")
        else:
            self._compare_after(0.0)  # compare soon after continuing from a cursor
        backoff = Backoff(self._clock)
        try:
            while True:
                try:
                    if self._comparing is None and self._clock.monotonic_s() >= self._compare_at_s:
                        self._told.clear()
                        self._comparing = asyncio.create_task(self._compare(), name=f"compare-{self._kind}")
                    await self._watch_and_compare()
                    self._tell_problem("")
                    backoff.reset()
                except Expired:
                    await self._end_comparison()
                    await self._list("resourceVersion too old")
                except ClusterUnavailable as problem:
                    self._tell_problem(str(problem))
                    log_event(_log, "watch broke off", level=logging.WARNING, kind=self._kind, problem=problem)
                    await backoff.wait()
        finally:
            await self._end_comparison()

    async def _watch_and_compare(self) -> None:
        """One watch, and meanwhile the comparison that was begun, which may outlast it. Raises what either raises."""
        if self._comparing is None:
            await self._watch()
            return
        comparing = self._comparing
        watching = asyncio.create_task(self._watch(), name=f"changes-{self._kind}")
        try:
            await asyncio.wait([watching, comparing], return_when=asyncio.FIRST_COMPLETED)
            if comparing.done():
                self._comparing = None
                await comparing
            await watching
        finally:
            # Both at once if the watch is cut: it may be in the middle of an append, after which nothing may follow.
            await end([watching] if watching.done() else [watching, comparing])

    async def _end_comparison(self) -> None:
        comparing, self._comparing = self._comparing, None
        if comparing is not None:
            await end([comparing])

    async def _tell_refused(self, refused: ApiError) -> None:
        """Record that the kind is unknown from here on, so that no process waits for it."""
        self._tell_problem("")  # no problem: the refusal is known
        self._metrics.forget(self._kind)
        if self._follower.state.unwatched.get(self._kind) == refused.code:
            return
        # Most clusters lack the definition of some kind of PodGroups, and nobody there misses it.
        usual = refused.code == HTTPStatus.NOT_FOUND and self._kind in k.GROUP_WATCHES.values()
        level = logging.INFO if usual else logging.WARNING
        log_event(_log, "the API server refuses the watch", level=level, kind=self._kind, problem=refused)
        await self._append([k.WatchRefused(self._kind, self._term, refused.code)])

    # --- listing and comparing -----------------------------------------------------------------------------

    async def _list(self, reason: str) -> None:
        """Append the differences between the API server and the projection, and continue from that version."""
        self._metrics.relists.labels(self._kind, reason).inc()
        self._told.clear()
        began_s = self._clock.monotonic_s()
        await self._append([k.ListingBegun(self._kind, self._term)], cursor=_LISTING)
        while True:
            with suppress(Expired):  # the listing took longer than its continuation is valid
                self._version, _, gone = await self._take_listing(begun=True)
                break
        self._compare_after(self._clock.monotonic_s() - began_s)
        if self._kind == k.Watched.POD:
            self._others.listed(self._follower.state)
        objects = len(projected(self._follower.state, self._kind, self._term))
        log_event(_log, "listed", kind=self._kind, objects=objects, gone=gone, reason=reason)

    async def _compare(self) -> None:
        """Compare the projection with the API server's objects at the version up to which the log is complete.

        Both show the same moment, except for what the watch has told since, so any other difference was missed: a
        healthy cluster has none. The watch goes on meanwhile, because a listing of thousands of objects takes a second
        and more. Raises `Expired` if the API server no longer has that version.
        """
        self._metrics.relists.labels(self._kind, "periodic comparison").inc()
        rests, version = Rests(self._clock, in_all_s=_RESTS_S), self._version
        try:
            _, changed, gone = await self._take_listing(at=version, rests=rests)
        except Expired:
            raise
        except (ApiError, ClusterUnavailable) as problem:  # no reason to break the watch off: it may be appending
            log_event(_log, "a comparison failed", level=logging.WARNING, kind=self._kind, problem=problem)
            self._compare_after(0.0)
            return
        self._compare_after(rests.worked_s)
        if changed or gone:
            self._metrics.missed_observations.labels(self._kind).inc(changed + gone)
            told = {"kind": self._kind, "changed": changed, "gone": gone, "version": version}
            log_event(_log, "a comparison found what the watch had missed", level=logging.WARNING, **told)

    def _compare_after(self, listing_s: float) -> None:
        """Set when the next comparison is due, after a listing that took this long."""
        within_s = min(max(_COMPARE_TIMES * listing_s, _COMPARE_S), self._relist_s)
        self._compare_at_s = self._clock.monotonic_s() + within_s

    async def _take_listing(
        self, *, begun: bool = False, at: str = "", rests: Rests | None = None
    ) -> tuple[str, int, int]:
        """Append the differences between a listing and the projection, except for objects of which the watch has told
        since it began. Returns its version and how many objects changed and were deleted. Without differences it
        appends nothing, unless the log has its beginning (`begun`)."""
        there: set[str] = set()
        version, changed = at, 0
        more = {} if begun else {"limit": _COMPARE_PAGE}
        async with aclosing(self._cluster.listing(self._resource, at=at, **more)) as pages:
            async for page in pages:
                version = page.resource_version
                await self._hold_log_to(page.items, listing=True)
                state = self._follower.state
                seen = [self._translation.seen(item, state) for item in page.items]
                there.update(event.uid for event in seen)
                async with self._turn:
                    state = self._follower.state
                    differing = [of for of in seen if _named(of) not in self._told.names and not known(state, of)]
                    if differing:
                        await self._append(differing, cursor="" if begun else self._version)
                        changed += len(differing)
                if rests is not None:
                    await rests.after_step()
        async with self._turn:
            rest = projected(self._follower.state, self._kind, self._term)
            gone = [event for uid, event in rest if uid not in there and uid not in self._told.uids]
            if begun:
                gone.append(k.ListingEnded(self._kind, self._term, version))
            if gone:
                await self._append(gone, cursor=version if begun else self._version)
        self._hearing.answered()
        return version, changed, len(gone) - begun

    # --- what is known up to now ---------------------------------------------------------------------------

    async def _hear(self) -> None:
        """Record up to when everything is known, whenever a decision waits for that."""
        rest_s = _HEAR_S
        while True:
            await self._clock.sleep(rest_s)
            began_s, rest_s = self._clock.monotonic_s(), _HEAR_S
            with suppress(ApiError, ClusterUnavailable, ClockOff):  # then nothing is decided by time
                until_ms, state = self._clock.now_ms(), self._follower.state
                if not self._version or not awaited_ms(state, self._kind, self._cycles, self._lifecycle, until_ms):
                    continue
                latest = await self._latest()
                if not self._has(latest):  # mostly the watch soon tells of something later
                    await self._clock.sleep(_HEAR_S)
                    began_s += _HEAR_S  # a pause costs nothing
                if self._has(latest) or await self._is_as_listed():  # one that has nothing to tell is compared
                    async with self._turn:
                        heard = k.WatchHeard(self._kind, self._term, until_ms)
                        await self._append([heard], cursor=self._version)
            took_s = self._clock.monotonic_s() - began_s
            rest_s = min(max(_HEAR_S, _HEAR_TIMES * took_s), _HEAR_MOST_S)

    async def _latest(self) -> str:
        """The version of the API server now."""
        async with aclosing(self._cluster.listing(self._resource, limit=1)) as pages:
            return (await anext(pages)).resource_version

    def _has(self, version: str) -> bool:
        """Whether the watch has told of everything up to a version. Only versions that are numbers have an order."""
        return version == self._version or (
            version.isdecimal() and self._version.isdecimal() and int(version) <= int(self._version)
        )

    async def _is_as_listed(self) -> bool:
        there: set[str] = set()
        async with aclosing(self._cluster.listing(self._resource)) as pages:
            async for page in pages:
                state = self._follower.state
                seen = [self._translation.seen(item, state) for item in page.items]
                there.update(event.uid for event in seen)
                if not all([known(state, event) for event in seen]):
                    return False
        return all([uid in there for uid, _ in projected(self._follower.state, self._kind, self._term)])

    # --- watching ------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """One watch, until the server ends it."""
        due_s = _COMPARE_S if self._comparing is not None else self._compare_at_s - self._clock.monotonic_s()
        for_s = min(_WATCH_S, max(1.0, due_s))
        self._hearing.begins()
        self._others.tell()
        accepted = self._hearing.accepted
        begun = self._cluster.watch(self._resource, self._version, timeout_s=for_s, accepted=accepted)
        async with aclosing(begun) as batches:
            async for changes in batches:
                self._hearing.brought()
                if self._comparing is not None:
                    self._told.add(changes)
                there = [change.object for change in changes if change.type in ("ADDED", "MODIFIED")]
                await self._hold_log_to(there, listing=False)
                version = changes[-1].resource_version or self._version
                async with self._turn:
                    events = self._translation.news(changes, self._follower.state)
                    await self._others.look(events, changes, self._follower)
                    if events:
                        await self._append(events, cursor=version)
                    self._version = version  # an interrupted watch continues from here: nothing is observed twice
                if events:
                    await self._clock.sleep(_GATHER_S)

    # --- the log -------------------------------------------------------------------------------------------

    async def _append(self, events: Sequence[k.Event], *, cursor: str = "") -> None:
        # Folded before the next comparison, so that `known` covers everything appended.
        stored = f"{self._ours}{cursor}" if cursor else ""
        await self._writer.append_and_fold(events, fence=Fence(self._kind, self._term, stored))
        self._metrics.observations.labels(self._kind).inc(sum(k.watch_of(event) is not None for event in events))

    async def _hold_log_to(self, items: Sequence[Object], *, listing: bool) -> None:
        """Detect a log tail lost while no process ran that had read it: a TYJob's status is then ahead of the log.

        A status is written after the decision that it shows was folded, so the log must have that decision, and so must
        the projection after catching up. Otherwise a new epoch begins, which takes the jobs over from their statuses.
        A status that names another log tells nothing of ours. Raises `EpochLost`, or `WatchSuperseded`: another process
        with a claim may have seen the job's deletion.
        """
        if self._kind != k.Watched.JOB or not self._ahead(items, listing):
            return
        if not await self._follower.catch_up():
            raise EpochLost(f"the epoch of term {self._term} has ended")
        self._check_term()
        names = self._ahead(items, listing)  # `self._follower.state` may be a new object by now
        if names:
            reason = f"the status of TYJob {names[0]} shows a decision that the log doesn't hold: its tail was lost"
            log_event(_log, "the log has lost its tail", level=logging.WARNING, reason=reason)
            epoch = self._follower.state.epoch
            await self._follower.begin_epoch(epoch, reason, fence=Fence(self._kind, self._term))
            raise EpochLost(reason)

    def _check_term(self) -> None:
        if self._follower.state.terms.get(self._kind) != self._term:
            raise WatchSuperseded(f"watch {self._kind} was claimed by another under term {self._term}")

    def _ahead(self, items: Sequence[Object], listing: bool) -> list[str]:
        """Names of the TYJobs whose status is ahead of the projection."""
        state = self._follower.state
        log = self._log_name
        return [item["metadata"]["name"] for item in items if ahead_of_log(item, state, adopts=listing, log=log)]


def _named(event: Seen) -> tuple[str, str]:
    """Its namespace, empty without one, and its name."""
    return getattr(event, "namespace", ""), event.name
