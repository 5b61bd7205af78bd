"""From Kubernetes objects to observations."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arranger.events.codec import decode_batch, encode_batch
from arranger.events.kinds import Batch, PodSeen
from arranger.kube.times import parse_time_ms
from arranger.kube.translate import job_seen, node_seen, pod_seen, status_digest
from arranger.messages.faults import faults_text
from arranger.model.job import JobStatusSeen, PlacedPods
from arranger.model.node import Taint
from arranger.model.pod import (
    NO_TRAITS,
    POD_MESSAGE_LIMIT,
    POD_REASON_LIMIT,
    STOPPED,
    ContainerEnd,
    HostPort,
    PodOwner,
    PodTerm,
    PodTraits,
    Requirement,
)  # fmt: skip
from arranger.model.tyjob import job_spec
from arranger.projections.jobs.records import blameless
from tests.unit.tyjob_table import BAD, tyjob, tyjob_with

NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "uid": "nu", "resourceVersion": "7", "labels": {"zone": "a", "disk": "ssd"}},
    "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoExecute"}]},
    "status": {
        "allocatable": {"cpu": "63500m", "memory": "250Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "capacity": {"cpu": "64"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}

POD: dict[str, Any] = {
    "metadata": {
        "name": "train-actors-3",
        "namespace": "team",
        "uid": "pu",
        "resourceVersion": "9",
        "labels": {
            "app": "rl",
            "arranger.dev/job": "train",
            "arranger.dev/role": "worker",
            "arranger.dev/worker-set": "actors",
            "arranger.dev/index": "3",
            "arranger.dev/attempt": "0",
        },
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "cu"},
            {"apiVersion": "arranger.dev/v1", "kind": "TYJob", "name": "train", "uid": "ju", "controller": True},
        ],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
        "initContainerStatuses": [{"name": "side", "restartCount": 1, "state": {"running": {}}}],
        "containerStatuses": [{"name": "main", "restartCount": 2, "state": {"running": {}}}],
    },
}


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return tyjob_with(changes, base=base)


def pod_with(changes: dict[str, Any]) -> PodSeen:
    return pod_seen(changed(POD, changes), 5)


def test_a_node_is_seen_with_what_it_can_hold_and_refuses() -> None:
    seen = node_seen(NODE, 5)
    assert (seen.term, seen.name, seen.uid, seen.resource_version) == (5, "n1", "nu", "7")
    assert seen.facts.allocatable == (("cpu", 63500), ("memory", 250 << 30), ("nvidia.com/gpu", 8), ("pods", 110))
    assert (seen.facts.ready, seen.facts.cordoned) == (True, False)
    assert seen.facts.labels == (("disk", "ssd"), ("zone", "a"))
    assert seen.facts.taints == (Taint("gpu", "", "NoSchedule"), Taint("k", "v", "NoExecute"))


def test_a_node_is_ready_only_when_it_says_so() -> None:
    assert not node_seen(changed(NODE, {"status/conditions/1/status": "Unknown"}), 5).facts.ready
    assert not node_seen({"metadata": {"name": "new"}}, 5).facts.ready


def test_a_cordoned_node_is_seen_cordoned() -> None:
    assert node_seen(changed(NODE, {"spec/unschedulable": True}), 5).facts.cordoned


def test_the_order_of_a_nodes_labels_does_not_matter() -> None:
    other = changed(NODE, {"metadata/labels": {"disk": "ssd", "zone": "a"}})
    assert node_seen(other, 5) == node_seen(NODE, 5)


def test_a_pod_of_ours_is_seen_with_its_place() -> None:
    assert pod_seen(POD, 5) == PodSeen(
        term=5,
        namespace="team",
        name="train-actors-3",
        uid="pu",
        resource_version="9",
        node="n1",
        phase="Running",
        requests=(("cpu", 2000), ("memory", 1 << 30)),
        owner=PodOwner(job_uid="ju", attempt=0, group_name="actors", leader=False, index=3),
        ready=True,
        deleting=False,
        ip="10.0.0.7",
        restarts=3,
        traits=PodTraits(labels=(("app", "rl"),)),
    )


#: Annotations, and the checkpoints that they tell of, in milliseconds since 1970.
CHECKPOINTS: list[tuple[Any, int]] = [
    ("2026-11-22T10:00:00Z", 1795341600_000),
    ("2026-11-22T10:00:00.5Z", 1795341600_500),
    ("2026-11-22T11:00:00+01:00", 1795341600_000),
    ("9999-12-31T23:59:59Z", 253402300799_000),
    ("1969-12-31T23:59:59Z", 0),
    ("0001-01-01T00:00:00+14:00", 0),
    ("2026-11-22T10:00:00", 0),
    ("2026-11-22", 0),
    ("2026-02-30T10:00:00Z", 0),
    ("1795341600", 0),
    ("soon", 0),
    ("", 0),
    ("2026-11-22T10:00:00Z" + " " * 99, 0),
    (None, 0),
]


def annotated(item: dict[str, Any], value: Any) -> dict[str, Any]:
    metadata = {**item["metadata"], "annotations": {"other": "x", "arranger.dev/last-checkpoint": value}}
    return {**item, "metadata": metadata}


@pytest.mark.parametrize(("value", "ms"), CHECKPOINTS)
def test_a_checkpoint_is_seen_on_a_pod_of_ours_and_on_its_job(value: Any, ms: int) -> None:
    assert pod_seen(annotated(POD, value), 5) == msgspec.structs.replace(pod_seen(POD, 5), checkpoint_ms=ms)
    seen = job_seen(JOB, 5, with_status=False)
    assert seen.checkpoint_ms == 0
    expected = msgspec.structs.replace(seen, checkpoint_ms=ms)
    assert job_seen(annotated(JOB, value), 5, with_status=False) == expected
    assert job_seen(annotated(JOB, value), 5, with_status=False, last=seen) == expected


def test_a_checkpoint_of_a_strangers_pod_is_no_jobs() -> None:
    stranger = changed(POD, {"metadata/ownerReferences": []})
    assert pod_seen(annotated(stranger, "2026-11-22T10:00:00Z"), 5).checkpoint_ms == 0


@given(st.text() | st.datetimes(timezones=st.timezones()).map(lambda of: of.isoformat()))
def test_whatever_an_annotation_says_it_is_a_time_or_none(text: str) -> None:
    assert 0 <= pod_seen(annotated(POD, text), 5).checkpoint_ms < 1 << 53


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata/ownerReferences": []},
        {"metadata/ownerReferences/1/kind": "Job"},
        {"metadata/ownerReferences/1/apiVersion": "arranger.dev.example/v1"},
        {"metadata/ownerReferences/1/apiVersion": "v1"},
        {"metadata/ownerReferences/1/controller": False},
        {"metadata/ownerReferences/1/name": "other"},
        {"metadata/labels": None},
        {"metadata/labels": {**POD["metadata"]["labels"], "arranger.dev/index": "x"}},
        {"metadata/name": "train-actors-4"},
    ],
    ids=str,
)
def test_a_pod_that_only_looks_like_ours_is_a_strangers(changes: dict[str, Any]) -> None:
    seen = pod_with(changes)
    assert seen.owner is None
    assert seen.requests == (("cpu", 2000), ("memory", 1 << 30))


def test_a_pod_that_was_only_just_created_is_pending() -> None:
    seen = pod_seen({"metadata": {"name": "p"}, "spec": {"containers": []}}, 5)
    assert (seen.phase, seen.node, seen.ready, seen.ip, seen.restarts) == ("Pending", "", False, "", 0)


def test_a_pod_being_deleted_is_seen_so() -> None:
    assert pod_with({"metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}).deleting


def test_why_a_container_cannot_start_is_told() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    seen = pod_with({"status/phase": "Pending", "status/containerStatuses/0/state": waiting})
    assert (seen.waiting, seen.message) == ("ImagePullBackOff", "Back-off pulling image")


ANTI_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "rl"}}, "matchLabelKeys": ["app"]}
    ],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}],
}


def test_a_pod_is_seen_with_what_concerns_others() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    seen = pod_with({"spec/containers/0/ports": ports, "spec/affinity": {"podAntiAffinity": ANTI_AFFINITY}})
    same = Requirement("app", "In", ("rl",))
    assert seen.traits == PodTraits((("app", "rl"),), (HostPort(8080),), (PodTerm("zone", (same, same)),))


def test_a_strangers_pod_keeps_all_its_labels() -> None:
    labels = dict(pod_with({"metadata/ownerReferences": []}).traits.labels)
    assert labels == POD["metadata"]["labels"]


def test_pods_alike_share_what_they_ask_for_even_after_the_log() -> None:
    seen = pod_with({})
    for one, other in ((seen, pod_with({})), decode_batch(encode_batch(Batch("w", 1, 1, (seen, seen))), 1).events):
        assert isinstance(one, PodSeen) and isinstance(other, PodSeen) and one is not other
        assert one.requests is other.requests and one.traits is other.traits


def test_a_pod_written_before_traits_were_seen_has_none() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(pod_with({})))
    before = PodSeen.__struct_fields__.index("traits")
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:before]), type=PodSeen)
    assert old.traits is NO_TRAITS and old.name == "train-actors-3"


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_container_on_its_way_is_no_trouble(reason: str) -> None:
    assert pod_with({"status/containerStatuses/0/state": {"waiting": {"reason": reason}}}).waiting == ""


def test_a_failed_pod_tells_its_own_reason_first() -> None:
    seen = pod_with({"status/phase": "Failed", "status/reason": "Evicted", "status/message": "disk"})
    assert (seen.reason, seen.message) == ("Evicted", "disk")


def test_a_pod_that_its_kubelet_evicted_for_its_nodes_sake_failed_through_no_fault_of_its_program() -> None:
    """As a kubelet leaves it: its containers were killed, and look like those of a program that failed."""
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    told = {"status/phase": "Failed", "status/containerStatuses/0/state": killed}
    words = "The node was low on resource: memory."
    why = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": words}
    evicted = {"status/reason": "Evicted", "status/message": words, "status/conditions": [why]}
    seen = pod_with(told | evicted)
    assert (seen.reason, seen.message, seen.ended) == ("Evicted", words, ContainerEnd("main", 137, 0, "Error"))
    assert blameless(seen) and not blameless(pod_with(told))


def test_a_failed_pod_without_a_reason_tells_its_containers() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    seen = pod_with({"status/phase": "Failed", "status/containerStatuses/0/state": ended})
    assert (seen.reason, seen.message) == ("OOMKilled", "")
    assert seen.ended == ContainerEnd("main", 137, 0, "OOMKilled")


def test_a_restarted_container_tells_how_it_failed_last() -> None:
    before = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no checkpoint\nTraceback"}}
    seen = pod_with({"status/containerStatuses/0/lastState": before})
    assert seen.ended == ContainerEnd("main", 3, 0, "Error", "no checkpoint")
    stranger = pod_with({"status/containerStatuses/0/lastState": before, "metadata/ownerReferences": []})
    assert stranger.owner is None
    assert stranger.ended is None


DISRUPTION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "node no longer exists",
}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_kubernetes_disrupted_says_so_before_its_containers(phase: str) -> None:
    """The caretaker of pods fails those of a node that is gone, and gives no reason but this condition."""
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    told = {"status/phase": phase, "status/conditions": [DISRUPTION], "status/containerStatuses/0/state": ended}
    seen = pod_with(told)
    assert (seen.reason, seen.message) == ("DisruptionTarget: DeletionByPodGC", "node no longer exists")
    assert pod_with(told | {"status/conditions": [DISRUPTION | {"status": "False"}]}).reason != seen.reason
    running = told | {"status/phase": "Running"}
    assert pod_with(running).reason == ""
    going = pod_with(running | {"metadata/deletionTimestamp": "2026-01-01T00:31:00Z"})
    assert (going.reason, going.message) == ("DisruptionTarget: DeletionByPodGC", "node no longer exists")


@pytest.mark.parametrize(("finished", "disrupted"), [("00:29:59", False), ("00:30:00", True), ("00:30:31", True)])
def test_a_pod_that_had_finished_when_it_was_disrupted_has_finished(finished: str, disrupted: bool) -> None:
    """Draining a node says it of every pod there, also of those that are done."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": f"2026-01-01T{finished}Z"}}
    since = DISRUPTION | {"lastTransitionTime": "2026-01-01T00:30:00Z"}
    seen = pod_with(
        {"status/phase": "Succeeded", "status/conditions": [since], "status/containerStatuses/0/state": ended}
    )
    assert (seen.reason != "") == disrupted


