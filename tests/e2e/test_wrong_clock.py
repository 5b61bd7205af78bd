"""A process whose clock is an hour ahead, with all roles: no job is harmed, and the clock is reported."""

import json
import sys
from pathlib import Path

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    TYJOBS,
    Worker,
    apply,
    arranger,
    await_stage,
    eventually,
    finish_leader,
    fleet,
    job,
    kubelets,
    stages,
)
from tests.servers import RealKube, RealRedis

#: Runs the command as on a machine whose clock is an hour ahead.
AHEAD = """
import sys, time
right = time.time_ns
time.time_ns = lambda: right() + 3_600 * 10**9
from arranger.cli.main import run
run()
"""


class AheadWorker(Worker):
    """A process on a machine whose clock is an hour ahead."""

    def start(self) -> None:
        self._argv = [sys.executable, "-c", AHEAD, *self._argv[3:]]
        super().start()


def kept(name: str) -> dict[str, object]:
    """A job whose deadline and TTL are much longer than the test, but shorter than the clock's error."""
    return job(name, workers=1, activeDeadlineSeconds=1800, ttlSecondsAfterFinished=1800)


def told_off(redis: RealRedis) -> list[int]:
    """The clock errors that members report, in milliseconds."""
    members = json.loads(arranger("status", "--log", redis.url, "-o", "json").stdout)["members"]
    return [one["offMs"] for each in members for one in each["problems"] if one["kind"] == "Clock"]


def test_no_job_is_harmed_by_a_clock_that_is_an_hour_ahead_in_every_role(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, NodeTemplate("n1", cpu="16")), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as right:
        flags = ["--redis", redis.url, "--kubeconfig", str(kube.kubeconfig), "--http-port", "0"]
        ahead = AheadWorker("ahead", flags, folder=tmp_path, environment=right.SETTINGS)
        right.workers["ahead"] = ahead
        ahead.start()
        eventually("it says that its clock is off", lambda: "the clock of this machine" in ahead.get("/readyz")[1])
        assert ahead.get("/readyz")[0] == 503
        right.start()
        names = [f"j{number}" for number in range(4)]
        apply(kube, *map(kept, names))
        await_stage(kube, "Running", *names)
        for name in names[:2]:
            finish_leader(kube, name)
        await_stage(kube, "Succeeded", *names[:2])
        eventually("a member tells it in its heartbeat", lambda: len(told_off(redis)) == 1)
        assert 3_590_000 < told_off(redis)[0] < 3_610_000
        assert 3590 < ahead.metrics()["arranger_clock_offset_seconds"] < 3610
        told = [line for line in ahead.log("check fails") if line["check"] == "clock"]
        assert len(told) == 1, "once, not over and over"
        # After ten seconds of sweeps by both, nothing has expired.
        assert ahead.log("watching") == []
        assert stages(kube) == dict(zip(names, ["Succeeded"] * 2 + ["Running"] * 2, strict=True))
        assert len(kube.request("GET", TYJOBS)[1]["items"]) == 4
