"""README.md fits its limit and leads to pages that are there; what docs say of the embedded cluster is so."""

import re
from pathlib import Path

import pytest
import yaml

from arranger.sandbox import pod_run
from tests.commands import Run
from tests.servers import REPOSITORY
from tests.unit.test_cli_simulate_files import node


def test_the_table_of_annotations_is_complete_and_true() -> None:
    table = (
        (REPOSITORY / "docs" / "embedded-cluster.md").read_text().partition("| annotation |")[2].partition("\n\n")[0]
    )
    told = re.findall(rf"`{re.escape(pod_run.PREFIX)}([\w-]+)`", table)
    assert sorted(told) == sorted(pod_run.ANNOTATIONS)


def test_the_first_page_is_short_and_its_links_lead_somewhere() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def anchor(heading: str) -> str:
    """The fragment that leads to a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def test_links_into_pages_lead_to_a_heading() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for link, fragment in re.findall(r"\]\(([^)#:\s]*\.md|)#([^)]+)\)", text):
            there = (page.parent / link if link else page).read_text()
            found = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", there, re.MULTILINE)}
            assert fragment in found or f'id="{fragment}"' in there, f"{page.name}: {link}#{fragment}"


def test_the_job_of_the_first_page_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "README.md").read_text()
    job = tmp_path / "my-run.yaml"
    job.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(yaml.safe_dump(node("node-1", cpu="64", gpus=8)))
    run = Run(capsys, "simulate", str(nodes), str(job), "-o", "json")
    assert run.status == 0, run.err
    assert [(one["name"], one["scheduleState"]) for one in run.json["jobs"]] == [("my-run", "ScheduledSucceed")]
