"""What README.md says of the embedded cluster, held against the code."""

import re

from arranger.sandbox import pod_run
from tests.servers import REPOSITORY


def test_the_table_of_annotations_is_complete_and_true() -> None:
    table = (REPOSITORY / "README.md").read_text().partition("| annotation |")[2].partition("\n\n")[0]
    told = re.findall(rf"`{re.escape(pod_run.PREFIX)}([\w-]+)`", table)
    read = re.findall(r'number\("([\w-]+)"\)|PREFIX \+ "([\w-]+)"', (REPOSITORY / pod_run.__file__).read_text())
    assert sorted(told) == sorted(number or text for number, text in read)
