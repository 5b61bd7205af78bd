"""One cluster, one log: of two installations on a Kubernetes cluster one works, and the other says which one does."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from arranger.cli.commands import hand_over
from arranger.errors import ArrangerError
from arranger.kube.cluster import CLUSTER_LOGS, TYJOBS, ApiError, Object, Resource
from arranger.kube.cluster_logs import NAME, LogId
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.store import Store
from arranger.workers.log.cluster_hold import FRESH_S, GIVE_UP_S, SILENT_S, ClusterHold
from arranger.workers.log.identity import ClusterIdentity
from arranger.workers.watching.observed import ahead_of_log
from tests.stores import store_of_jobs
from tests.world import World


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 1_764_000_000_000 + round(self.now_s * 1000)


class Connection(DirectCluster):
    """A connection whose server may fail, or be changed by somebody between a read and a write."""

    fails: ApiError | None = None
    #: What happens once an object was read.
    after_read: Any = staticmethod(lambda: None)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        if self.fails is not None:
            raise self.fails
        try:
            return await super().get(resource, namespace, name)
        finally:
            if resource == CLUSTER_LOGS:
                self.after_read()


class Process:
    """A process of an installation, as far as it asks who holds the cluster."""

    def __init__(
        self, store: Store, clock: Clock, name: str, *, epoch: int, claims: bool = True, namespace: str = ""
    ) -> None:
        self.connection = Connection(store)
        log: Any = SimpleNamespace(state=SimpleNamespace(epoch=epoch), cluster="")
        self.log = log
        identity = ClusterIdentity(self.connection)
        self.hold = ClusterHold(
            self.connection, name, namespace=namespace, claims=claims, log=log, identity=identity, clock=clock
        )

    def holds(self) -> bool:
        return self.hold.held

    async def looks(self) -> bool:
        await self.hold.look()
        return self.holds()


class Cluster:
    """A Kubernetes cluster, and what its processes do at the same time."""

    def __init__(self) -> None:
        self.store = store_of_jobs(time.time)
        self.clock = Clock()
        self.processes: list[Process] = []

    def process(self, name: str, *, epoch: int, **kinds: Any) -> Process:
        process = Process(self.store, self.clock, name, epoch=epoch, **kinds)
        self.processes.append(process)
        return process

    async def passes(self, seconds: float, *looking: Process) -> None:
        """Let time pass, in which these processes look every five seconds. Never do two logs hold the cluster."""
        until_s = self.clock.now_s + seconds
        while self.clock.now_s < until_s:
            self.clock.now_s = min(until_s, self.clock.now_s + 5.0)
            for process in looking:
                await process.looks()
            fresh = {process.hold.name for process in self.processes if process.hold.fresh()}
            assert len(fresh) <= 1, f"{fresh} hold the cluster at once"

    def stored(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.store.get(CLUSTER_LOGS, "", NAME).object["holders"]
        return found

    def hands_over(self, to: str) -> None:
        (entry,) = self.stored()
        self.store.patch(CLUSTER_LOGS, "", NAME, {"holders": [{**entry, "handOverTo": to}]})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_the_first_log_holds_the_cluster_and_the_second_says_who_does(cluster: Cluster) -> None:
    first, second = cluster.process("default", epoch=1), cluster.process("canary", epoch=2)
    assert await first.looks() and first.hold.fresh() and first.hold.problem == ""
    assert not await second.looks()
    said = second.hold.problem
    assert "default@1" in said and "since 2025-11-" in said and "arranger hand-over --to canary" in said
    assert second.hold.holder is not None and second.hold.holder.log_id == LogId("default", 1)
    await cluster.passes(10 * SILENT_S, first, second)
    assert first.holds() and not second.holds()
    assert [entry["log"] for entry in cluster.stored()] == ["default"]


async def test_another_name_never_takes_over_by_itself(cluster: Cluster) -> None:
    """A renamed installation, or a second release: the silence of the first is no reason."""
    first, second = cluster.process("default", epoch=1), cluster.process("canary", epoch=2)
    await first.looks()
    await cluster.passes(10 * SILENT_S, second)
    assert not second.holds()


async def test_all_processes_of_the_log_hold_it_and_only_watchers_write(cluster: Cluster) -> None:
    applier, watcher = cluster.process("default", epoch=1, claims=False), cluster.process("default", epoch=1)
    assert not await applier.looks() and "no watcher of this log" in applier.hold.problem
    with pytest.raises(Exception, match="not found"):
        cluster.stored()
    assert await watcher.looks() and await applier.looks()


async def test_a_holder_renews_its_entry_and_is_fresh_only_for_a_while(cluster: Cluster) -> None:
    first = cluster.process("default", epoch=1)
    await first.looks()
    renewed = cluster.stored()[0]["renewed"]
    await cluster.passes(30, first)
    assert cluster.stored()[0]["renewed"] > renewed and cluster.stored()[0]["since"] == renewed
    cluster.clock.now_s += FRESH_S + 0.1
    assert first.holds() and not first.hold.fresh(), "it may have been paused, and another log may hold it by now"


async def test_a_log_that_began_again_goes_on_at_once_where_its_processes_live(cluster: Cluster) -> None:
    watcher, applier = cluster.process("default", epoch=1), cluster.process("default", epoch=1, claims=False)
    assert await watcher.looks() and await applier.looks()
    watcher.log.state.epoch = applier.log.state.epoch = 7
    assert await applier.looks(), "its watcher hasn't told the cluster yet, but it is the same installation"
    assert await watcher.looks() and cluster.stored()[0]["epoch"] == 7


async def test_a_lost_log_is_replaced_by_one_of_its_name_once_it_is_silent(cluster: Cluster) -> None:
    lost, fresh = cluster.process("default", epoch=1), cluster.process("default", epoch=9)
    await lost.looks()
    assert not await fresh.looks() and "arranger hand-over --to default@9" in fresh.hold.problem
    await cluster.passes(SILENT_S - 5, fresh)
    assert not fresh.holds()
    await cluster.passes(10, fresh)
    assert fresh.holds()
    assert not await lost.looks(), "it comes back, and is another log now"


async def test_two_logs_of_one_name_dont_take_turns(cluster: Cluster) -> None:
    """Two Redis servers, both installations with the name `default`."""
    one, two = cluster.process("default", epoch=1), cluster.process("default", epoch=2)
    await one.looks()
    await cluster.passes(5 * SILENT_S, one, two)
    assert one.holds() and not two.holds()


async def test_no_silence_is_concluded_from_an_api_server_that_was_away(cluster: Cluster) -> None:
    one, two = cluster.process("default", epoch=1), cluster.process("default", epoch=2)
    await one.looks()
    await two.looks()
    away = ApiError(503, "ServiceUnavailable", "away")
    one.connection.fails = two.connection.fails = away
    for _ in range(20):
        cluster.clock.now_s += 10
        for process in (one, two):
            with pytest.raises(ApiError):
                await process.looks()
    one.connection.fails = two.connection.fails = None
    assert not await two.looks()
    await cluster.passes(60, one, two)
    assert one.holds() and not two.holds()


async def test_a_cluster_is_handed_over_on_purpose(cluster: Cluster) -> None:
    first, applier = cluster.process("default", epoch=1), cluster.process("default", epoch=1, claims=False)
    second = cluster.process("canary", epoch=2)
    for process in (first, applier, second):
        await process.looks()
    cluster.hands_over("canary")
    assert await first.looks(), "nobody has said that it is there"
    assert not await second.looks()
    assert not await first.looks() and "hands the cluster over to canary" in first.hold.problem
    assert applier.hold.fresh() and not await second.looks(), "the applier hasn't seen it yet"
    await cluster.passes(GIVE_UP_S + 10, first, second)
    assert second.holds() and not first.holds() and not applier.hold.fresh()
    assert [(entry["log"], entry["epoch"]) for entry in cluster.stored()] == [("canary", 2)]
    cluster.hands_over("default")
    await cluster.passes(GIVE_UP_S + 10, first, applier, second)
    assert first.holds() and applier.holds() and not second.holds()


async def test_a_cluster_is_handed_over_to_nobody_who_isnt_there(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name stops nothing, and the command takes its request back."""
    monkeypatch.setattr(hand_over, "_ANSWER_S", 0.02)
    monkeypatch.setattr(hand_over, "_LOOK_S", 0.01)
    first, second = cluster.process("default", epoch=1), cluster.process("canary", epoch=2)
    await first.looks()
    administrator = Connection(cluster.store)
    await hand_over._ask(administrator, "canray", None)
    await cluster.passes(2 * GIVE_UP_S, first, second)
    assert first.holds() and cluster.stored()[0]["handOverTo"] == "canray"
    with pytest.raises(ArrangerError, match="no process of canray has said that it is there, so nothing changes"):
        await hand_over._answered(administrator, "canray", None)
    assert "handOverTo" not in cluster.stored()[0]
    await hand_over._ask(administrator, "canary", None)
    await second.looks()
    assert [one.next_ready for one in await hand_over._answered(administrator, "canary", None)] == [True]
    await hand_over._ask(administrator, "default", None)
    await cluster.passes(2 * GIVE_UP_S, first, second)
    assert first.holds(), "it was called back in time"


