"""One run: real processes, a crowd that makes them preempt, a killer, and the judge who watches all of it."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable

from tests.e2e.harness import Worker, epoch_of
from tests.preempt_soak.crowd import NODES, Crowd
from tests.preempt_soak.judge import Judge
from tests.preempt_soak.record import Record
from tests.trial.readings import LogTail, differences
from tests.trial.scene import Lab, Scene, scene
from tests.trial.verdicts import Verdict

#: The processes that are killed, by role.
REPLICAS = {"watcher": 2, "controller": 2, "scheduler": 2, "applier": 2, "maintenance": 1}
SETTINGS = {
    "lease_s": 4,
    "heartbeat_s": 1,
    "preemption_bound_s": 20,
    "reservation_refresh_s": 5,
    "snapshot_every_s": 30,
    "upgrade_grace_s": 0,
}
#: Pods take as long to stop, or as their grace period, if that is shorter.
_STOP_S = 1.5
#: From one kill to the next, and from a kill to the new process, in seconds.
_EVERY_S, _BACK_S = (1.5, 4.5), (0.3, 1.5)
#: How often a preemption is followed by a kill, within this many seconds; how often a kill is one of all processes.
_AFTER_PREEMPTION, _SOON_S, _ALL_AT_ONCE = 0.5, 1.0, 0.03
_STEP_S = 0.2
#: The time in which everything ends once no more jobs come.
_SETTLE_S = 300.0
#: Reading an hour's log back takes minutes.
_READ_BACK_S = 1200.0


class Killer:
    """Kills processes at random, often just after a preemption, and restarts them as a kubelet would."""

    def __init__(self, processes: list[Worker], chance: random.Random) -> None:
        self._processes = processes
        self._chance = chance
        self._next_s = 3.0
        self._back: list[tuple[float, Worker]] = []
        self._preemptions = 0
        self.kills: Counter[str] = Counter()
        self.faults: list[str] = []

    def step(self, now_s: float, preemptions: int) -> None:
        """Do what is due at `now_s`, in seconds since the begin. `preemptions` is how many there have been."""
        if preemptions > self._preemptions and self._chance.random() < _AFTER_PREEMPTION:
            self._next_s = min(self._next_s, now_s + self._chance.uniform(0, _SOON_S))
        self._preemptions = preemptions
        if now_s >= self._next_s:
            self._next_s = now_s + self._chance.uniform(*_EVERY_S)
            running = [of for of in self._processes if of not in [dead for _, dead in self._back]]
            everyone = self._chance.random() < _ALL_AT_ONCE
            for victim in running if everyone else running and [self._chance.choice(running)]:
                self._kill(victim, now_s)
        self._restart(lambda back_s: back_s <= now_s)

    def rest(self) -> None:
        """Restart all that are dead."""
        self._restart(lambda _: True)

    def _kill(self, victim: Worker, now_s: float) -> None:
        if not victim.running:
            self.faults.append(f"{victim.name} has ended by itself:\n{victim.log_end()}")
        victim.kill()
        self.kills[victim.name.partition("-")[0]] += 1
        self._back.append((now_s + self._chance.uniform(*_BACK_S), victim))

    def _restart(self, due: Callable[[float], bool]) -> None:
        for one in [one for one in self._back if due(one[0])]:
            self._back.remove(one)
            self._check(one[1])
            one[1].start()

    def _check(self, victim: Worker) -> None:
        """Look for a bug in the log of a dead process, and forget the log: an hour has thousands of them."""
        log = victim.log_path.read_text(errors="replace")
        if "Traceback" in log:
            self.faults.append(f"{victim.name} logs a bug: {log[log.index('Traceback') - 1000 :][:4000]}")
        victim.log_path.unlink()


def run(lab: Lab, *, minutes: float, seed: int, say: Callable[[str], None]) -> Verdict:
    """Let processes be killed for so many minutes, and wait until everything has ended. `say` gets a line a minute."""
    found = Verdict(str(seed), "preemptions under kill -9")
    record = Record(lab.kube.kubeconfig)
    with scene(lab, nodes=NODES, settings=SETTINGS, history=record, stop_s=_STOP_S) as there:
        crowd = Crowd(lab.kube, random.Random(f"crowd {seed}"))
        crowd.prepare()
        _start(there)
        judge = Judge(record, LogTail(there.redis.url))
        killer = Killer(there.processes, random.Random(f"killer {seed}"))
        epoch = epoch_of(there.redis)
        _rage(judge, crowd, killer, minutes=minutes, say=say)
        killer.rest()
        _settle(there, judge, found)
        found.expect(epoch_of(there.redis) == epoch, "a new epoch began")
        _read_back(there, judge, found)
        found.faults += [*judge.faults, *killer.faults, *there.tracebacks()]
        found.told(minutes=minutes, kills=sum(killer.kills.values()), **_figures(judge), **_by_role(killer))
    return found


def _start(there: Scene) -> None:
    """Start the processes. The second applier evicts pods, and the first one deletes them."""
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}
    for role, count in REPLICAS.items():
        for number in range(count):
            evict = {"ARRANGER_EVICT": "true"} if role == "applier" and number else {}
            there.start(role, wait=False, environment=compiled | evict)
    there.wait_ready()


def _rage(judge: Judge, crowd: Crowd, killer: Killer, *, minutes: float, say: Callable[[str], None]) -> None:
    began_s, told, faults = time.monotonic(), 0, 0
    while (now_s := time.monotonic() - began_s) < minutes * 60:
        judge.step()
        crowd.step(now_s, judge.live)
        killer.step(now_s, judge.counts["preemptions"])
        for fault in [*judge.faults, *killer.faults][faults:]:
            say(f"{now_s:.0f} s: {fault}")
        faults = len(judge.faults) + len(killer.faults)
        if now_s >= 60 * (told + 1):
            told += 1
            figures = ", ".join(f"{name} {value}" for name, value in sorted(judge.counts.items()))
            say(f"{told} min: {sum(killer.kills.values())} kills, {len(judge.faults)} faults, {figures}")
        time.sleep(_STEP_S)


def _settle(there: Scene, judge: Judge, found: Verdict) -> None:
    """Wait until every job has ended and every pod is gone."""
    there.wait_ready()
    until_s = time.monotonic() + _SETTLE_S
    while (judge.live() or judge.pods) and time.monotonic() < until_s:
        judge.step()
        time.sleep(_STEP_S)
    found.expect(not judge.live(), f"these jobs haven't ended: {sorted(judge.live())}")
    found.expect(not judge.pods, f"these pods are still there: {[pod.name for pod in judge.pods.values()]}")
    there.history.stop()


def _read_back(there: Scene, judge: Judge, found: Verdict) -> None:
    """Check the log: each cycle has the same plan again, the state is the cluster's, and decisions took effect."""
    verified = there.arranger("verify", "--output", "json", within_s=_READ_BACK_S)
    found.expect(verified.returncode == 0, f"arranger verify: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")
    report = json.loads(verified.stdout or "{}")
    found.told(verified_cycles=report.get("identical", 0))
    found.expect(report.get("identical") == report.get("cycles"), "a cycle has another plan")
    found.faults += differences(there, within_s=60)
    listed = there.arranger("preemptions", "--all", "--output", "json", within_s=_READ_BACK_S)
    effective = {of["offset"] for of in json.loads(listed.stdout)["preemptions"]}
    found.told(effective_preemptions=len(effective))
    judge.finish(effective)


def _figures(judge: Judge) -> dict[str, int]:
    """The counts of the judge, and how often one job had to give all its room."""
    most = max(judge.preempted_of.values(), default=0)
    jobs = {
        "jobs": len(judge.jobs),
        "most_preemptions_of_a_job": most,
        "longest_wait_for_room_ms": judge.longest_room_ms,
    }
    return jobs | dict(sorted(judge.counts.items()))


def _by_role(killer: Killer) -> dict[str, int]:
    return {f"kills_of_{role}": count for role, count in sorted(killer.kills.items())}
