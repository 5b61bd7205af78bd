"""ResourceQuotas: what they leave, which pods they cover, and that a job beyond one waits and holds nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.kube.translate import job_seen, quota_seen
from arranger.messages.shortages import shortage_text
from arranger.model.job import PodGroup, QuotaTraits, ScheduleState, Stage
from arranger.model.quota import QuotaLack, QuotaScope, covers, used_by
from arranger.model.reasons import Reason, ReasonKind
from arranger.model.template import effective_limits, quota_traits
from arranger.projections import snapshot
from arranger.scheduling.cycle import Cycles
from tests.reasons import lacking_quota
from tests.world import GIB, World, shape


def waits(world: World, job_name: str) -> k.Waits:
    found = world.state.find_job("default", job_name)
    assert found is not None and found.waits is not None
    return found.waits


def held(world: World, name: str, namespace: str = "default") -> int:
    job = world.state.find_job(namespace, name)
    assert job is not None
    return len(job.placements)


# --- the cycle ----------------------------------------------------------------------------------------------


def test_a_quorum_beyond_its_quota_holds_nothing_and_says_which_quota_lacks_what() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("compute", {"requests.cpu": 8000}, {"requests.cpu": 6000})
    world.job("large", workers=3, min_workers=3, worker=shape(cpu=1))
    world.cycle()
    told = waits(world, "large")
    assert (
        held(world, "large") == 0 and not told.shortage.infeasible and told.schedule_state == ScheduleState.UNSCHEDULED
    )
    assert lacking_quota(told) == QuotaLack("compute", "requests.cpu", 4000, 2000, 8000)
    lack = Reason(ReasonKind.QUOTA, "requests.cpu", needed=4000, free=2000, quota="compute")
    assert told.shortage.reasons == ((lack, 1),)
    text = "0 of 4 required pods fit; quota compute has too little requests.cpu (needs 4, 2 left)"
    assert shortage_text(told.shortage) == text


def test_a_job_beyond_its_quota_blocks_nobody() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 2}, {"pods": 0})
    world.job("large", workers=3, min_workers=3, priority=9)
    world.job("small", workers=1, min_workers=1, priority=1)
    world.job("elsewhere", workers=3, min_workers=3, priority=1, namespace="other")
    world.cycle()
    assert (held(world, "large"), held(world, "small"), held(world, "elsewhere", "other")) == (0, 2, 4)


def test_what_a_cycle_places_counts_for_the_jobs_behind_it() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 5})
    for name in ("a", "b", "c"):
        world.job(name, workers=1, min_workers=1, uid=f"uid-{name}")
    world.cycle()
    assert [held(world, name) for name in ("a", "b", "c")] == [2, 2, 0]
    assert lacking_quota(waits(world, "c")) == QuotaLack("few", "pods", 2, 1, 5)


def test_what_is_decided_and_not_yet_seen_counts_and_what_is_seen_is_used() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 4})
    first = world.job("first", workers=1, min_workers=1)
    world.cycle()
    world.job("second", workers=2, min_workers=2)
    world.cycle()
    assert lacking_quota(waits(world, "second")) == QuotaLack("few", "pods", 3, 2, 4)
    for slot, node in list(first.placements.items()):
        world.run_pod(first, slot, node)
    world.quota("few", {"pods": 5}, {"pods": 2})
    assert world.changes.schedulable
    world.cycle()
    assert held(world, "second") == 3


def test_a_pod_that_is_seen_before_the_quota_that_counts_it_counts_all_the_same() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 4, "requests.cpu": 9000})
    first = world.job("first", workers=1, min_workers=1)
    world.cycle()
    for slot, node in list(first.placements.items()):
        world.run_pod(first, slot, node)
    world.pod("a-stranger", "n1", cpu=1)
    world.job("second", workers=1, min_workers=1)
    world.cycle()
    assert lacking_quota(waits(world, "second")) == QuotaLack("few", "pods", 2, 1, 4)


def test_a_pod_that_was_counted_twice_for_a_moment_frees_what_it_held_when_it_is_seen() -> None:
    """The API server counts a pod before it is created, so the quota may be seen first."""
    world = World()
    cycles = Cycles()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 2})
    first = world.job("first")
    world.cycle()
    world.quota("few", {"pods": 2}, {"pods": 1})
    world.job("second")
    world.say(*cycles.take(world.state, world.config, world.now_ms))
    assert lacking_quota(waits(world, "second")) == QuotaLack("few", "pods", 1, 0, 2)
    world.run_pod(first, (0, 0), "n1")
    assert world.changes.schedulable
    assert any(isinstance(event, k.Placed) for event in cycles.take(world.state, world.config, world.now_ms))


def test_further_pods_are_as_many_as_the_quota_takes() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 4})
    world.job("elastic", workers=8, min_workers=1)
    world.cycle()
    told = waits(world, "elastic")
    assert held(world, "elastic") == 4 and told.schedule_state == ScheduleState.PARTLY
    assert lacking_quota(told) == QuotaLack("few", "pods", 1, 0, 4)
    assert shortage_text(told.shortage) == "2 of 7 further pods fit; quota few has too little pods (needs 1, 0 left)"
    world.quota("few", {"pods": 9}, {"pods": 4})
    world.settle()
    assert held(world, "elastic") == 9


def test_a_quota_that_could_never_take_the_quorum_says_so_and_fails_nobody() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 2})
    job = world.job("large", workers=3, min_workers=3)
    world.cycle()
    assert shortage_text(waits(world, "large").shortage).endswith("; even an empty namespace can't hold it (hard 2)")
    world.pass_time(3600)
    world.cycle()
    assert not waits(world, "large").shortage.infeasible and job.schedule_state == ScheduleState.UNSCHEDULED
    world.quota("few", {"pods": 4})
    assert world.changes.schedulable
    world.settle()
    assert job.stage == Stage.RUNNING


@pytest.mark.parametrize("how", ["raised", "gone", "less used", "unknown"])
def test_a_scheduler_that_had_nothing_to_say_takes_a_cycle_when_a_quota_leaves_more(how: str) -> None:
    world = World()
    cycles = Cycles()
    world.node("n1")
    world.quota("few", {"pods": 1}, {"pods": 1})
    job = world.job("a")
    world.say(*cycles.take(world.state, world.config, world.now_ms))
    assert cycles.take(world.state, world.config, world.now_ms) == ()
    if how == "raised":
        world.quota("few", {"pods": 2}, {"pods": 1})
    elif how == "gone":
        world.quota_gone("few")
    elif how == "less used":
        world.quota("few", {"pods": 1}, {"pods": 0})
    else:
        world.say(k.WatchRefused(k.Watched.QUOTA, world.watch_quotas(), 403))
    world.say(*cycles.take(world.state, world.config, world.now_ms))
    assert job.placements


def test_a_scheduler_that_had_nothing_to_say_notices_what_a_pod_without_a_node_uses() -> None:
    world, cycles = World(), Cycles()
    world.node("n1")
    world.quota("few", {"pods": 3})
    world.job("large", workers=3, min_workers=3)
    world.cycle()
    acts: list[tuple[Callable[[], object], int]] = [
        (lambda: world.pod("unbound", phase="Pending"), 2),
        (lambda: world.change_pod("uid-unbound", phase="Failed"), 3),
        (lambda: world.change_pod("uid-unbound", phase="Pending"), 2),
        (lambda: world.pod_gone("uid-unbound"), 3),
    ]
    for act, left in acts:
        world.pass_time(world.config.reasons_refresh_ms / 1000)
        assert cycles.take(world.state, world.config, world.now_ms) == ()
        act()
        world.say(*cycles.take(world.state, world.config, world.now_ms))
        assert lacking_quota(waits(world, "large")) == QuotaLack("few", "pods", 4, left, 3)


def test_workers_of_the_set_that_the_quota_takes_make_up_the_quorum() -> None:
    world = World()
    world.node("n1", cpu=64, gpus=8)
    world.quota("no-gpus", {"requests.nvidia.com/gpu": 0})
    sets = [("gpu", 2, shape(cpu=1, gpus=1)), ("cpu", 2, shape(cpu=1))]
    job = world.job("mixed", leader=shape(cpu=1), workers=sets, min_workers=2)
    world.cycle()
    assert sorted(job.placements) == [(0, 0), (2, 0), (2, 1)]


def test_a_quota_that_is_gone_or_unknown_limits_nobody() -> None:
    for ending in ("gone", "refused"):
        world = World()
        world.node("n1")
        world.quota("none", {"pods": 0})
        job = world.job("a")
        world.cycle()
        assert not job.placements
        if ending == "gone":
            world.quota_gone("none")
        else:
            world.say(k.WatchRefused(k.Watched.QUOTA, world.terms[k.Watched.QUOTA], 403))
        assert world.changes.schedulable and not world.state.quotas and world.state.synced
        world.cycle()
        assert job.placements


def test_jobs_alike_in_two_namespaces_each_go_by_their_own_quota() -> None:
    world = World()
    world.node("n1", cpu=64)
    world.quota("few", {"pods": 2}, namespace="poor")
    for n in range(3):
        world.job(f"poor-{n}", workers=1, min_workers=1, namespace="poor", created=n)
        world.job(f"rich-{n}", workers=1, min_workers=1, namespace="rich", created=n)
    world.cycle()
    assert [held(world, f"poor-{n}", "poor") for n in range(3)] == [2, 0, 0]
    assert [held(world, f"rich-{n}", "rich") for n in range(3)] == [2, 2, 2]


def test_a_quota_whose_use_nobody_has_counted_yet_leaves_nothing() -> None:
    """The API server refuses every pod then: "status unknown for quota"."""
    world = World()
    world.node("n1")
    term = world.watch_quotas()
    world.say(k.QuotaSeen(term, "default", "new", "u", "1", (("pods", 5),), ()))
    job = world.job("a")
    world.cycle()
    assert not job.placements and lacking_quota(waits(world, "a")) == QuotaLack("new", "pods", 1, 0, 5)


def test_an_overdrawn_resource_that_a_pod_does_not_use_keeps_it_from_nothing() -> None:
    world = World()
    world.node("n1", gpus=4)
    world.quota("over", {"requests.nvidia.com/gpu": 1, "pods": 9}, {"requests.nvidia.com/gpu": 3, "pods": 3})
    whole = world.job("whole", workers=2, min_workers=2)
    world.settle()
    assert whole.stage == Stage.RUNNING


# --- what is known of it --------------------------------------------------------------------------------------


def test_nobody_decides_while_quotas_are_watched_and_not_yet_listed() -> None:
    world = World()
    term = world.say(k.WatchClaimed(k.Watched.QUOTA, "test"))
    assert not world.state.synced
    world.say(k.ListingEnded(k.Watched.QUOTA, term, "1"))
    assert world.state.synced


def test_a_log_in_which_nobody_watches_quotas_decides_as_ever() -> None:
    world = World()
    assert world.state.synced and k.Watched.QUOTA not in world.state.terms


def test_a_refused_watch_that_is_heard_again_counts_again() -> None:
    world = World()
    term = world.watch_quotas()
    world.say(k.WatchRefused(k.Watched.QUOTA, term, 403))
    assert world.state.unwatched == {k.Watched.QUOTA: 403}
    world.say(k.ListingEnded(k.Watched.QUOTA, term, "2"))
    assert world.state.unwatched == {} and world.state.listed[k.Watched.QUOTA]


def test_a_quota_of_another_uid_is_not_the_one_that_went() -> None:
    world = World()
    world.quota("few", {"pods": 2})
    term = world.terms[k.Watched.QUOTA]
    world.say(k.ObjectGone(k.Watched.QUOTA, term, "default", "few", "uid-of-an-earlier-one"))
    assert "few" in world.state.quotas["default"]
    world.say(k.ObjectGone(k.Watched.QUOTA, term - 1, "default", "few", "uid-few"))
    assert "few" in world.state.quotas["default"]
    world.quota_gone("few")
    assert world.state.quotas == {}


@pytest.mark.parametrize(
    ("hard", "used", "noticed"),
    [
        ({"pods": 3}, {"pods": 2}, True),
        ({"pods": 2}, {"pods": 1}, True),
        ({"cpu": 1000}, {"cpu": 1000}, True),
        ({"pods": 2}, {"pods": 2}, False),
        ({"pods": 1}, {"pods": 2}, False),
    ],
)
def test_a_cycle_is_asked_for_at_once_when_a_quota_may_leave_more(
    hard: dict[str, int], used: dict[str, int], noticed: bool
) -> None:
    world = World()
    world.quota("few", {"pods": 2}, {"pods": 2})
    world.quota("few", hard, used)
    assert world.changes.schedulable == noticed


def test_quotas_stand_in_a_snapshot() -> None:
    world = World()
    world.quota("b", {"pods": 2}, namespace="z")
    world.quota("a", {"pods": 2}, scopes=[QuotaScope("BestEffort")])
    world.say(k.WatchRefused(k.Watched.NODE, world.terms[k.Watched.NODE], 403))
    content = snapshot.encode(world.state)
    again = snapshot.restore(content)
    assert again.quotas == world.state.quotas and again.unwatched == {k.Watched.NODE: 403}
    assert snapshot.encode(again) == content


# --- what a pod uses, as the API server counts ----------------------------------------------------------------------


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_a_pod_uses_its_requests_its_limits_and_a_pod() -> None:
    asked = shape(cpu=2, memory=GIB, gpus=1, **{"hugepages-2Mi": 4 << 20, "ephemeral-storage": 9})
    group = PodGroup("g", 1, asked, QuotaTraits(limits=(("cpu", 3000), ("nvidia.com/gpu", 1))))
    assert used_by(group) == {
        "pods": 1, "count/pods": 1, "cpu": 2000, "requests.cpu": 2000, "memory": GIB, "requests.memory": GIB,
        "requests.nvidia.com/gpu": 1, "hugepages-2Mi": 4 << 20, "requests.hugepages-2Mi": 4 << 20,
        "ephemeral-storage": 9, "requests.ephemeral-storage": 9, "limits.cpu": 3000,
    }  # fmt: skip


def test_limits_count_containers_together_init_containers_at_least_and_what_is_said_for_the_pod() -> None:
    spec = {
        "containers": [container(limits={"cpu": "1", "memory": "1Gi"}), container(limits={"cpu": "500m"})],
        "initContainers": [
            {**container(limits={"cpu": "250m"}), "restartPolicy": "Always"},
            container(limits={"cpu": "4"}),
        ],
        "overhead": {"cpu": "100m", "ephemeral-storage": "1Gi"},
    }
    assert dict(effective_limits(spec)) == {"cpu": 4350, "memory": GIB}
    assert dict(effective_limits({**spec, "resources": {"limits": {"cpu": "8"}}}))["cpu"] == 8100


PLAIN = PodGroup("g", 1, shape(cpu=1))
LIGHT = PodGroup("g", 1, shape())


@pytest.mark.parametrize(
    ("scope", "group", "covered"),
    [
        (QuotaScope("BestEffort"), LIGHT, False),
        (QuotaScope("NotBestEffort"), LIGHT, False),
        (QuotaScope("BestEffort"), PLAIN, False),
        (QuotaScope("NotBestEffort"), PLAIN, True),
        (QuotaScope("BestEffort"), PodGroup("g", 1, shape(gpus=1), QuotaTraits(limits=(("cpu", 1),))), False),
        (QuotaScope("Terminating"), PLAIN, False),
        (QuotaScope("NotTerminating"), PLAIN, True),
        (QuotaScope("Terminating"), PodGroup("g", 1, shape(), QuotaTraits(has_deadline=True)), True),
        (QuotaScope("PriorityClass", "In", ("high",)), PodGroup("g", 1, shape(), QuotaTraits((), False, "high")), True),
        (
            QuotaScope("PriorityClass", "NotIn", ("high",)),
            PodGroup("g", 1, shape(), QuotaTraits((), False, "low")),
            True,
        ),
        (QuotaScope("PriorityClass", "Exists"), PodGroup("g", 1, shape(), QuotaTraits((), False, "low")), True),
        (QuotaScope("PriorityClass", "In", ("high",)), PLAIN, False),
        (QuotaScope("PriorityClass", "NotIn", ("high",)), PLAIN, False),
        (QuotaScope("CrossNamespacePodAffinity"), PLAIN, False),
        (QuotaScope("SomethingNewer"), PLAIN, False),
    ],
)
def test_a_quota_covers_the_pods_of_its_scopes(scope: QuotaScope, group: PodGroup, covered: bool) -> None:
    assert covers([scope], group) == covered


def test_a_template_tells_what_scopes_ask_about() -> None:
    term = {"topologyKey": "zone", "namespaces": ["b"]}
    spec: dict[str, Any] = {
        "activeDeadlineSeconds": 60,
        "priorityClassName": "high",
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}
        },
        "containers": [container(limits={"cpu": "1"})],
    }
    assert quota_traits(spec) == QuotaTraits((("cpu", 1000),), True, "high", True)
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}}
    leader = {"name": "l", "template": template}
    job = {"metadata": {"name": "j"}, "spec": {"leader": leader, "workerSets": [{"name": "w", "template": template}]}}
    seen = job_seen(job, 1, with_status=False)
    assert seen.spec is not None, seen.faults
    assert [group.traits.limits for group in seen.spec.groups] == [(("cpu", 2000),)] * 2


def test_of_a_quota_what_concerns_pods_is_seen_in_the_resources_units() -> None:
    amounts = {
        "limits.cpu": "2500m", "requests.memory": "1Gi", "pods": "4", "requests.nvidia.com/gpu": "8", "services": "3",
        "requests.storage": "9Gi", "count/jobs.batch": "2", "gold.storageclass.storage.k8s.io/requests.storage": "1",
        "requests.hugepages-2Mi": "4Mi",
    }  # fmt: skip
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    quota = {
        "metadata": {"namespace": "a", "name": "q", "uid": "u", "resourceVersion": "7"},
        "spec": {"hard": {"pods": "9"}, "scopes": ["NotBestEffort"], "scopeSelector": selector},
        "status": {"hard": amounts, "used": {"pods": "1"}},
    }
    seen = quota_seen(quota, 3)
    assert dict(seen.hard) == {
        "limits.cpu": 2500, "requests.memory": GIB, "pods": 4, "requests.nvidia.com/gpu": 8,
        "requests.hugepages-2Mi": 4 << 20,
    }  # fmt: skip
    assert seen.used == (("pods", 1),)
    assert seen.scopes == (QuotaScope("NotBestEffort"), QuotaScope("PriorityClass", "In", ("high",)))
