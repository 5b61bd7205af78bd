"""Row C: a process whose clock is an hour ahead or behind writes nothing, reports that, and harms no job.

The process runs in each role in turn, first beside a process with a correct clock, then alone after that one is killed.
"""

import json
import ssl
import time
from collections.abc import Mapping, Sequence

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import ROLES, Worker, eventually, finish_leader, job
from tests.trial.faults import Wire, shifted_clock
from tests.trial.forged import stage
from tests.trial.readings import log_events
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import create
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate(f"node-{number}", cpu="32") for number in range(4)]
HOUR_S = 3600
#: Much longer than the running jobs need, and much less than an hour.
LIMIT_S = 1800


def wrong_clocks(
    lab: Lab,
    *,
    roles: Sequence[str] = ROLES,
    shifts_s: Sequence[int] = (HOUR_S, -HOUR_S),
    alone_s: float = 15.0,
    jobs: int = 6,
    settings: Mapping[str, object] | None = None,
) -> Verdict:
    """Run a shifted process in each role, alone for `alone_s`, with jobs that have a deadline and jobs to be kept."""
    found = Verdict("C", "clocks an hour off")
    tls = ssl.create_default_context(cafile=str(lab.kube.ca_file))
    with (
        # The trial's certificates are new, so they aren't valid yet for a clock that is behind.
        Wire(lab.kube.port, tls=tls) as plain,
        scene(lab, nodes=NODES, settings={"lease_s": 4, "heartbeat_s": 1, **(settings or {})}) as there,
    ):
        right = dict(zip(ROLES, there.start(*ROLES), strict=True))
        running, kept = [f"runs-{n}" for n in range(jobs)], [f"kept-{n}" for n in range(jobs)]
        for name in running:
            create(lab.kube, "default", job(name, workers=1, activeDeadlineSeconds=LIMIT_S))
        for name in kept:
            create(lab.kube, "default", job(name, workers=1, ttlSecondsAfterFinished=LIMIT_S))
        eventually("they run", lambda: all(stage(there, name) == "Running" for name in running + kept))
        for name in kept:
            finish_leader(lab.kube, name)
        eventually("some have ended", lambda: all(stage(there, name) == "Succeeded" for name in kept))
        silent, worst_s = [], 0.0
        for shift_s in shifts_s:
            for role in roles:
                shifted = there.start(role, wait=False, environment=shifted_clock(shift_s), api_url=plain.url("http"))[
                    0
                ]
                if not _alone(there, right[role], shifted, for_s=alone_s):
                    silent.append(f"{role} {shift_s:+d} s")
                shifted.close()
                worst_s = max(worst_s, _ahead_s(there))
        _judge(there, found, running, kept)
        found.told(turns=len(shifts_s) * len(roles), silent=len(silent), log_off_s=worst_s)
        found.expect(not silent, f"nobody said that the clock is off: {silent}")
        found.expect(worst_s < 300, f"events are told {worst_s:.0f} s off")
    return found


def _alone(there: Scene, right: Worker, shifted: Worker, *, for_s: float) -> bool:
    """Kill the correct process, run the shifted one alone, restart the other; whether the shifted one reported it."""
    within(lambda: shifted.log("listening"), within_s=30)
    said = within(lambda: _says(there, shifted), within_s=for_s)
    right.kill()
    time.sleep(for_s)
    said = said or _says(there, shifted)
    right.start()
    right.wait_ready()
    return bool(said)


def _says(there: Scene, shifted: Worker) -> bool:
    """Whether the process isn't ready because of its clock, logs that, and `arranger status` lists the problem."""
    loud = [json.dumps(line).lower() for line in shifted.log() if line.get("level") in ("warning", "error")]
    code, _ = shifted.get("/readyz") if shifted.running else (503, "")
    _, told, _ = there.status()
    return code != 200 and any("clock" in line for line in loud) and (not shifted.running or "clock" in told.lower())


def _ahead_s(there: Scene) -> float:
    """The maximum difference between the times of the newest events and this machine's clock, in seconds."""
    now_ms, last = time.time_ns() // 10**6, list(log_events(there))[-400:]
    ahead = max((event.time_ms - now_ms for event in last), default=0) / 1000
    # Times only grow in the fold, so an event with a clock behind follows one with a later time.
    behind, newest = 0.0, 0
    for event in last:
        newest = max(newest, event.time_ms)
        behind = max(behind, (newest - event.time_ms) / 1000)
    return max(ahead, behind)


def _judge(there: Scene, found: Verdict, running: list[str], kept: list[str]) -> None:
    """Whether any job was harmed, and whether a job with a short deadline still fails in time."""
    stages = {name: stage(there, name) for name in running + kept}
    failed = [name for name in running if stages[name] != "Running"]
    deleted = [name for name in kept if stages[name] != "Succeeded"]
    found.told(jobs=len(stages), failed=len(failed), deleted=len(deleted))
    found.expect(not failed, f"jobs failed by their deadline before it: { {name: stages[name] for name in failed} }")
    found.expect(not deleted, f"kept jobs were deleted: {deleted}")
    create(there.kube, "default", job("brief", workers=1, activeDeadlineSeconds=8))
    ran = within(lambda: stage(there, "brief") == "Running", within_s=30)
    ended = within(lambda: stage(there, "brief") == "Failed", within_s=60)
    found.expect(bool(ran and ended), f"a job with a deadline of 8 s is {stage(there, 'brief')!r}, it ran: {bool(ran)}")