async def test_a_silent_holder_needs_no_process_to_hand_over(cluster: Cluster) -> None:
    first, second = cluster.process("default", epoch=1), cluster.process("canary", epoch=2)
    await first.looks()
    await second.looks()
    cluster.hands_over("canary")
    await cluster.passes(SILENT_S - 5, second)
    assert not second.holds()
    await cluster.passes(15, second)
    assert second.holds() and not await first.looks()


async def test_a_log_of_the_same_name_is_named_by_its_epoch(cluster: Cluster) -> None:
    one, two = cluster.process("default", epoch=1), cluster.process("default", epoch=2)
    await one.looks()
    cluster.hands_over("default@2")
    await cluster.passes(GIVE_UP_S + 10, one, two)
    assert two.holds() and not one.holds()


async def test_of_two_that_write_at_once_one_holds_the_cluster(cluster: Cluster) -> None:
    one, two = cluster.process("default", epoch=1), cluster.process("canary", epoch=2)
    first = Connection(cluster.store)

    def comes_between() -> None:
        two.connection.after_read = lambda: None
        entry = {"namespace": "", "log": "default", "epoch": 1, "since": "2026-01-01T00:00:00Z"}
        cluster.store.create(
            CLUSTER_LOGS,
            "",
            {"apiVersion": "arranger.dev/v1", "kind": "ClusterLog", "metadata": {"name": NAME}, "holders": [entry]},
        )

    two.connection.after_read = comes_between
    assert not await two.looks() and not await two.looks() and await one.looks()
    await first.close()


