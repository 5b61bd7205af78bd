"""The Queues in docs/queues.md and in its example are valid, and the example does what the document says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.model.queue_rules import validate_queue
from tests.commands import Run
from tests.servers import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "queues.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "examples" / "queues"
GPU = "nvidia.com/gpu"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "status": {
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def planned(folder: Path, capsys: pytest.CaptureFixture[str], *names: str) -> dict[str, Any]:
    """The jobs of these files on four empty nodes, by name."""
    nodes = folder / "nodes.yaml"
    nodes.write_text(yaml.safe_dump_all([{**NODE, "metadata": {"name": f"node-{number}"}} for number in range(1, 5)]))
    files = [str(EXAMPLE / f"{name}.yaml") for name in names]
    plan = Run(capsys, "simulate", str(nodes), *files, "-o", "json").json
    return {job["name"]: job for job in plan["jobs"]}


def test_the_queues_of_the_document_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    found = [one for block in blocks for one in yaml.safe_load_all(block) if one["apiVersion"] == "arranger.dev/v1"]
    assert len(found) >= 4 and [validate_queue(one) for one in found] == [[]] * len(found)


def test_interns_borrow_and_the_jobs_of_the_others_wait_as_the_document_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = planned(tmp_path, capsys, "1-queues", "2-interns")
    assert len(alone["search"]["placed"]) == 7
    others = planned(tmp_path, capsys, "1-queues", "3-others")
    assert len(others["walk"]["placed"]) == 1
    for name in ("grasp", "stray"):
        assert not others[name]["placed"] and f"`{others[name]['message']}`" in DOCUMENT
