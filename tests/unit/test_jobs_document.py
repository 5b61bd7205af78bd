"""What docs/jobs.md says of Events, held against the code."""

import re
from pathlib import Path

from arranger.model.stages import StageReason

REPOSITORY = Path(__file__).resolve().parent.parent.parent
REPORTER = REPOSITORY / "arranger" / "workers" / "reporter.py"
#: Reasons that no controller decides for.
SUPPOSED = {StageReason.ADOPTED, StageReason.AS_RECORDED, StageReason.OTHER}


def test_every_reason_of_an_event_is_explained_and_no_other() -> None:
    told = set(re.findall(r'reason="([A-Z]\w+)"', REPORTER.read_text())) | {str(r) for r in set(StageReason) - SUPPOSED}
    table = (REPOSITORY / "docs" / "jobs.md").read_text().partition("| reason |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == told
