"""Quotas in the answers to questions about a log: what keeps a job, what would help, what would be otherwise."""

from pathlib import Path

import pytest
import yaml

from arranger.cli.inputs.cluster_files import read_objects
from arranger.cli.inputs.cluster_input import described
from arranger.events import kinds as k
from arranger.events.codec import encode_batch
from arranger.messages.shortages import shortage_text
from arranger.model.config import CycleConfig
from arranger.model.job import QuotaTraits
from arranger.model.quota import QuotaLack, QuotaScope
from arranger.model.validation import TYJOB
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.replay.bisect.cycle_conditions import QuorumFits, WouldBePlaced
from arranger.replay.explain.room_words import takes_none_text
from arranger.replay.reading.describe import describe
from arranger.replay.what_if import hypothesis
from arranger.replay.what_if.one_cycle import Variation, vary
from arranger.replay.what_if.overrides import Overrides
from arranger.replay.what_if.quota_account import accounted
from arranger.replay.what_if.simulation import Simulation
from arranger.scheduling.cycle import VERSIONS, take_cycle
from tests.reasons import lacking_quota
from tests.unit.replay_worlds import ROOM, explained, verified
from tests.unit.test_pseudonyms import renamed
from tests.world import World, shape


def short_of_quota() -> tuple[World, JobRecord]:
    """A job of three pods in a namespace whose quotas leave one pod and two cores."""
    world = World()
    world.node("n1", cpu=64)
    running = world.job("running", workers=1, min_workers=1, leader=shape(cpu=1))
    world.settle()
    assert len(running.bound) == 2
    world.quota("few", {"pods": 3}, {"pods": 2})
    world.quota("small", {"requests.cpu": 4000}, {"requests.cpu": 2000})
    job = world.job("large", workers=2, min_workers=2, leader=shape(cpu=1))
    world.cycle()
    return world, job


def test_explain_says_which_quota_lacks_what_and_by_how_much_to_raise_it() -> None:
    world, _ = short_of_quota()
    waiting = explained(world.entries, "large").waiting
    assert waiting is not None and waiting.shortfall is not None
    assert waiting.why == "0 of 3 required pods fit; quota few has too little pods (needs 3, 1 left)"
    assert waiting.shortfall.quota == QuotaLack("few", "pods", 3, 1, 3) and waiting.shortfall.closest is None
    found = {remedy.kind: remedy for remedy in waiting.remedies}
    assert found["quota"].text == "raise pods of quota few by 2 to 5 and raise requests.cpu of quota small by 1 to 5"
    assert found["quota"].pods == 3
    assert found["capacity"].text == "when default/running ends"
    assert not {"node", "nodes", "cordon"} & found.keys()


def test_a_quota_is_to_be_raised_for_the_jobs_ahead_too() -> None:
    world, _ = short_of_quota()
    world.job("later", workers=2, min_workers=2, leader=shape(cpu=1), created=5)
    world.cycle()
    waiting = explained(world.entries, "later").waiting
    assert waiting is not None
    [found] = [remedy for remedy in waiting.remedies if remedy.kind == "quota"]
    words = (
        "raise pods of quota few by 5 to 8 and raise requests.cpu of quota small by 4 to 8, for a job ahead of it too"
    )
    assert (found.text, found.pods) == (words, 3)


@pytest.mark.parametrize("never", ["too many pods", "no node", "a closed queue"])
def test_a_quota_is_not_to_be_raised_for_a_job_ahead_that_could_not_start_then(never: str) -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpus=8)
    gpus = {"requests.nvidia.com/gpu": 10, "pods": 9}
    world.queue("default")
    world.job("run1", leader=shape(gpus=8))
    world.settle()
    world.quota("compute", gpus, {"requests.nvidia.com/gpu": 8, "pods": 1})
    if never == "too many pods":
        world.job("never", leader=None, workers=13, worker=shape(gpus=2), min_workers=13, created=1)
    elif never == "no node":
        world.job("never", leader=shape(gpus=9), created=1)
    else:
        world.queue("few", capability=(("nvidia.com/gpu", 1),))
        world.job("never", leader=shape(gpus=3), created=1, of_queue="few")
    world.job("ahead", leader=shape(gpus=4), created=2)
    world.job("mine", leader=shape(gpus=4), created=3)
    world.cycle()
    waiting = explained(world.entries, "mine").waiting
    assert waiting is not None
    [found] = [remedy.text for remedy in waiting.remedies if remedy.kind == "quota"]
    assert found == "raise requests.nvidia.com/gpu of quota compute by 6 to 16, for a job ahead of it too"


