"""The Grafana board and the alerts on a real Prometheus that scrapes a real run: no query is empty."""

import json
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arranger.sandbox.nodes import NodeTemplate
from tests.conftest import _required
from tests.depth import extent
from tests.e2e.harness import EmbeddedKube, Worker, apply, await_stage, eventually, fleet, job, kubelets, stages
from tests.prometheus import RealPrometheus, real_prometheus
from tests.servers import REPOSITORY, RealRedis, documents
from tests.unit.queue_table import queue
from tests.unit.test_alerts import ALERTS, RULES

#: How long the run goes on once every query has data, in seconds: longer than any alert takes to fire, if SOAK=1.
QUIET_S = extent(5, 600)

pytestmark = [pytest.mark.timeout(300 + 2 * QUIET_S), pytest.mark.real]

BOARD = json.loads((REPOSITORY / "deploy" / "board" / "arranger.json").read_text(encoding="utf-8"))
_SCALED = documents((REPOSITORY / "deploy" / "keda" / "scaledobjects.yaml").read_text(encoding="utf-8"))
#: Those of the board, and those by which KEDA scales.
QUERIES = [
    *(target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())),
    *(trigger["metadata"]["query"] for of in _SCALED for trigger in of["spec"]["triggers"]),
]
GPUS = 4
#: Counters that alerts look at; they exist before anything happens.
FROM_ZERO = (
    'arranger_ticks_total{tick="cycle",result="failed"}',
    'arranger_ticks_total{tick="maintenance",result="timeout"}',
    'arranger_ticks_dropped_total{tick="cycle"}',
    'arranger_missed_observations_total{kind="pod"}',
)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedKube]:
    with _required():
        server = EmbeddedKube(tmp_path)
    yield server
    server.close()


def training(name: str, *, of_queue: str, priority: int = 5, run_s: int = 2) -> dict[str, Any]:
    """A job that uses all GPUs for so long."""
    made = job(name, workers=0, run_s=run_s, priority=priority, queue=of_queue, expectedRuntimeSeconds=run_s)
    resources = made["spec"]["leader"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"]["nvidia.com/gpu"] = resources.setdefault("limits", {})["nvidia.com/gpu"] = str(GPUS)
    return made


def address(worker: Worker) -> str:
    return urllib.parse.urlsplit(worker.log("listening")[0]["url"]).netloc


def empty(prometheus: RealPrometheus) -> list[str]:
    """The queries that find nothing."""
    return [query for query in QUERIES if not prometheus.values(query)]


def test_no_query_of_the_board_is_empty_after_a_real_run_and_no_alert_fires(
    embedded: EmbeddedKube, redis: RealRedis, tmp_path: Path
) -> None:
    settings = {"forecast_every_s": 1, "reservation_refresh_s": 1}
    node = NodeTemplate("n1", cpu="64", gpus=GPUS)
    with (
        kubelets(embedded, node),
        fleet(redis_url=redis.url, kube=embedded, folder=tmp_path, **settings) as workers,
    ):
        started = workers.start(("watcher", "applier", "maintenance"), ("controller", "scheduler", "maintenance"))
        apply(embedded, queue("a"), queue("b", capability={"nvidia.com/gpu": str(GPUS)}))
        with _required(), real_prometheus([address(one) for one in started], RULES) as prometheus:
            waves = 0

            def filled() -> bool:
                """Whether no query is empty now; jobs keep coming."""
                nonlocal waves
                if sum(stage not in ("Succeeded", "Failed") for stage in stages(embedded).values()) < 4:
                    waves += 1
                    names = [f"j{waves}-{number}" for number in range(4)]
                    of = [training(name, of_queue="ab"[number % 2]) for number, name in enumerate(names)]
                    apply(embedded, *of, training(f"high{waves}", of_queue="a", priority=9))
                return not empty(prometheus)

            def filled_in_time() -> None:
                """Wait until no query is empty: some are for a moment, when no job waits or none runs."""
                try:
                    eventually("no query is empty", filled, within_s=200, every_s=1.0)
                except AssertionError as late:
                    raise AssertionError(f"{late}: {empty(prometheus)}") from None

            # In the waves, a job whose turn is first awaits the end of the one that runs, which so gives no room.
            apply(embedded, training("low", of_queue="a", run_s=10))
            await_stage(embedded, "Running", "low")
            apply(embedded, training("takes", of_queue="a", priority=9))
            await_stage(embedded, "Running", "takes")
            filled_in_time()
            # Two processes have the role that measures, and one of them does.
            eventually("GPUs are measured once", lambda: prometheus.values("sum(arranger_gpus)") == {"": GPUS})
            assert [prometheus.values(f"sum({query})") for query in FROM_ZERO] == [{"": 0}] * len(FROM_ZERO)
            jobs = prometheus.values("sum(arranger_jobs)")
            assert 0 < jobs[""] <= 2 + 5 * waves
            rules = eventually("rules are evaluated", lambda: _evaluated(prometheus))
            assert {name: rule["health"] for name, rule in rules.items()} == dict.fromkeys(ALERTS, "ok")
            until_s = time.monotonic() + QUIET_S
            while time.monotonic() < until_s:
                filled_in_time()
                time.sleep(1.0)
            assert prometheus.values('count_over_time(ALERTS{alertstate="firing"}[30m])') == {}


def _evaluated(prometheus: RealPrometheus) -> dict[str, dict[str, Any]] | None:
    rules = prometheus.rules()
    return rules if all(rule["health"] != "unknown" for rule in rules.values()) else None