@pytest.mark.parametrize(("finished", "reason"), [("00:29:59", ""), ("00:30:00", STOPPED), ("00:30:31", STOPPED)])
def test_a_pod_that_ended_well_only_when_it_was_told_to_go_says_so(finished: str, reason: str) -> None:
    going = {"metadata/deletionTimestamp": "2026-01-01T00:31:00Z", "metadata/deletionGracePeriodSeconds": 60}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": f"2026-01-01T{finished}Z"}}
    done = {"status/phase": "Succeeded", "status/containerStatuses/0/state": ended}
    assert pod_with(going | done).reason == reason
    assert pod_with(done).reason == ""


@pytest.mark.parametrize(("pending", "shown", "cpu"), [
    ("", {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "2"}}, 4000),
    ("", {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "4"}}, 4000),
    ("", {"allocatedResources": {"cpu": "4"}}, 500),  # no kubelet that resizes
    ("Deferred", {"resources": {"requests": {"cpu": "100m"}}, "allocatedResources": {"cpu": "100m"}}, 500),
    ("Infeasible", {"resources": {"requests": {"cpu": "100m"}}, "allocatedResources": {"cpu": "200m"}}, 200),
    ("Infeasible", {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "100m"}}, 4000),
    ("Infeasible", {"allocatedResources": {"cpu": "100m"}}, 500),
    ("Infeasible", {}, 500),
])  # fmt: skip
def test_what_counts_while_a_pod_is_resized_in_place(pending: str, shown: dict[str, object], cpu: int) -> None:
    """As kube-scheduler counts: the largest of request, status and allocation, without the request of a resize that the
    kubelet refuses for good."""
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    status = {"name": "c"} | shown
    asked = {"spec/containers/0/name": "c", "spec/containers/0/resources": {"requests": {"cpu": "500m"}}}
    has = asked | {"status/containerStatuses": [status]}
    assert dict(pod_with(has | {"status/conditions": conditions}).requests)["cpu"] == cpu
    older = pod_with(has | {"status/resize": pending})  # before 1.33
    assert dict(older.requests)["cpu"] == cpu


