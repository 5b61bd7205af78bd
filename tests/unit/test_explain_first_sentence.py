"""`arranger explain` begins with what happened: a failure has its remedy, and a waiting job its expected start."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.cli.inputs import start_forecast
from arranger.clock import SystemClock
from arranger.events.facts import LackOfNodes, LeaderRestarts, PodEnd, RestartLimit, StageFacts
from arranger.events.kinds import StageDecided, StartForecast
from arranger.kube.cluster import EVENTS
from arranger.lifecycle.desired import desired_status
from arranger.messages.failures import failure_remedy_text
from arranger.messages.readiness import stuck_text
from arranger.model.faults import Fault, FaultKind
from arranger.model.job import Stage
from arranger.model.pod import ContainerEnd
from arranger.model.reasons import Reason, ReasonKind, absent, insufficient
from arranger.model.stages import TRANSITIONS, StageReason
from arranger.projections.jobs.parts import LEADER
from arranger.projections.jobs.run_times import TIMES_NEEDED
from arranger.replay.console import starts_now
from arranger.replay.console.moment import moment
from arranger.replay.explain.expected import start_of
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.listing import Selection
from arranger.sandbox.store import Store
from arranger.workers.applying.effects.progress import ToldEvents
from arranger.workers.applying.statuses.reporter import Reporter
from tests.commands import Run, to_file
from tests.unit.replay_worlds import crowded, explained, gpu_job, with_room_rules
from tests.unit.test_lifecycle import starting_world
from tests.world import World, shape

GPU = "nvidia.com/gpu"
FAILURES = sorted({reason for (_, reason), to in TRANSITIONS.items() if to == Stage.FAILED})


def failed(reason: StageReason, facts: StageFacts | None = None) -> StageDecided:
    return StageDecided("uid", 0, 0, Stage.FAILED, reason, facts)


@pytest.mark.parametrize("reason", FAILURES)
def test_each_failure_has_a_remedy_but_that_of_a_job_that_is_being_deleted(reason: StageReason) -> None:
    assert bool(failure_remedy_text(failed(reason))) == (reason != StageReason.DELETED)
    decided = StageDecided("uid", 0, 0, Stage.RUNNING, StageReason.WORKERS_READY)
    assert failure_remedy_text(decided) == ""


def test_who_ran_out_of_memory_is_told_what_to_do_with_and_without_a_limit() -> None:
    ended = ContainerEnd("main", 137, 9, "OOMKilled")
    facts = LeaderRestarts(PodEnd(ended=ended), 3, RestartLimit(2, ""), window_s=0)
    told = failure_remedy_text(failed(StageReason.RESTART_LIMIT, facts))
    assert told == (
        "raise the memory limit of container main, or request more memory if it has none, or let it need less, and "
        "submit the job again"
    )


def test_the_start_is_that_of_the_command_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    for job in ("big", "other"):
        start = Run(capsys, "explain", job, *log, "-o", "json").json["start"]
        [forecast] = Run(capsys, "forecast", job, *log, "-o", "json").json["jobs"]
        known = tuple(start[of] or None for of in ("expected_ms", "earliest_ms", "latest_ms", "why"))
        assert known == tuple(forecast[of] for of in ("expected_ms", "earliest_ms", "latest_ms", "why"))


def test_a_forecast_of_the_log_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    job = next(of for of in world.state.jobs.values() if of.seen.name == "other")
    at_ms = world.now_ms + 600_000
    world.say(StartForecast(job.uid, job.version, at_ms, at_ms - 1_000, at_ms + 9_000))
    told = Run(capsys, "explain", "other", *to_file(world.entries, tmp_path / "run.log"), "-o", "json").json
    times = [told["start"][of] for of in ("certainty", "expected_ms", "earliest_ms", "latest_ms", "made_ms")]
    assert times == ["Forecast", at_ms, at_ms - 1_000, at_ms + 9_000, world.now_ms]
    assert str(told).count(str(at_ms)) == 1 and "forecast" not in told


def test_an_earliest_start_that_has_passed_is_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = crowded()
    job = next(of for of in world.state.jobs.values() if of.seen.name == "other")
    world.say(StartForecast(job.uid, job.version, world.now_ms + 600_000, world.now_ms + 1_000, world.now_ms + 900_000))
    world.pass_time(60)
    world.node("further", cpu=1)
    told = Run(capsys, "explain", "other", *to_file(world.entries, tmp_path / "run.log")).out
    assert "likely between now and" in told


def test_where_a_forecast_would_take_too_long_the_command_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = to_file(crowded().entries, tmp_path / "run.log")
    limits = {
        "_PODS": "the cluster has too many pods for a forecast here: arranger forecast",
        "_JOBS": "more jobs wait than a forecast here looks at: arranger forecast",
    }
    for limit, why in limits.items():
        monkeypatch.setattr(starts_now, limit, 1)
        assert f"  start         unknown: {why}\n" in Run(capsys, "explain", "big", *log).out
        monkeypatch.undo()
    monkeypatch.setattr(start_forecast, "_LIMIT_S", -1.0)
    assert "  start         unknown: a forecast takes too long here" in Run(capsys, "explain", "big", *log).out


def start_line(world: World, job: str, capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    told = Run(capsys, "explain", job, *to_file(world.entries, folder / f"{world.state.offset}.log")).out
    return next(line for line in told.splitlines() if line.startswith("  start "))


def reserved(**hog: Any) -> World:
    """`large` waits with a reservation for the node that `hog` has to itself."""
    world = with_room_rules(preemption=None)
    gpu_job(world, "hog", 4, **hog)
    world.settle()
    world.pass_time(60)
    gpu_job(world, "large", 4, priority=9, expected_s=50)
    world.settle()
    return world


def test_a_start_that_nobody_knows_is_beside_the_guess_of_the_command_forecast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = reserved()
    log = to_file(world.entries, tmp_path / "run.log")
    start = Run(capsys, "explain", "large", *log, "-o", "json").json["start"]
    [forecast] = Run(capsys, "forecast", "large", *log, "-o", "json").json["jobs"]
    assert (start["certainty"], start["expected_ms"]) == ("Unknown", 0)
    assert start["forecast_ms"] == forecast["expected_ms"] == world.now_ms + 60_000
    told = start_line(world, "large", capsys, tmp_path)
    assert "its reservation waits for the end of default/hog, and nobody knows when that comes" in told
    assert "; `arranger forecast` guesses " in told


def test_a_promise_that_a_forecast_expects_as_well_is_said_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = reserved(expected_s=100)
    log = to_file(world.entries, tmp_path / "run.log")
    assert start_line(world, "large", capsys, tmp_path).endswith(": promised by its reservation")
    assert Run(capsys, "forecast", "large", *log).out.splitlines()[1].endswith("+00:00")  # nothing to note


def test_a_start_that_is_estimated_from_earlier_runs_is_not_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = with_room_rules(preemption=None, learned_runtimes=True)
    for number in range(TIMES_NEEDED):
        job = gpu_job(world, f"before-{number}", 4, image="i")
        world.settle()
        world.pass_time(100)
        for pod in list(job.bound.values()):
            world.change_pod(pod, phase="Succeeded", ready=False)
        world.settle()
    gpu_job(world, "hog", 4, image="i")
    world.settle()
    world.pass_time(60)
    gpu_job(world, "large", 4, priority=9, expected_s=50)
    world.settle()
    told = start_line(world, "large", capsys, tmp_path)
    assert told.endswith(": expected by its reservation (estimated from earlier runs)")
    assert desired_status(world.state, world.state.jobs["uid-large"])["expectedStart"].endswith("Z (estimated)")


def test_a_promise_that_was_missed_or_moved_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = reserved(expected_s=100)
    world.pass_time(45)
    world.node("n2", cpu=1)  # an event, so that the log knows the time
    log = to_file(world.entries, tmp_path / "missed.log")
    assert "  its reservation said " in Run(capsys, "forecast", "large", *log).out
    assert "overdue since " in (told := start_line(world, "large", capsys, tmp_path))
    assert ", for 5.0s, by its reservation: it waits for default/hog to end; `arranger forecast` expects " in told
    world.cycle()
    told = start_line(world, "large", capsys, tmp_path)
    assert ": expected by its reservation, which promised " in told and " at first" in told


def test_a_forecast_beside_a_promise_is_called_a_guess_if_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job may start earlier if another one ends, and nothing is known of that."""
    world = with_room_rules(preemption=None)
    world.node("n2", cpu=16, gpus=4)
    gpu_job(world, "hog", 4, expected_s=1000)
    world.settle()
    gpu_job(world, "other", 4)
    world.settle()
    world.pass_time(60)
    gpu_job(world, "large", 4, priority=9, expected_s=50)
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    start = Run(capsys, "explain", "large", *log, "-o", "json").json["start"]
    [forecast] = Run(capsys, "forecast", "large", *log, "-o", "json").json["jobs"]
    assert (start["certainty"], start["forecast_ms"]) == ("Promised", forecast["expected_ms"])
    assert start["guessed"]
    told = start_line(world, "large", capsys, tmp_path)
    assert ": promised by its reservation; `arranger forecast` guesses " in told
    assert told.endswith(
        ": such jobs are taken to last as long again as they have run, or as half of the earlier jobs did"
    )


