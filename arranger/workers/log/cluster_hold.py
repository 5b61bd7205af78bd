"""One cluster, one log: whether our log is the one that works on this Kubernetes cluster.

Two installations on one cluster would each take the other's pods and statuses for news, give the same room twice, and
end each other's jobs. So a log works on a cluster only while the ClusterLog `arranger` names it as the holder. Every
process reads that object every ten seconds, and writes nothing to the API server if it hasn't for twice that time. The
watchers write it, by comparison of its version.

Another log takes over if the holder hands it over on purpose, which it does only once a watcher of that log has written
that it is there; or if it has the holder's name and the holder is silent:
Redis was lost, and so was the memory of all processes. A process that has held the cluster itself goes on in the next
epoch at once.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arranger.clock import Clock
from arranger.errors import ClusterError
from arranger.kube.cluster import CLUSTER_LOGS, ApiError, Cluster, Object
from arranger.kube.cluster_logs import NAME, LogHolder, LogId, holders, is_of, with_holders
from arranger.logs import log_event
from arranger.model.text import rfc3339
from arranger.workers.log.follower import Follower
from arranger.workers.log.identity import ClusterIdentity

_log = logging.getLogger(__name__)

#: A process whose last successful look is older than this writes nothing to the API server.
FRESH_S = 20.0
#: The holder gives the cluster up this long after it stopped writing: the last look of each of its other processes is
#: then no longer fresh, and what they had in flight has ended.
GIVE_UP_S = 35.0
#: A holder that renews nothing for this long is silent.
SILENT_S = 45.0
#: Where a pod finds the namespace that it runs in.
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_MISSING = "the ClusterLog resource isn't installed: arranger crd | kubectl apply -f -"
_FORBIDDEN = (
    "may not {} the ClusterLog {}, which names the log of this cluster: the permission is missing (apply deploy/ again)"
)


class NotHolder(ClusterError):
    """Our log doesn't hold the cluster, so this process may not write there."""


def name_of_log(cluster: str) -> str:
    """The name of the log of processes with this setting `cluster`, among all installations on a Kubernetes cluster."""
    try:
        return f"{_POD_NAMESPACE.read_text(encoding='utf-8').strip()}/{cluster}"
    except OSError:  # not a pod
        return cluster


