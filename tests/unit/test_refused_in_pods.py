"""What the API server would refuse in every pod of a TYJob is a fault of the TYJob, before it gets nodes."""

from arranger.kube.translate import job_seen
from arranger.messages.faults import fault_text
from tests.unit.tyjob_table import Object, tyjob


def faults(**metadata: Object) -> list[str]:
    job = tyjob("j")
    job["metadata"] |= {"namespace": "default", "uid": "u", "resourceVersion": "1"}
    job["spec"]["workerSets"][0]["template"]["metadata"] = metadata
    seen = job_seen(job, 1, with_status=False)
    assert (seen.spec is None) == bool(seen.faults)
    return [fault_text(fault) for fault in seen.faults]


def test_annotations_of_more_than_256_kib_in_all_are_a_fault() -> None:
    assert faults(annotations={"a": "x" * 131_071, "b": "x" * 131_071}) == []
    assert faults(annotations={"a": "x" * 131_071, "b": "x" * 131_072}) == [
        "spec.workerSets[0].template.metadata.annotations: Too long: the names and values of all annotations of a pod "
        "may have 262144 bytes, but have 262145"
    ]


def test_a_name_of_a_label_that_no_pod_may_have_is_a_fault() -> None:
    assert faults(labels={"example.org/team": "a"}) == []
    (said,) = faults(labels={"my team": "a"})
    assert said.startswith('spec.workerSets[0].template.metadata.labels: Invalid value: "my team": must be at most 63')
