"""A record of the cluster that is judged while it grows, and that keeps only what exists: a run may last for hours."""

import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.e2e.history import Event, History


class Record(History):
    """The test's own watch of pods, TYJobs and nodes. Each event is handed out once."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self._news: deque[Event] = deque()
        self._there: dict[str, dict[str, dict[str, Any]]] = {"pod": {}, "job": {}, "node": {}}

    def take(self) -> list[Event]:
        """The events since the last call, those of each kind in the server's order."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def _record(self, kind: str, change: str, item: dict[str, Any]) -> None:
        item["metadata"].pop("managedFields", None)
        if change == "DELETED":
            self._there[kind].pop(item["metadata"]["uid"], None)
        else:
            self._there[kind][item["metadata"]["uid"]] = item
        version = int(item["metadata"]["resourceVersion"])
        self._news.append(Event(version, kind, change, item, time.monotonic()))

    def _known(self, kind: str) -> dict[str, dict[str, Any]]:
        return dict(self._there[kind])