class ClusterHold:
    """Whether our log, which `log` folds, holds the cluster, as of the last look.

    `namespace` is the only one of its jobs, empty for all. `claims` is whether we may write the ClusterLog: it
    writes nothing before `identity` is confirmed.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        namespace: str,
        claims: bool,
        log: Follower,
        identity: ClusterIdentity,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._claims = claims
        self._follower = log
        self._identity = identity
        self._clock = clock
        #: The name of our log.
        self.name = name
        #: The other log that holds the cluster, as of the last look; None if none does.
        self.holder: LogHolder | None = None
        #: Why our log isn't known to hold the cluster; empty if it does.
        self.problem = "not asked yet"
        self._held = False
        self._looked_s = 0.0
        #: The epochs of our log in which it held the cluster, as far as this process knows.
        self._ours: set[int] = set()
        #: When this process first saw each holder as it is now.
        self._since_s: dict[LogHolder, float] = {}
        #: The renewal of our log that was seen last.
        self._renewed = ""

    @property
    def held(self) -> bool:
        """Whether our log held the cluster at the last look."""
        return self._held

    def fresh(self) -> bool:
        """Whether our log held the cluster just now."""
        return self._held and self._clock.monotonic_s() - self._looked_s < FRESH_S

    async def look(self) -> None:
        """Read the ClusterLog, and write it if our log may hold the cluster, or has to give it up.

        Raises `ClusterError` if that fails; what was known before is kept then.
        """
        log = LogId(self.name, self._follower.state.epoch)
        if not log.epoch:
            return
        now_s = self._clock.monotonic_s()  # from here on, what is read may be outdated
        stored = await self._read()
        found = _holders(stored)
        self._note(found, now_s)
        ours = next((one for one in found if is_of(one, log, self._namespace)), None)
        if ours is not None and ours.leaves():
            await self._give_up(stored, found, ours, now_s)
        elif ours is not None:
            await self._keep(stored, found, ours, log)
        else:
            await self._begin(stored, found, log, now_s)

    async def _keep(self, stored: Object | None, found: Sequence[LogHolder], ours: LogHolder, log: LogId) -> None:
        """Go on, and renew our entry unless another process does."""
        self._is_ours(log)
        if ours.renewed != self._renewed:
            self._renewed = ours.renewed
        else:
            renewed = msgspec.structs.replace(ours, renewed=rfc3339(self._clock.now_ms()))
            await self._take(stored, [one for one in found if one is not ours], renewed)

    async def _begin(self, stored: Object | None, found: Sequence[LogHolder], log: LogId, now_s: float) -> None:
        """Take the cluster, unless another log holds it."""
        others = [one for one in found if one.meets(self._namespace)]
        refusing = next((one for one in others if not self._yields(one, log, now_s)), None)
        if refusing is not None:
            self._is_not_ours(refusing, _refusal(refusing, log))
            await self._say_ready(stored, found, refusing, log)
            return
        if any(one.epoch in self._ours for one in others):
            self._is_ours(log)
        elif not self._claims:
            self._is_not_ours(None, "no watcher of this log has taken the cluster yet")
        now = rfc3339(self._clock.now_ms())
        entry = LogHolder(self._namespace, log.name, now, log.epoch, renewed=now)
        if await self._take(stored, [one for one in found if one not in others], entry):
            self._is_ours(log)

    async def _say_ready(self, stored: Object | None, found: Sequence[LogHolder], of: LogHolder, log: LogId) -> None:
        """Write that our log is there, if a holder is to hand the cluster over to it."""
        if self._claims and of.hands_over_to(log) and not of.next_ready:
            ready = msgspec.structs.replace(of, next_ready=True)
            await self._write(stored, [ready if one is of else one for one in found])

    # --- rules ---------------------------------------------------------------------------------------------

    def _yields(self, other: LogHolder, log: LogId, now_s: float) -> bool:
        """Whether our log may take over from another one."""
        if other.epoch in self._ours or (not other.epoch and other.log == log.name):
            return True
        silent = now_s - self._since_s[other] >= SILENT_S
        return silent and (other.log == log.name or other.hands_over_to(log))

    def _note(self, found: Sequence[LogHolder], now_s: float) -> None:
        """Note the time of this look, and since when the holders have renewed nothing."""
        if now_s - self._looked_s > FRESH_S:
            self._since_s.clear()  # they may have renewed it meanwhile, or have had no API server for it either
        self._since_s = {one: self._since_s.get(one, now_s) for one in found}
        self._looked_s = now_s

    def _is_ours(self, log: LogId) -> None:
        if not self._held:
            log_event(_log, "this log holds the cluster", log=str(log))
        self._held, self.holder, self.problem = True, None, ""
        self._ours.add(log.epoch)

    def _is_not_ours(self, holder: LogHolder | None, problem: str) -> None:
        if self._held or (problem != self.problem and holder is not None):
            log_event(_log, "this log doesn't hold the cluster", level=logging.WARNING, reason=problem)
        self._held, self.holder, self.problem = False, holder, problem

    # --- the object ----------------------------------------------------------------------------------------

    async def _take(self, stored: Object | None, kept: Sequence[LogHolder], ours: LogHolder) -> bool:
        """Write our log as a holder beside those that are kept; False if this process may not, or another was first."""
        if not self._claims or not await self._write(stored, [*kept, ours]):
            return False
        self._renewed = ours.renewed
        return True

    async def _give_up(self, stored: Object | None, found: Sequence[LogHolder], ours: LogHolder, now_s: float) -> None:
        """Write nothing any more, and a while later let the next log begin."""
        self._is_not_ours(ours, f"this log hands the cluster over to {ours.hand_over_to}")
        if self._claims and now_s - self._since_s[ours] >= GIVE_UP_S:
            to = LogId.parsed(ours.hand_over_to)
            entry = LogHolder(ours.namespace, to.name, rfc3339(self._clock.now_ms()), to.epoch)
            await self._write(stored, [*(one for one in found if one is not ours), entry])

    async def _read(self) -> Object | None:
        try:
            return await self._cluster.get(CLUSTER_LOGS, None, NAME)
        except ApiError as refused:
            if refused.code == 404:
                return None
            self._tell_refusal(refused, "get")
            raise

    async def _write(self, stored: Object | None, of: Sequence[LogHolder]) -> bool:
        """Store the holders, unless another process has done so meanwhile."""
        body = with_holders(of)
        await self._identity.confirm(self._follower.cluster)
        try:
            if stored is None:
                header = {"apiVersion": CLUSTER_LOGS.api_version, "kind": CLUSTER_LOGS.kind, "metadata": {"name": NAME}}
                await self._cluster.create(CLUSTER_LOGS, None, {**header, **body})
            else:
                version = {name: stored["metadata"][name] for name in ("uid", "resourceVersion")}
                await self._cluster.patch(CLUSTER_LOGS, None, NAME, {"metadata": version, **body})
        except ApiError as refused:
            if refused.code == 409 or (refused.code == 404 and stored is not None):
                return False
            self._tell_refusal(refused, "write")
            raise
        return True

    def _tell_refusal(self, refused: ApiError, what: str) -> None:
        if refused.code == 403:
            self.problem = _FORBIDDEN.format(what, NAME)
        elif refused.code == 404:
            self.problem = _MISSING


def _refusal(holder: LogHolder, ours: LogId) -> str:
    at_work = f", last at work {holder.renewed}" if holder.renewed else ", and hasn't begun yet"
    name = str(ours) if ours.name == holder.log else ours.name
    return (
        f"another log, {holder.log_id}, holds this cluster since {holder.since}{at_work}, so this one writes nothing: "
        f"stop these processes, or hand the cluster over to them (arranger hand-over --to {name})"
    )


def _holders(stored: Object | None) -> tuple[LogHolder, ...]:
    try:
        return holders(stored) if stored is not None else ()
    except msgspec.ValidationError as fault:
        raise ClusterError(f"the ClusterLog {NAME} can't be read: {fault}") from fault
