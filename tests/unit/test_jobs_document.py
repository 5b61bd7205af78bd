"""What docs/jobs.md says of Events, held against the code."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCES = ("arranger/lifecycle/stages.py", "arranger/workers/reporter.py", "arranger/events/kinds.py")
REASON = r'(?:Stage\.[A-Z]+, |reason=|SCHEDULED = |LEADER_FAILED = |SUSPENDED = |QUORUM_REFUSED = )"([A-Z]\w+)"'


def test_every_reason_of_an_event_is_explained_and_no_other() -> None:
    told = {found for path in SOURCES for found in re.findall(REASON, (REPOSITORY / path).read_text())}
    table = (REPOSITORY / "docs" / "jobs.md").read_text().partition("| reason |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == told