def test_a_long_message_is_cut() -> None:
    assert len(pod_with({"status/message": "x" * 100_000}).message) == POD_MESSAGE_LIMIT


def test_of_what_a_program_left_behind_the_log_keeps_its_first_line_and_no_more() -> None:
    left = "\n\x1b[31mpanic: no room\x9b\u202e\n" + "token=hunter2\n" * 400
    ended = {"terminated": {"exitCode": 1, "message": left, "reason": "Error\x1b[2J"}}
    seen = pod_with({"status/phase": "Failed", "status/containerStatuses/0/state": ended})
    assert seen.message == "\\x1b[31mpanic: no room\\x9b\\u202e"
    assert seen.reason == "Error\\x1b[2J"


@pytest.mark.parametrize("field", ["status/message", "status/reason", "status/containerStatuses/0/state"])
def test_no_text_of_a_pod_s_status_is_long_or_has_control_characters(field: str) -> None:
    text = "a\x1b]0;x\x07b\u2028c" * 10_000
    waits = {"waiting": {"reason": text, "message": text}}
    seen = pod_with({field: waits if field.endswith("state") else text})
    told = (seen.message, seen.reason, seen.waiting)
    assert any(told) and all(each.isprintable() for each in told)
    assert len(seen.message) <= POD_MESSAGE_LIMIT and len(seen.reason + seen.waiting) <= 2 * POD_REASON_LIMIT


