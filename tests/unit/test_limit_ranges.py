"""LimitRanges: the requests that admission gives to containers which name none are in the plan."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events import kinds as k
from arranger.kube.translate import limit_range_seen
from arranger.model.job import JobSpec
from arranger.model.pod import LimitDefaults, QosClass, RuntimeNeeds
from arranger.model.template import (
    declared_needs,
    effective_limits,
    effective_requests,
    limit_defaults,
    needs_with,
    qos_class,
    qos_with,
)
from arranger.model.tyjob import job_spec
from arranger.projections import snapshot
from arranger.projections.consistency import validate
from arranger.sandbox.admission import limit
from arranger.sandbox.builtin import default_limit_range
from tests.commands import Run, to_file
from tests.unit.tyjob_table import tyjob_with
from tests.world import World

GIB = 1 << 30


def two_workers(**resources: Any) -> JobSpec:
    """A job of two workers whose container has these resources."""
    workers = {
        "name": "w",
        "counts": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"} | resources]}},
    }
    tyjob = tyjob_with({"spec/workerSets": [workers], "spec/minWorkersNum": 2})
    del tyjob["spec"]["leader"]
    return job_spec(tyjob)


def cluster() -> World:
    there = World()
    there.node("n1", cpu=6)
    there.node("n2", cpu=6)
    return there


def submitted(there: World) -> Any:
    job = there.job("j")
    there.say(msgspec.structs.replace(job.seen, generation=2, resource_version="9", spec=two_workers()))
    return there.state.jobs[job.uid]


def test_two_workers_that_get_4_cpus_each_are_not_put_on_one_node_of_6() -> None:
    there = cluster()
    there.limit_range("defaults", defaultRequest={"cpu": "4"})
    job = submitted(there)
    there.cycle()
    assert sorted(job.placements.values()) == ["n1", "n2"]
    assert (there.used("n1"), there.used("n2")) == (4000, 4000)
    validate(there.state)
    assert snapshot.digest(snapshot.restore(snapshot.encode(there.state))) == snapshot.digest(there.state)


def test_room_that_was_decided_follows_a_limit_range_that_comes_changes_and_goes() -> None:
    there = cluster()
    job = submitted(there)
    there.cycle()
    changes: list[tuple[Any, int]] = [({"defaultRequest": {"cpu": "2"}}, 4000), ({"default": {"cpu": "1"}}, 2000)]
    for spec, used in changes:
        there.limit_range("defaults", **spec)
        assert job.valid_spec.qos == QosClass.BURSTABLE
        assert there.used("n1") + there.used("n2") == used
        validate(there.state)
    assert dict(job.valid_spec.groups[1].traits.limits) == {"cpu": 1000}
    there.limit_range("other", namespace="elsewhere", defaultRequest={"cpu": "5"})
    there.limit_range("largest", defaultRequest={"cpu": "3"})
    assert there.used("n1") + there.used("n2") == 6000
    there.limit_range_gone("largest")
    there.limit_range_gone("defaults")
    assert there.used("n1") + there.used("n2") == 0 and job.valid_spec == two_workers()
    assert job.valid_spec.qos == QosClass.BEST_EFFORT
    validate(there.state)


def test_explain_says_which_requests_a_limit_range_or_a_runtime_class_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster()
    there.limit_range("small", defaultRequest={"cpu": "1"})
    there.limit_range("large", defaultRequest={"cpu": "7", "memory": "1Gi"})
    there.limit_range("other", namespace="elsewhere", defaultRequest={"cpu": "9"})
    there.runtime_class("kata", RuntimeNeeds((("cpu", 250),)))
    job = there.job("j")
    spec = two_workers(resources={"requests": {"memory": "2Gi"}})
    (leader, workers) = spec.groups
    kata = msgspec.structs.replace(workers, shape=msgspec.structs.replace(workers.shape, runtime_class="kata"))
    spec = msgspec.structs.replace(spec, groups=(leader, kata))
    there.say(msgspec.structs.replace(job.seen, generation=2, resource_version="9", spec=spec))
    there.cycle()
    log = to_file(there.entries, tmp_path / "run.log")
    told = Run(capsys, "explain", "j", *log)
    assert "requests      of what each pod asks for, 7 cpu is the default of the LimitRange large\n" in told.out
    assert "requests      of what each pod asks for, 250m cpu is the overhead of its RuntimeClass kata\n" in told.out
    assert Run(capsys, "explain", "j", *log, "-o", "json").json["waiting"]["added"] == [
        {"kind": "LimitRange", "names": ["large"], "amounts": [["cpu", 7000]]},
        {"kind": "RuntimeClass", "names": ["kata"], "amounts": [["cpu", 250]]},
    ]


def test_explain_says_nothing_of_requests_that_are_the_jobs_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster()
    there.limit_range("defaults", defaultRequest={"cpu": "1"})
    job = there.job("j")
    spec = two_workers(resources={"requests": {"cpu": "7"}})
    there.say(msgspec.structs.replace(job.seen, generation=2, resource_version="9", spec=spec))
    there.cycle()
    told = Run(capsys, "explain", "j", *to_file(there.entries, tmp_path / "run.log"))
    assert "closest node" in told.out and "of what each pod asks for" not in told.out


def test_where_limit_ranges_may_not_be_read_plans_are_as_before() -> None:
    there = cluster()
    there.limit_range("defaults", defaultRequest={"cpu": "4"})
    job = submitted(there)
    there.say(k.WatchRefused(k.Watched.LIMIT_RANGE, there.terms[k.Watched.LIMIT_RANGE], 403))
    assert there.state.synced and job.valid_spec == two_workers()
    validate(there.state)


def test_what_a_limit_range_adds_is_observed() -> None:
    items = [
        {"type": "Pod", "max": {"cpu": "1"}},
        {"type": "Container", "max": {"cpu": "5"}, "min": {"memory": "1Gi"}, "defaultRequest": {"cpu": "4"}},
    ]
    metadata = {"name": "l", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    seen = limit_range_seen({"metadata": metadata, "spec": {"limits": items}}, 1)
    assert seen.defaults == LimitDefaults((("cpu", 4000), ("memory", GIB)), (("cpu", 5000),))


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.org/x"]), st.integers(0, 9).map(str))
RESOURCES = st.builds(lambda requests, limits: {"requests": requests, "limits": limits}, AMOUNTS, AMOUNTS)
CONTAINERS = st.lists(st.builds(lambda of: {"name": "c", "resources": of}, RESOURCES), min_size=1, max_size=3)
INIT = st.lists(
    st.builds(
        lambda of, more: {"name": "i", "resources": of} | more,
        RESOURCES,
        st.sampled_from([{}, {"restartPolicy": "Always"}]),
    ),
    max_size=2,
)  # fmt: skip


@given(CONTAINERS, INIT, AMOUNTS, AMOUNTS, AMOUNTS)
@pytest.mark.parametrize("with_defaults", [False, True])
def test_needs_are_those_of_the_pod_after_admission(
    with_defaults: bool, containers: Any, init: Any, default: Any, default_request: Any, overhead: Any
) -> None:
    spec = {"containers": containers, "initContainers": init, "overhead": overhead}
    item = {"type": "Container", "default": default, "defaultRequest": default_request}
    given = {"limits": [item] if with_defaults else []}
    found = needs_with(declared_needs(spec), limit_defaults(given))
    stored = {"spec": copy.deepcopy(given)}
    default_limit_range(stored)
    limit({"spec": spec}, [stored])
    assert found == (effective_requests(spec), effective_limits(spec))
    assert qos_with(declared_needs(spec), limit_defaults(given)) == qos_class(spec)