def test_of_a_job_that_is_gone_nobody_awaits_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = reserved()
    hog = world.state.jobs["uid-hog"]
    pods = [*hog.bound.values()]
    for uid in pods:
        world.change_pod(uid, deleting=True)
    world.job_gone(hog)
    told = Run(capsys, "explain", "large", *to_file(world.entries, tmp_path / "run.log")).out
    assert "uid-hog" not in told
    assert "  start         unknown: the jobs have ended for which its reservation waited" in told


def test_a_suspended_job_has_no_start_and_a_running_one_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", gpus=1)
    world.job("still", leader=shape(gpus=1), suspend=True)
    world.job("runs", leader=shape(gpus=1))
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  start         unknown: something other than room keeps it\n" in Run(capsys, "explain", "still", *log).out
    told = Run(capsys, "explain", "runs", *log)
    assert told.out.startswith("default/runs runs since 2023-11-14 ") and "  start  " not in told.out


def first_line(world: World, job: str, capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    log = to_file(world.entries, folder / f"{world.state.offset}.log")
    return Run(capsys, "explain", job, *log).out.splitlines()[0]


def test_a_pod_that_its_kubelet_cannot_start_is_in_the_first_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble = ": pod ppo-learner-0 can't start on n1: ErrImagePull: no such image x"
    world, job = starting_world(workers=2, min_workers=1)
    world.run_pod(job, LEADER, "n1", phase="Pending")
    world.change_pod(job.bound[LEADER], ip="", waiting="ErrImagePull", message="no such image x")
    assert first_line(world, "ppo", capsys, tmp_path).endswith(trouble)
    told = explained(world.entries, "ppo").standing
    assert told.message == trouble.removeprefix(": ")
    assert desired_status(world.state, job)["message"].startswith(f"{told.message}; if that lasts, the job fails")


async def test_an_event_tells_once_of_pods_that_cannot_start() -> None:
    world, job = starting_world(workers=2, min_workers=1)
    store, told = Store(now=lambda: world.now_ms / 1000), ToldEvents()
    reporter = Reporter(DirectCluster(store), SystemClock())
    world.run_pod(job, LEADER, "n1", phase="Pending")
    for why in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        world.change_pod(job.bound[LEADER], ip="", waiting=why)
        told.stuck = stuck_text(world.state, job)
        await reporter.report(job, told)
    items = store.page(EVENTS, Selection(), limit=100, continuation="").items
    found = [msgspec.json.decode(item.raw) for item in items]
    [event] = [of for of in found if of["reason"] == "PodCannotStart"]
    assert event["message"] == "pod ppo-learner-0 can't start on n1: ErrImagePull"
    assert event["count"] == 1 and event["type"] == "Warning"


def test_variables_that_pods_will_not_have_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1", cpu=8)
    job = world.job("ppo", workers=1, min_workers=1)
    unset = (Fault("spec.leader.template", FaultKind.UNSET_VARIABLE, name="TYJOB_RNAK"),)
    world.say(msgspec.structs.replace(job.seen, unset=unset))
    world.settle()
    log = to_file(world.entries, tmp_path / "run.log")
    out = Run(capsys, "explain", "ppo", *log).out
    assert out.count("TYJOB_RNAK") == 1 and "TYJOB_RNAK" not in out.splitlines()[0]
    assert "TYJOB_RNAK" in Run(capsys, "explain", "ppo", *log, "-o", "json").json["standing"]["unset"]


def test_the_name_of_a_pod_leads_to_its_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1", gpus=1)
    job = world.job("my-run", leader=shape(gpus=1))
    world.settle()
    [pod] = (world.state.pods[uid].name for uid in job.bound.values())
    log = to_file(world.entries, tmp_path / "run.log")
    hint = f"(it is a pod of job default/my-run: arranger explain default/my-run --pod {pod})\n"
    for name in (pod, f"default/{pod}"):
        assert Run(capsys, "explain", name, *log).err.endswith(hint)
    assert "a pod of" not in Run(capsys, "explain", f"other/{pod}", *log).err
    assert Run(capsys, "explain", "default/my-run", "--pod", pod, *log).status == 0


def test_a_job_that_its_selector_keeps_from_all_nodes_is_told_of_it() -> None:
    def remedy(*kinds: ReasonKind) -> str:
        shortage = LackOfNodes(0, 1, tuple((Reason(kind, "gpu-type=h100"), 4) for kind in kinds), group="w")
        return failure_remedy_text(failed(StageReason.UNSCHEDULABLE, shortage))

    assert remedy(ReasonKind.NODE_SELECTOR).startswith("correct the nodeSelector of its pods, or add nodes that match")
    both = remedy(ReasonKind.INSUFFICIENT, ReasonKind.NODE_SELECTOR, ReasonKind.TAINT)
    assert "request less" in both and "or correct the nodeSelector, the tolerations of its pods" in both
    assert remedy(ReasonKind.INSUFFICIENT).startswith("request less for a pod") and "correct" not in remedy()


@pytest.mark.parametrize(
    ("infeasible", "found", "reasons", "said"),
    [
        (True, 0, [insufficient(GPU, 64, 8)], f"request less for a pod (a node offers at most 8 {GPU}), need fewer"),
        (True, 0, [insufficient("memory", 100 << 30, 64 << 30)], "request less for a pod (a node offers at most 64Gi"),
        (False, 0, [insufficient(GPU, 64, 8)], "request less for a pod, need"),  # others use the rest
        (True, 1, [insufficient(GPU, 8, 0)], "request less for a pod, need"),  # its own pods do
        (True, 0, [insufficient(GPU, 8, 0)], "request less for a pod, need"),
        (True, 0, [insufficient(GPU, 64, 8), insufficient("cpu", 100_000, 64_000)], "request less for a pod, need"),
        (True, 0, [absent("x/gpus", 4, GPU)], "correct the request of x/gpus"),
    ],
)
def test_a_job_that_was_too_large_is_told_the_most_that_a_node_offers(
    infeasible: bool, found: int, reasons: list[Reason], said: str
) -> None:
    counts = tuple((reason, 4) for reason in reasons)
    shortage = LackOfNodes(found, 2, counts, group="w", infeasible=infeasible)
    assert failure_remedy_text(failed(StageReason.UNSCHEDULABLE, shortage)).startswith(said)


def test_a_job_that_failed_because_of_its_rules_is_told_nothing_of_its_requests() -> None:
    def remedy(*kinds: ReasonKind, found: int = 4) -> str:
        shortage = LackOfNodes(found, 5, tuple((Reason(kind), 4) for kind in kinds), group="w")
        return failure_remedy_text(failed(StageReason.UNSCHEDULABLE, shortage))

    fewer = "need fewer pods at once (minWorkersNum, minCount)"
    assert remedy(ReasonKind.ANTI_AFFINITY) == (
        f"{fewer}, correct the anti-affinity of its pods, or add nodes that match, and submit the job again"
    )
    assert remedy(ReasonKind.HOST_PORT, ReasonKind.NODE_SELECTOR).startswith(
        f"{fewer}, correct the nodeSelector, the host ports of its pods, or add nodes that match"
    )
    none_fits = remedy(ReasonKind.AFFINITY, found=0)
    assert none_fits.startswith("correct the pod affinity of its pods, or add nodes that match"), (
        "fewer don't fit either"
    )
    both = remedy(ReasonKind.ANTI_AFFINITY, ReasonKind.INSUFFICIENT)
    assert both.startswith("request less") and "or correct the anti-affinity of its pods" in both


def test_a_job_that_failed_without_nodes_had_no_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = with_room_rules()
    job = gpu_job(world, "large", 1000)
    world.settle()
    world.pass_time(world.config.infeasible_grace_ms / 1000 + 1)
    world.settle()
    assert job.ended and job.pods_told() == 0
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      it never had nodes" in Run(capsys, "explain", "large", *log).out
    assert "  had none" in Run(capsys, "replay", *log).out


def test_an_ended_job_of_one_worker_had_one_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A worker that has finished is desired no more, so 0 of 0 was told of it."""
    world = with_room_rules()
    job = gpu_job(world, "alone", 1)
    world.settle()
    world.change_pod(next(iter(job.bound.values())), phase="Succeeded", ready=False)
    world.settle()
    assert job.ended and job.pods_desired() == 0
    log = to_file(world.entries, tmp_path / "run.log")
    assert "  pods      it had 1; the job has ended" in Run(capsys, "explain", "alone", *log).out
    assert "  had 1" in Run(capsys, "replay", *log).out
    [line] = moment(world.state).jobs
    assert line.pods_desired == 1


def test_a_failed_job_names_the_exit_code_of_the_worker_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = with_room_rules()
    job = gpu_job(world, "fails", 2, restart_limit=0)
    world.settle()
    ended = ContainerEnd("main", 137, 9, "OOMKilled")
    world.change_pod(next(iter(job.bound.values())), phase="Failed", ready=False, reason="Error", ended=ended)
    world.settle()
    world.pass_time(30)  # the window in which failures are replaced together
    world.settle()
    told = Run(capsys, "explain", "fails", *to_file(world.entries, tmp_path / "run.log")).out
    said = "OOMKilled, exit code 137 (SIGKILL) of container main"
    assert job.stage == Stage.FAILED and f"; the last failure: {said}" in told.splitlines()[0]
    assert f" failed ({said})" in told


def test_a_start_that_jobs_of_other_queues_may_take_is_not_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = reserved(expected_s=100)
    world.queue("rl")
    gpu_job(world, "other", 4, of_queue="rl")
    world.settle()
    told = start_line(world, "large", capsys, tmp_path)
    assert "expected by its reservation (jobs of other queues may get their turns first)" in told
    large = world.state.jobs["uid-large"]
    assert desired_status(world.state, large)["expectedStart"].endswith("Z or later")


def test_a_start_is_not_promised_while_a_guest_of_another_queue_may_stay() -> None:
    world = with_room_rules(guests=True)
    gpu_job(world, "hog", 3, expected_s=100, priority=9)
    world.settle()
    large = gpu_job(world, "large", 4, priority=9, expected_s=50)
    world.queue("rl")
    world.settle()
    guest = gpu_job(world, "guest", 1, of_queue="rl", expected_s=500)
    world.settle()
    promised = start_of(world.state, large)
    assert promised is not None and not promised.guests
    assert desired_status(world.state, large)["expectedStart"].endswith("Z")
    guest.slots.hosts = (large.uid,)
    start = start_of(world.state, large)
    assert start is not None and not start.guests, "its own end is waited for"
    known = world.state.reservations[large.uid]
    others = tuple(uid for uid in known.decided.awaits if uid != guest.uid)
    world.state.reservations[large.uid] = msgspec.structs.replace(
        known, decided=msgspec.structs.replace(known.decided, awaits=others)
    )
    start = start_of(world.state, large)
    assert start is not None and start.guests
    assert desired_status(world.state, large)["expectedStart"].endswith("Z or later")
