"""The members file: what it shows, when it changes, and how large it becomes."""

import ipaddress
from typing import Any

import msgspec

from arranger.kube.rendezvous import MEMBERS_KEY, members_map
from arranger.lifecycle.members import has_members_file, members_text
from arranger.model.job import Rendezvous, Stage
from arranger.projections.jobs.records import JobRecord
from tests.world import Edited, World, shape

#: The limit of a ConfigMap's content.
LIMIT_BYTES = 1024 * 1024

FILE = {"actors": Rendezvous(29500, members_file=True)}


def shown(world: World, job: JobRecord) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(members_text(world.state, job))
    return found


def running(**spec: Any) -> Edited:
    world = World()
    world.node("n1", cpu=100)
    edited = Edited(world, **{"rendezvous": FILE, "min_workers": 1, **spec})
    world.settle()
    return edited


def test_it_shows_each_pod_of_the_leader_and_the_sets_in_columns() -> None:
    edited = running(workers=2)
    assert shown(edited.world, edited.job) == {
        "job": "ppo",
        "namespace": "default",
        "attempt": 0,
        "domain": "ppo.default.svc",
        "sets": [
            {
                "name": "learner",
                "role": "leader",
                "count": 1,
                "minCount": 0,
                "groupSize": 1,
                "firstRank": 0,
                "hostnames": ["learner-0"],
                "addresses": ["10.0.0.0"],
                "placed": [1],
                "ready": [1],
            },
            {
                "name": "actors",
                "role": "worker",
                "count": 2,
                "minCount": 0,
                "groupSize": 1,
                "firstRank": 1,
                "hostnames": ["actors-0", "actors-1"],
                "addresses": ["10.0.1.0", "10.0.1.1"],
                "placed": [1, 1],
                "ready": [1, 1],
            },
        ],
    }


def test_it_grows_and_shrinks_with_the_counts() -> None:
    edited = running(workers=2)
    edited.edit(workers=4)
    actors = shown(edited.world, edited.job)["sets"][1]
    assert (actors["count"], actors["placed"], actors["addresses"][2:]) == (4, [1, 1, 0, 0], ["", ""])
    edited.world.settle()
    actors = shown(edited.world, edited.job)["sets"][1]
    assert (actors["placed"], actors["ready"]) == ([1] * 4, [1] * 4)
    edited.edit(workers=2)
    assert shown(edited.world, edited.job)["sets"][1]["hostnames"] == ["actors-0", "actors-1"]


def test_a_pod_that_failed_is_deleted_or_not_ready_is_shown_so() -> None:
    edited = running(workers=3)
    world, job = edited.world, edited.job
    world.change_pod(job.bound[1, 0], phase="Failed", ready=False)
    world.change_pod(job.bound[1, 1], ready=False)
    world.change_pod(job.bound[1, 2], deleting=True)
    actors = shown(world, job)["sets"][1]
    assert actors["addresses"] == ["", "10.0.1.1", ""]
    assert (actors["placed"], actors["ready"]) == ([1, 1, 1], [0, 0, 0])


def test_it_stays_the_same_to_the_byte_while_only_other_things_change() -> None:
    edited = running(workers=2)
    world, job = edited.world, edited.job
    before = members_text(world.state, job)
    world.change_pod(job.bound[1, 0], restarts=1)
    world.job("other", workers=1)
    edited.edit(priority=9)
    assert members_text(world.state, edited.job) == before


def test_only_a_job_that_asks_for_it_and_may_have_pods_has_one() -> None:
    edited = running(workers=1)
    assert has_members_file(edited.job)
    assert not has_members_file(edited.world.job("other", workers=1, rendezvous={"actors": Rendezvous(1)}))
    edited.edit(suspend=True)
    edited.world.settle()
    assert edited.job.stage == Stage.PENDING
    assert not has_members_file(edited.job)


def of_longest_names(workers: int) -> int:
    """The bytes of the file of a job with so many workers, all names and addresses as long as they can be."""
    world = World()
    world.node("n1", cpu=10 * workers, pods=2 * workers)
    name = "w" * 48
    namespace, spec = "n" * 63, [(name, workers, shape(cpu=1))]
    job = world.job("j", workers=spec, min_workers=1, namespace=namespace, rendezvous={name: FILE["actors"]})
    world.settle()
    assert len(job.bound) == workers + 1
    longest = ipaddress.IPv6Address(2**128 - 1).exploded
    for uid in job.bound.values():
        world.change_pod(uid, ip=longest)
    content = members_map({"name": "j", "namespace": namespace, "uid": "u"}, members_text(world.state, job))["data"]
    return len(MEMBERS_KEY) + len(content[MEMBERS_KEY].encode())


def test_a_file_of_5000_workers_with_the_longest_names_takes_half_of_what_an_object_may_hold() -> None:
    size = of_longest_names(5000)
    assert 400_000 < size < LIMIT_BYTES / 1.9


def test_even_the_largest_job_with_the_longest_names_fits() -> None:
    a_worker = (of_longest_names(3000) - of_longest_names(2000)) / 1000
    assert a_worker * 10_000 + 10_000 < LIMIT_BYTES
