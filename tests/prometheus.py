"""A real Prometheus for tests: it scrapes pages every second, evaluates rules, and answers queries."""

import contextlib
import http.client
import json
import math
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.servers import Daemon, free_port, prometheus_binary, scratch_folder


class RealPrometheus:
    """A Prometheus with its data in a folder. `targets` are addresses that it scrapes, `rules` the groups of rules."""

    def __init__(self, folder: Path, targets: Sequence[str], rules: dict[str, Any]) -> None:
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "arranger", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        argv = [str(prometheus_binary("prometheus")), "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
        argv.append(f"--web.listen-address=127.0.0.1:{self.port}")
        self.daemon = Daemon("prometheus", argv, folder=folder, ready=self._ready)

    def get(self, path: str, **parameters: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
            response = connection.getresponse()
            return response.status, response.read().decode()

    def values(self, query: str) -> dict[str, float]:
        """What a query finds now, by its labels, without what isn't a number."""
        status, text = self.get("/api/v1/query", query=query)
        assert status == 200, f"{query}: {text}"
        found = {
            ",".join(f"{name}={value}" for name, value in sorted(one["metric"].items())): float(one["value"][1])
            for one in json.loads(text)["data"]["result"]
        }
        return {labels: value for labels, value in found.items() if math.isfinite(value)}

    def rules(self) -> dict[str, dict[str, Any]]:
        """Each alert as Prometheus has evaluated it."""
        groups = json.loads(self.get("/api/v1/rules")[1])["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/-/ready")[0] == 200
        return False


@contextlib.contextmanager
def real_prometheus(targets: Sequence[str], rules: dict[str, Any]) -> Iterator[RealPrometheus]:
    """A Prometheus that scrapes these addresses. Raises `ServersUnavailable`."""
    prometheus_binary("prometheus")
    with scratch_folder("prometheus") as folder:
        server = RealPrometheus(folder, targets, rules)
        try:
            server.daemon.start()
            yield server
        finally:
            server.daemon.stop(kill=True)
