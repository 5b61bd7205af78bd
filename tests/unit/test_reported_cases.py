"""Cases of public bug reports: `arranger simulate` plans them rightly."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from arranger.cli.main import main
from arranger.clock import SystemClock
from tests.further_cases import FURTHER
from tests.reported_cases import CASES, GPU, NOW_MS, Case, Objects, is_right, job, node


@dataclass
class Planned:
    """The nodes of each job, in order, and who gives room."""

    nodes: dict[str, list[str]]
    give: set[str]


Simulate = Callable[..., Planned]


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Simulate:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS)
    return lambda objects, *flags: planned(objects, flags, tmp_path / "cluster.yaml", capsys)


def planned(
    objects: Iterable[Objects], flags: Iterable[str], path: Path, capsys: pytest.CaptureFixture[str]
) -> Planned:
    items = [item for each in objects for item in each]
    path.write_text(yaml.safe_dump_all(items))
    main(["simulate", str(path), "-o", "json", *flags], prog_name="arranger")
    jobs = {each["name"]: each for each in json.loads(capsys.readouterr().out)["jobs"]}
    ran = {item["metadata"]["name"] for item in items if item["kind"] == "TYJob" and "status" in item}
    nodes = {name: [pod["node"] for pod in each["placed"]] for name, each in jobs.items()}
    return Planned(nodes, {name for name in ran if jobs[name]["scheduleState"] == "Unscheduled"})


@pytest.mark.parametrize("case", [*CASES, *FURTHER], ids=lambda case: case.name)
def test_a_case_is_planned_rightly(case: Case, simulate: Simulate) -> None:
    plan = simulate(case.objects, *case.flags)
    for name, expected in case.plan.items():
        assert is_right(expected, plan.nodes.get(name, [])), (case.right, plan)
    assert plan.give == case.give, case.right


@pytest.mark.parametrize(
    "resource",
    [
        "huawei.com/Ascend910",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "habana.ai/gaudi",
        "amd.com/gpu",
        "example.com/npu",
    ],
)
def test_accelerators_of_all_vendors_are_planned_alike(resource: str, simulate: Simulate) -> None:
    """A pod without accelerators keeps away from idle ones, and pods with accelerators fill nodes, whoever made them
    (koordinator-sh/koordinator#2335 asks for the same)."""

    def plan(of: str) -> Planned:
        offer = {of.replace(".", "_").replace("/", "__"): "8"}
        nodes = [node("a1", -1, cpu="16", **offer), node("a2", -1, cpu="16", **offer), node("plain", -1, cpu="16")]
        jobs = [
            job("runs", 2, on=["a2"], resource=of),
            job("cpus", 0, cpu="4"),
            job("two", 2, resource=of),
            job("four", 4, resource=of),
        ]
        return simulate([*nodes, *jobs])

    assert plan(resource) == plan(GPU)
    assert plan(resource).nodes["cpus"] == ["plain"]
    assert plan(resource).nodes["four"] == ["a2"]
