"""The Grafana board is what its source makes, and asks for metrics that exist."""

import json
import re
import runpy

import yaml

from tests.servers import REPOSITORY
from tests.unit.test_operations_document import families

__all__ = ["families"]

FOLDER = REPOSITORY / "deploy" / "board"
BOARD = json.loads((FOLDER / "arranger.json").read_text(encoding="utf-8"))


def test_the_board_is_what_its_source_makes() -> None:
    source = yaml.safe_load((FOLDER / "panels.yaml").read_text(encoding="utf-8"))
    assert runpy.run_path(str(FOLDER / "generate.py"))["board"](source) == BOARD, "run `make board`"
    asked = [query["expr"] for row in source for panel in row["panels"] for query in panel["queries"]]
    assert asked == [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]


def test_no_two_panels_lie_over_each_other() -> None:
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_board_asks_for_metrics_and_labels_that_exist(families: dict[str, list[str]]) -> None:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            for metric, labels in re.findall(r"\b(arranger_\w+)(?:{([^}]*)})?", target["expr"]):
                family = re.sub(r"_(bucket|count|sum)$", "", metric)
                assert family in families, panel["title"]
                assert set(re.findall(r"(\w+)!?[=~]", labels)) <= set(families[family]), panel["title"]