async def test_installations_of_disjoint_namespaces_hold_theirs(cluster: Cluster) -> None:
    team, other = (cluster.process(name, epoch=of, namespace=name) for of, name in ((1, "team"), (2, "other")))
    assert await team.looks() and await other.looks()
    whole, twin = cluster.process("default", epoch=3), cluster.process("twin", epoch=4, namespace="team")
    assert not await whole.looks() and "other@2" in whole.hold.problem
    assert not await twin.looks() and "team@1" in twin.hold.problem
    assert await team.looks() and await other.looks()
    assert [entry["namespace"] for entry in cluster.stored()] == ["other", "team"]


async def test_who_may_not_ask_is_told_what_is_missing(cluster: Cluster) -> None:
    first = cluster.process("default", epoch=1)
    first.connection.fails = ApiError(403, "Forbidden", "clusterlogs is forbidden")
    with pytest.raises(ApiError):
        await first.looks()
    assert "apply deploy/ again" in first.hold.problem and not first.holds()
    bare = Process(Store(now=time.time), cluster.clock, "default", epoch=1)
    with pytest.raises(ApiError):
        await bare.looks()
    assert "arranger crd | kubectl apply" in bare.hold.problem


@pytest.mark.parametrize("fields", [{"log": 7}, {"log": "x", "epoch": "soon", "since": "", "namespace": ""}])
def test_what_somebody_else_wrote_there_is_an_error(fields: Object) -> None:
    from arranger.errors import ClusterError
    from arranger.workers.log.cluster_hold import _holders

    with pytest.raises(ClusterError, match="can't be read"):
        _holders({"holders": [fields]})


@pytest.mark.parametrize(("log", "ahead"), [("default", True), ("", True), ("canary", False)])
def test_a_status_of_another_log_says_nothing_of_ours(log: str, ahead: bool) -> None:
    status = {"stage": "Running", "attempt": 4, **({"log": log} if log else {})}
    job = {"metadata": {"uid": "u", "name": "j"}, "status": status}
    assert TYJOBS.kind and ahead_of_log(job, World().state, adopts=False, log="default") is ahead
