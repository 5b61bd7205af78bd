"""What docs/jobs.md says of Events and of variables, held against the code."""

import re
from pathlib import Path

from arranger.kube.manifests import pod_manifest
from arranger.model.stages import StageReason
from tests.unit.tyjob_table import tyjob_with

REPOSITORY = Path(__file__).resolve().parent.parent.parent
REPORTER = REPOSITORY / "arranger" / "workers" / "applying" / "statuses" / "reporter.py"
#: Reasons that no controller decides for.
SUPPOSED = {StageReason.ADOPTED, StageReason.AS_RECORDED, StageReason.ASSUMED, StageReason.OTHER}


def test_every_reason_of_an_event_is_explained_and_no_other() -> None:
    told = set(re.findall(r'reason="([A-Z]\w+)"', REPORTER.read_text())) | {str(r) for r in set(StageReason) - SUPPOSED}
    table = (REPOSITORY / "docs" / "jobs.md").read_text().partition("| reason |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == told


def test_the_table_of_variables_has_what_pods_get_and_nothing_else() -> None:
    table = (REPOSITORY / "docs" / "jobs.md").read_text().partition("| variable |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    job = tyjob_with(
        {
            "metadata/namespace": "team",
            "metadata/uid": "u",
            "spec/workerSets/0/rendezvous": {"scope": "Job", "membersFile": True},
        }
    )
    pod = pod_manifest(job, group=1, index=0, attempt=0, node="n1", leader_address="10.0.0.1")
    assert sorted(listed) == sorted(variable["name"] for variable in pod["spec"]["containers"][0]["env"])
