"""Reports the health of a process once a second: to `/healthz` and `/readyz`, and to the other members."""

from arranger.errors import ClockOff
from arranger.workers.health.api_check import DEFINITION, NOT_ASKED, ApiCheck
from arranger.workers.health.http import Health
from arranger.workers.log.identity import ForeignCluster
from arranger.workers.members.problems import ProblemKind
from arranger.workers.parts import Parts
from arranger.workers.roles import Roles

#: The API server sends a bookmark about once a minute. A watch that was silent for twice that time hears nothing, and
#: one that was silent for this long won't recover: the process is to be restarted.
_SILENT_S, _DEAF_S = 120.0, 300.0
#: The roles that are connected to the API server.
_CONNECTED = frozenset({"watcher", "applier"})


class HealthReport:
    """Checks the parts of a process and reports the results."""

    def __init__(self, parts: Parts, roles: Roles, health: Health) -> None:
        self._parts = parts
        self._roles = roles
        self._health = health
        self._problems = parts.problems
        #: The watches that were reported without a problem last.
        self._heard: set[str] = set()

    async def run(self) -> None:
        while True:
            self.tell()
            await self._parts.follower.measure_lag()
            await self._parts.follower.writes.look(self._parts.redis)
            await self._parts.clock.sleep(1.0 if self._health.ready else 0.1)

    def tell(self) -> None:
        follower = self._parts.follower
        self._health.set("log", follower.connected, "the log in Redis can't be reached")
        self._tell_clock()
        # Not ready while Redis refuses writes: no decision of this process is recorded.
        refused = follower.writes.problem
        self._health.set("writes", refused is None, str(refused))
        self._problems.tell(ProblemKind.WRITES_REFUSED, refused is not None, cause=str(refused or ""))
        forged = follower.forgery.entry
        self._problems.tell_one(ProblemKind.FORGED, str(forged.offset) if forged is not None else None)
        if follower.stopped is not None:
            self._health.set("fold", False, str(follower.stopped), vital=True)
        elif forged is not None:
            # A restart would stop at the same entry, so this isn't vital.
            self._health.set("fold", False, str(forged))
        elif follower.refused is not None:
            self._health.set("fold", False, str(follower.refused))
        else:
            self._health.set("fold", follower.caught_up, "the projection isn't caught up with the log", vital=False)
        if self._roles.api is not None:
            self._tell_api(self._roles.api)
        else:
            self._tell_holder()
        self._tell_watches()
        self._tell_archive()
        slow_s = self._parts.effect_times.slow_s()
        self._problems.tell(ProblemKind.SLOW, slow_s > 0, took_ms=round(slow_s * 1000))
        state, lag = follower.state, follower.lag
        self._parts.membership.progress(state.epoch, state.offset, lag=lag, problems=self._problems.present())

    def _tell_clock(self) -> None:
        """Report whether our clock is right, and its offset if not."""
        offset_ms, right = self._parts.time.offset_ms(), self._parts.time.right
        self._parts.metrics.clock_offset.set((offset_ms or 0) / 1000)
        if offset_ms is not None:  # the first comparison is logged if it finds the clock wrong
            self._health.set("clock", right, str(ClockOff(offset_ms)), passing=False)
        self._problems.tell(ProblemKind.CLOCK, offset_ms is not None and not right, off_ms=offset_ms or 0)

    def _tell_api(self, api: ApiCheck) -> None:
        """Report whether the API server works as it should and belongs to the log's cluster. While it is another
        cluster's, the other members do our share."""
        self._health.set("api", not api.problem, api.problem)
        self._tell_definition(api)
        self._problems.tell(ProblemKind.API, api.problem not in ("", NOT_ASKED), cause=api.problem)
        of_log, uid = self._parts.follower.cluster, api.identity.uid
        foreign = api.identity.foreign(of_log)
        self._health.set("cluster", not foreign, str(ForeignCluster(uid, of_log)))
        self._problems.tell(ProblemKind.CLUSTER, foreign, subject=uid)
        hold = self._parts.hold
        if hold is not None:
            self._health.set("holder", hold.held, hold.problem)
            there = hold.holder
            self._problems.tell_one(
                ProblemKind.HELD, str(there.log_id) if there is not None else None, cause=hold.problem
            )
        self._parts.membership.stand_aside(foreign or (hold is not None and not hold.held))

    def _tell_holder(self) -> None:
        """Report what all members say that are connected to the API server, as this process isn't: that another log
        holds the cluster. What is decided here is carried out nowhere then."""
        connected = [one for one in self._parts.membership.seen() if not _CONNECTED.isdisjoint(one.roles)]
        told = [[of.cause for of in one.problems if of.kind == ProblemKind.HELD] for one in connected]
        self._health.set("holder", not told or not all(told), next((causes[0] for causes in told if causes), ""))

    def _tell_definition(self, api: ApiCheck) -> None:
        """Report that the definition of TYJobs is being deleted. The process stays ready: TYJobs are still served."""
        kept_by = api.kept_by
        cause = f"kept by {', '.join(kept_by) or 'nothing'}" if kept_by is not None else ""
        reason = f"the definition {DEFINITION} is being deleted, {cause}"
        self._health.set("definition", kept_by is None, reason, needed=False)
        self._problems.tell(
            ProblemKind.DEFINITION, kept_by is not None, subject=DEFINITION, cause=cause, since_s=api.deleting_s
        )

    def _tell_watches(self) -> None:
        for kind, watcher in self._roles.watchers.items():
            age_s = self._parts.metrics.heard_age_s(kind) or 0.0
            silent = age_s > _SILENT_S
            problem = watcher.problem or (f"silent for {age_s:.0f} s" if silent else "")
            if not problem and kind in self._heard:
                continue
            (self._heard.discard if problem else self._heard.add)(kind)
            self._health.set(f"watch-{kind}", not problem, problem, vital=age_s > _DEAF_S)
            since_s = age_s if silent else 0.0
            self._problems.tell(ProblemKind.WATCH, bool(problem), subject=kind, cause=watcher.problem, since_s=since_s)

    def _tell_archive(self) -> None:
        """Report what archiving reports. The process stays ready, because stopping it would not help."""
        if "archive" in self._roles.tasks:
            problem = next((one for one in self._problems.present() if one.kind == ProblemKind.ARCHIVE), None)
            reason = f"archiving fails: {problem.cause}" if problem is not None else ""
            self._health.set("archive", problem is None, reason, needed=False)
