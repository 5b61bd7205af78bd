"""Checks that the API server responds, serves TYJobs, and belongs to the log's cluster, and that our log holds it."""

from contextlib import aclosing

from arranger.errors import ClusterError
from arranger.kube.cluster import TYJOBS, ApiError
from arranger.workers.identity import ClusterIdentity, refusal
from arranger.workers.parts import Parts

#: How often the API server is checked.
_ASK_S = 10.0
#: The problem before the first check.
NOT_ASKED = "not asked yet"


class ApiCheck:
    """Periodic checks of the API server."""

    def __init__(self, parts: Parts, identity: ClusterIdentity) -> None:
        assert parts.cluster is not None
        self._parts = parts
        self._cluster = parts.cluster
        self.identity = identity
        #: The problem that the last check found; empty if none.
        self.problem = NOT_ASKED

    async def run(self) -> None:
        """Check until cancelled.

        Raises `UsageError` if the first response comes from another cluster: the process was started with wrong
        settings. Later its roles only stop writing, because the server at that address may be corrected.
        """
        started = False
        while True:
            self.problem = await self._ask()
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