def test_what_is_wrong_with_a_job_quotes_its_user_without_control_characters() -> None:
    told = job_seen({**JOB, "spec": {"leader": {"name": "x\x1b[2J\u202e" * 500}}}, 5, with_status=False).faults
    invalid = faults_text(told)
    assert invalid and invalid.isprintable() and len(invalid) < 2000


JOB = tyjob_with(
    {
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": "ju",
            "resourceVersion": "3",
            "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "status": {
            "stage": "Running",
            "scheduleState": "ScheduledPartly",
            "attempt": 1,
            "restarts": 2,
            "leaderAddress": "10.0.0.1",
            "startTime": "2026-01-02T03:05:00Z",
            "allocations": [{"node": "n1", "leader": True, "workers": [{"set": "actors", "indices": "0-1"}]}],
        },
    }
)


def test_a_job_is_seen_with_its_spec() -> None:
    seen = job_seen(JOB, 5, with_status=False)
    assert (seen.term, seen.namespace, seen.name, seen.uid) == (5, "team", "train", "ju")
    assert (seen.resource_version, seen.generation, seen.created_ms) == ("3", 2, 1_767_323_045_000)
    assert (seen.deleting, seen.faults, seen.status) == (False, (), None)
    assert seen.spec == job_spec(JOB)
    assert seen.status_digest == status_digest(JOB["status"]) != ""


def test_a_listed_job_comes_with_what_a_new_epoch_adopts_it_from() -> None:
    assert job_seen(JOB, 5, with_status=True).status == JobStatusSeen(
        stage="Running",
        schedule_state="ScheduledPartly",
        attempt=1,
        restarts=2,
        leader_address="10.0.0.1",
        allocations=(PlacedPods("n1", 0, ((0, 0),)), PlacedPods("n1", 1, ((0, 1),))),
        start_ms=1_767_323_100_000,
    )


@pytest.mark.parametrize("status", [None, {}, {"message": "x"}, {"stage": ""}, "junk"])
def test_a_job_without_a_stage_has_nothing_to_adopt(status: Any) -> None:
    assert job_seen({**JOB, "status": status}, 5, with_status=True).status is None


