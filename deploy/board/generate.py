"""Makes the Grafana board arranger.json of panels.yaml: `python deploy/board/generate.py`, or `make board`."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent
SOURCE, BOARD = FOLDER / "panels.yaml", FOLDER / "arranger.json"
#: Grafana's grid has 24 columns; a row has three panels.
_WIDTH, _HEIGHT, _IN_A_ROW = 8, 8, 3
_PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


def board(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The board of these rows."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        grid = {"x": 0, "y": top, "w": _WIDTH * _IN_A_ROW, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row["row"], "gridPos": grid, "panels": []})
        top += 1
        for number, panel in enumerate(row["panels"]):
            line, column = divmod(number, _IN_A_ROW)
            grid = {"x": column * _WIDTH, "y": top + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": grid, **_panel(panel)})
        top += -(-len(row["panels"]) // _IN_A_ROW) * _HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "arranger",
        "title": "Arranger",
        "tags": ["arranger"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _panel(panel: dict[str, Any]) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal", "group": "A"}} if panel.get("stack") else {}
    defaults = {"unit": panel.get("unit", "short"), "min": 0, "custom": custom}
    targets = [
        {"refId": chr(ord("A") + n), "datasource": _PROMETHEUS, "expr": of["expr"], "legendFormat": of["legend"]}
        for n, of in enumerate(panel["queries"])
    ]
    return {
        "type": "timeseries",
        "title": panel["title"],
        "datasource": _PROMETHEUS,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def main() -> int:
    """Write the board. With `--check`, only say whether it is that of its source."""
    text = json.dumps(board(yaml.safe_load(SOURCE.read_text(encoding="utf-8"))), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        return int(text != BOARD.read_text(encoding="utf-8"))
    BOARD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
