"""Checks that the API server responds, serves TYJobs, and belongs to the log's cluster, and that our log holds it.

A watcher also looks whether the definition of TYJobs is being deleted. While a finalizer keeps it, TYJobs are still
served, but the API server deletes them all, and those that come later go with the definition.
"""

import math
from contextlib import aclosing

from arranger.errors import ClusterError
from arranger.kube.cluster import CRDS, TYJOBS, ApiError
from arranger.kube.times import parse_time_ms
from arranger.workers.log.identity import ClusterIdentity, refusal
from arranger.workers.parts import Parts

#: How often the API server is checked.
_ASK_S = 10.0
#: How often the definition is looked at.
_DEFINITION_S = 30.0
#: The definition of TYJobs.
DEFINITION = f"{TYJOBS.plural}.{TYJOBS.group}"
#: The problem before the first check.
NOT_ASKED = "not asked yet"


class ApiCheck:
    """Periodic checks of the API server."""

    def __init__(self, parts: Parts, identity: ClusterIdentity) -> None:
        assert parts.cluster is not None
        self._parts = parts
        self._cluster = parts.cluster
        #: Whether this process watches the whole cluster: only then it has the right to read the definition.
        self.watches = False
        self.identity = identity
        #: The problem that the last check found; empty if none.
        self.problem = NOT_ASKED
        #: The finalizers that keep the definition of TYJobs, which is being deleted; None if it isn't.
        self.kept_by: tuple[str, ...] | None = None
        #: For how long it has been, in seconds.
        self.deleting_s = 0.0
        self._definition_again_s = -math.inf

    async def run(self) -> None:
        """Check until cancelled.

        Raises `UsageError` if the first response comes from another cluster: the process was started with wrong
        settings. Later its roles only stop writing, because the server at that address may be corrected.
        """
        started = False
        while True:
            self.problem = await self._ask()
            await self._look_at_definition()
            if self.identity.uid and not started:
                started, of_log = True, self._parts.follower.cluster
                if self.identity.foreign(of_log):
                    raise refusal(self._parts.settings.cluster, connected=self.identity.uid, of_log=of_log)
            hold = self._parts.hold
            well = not self.problem and (hold is None or hold.held)
            await self._parts.clock.sleep(_ASK_S if well else 1.0)

    async def _ask(self) -> str:
        try:
            await self.identity.ask()
        except ClusterError:
            return self.identity.problem
        hold = self._parts.hold
        if hold is not None and self.identity.ours(self._parts.follower.cluster):
            try:
                await hold.look()
            except ClusterError as problem:
                return hold.problem or str(problem)
        try:
            async with aclosing(self._cluster.listing(TYJOBS, limit=1)) as pages:
                await anext(aiter(pages))
        except ApiError as refused:
            missing = "the TYJob resource isn't installed: arranger crd | kubectl apply -f -"
            return missing if refused.code == 404 else str(refused)
        except ClusterError as problem:
            return str(problem)
        return ""

    async def _look_at_definition(self) -> None:
        """Note whether the definition of TYJobs is being deleted. Without the right to read it, nobody asks again."""
        now_s = self._parts.clock.monotonic_s()
        if not self.watches or now_s < self._definition_again_s:
            return
        self._definition_again_s = now_s + _DEFINITION_S
        try:
            found = await self._cluster.get(CRDS, None, DEFINITION)
        except ApiError as refused:
            self.kept_by = None
            if refused.code in (401, 403):
                self._definition_again_s = math.inf
            return
        except ClusterError:
            return
        metadata = found["metadata"]
        deleted_ms = parse_time_ms(metadata.get("deletionTimestamp"))
        self.kept_by = tuple(map(str, metadata.get("finalizers") or ())) if deleted_ms else None
        self.deleting_s = max(0.0, (self._parts.clock.now_ms() - deleted_ms) / 1000) if deleted_ms else 0.0