def test_a_spec_of_the_same_generation_is_not_checked_again() -> None:
    seen = job_seen(JOB, 5, with_status=False)
    status = {"stage": "Running"}
    again = job_seen({**JOB, "spec": {}, "status": status}, 5, with_status=False, last=seen)
    assert again.spec is seen.spec and not again.faults
    assert again.status_digest != seen.status_digest


@pytest.mark.parametrize("generation", [3, 0, None])
def test_a_spec_of_another_or_an_unknown_generation_is_checked(generation: int | None) -> None:
    last = msgspec.structs.replace(job_seen(JOB, 5, with_status=False), generation=2 if generation else 0)
    edited = {**JOB, "metadata": {**JOB["metadata"], "generation": generation}, "spec": {}}
    assert job_seen(edited, 5, with_status=False, last=last).faults


@pytest.mark.parametrize("bad", BAD, ids=lambda row: row.case)
def test_a_wrong_job_is_seen_with_what_is_wrong_and_no_spec(bad: Any) -> None:
    seen = job_seen(bad.tyjob, 5, with_status=True)
    assert seen.spec is None
    assert [fault.field for fault in seen.faults] == [bad.field]
    said = faults_text(seen.faults)
    assert said.startswith(f"{bad.field}: ") and bad.says in said and "\n" not in said


def test_a_job_with_many_faults_tells_the_first_five_and_how_many_more() -> None:
    job = tyjob()
    job["spec"] |= {name: 1 for name in "abcdefgh"}
    faults = job_seen(job, 5, with_status=False).faults
    assert len(faults) == 6 and faults_text(faults).endswith("; and 3 more")


def test_what_is_wrong_is_one_short_line_whatever_the_fields_are_called() -> None:
    job = tyjob()
    job["spec"] |= {f"odd\n{number}{'x' * 100_000}": 1 for number in range(100)}
    invalid = faults_text(job_seen(job, 5, with_status=False).faults)
    assert invalid.startswith('spec."odd\\n0xxx')
    assert "unknown field" in invalid
    assert "\n" not in invalid
    assert len(invalid) < 2000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    """The same JSON with the fields of every object in another order and empty ones added."""
    if isinstance(value, dict):
        backwards = {name: shuffled(value[name]) for name in reversed(value)}
        return backwards | {name: None for name in ("\x00a", "\x00b") if name not in value}
    return [shuffled(entry) for entry in value] if isinstance(value, list) else value


@given(JSON)
def test_a_statuss_digest_survives_the_api_server(status: Any) -> None:
    assert status_digest(shuffled(status)) == status_digest(status)


@pytest.mark.parametrize("empty", [None, {}, {"a": None}, {"a": {"b": []}, "c": ""}])
def test_an_empty_status_has_an_empty_digest(empty: Any) -> None:
    assert status_digest(empty) == ""


def test_zero_and_false_are_not_empty_and_values_count() -> None:
    digests = [status_digest({"a": value}) for value in (0, 1, False, "x", ["x"], {"x": 0})]
    assert len(set(digests)) == len(digests)
    assert status_digest({"a": ["x", "y"]}) != status_digest({"a": ["y", "x"]})


def test_a_digest_is_the_same_in_every_process() -> None:
    assert status_digest({"stage": "Running", "restarts": 0}) == "62b92899748f688c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("2026-01-02T03:04:05.250000Z", 1_767_323_045_250),
        ("2026-01-02T03:04:05+02:00", 1_767_315_845_000),
        ("2026-01-02T03:04:05", 0),
        ("yesterday", 0),
        ("", 0),
        (None, 0),
        (7, 0),
    ],
)
def test_times_are_milliseconds(text: Any, expected: int) -> None:
    assert parse_time_ms(text) == expected


@pytest.mark.parametrize(
    ("value", "permits"),
    [
        ("approved", ("approved",)),
        (" b , a,,b\n", ("a", "b")),
        ("", ()),
        (7, ()),
        ("x" * 99, ("x" * 60 + "...",)),
        (",".join(f"{number:02}" for number in range(40)), tuple(f"{number:02}" for number in range(32))),
    ],
)
def test_what_a_job_is_permitted_is_seen_in_its_annotation(value: Any, permits: tuple[str, ...]) -> None:
    metadata = {**JOB["metadata"], "annotations": {"arranger.dev/permits": value}}
    seen = job_seen(JOB, 5, with_status=False)
    expected = msgspec.structs.replace(seen, permits=permits)
    assert job_seen({**JOB, "metadata": metadata}, 5, with_status=False, last=seen) == expected