def test_a_quota_is_raised_for_no_more_jobs_ahead_than_take_what_it_lacks() -> None:
    """The large one would be served, too, where it is raised for both."""
    world = World()
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpus=8)
    world.job("run1", leader=shape(gpus=8))
    world.settle()
    world.quota("compute", {"requests.nvidia.com/gpu": 8}, {"requests.nvidia.com/gpu": 8})
    world.job("large", leader=None, workers=2, worker=shape(gpus=8), min_workers=2, created=1)
    world.job("small", leader=shape(gpus=2), created=2)
    world.job("mine", leader=shape(gpus=2), created=3)
    world.cycle()
    waiting = explained(world.entries, "mine").waiting
    assert waiting is not None
    [found] = [remedy.text for remedy in waiting.remedies if remedy.kind == "quota"]
    assert found == "raise requests.nvidia.com/gpu of quota compute by 4 to 12, for a job ahead of it too"


def test_what_is_supposed_is_counted_and_changes_nothing_of_the_log() -> None:
    world, job = short_of_quota()
    before = snapshot.encode(world.state)
    running = world.state.find_job("default", "running")
    assert running is not None
    fork = hypothesis.supposed(world.state, hypothesis.job_gone(running, world.state))
    assert {name: dict(one.used) for name, one in fork.quotas["default"].items()} == {
        "few": {"pods": 0}, "small": {"requests.cpu": 0},
    }  # fmt: skip
    assert any(isinstance(event, k.Placed) for event in take_cycle(fork, world.config, world.now_ms))
    assert snapshot.encode(world.state) == before and not job.placements


def test_supposed_pods_that_come_and_end_count_until_they_have_ended() -> None:
    world, _ = short_of_quota()
    pod = next(iter(world.state.pods.values()))
    new = k.PodSeen(pod.term, "default", "new", "uid-new", "1", "n1", "Running", (("cpu", 500),), None, True, False)
    *_, few, small = accounted(world.state, [new])
    assert isinstance(few, k.QuotaSeen) and isinstance(small, k.QuotaSeen)
    assert (few.used, small.used) == ((("pods", 3),), (("requests.cpu", 2500),))
    ended = k.PodSeen(pod.term, "default", "new", "uid-new", "1", "n1", "Failed", (("cpu", 500),), None, True, False)
    *_, few, small = accounted(world.state, [new, ended])
    assert isinstance(few, k.QuotaSeen) and isinstance(small, k.QuotaSeen)
    assert (few.used, small.used) == ((("pods", 2),), (("requests.cpu", 2000),))
    gone = k.ObjectGone(k.Watched.POD, pod.term, "default", pod.name, pod.uid)
    *_, few, small = accounted(world.state, [gone])
    assert isinstance(few, k.QuotaSeen) and few.used == (("pods", 1),)


def test_what_holds_the_quorum_up_is_asked_again_when_a_quota_changes() -> None:
    world, job = short_of_quota()
    room = QuorumFits(job.seen, world.config)
    placed = WouldBePlaced(room)
    assert not room.holds(world.state) and not placed.holds(world.state)
    world.quota("few", {"pods": 9}, {"pods": 2})
    assert not room.holds(world.state)
    world.quota_gone("small")
    assert room.holds(world.state) and placed.holds(world.state)


MANIFESTS = [
    {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}},
    {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
    },
    {
        "kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "2", "limits.cpu": "2", "services": "1"}},
    },
    {
        "kind": "TYJob", "apiVersion": "arranger.dev/v1", "metadata": {"name": "j"},
        "spec": {
            "leader": {"name": "l", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "workerSets": [
                {"name": "w", "counts": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
            ],
            "minWorkersNum": 1,
        },
    },
]  # fmt: skip


def test_simulate_counts_a_quota_with_the_pods_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(MANIFESTS))
    cluster = described(read_objects([str(path)]), TYJOB)
    (quota,) = [event for event in cluster.observations if isinstance(event, k.QuotaSeen)]
    assert (dict(quota.hard), dict(quota.used)) == ({"pods": 2, "limits.cpu": 2000}, {"pods": 1, "limits.cpu": 1000})
    simulation = Simulation(cluster.observations, config=CycleConfig(versions=VERSIONS), time_ms=cluster.time_ms)
    simulation.cycle()
    (job,) = simulation.state.jobs.values()
    assert job.waits is not None and lacking_quota(job.waits) == QuotaLack("q", "pods", 2, 1, 2)


@pytest.mark.parametrize("watched", [True, False])
def test_what_if_takes_a_quota_into_account_in_old_logs_too(watched: bool) -> None:
    world = World()
    if watched:
        world.watch_quotas()
    world.node("n1")
    world.job("a", workers=1, min_workers=1)
    quota = k.QuotaSeen(0, "default", "few", "uid-few", "1", (("pods", 1),), (("pods", 0),))
    vary(world.state, Variation(Overrides(), (quota,), (), ()), world.now_ms)
    assert world.state.synced
    (told,) = [event for event in take_cycle(world.state, world.config, world.now_ms) if isinstance(event, k.Waits)]
    assert lacking_quota(told) == QuotaLack("few", "pods", 2, 0 + 1, 1)


def test_the_list_of_events_says_what_a_quota_leaves() -> None:
    world, _ = short_of_quota()
    quota = world.state.quotas["default"]["small"]
    assert describe(quota, world.state) == "requests.cpu 2 of 4 used"
    refused = k.WatchRefused(k.Watched.QUOTA, 1, 403)
    assert describe(refused, world.state) == "resourcequota: the API server refuses it (403)"


def test_without_names_quotas_say_the_same_and_every_cycle_is_taken_again() -> None:
    world, _ = short_of_quota()
    scope = QuotaScope("PriorityClass", "In", ("secret-class",))
    world.quota("secret-quota", {"pods": 1}, scopes=[scope], namespace="default")
    world.job("huge", workers=9, min_workers=9, traits=QuotaTraits(priority_class="secret-class"))
    world.cycle()
    told = renamed(world.entries)
    report = verified(told)
    assert report.different == 0 and report.identical == report.cycles > 0
    content = b"".join(encode_batch(entry.batch) for entry in told)
    for name in (b"secret-quota", b"few", b"small"):
        content = content.replace(b"uid-" + name, b"")  # UIDs stay, and are no names but here
    assert not any(name in content for name in (b"secret", b"few", b"small"))
    waits = [event for entry in told for event in entry.batch.events if isinstance(event, k.Waits)]
    text = "0 of 3 required pods fit; quota q-0001 has too little pods (needs 3, 1 left)"
    assert shortage_text(waits[0].shortage) == text


def test_a_quota_that_a_job_of_a_lower_priority_uses_up_is_no_reason_to_preempt_it_and_explain_says_so() -> None:
    world = World(config=ROOM)
    world.node("n1", cpu=64)
    low = world.job("low", workers=2, min_workers=2, leader=shape(cpu=1), priority=1)
    world.settle()
    world.quota("few", {"pods": 4}, {"pods": 3})
    world.job("high", workers=2, min_workers=2, leader=shape(cpu=1), priority=9)
    world.cycle()
    assert low.placements
    waiting = explained(world.entries, "high").waiting
    assert waiting is not None
    said = [takes_none_text(one, str) for one in waiting.takes_none]
    assert said == ["nobody is preempted for the quota or limit that it lacks"]
    assert "when default/low ends" in [one.text for one in waiting.remedies]
