"""Before others give room to a job, the API server is asked by a dry run whether it takes the job's pods."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arranger.clock import SystemClock
from arranger.events import kinds as k
from arranger.events.facts import LackOfNodes, PlacedPods
from arranger.events.log import Entry
from arranger.kube.cluster import ApiError, Resource
from arranger.lifecycle.desired import desired_status
from arranger.lifecycle.refusals import tries_pods
from arranger.model.job import LEADER_GROUP, ScheduleState, Slot, Stage
from arranger.projections import snapshot
from arranger.projections.jobs.records import JobRecord
from arranger.projections.state import Reservation
from arranger.replay.explain.expected import Certainty, NoStart
from arranger.replay.forecast.starts import JobForecast, Unknown, forecast
from arranger.replay.reading.recording import Recording
from arranger.replay.what_if.continuation import Continuation, Future
from arranger.replay.what_if.utilisation import Meter
from tests.commands import Run, to_file
from tests.unit.replay_worlds import verified
from tests.unit.test_applier import Scene
from tests.unit.test_preemption import preempted, running, waiting, world
from tests.unit.test_replay_room import explained
from tests.world import World

WHY = "failed quota: compute: must specify limits.cpu for: c"


def competing() -> tuple[World, JobRecord]:
    """A job that would take the room of another one, after the first cycle that knows both."""
    of = world(dry_run=True)
    running(of, "low", 4, priority=1)
    high = waiting(of, "high", 4, priority=9)
    assert preempted(of) is None
    return of, high


def tried(of: World, job: JobRecord, *, refused: bool = False) -> None:
    result = (Slot(1, 0), 403, "Forbidden", WHY) if refused else ()
    of.say(k.PodsTried(job.uid, job.seen.generation, *result))


def test_nobody_gives_room_before_the_pods_were_tried() -> None:
    of, high = competing()
    assert high.waits is not None and high.waits.shortage.untried and tries_pods(high, in_front=False)
    assert preempted(of) is None and of.cycle() == (), "nothing is recorded again"
    tried(of, high)
    assert not tries_pods(high, in_front=False)
    decision = preempted(of)
    assert decision is not None and decision.placed.job_uid == high.uid
    of.settle()
    assert high.stage == Stage.RUNNING
    verified(of.entries)


def test_nobody_gives_room_to_a_job_whose_pods_the_api_server_refuses() -> None:
    of, high = competing()
    tried(of, high, refused=True)
    for _ in range(5):
        assert preempted(of) is None
        of.pass_time(300)
    assert of.state.jobs["uid-low"].stage == Stage.RUNNING
    assert tries_pods(high, in_front=False), "it is tried again now and then"
    said = desired_status(of.state, high)["message"]
    assert said.startswith("0 of 4") and f"refuses pods of actors in a dry run: {WHY}" in said
    waits = explained(of.entries, "high").waiting
    assert waits is not None and [str(of.kind) for of in waits.takes_none] == ["Refused"]
    tried(of, high)
    assert preempted(of) is not None
    verified(of.entries)


def test_an_edit_is_tried_again() -> None:
    of, high = competing()
    tried(of, high, refused=True)
    of.say(msgspec.structs.replace(high.seen, generation=high.seen.generation + 1))
    assert high.dry_run is None
    of.cycle()
    assert tries_pods(high, in_front=False)


def test_a_result_of_an_earlier_generation_counts_for_nothing() -> None:
    of, high = competing()
    of.say(k.PodsTried(high.uid, high.seen.generation - 1))
    assert high.dry_run is None and preempted(of) is None


def test_a_job_that_finds_free_room_is_not_tried() -> None:
    of = world(nodes=2, dry_run=True)
    high = waiting(of, "high", 4, priority=9)
    of.settle()
    assert high.stage == Stage.RUNNING and high.tried is None and not tries_pods(high, in_front=False)


def test_the_result_is_in_snapshots() -> None:
    of, high = competing()
    tried(of, high, refused=True)
    copied = snapshot.restore(snapshot.encode(of.state))
    assert copied.jobs[high.uid].dry_run == high.dry_run is not None


def test_equal_jobs_are_marked_each() -> None:
    of = world(nodes=2, dry_run=True)
    running(of, "low", 8, priority=1)
    first, second = waiting(of, "first", 4, priority=9), waiting(of, "second", 4, priority=9)
    of.cycle()
    assert tries_pods(first, in_front=False) and tries_pods(second, in_front=False)


# --- questions about what would be ------------------------------------------------------------------------------


def equal() -> tuple[World, JobRecord]:
    """A job that waits behind a running one with its priority."""
    of = world(dry_run=True)
    running(of, "held", 4, priority=5)
    waits = waiting(of, "waits", 4, priority=5)
    of.settle()
    assert waits.waits is not None and not waits.waits.shortage.untried and waits.tried is None
    return of, waits


def priorities_that_help(of: World) -> list[str]:
    found = explained(of.entries, "waits").waiting
    assert found is not None
    return [one.text for one in found.remedies if one.text.startswith("priority")]


def test_a_higher_priority_is_a_remedy_although_nobody_tried_the_pods() -> None:
    of, _ = equal()
    assert priorities_that_help(of) == [
        "priority 6 would let it take room from default/held (Priority, 4 pods, 40 GPU seconds of work lost); "
        "once a dry run has shown that the API server takes its pods"
    ]


def test_a_remedy_that_takes_room_says_from_whom_although_it_would_also_overtake_a_job() -> None:
    of, _ = equal()
    waiting(of, "zz-later", 4, priority=5)
    of.settle()
    found = explained(of.entries, "zz-later").waiting
    assert found is not None and found.position == 2
    (remedy,) = [one for one in found.remedies if one.text.startswith("priority")]
    assert remedy.room_from == ("default/held (Priority, 4 pods, 40 GPU seconds of work lost)",)
    assert remedy.text.startswith(f"priority 6 would let it take room from {remedy.room_from[0]}; once a dry run")


def test_any_other_remedy_says_as_well_from_whom_the_job_would_take_room() -> None:
    of = world(dry_run=True)
    running(of, "held", 4, priority=1)
    waiting(of, "waits", 5, priority=5)
    of.settle()
    found = explained(of.entries, "waits").waiting
    assert found is not None
    held = "default/held (Priority, 4 pods, 40 GPU seconds of work lost)"
    texts = [one.text for one in found.remedies if one.room_from == (held,)]
    assert any(text.startswith(f"minWorkersNum 4 instead of 5; it would take room from {held}") for text in texts)


def test_a_higher_priority_is_no_remedy_for_pods_that_the_api_server_refuses() -> None:
    of, waits = equal()
    tried(of, waits, refused=True)
    of.settle()
    assert priorities_that_help(of) == []


def what_if(of: World, capsys: pytest.CaptureFixture[str], folder: Path, *changes: str) -> Any:
    path = folder / f"{of.state.offset}.log"
    log = ("--log", str(path)) if path.exists() else to_file(of.entries, path)
    done = Run(capsys, "what-if", *log, *changes, "-o", "json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def room_of(answer: Any, plan: str) -> dict[str, list[str]]:
    return {one["job"]: one["room_from"] for one in answer[plan]["jobs"] if one["room_from"]}


def test_what_if_gives_room_although_nobody_tried_the_pods(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    of, waits = equal()
    edit = ("--job", "waits", "--priority", "8")
    answer = what_if(of, capsys, tmp_path, *edit)
    assert [one["job"] for one in answer["differences"]] == ["default/waits"]
    assert room_of(answer, "asItWas") == {} and [*room_of(answer, "whatIf")] == ["default/waits"]
    tried(of, waits, refused=True)
    assert what_if(of, capsys, tmp_path, *edit)["differences"] == [], "that doesn't change its pods"


def behind_a_reservation() -> tuple[World, JobRecord]:
    """A job before which another one has a reservation: it is tried in reserved room as well, before others are asked
    for theirs."""
    of = world(2, dry_run=True, guests=True, reservations=2, reservation_refresh_ms=30_000)
    running(of, "elastic", 4, least=2, priority=3)
    running(of, "stays", 4, priority=9, preemptible=False)
    waiting(of, "large", 8, priority=6)
    of.settle()
    assert [*of.state.reservations] == ["uid-large"]
    tried(of, of.state.jobs["uid-large"])  # until then it may take the room itself any moment
    return of, waiting(of, "small", 2, priority=5)


def test_a_job_behind_a_reservation_is_said_to_wait_for_its_dry_run() -> None:
    of, small = behind_a_reservation()
    of.cycle()
    assert small.waits is not None and small.waits.shortage.untried
    found = explained(of.entries, "small").waiting
    assert found is not None and found.why.startswith("others would give it room, but a dry run has to show first")
    assert not found.takes_none
    tried(of, small)
    decision = preempted(of)
    assert decision is not None and decision.placed.job_uid == small.uid


def test_what_if_supposes_the_answer_for_a_job_behind_a_reservation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of, _ = behind_a_reservation()
    waiting(of, "small", 2, priority=3, generation=2)
    of.cycle()
    assert room_of(what_if(of, capsys, tmp_path), "whatIf") == {}
    answer = what_if(of, capsys, tmp_path, "--job", "small", "--priority", "5")
    assert [*room_of(answer, "whatIf")] == ["default/small"] and answer["supposed"] == ["default/small"]


CHANGES = (
    ("--backfill", "Off"),
    ("--queue-policy", "DRF"),
    ("--without", "never"),
    ("--job", "never", "--priority", "8"),
    ("--job", "never", "--priority", "5"),
)


@pytest.mark.parametrize("recorded", [True, False])
def test_as_it_was_is_the_cycle_itself_whatever_is_changed(
    recorded: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of, high = competing()
    waiting(of, "never", 40, priority=5)
    of.cycle()
    assert high.waits is not None and high.waits.shortage.untried
    cycle = next(entry for entry in of.entries if any(isinstance(e, k.Waits) for e in entry.batch.events))
    point = ("--at", str(cycle.first)) if recorded else ()
    plain = what_if(of, capsys, tmp_path, *point)
    assert room_of(plain, "asItWas") == {} and (plain["asItWas"]["quorums"], plain["asItWas"]["pods"]) == (0, 0)
    for change in CHANGES if not recorded else CHANGES[:2]:  # the other job came after that cycle
        answer = what_if(of, capsys, tmp_path, *point, *change)
        assert answer["asItWas"] == plain["asItWas"] and answer["reproduced"] == plain["reproduced"], change
        assert room_of(answer, "whatIf") == {} and answer["supposed"] == [], "only the answer lacks, not the change"
    assert plain["reproduced"] is (True if recorded else None)
    [told] = [one for one in plain["asItWas"]["jobs"] if one["job"] == "default/high"]
    log = ("--log", str(tmp_path / f"{of.state.offset}.log"))
    said = Run(capsys, "what-if", *log, *point).out
    assert "in both plans, others give room to default/high only after a dry run, which nobody had made yet" in said
    assert told["untried"] and "a dry run has to show first" in told["waits"]
    if not recorded:
        said = Run(capsys, "explain", "high", *log).out
        assert "0 of its" not in said and "Why it waits: others would give it room, but a dry run has to show" in said


def test_what_if_supposes_the_answer_only_for_jobs_that_the_change_lets_take_room(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of, waits = equal()
    waiting(of, "other", 4, priority=4)
    of.cycle()
    for change in (("--job", "waits", "--priority", "8"), ("--job", "other", "--priority", "9")):
        answer = what_if(of, capsys, tmp_path, *change)
        job = f"default/{change[1]}"
        assert (answer["supposed"], [*room_of(answer, "whatIf")]) == ([job], [job])
        assert answer["asItWas"] == what_if(of, capsys, tmp_path)["asItWas"]
    done = Run(capsys, "what-if", *to_file(of.entries, tmp_path / "words.log"), "--job", "waits", "--priority", "8")
    assert "supposed: in a dry run, the API server takes the pods of default/waits; nobody had asked it yet" in done.out
    tried(of, waits)
    answer = what_if(of, capsys, tmp_path, "--job", "waits", "--priority", "8")
    assert (answer["supposed"], [*room_of(answer, "whatIf")]) == ([], ["default/waits"]), "the log says so"


def test_what_if_says_what_a_job_gets_once_one_ahead_of_it_had_its_dry_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A new user took a priority for enough that let a job have room for 42 ms, and `explain` said another one."""
    of, _ = competing()
    behind = waiting(of, "behind", 4, priority=1)
    of.cycle()
    edit = ("--job", "behind", "--priority", "8")
    answer = what_if(of, capsys, tmp_path, *edit)
    assert [*room_of(answer, "whatIf")] == ["default/behind"]
    [later] = answer["after_dry_runs"]
    assert (later["job"], later["placed"], later["room_from"]) == ("default/behind", 0, [])
    log = ("--log", str(tmp_path / f"{of.state.offset}.log"))
    said = Run(capsys, "what-if", *log, *edit).out
    assert "once that is made, default/behind gets something else with the changes: waits: 0 of 4" in " ".join(
        said.split()
    )
    tried(of, of.state.jobs["uid-high"])
    assert what_if(of, capsys, tmp_path, *edit)["after_dry_runs"] == [] and not behind.placements


def test_a_refusal_in_the_log_says_nothing_of_other_pods(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    of = world(dry_run=True)
    running(of, "held", 4, priority=5)
    waits = waiting(of, "waits", 2, priority=5)
    tried(of, waits, refused=True)
    of.settle()
    edit = ("--job", "waits", "--priority", "8")
    answer = what_if(of, capsys, tmp_path, *edit)
    assert (answer["supposed"], room_of(answer, "whatIf")) == ([], {})
    answer = what_if(of, capsys, tmp_path, *edit, "--gpus", "2")
    assert (answer["supposed"], [*room_of(answer, "whatIf")]) == (["default/waits"], ["default/waits"])


def test_no_start_is_promised_to_a_job_whose_pods_the_api_server_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of, high = competing()
    behind = waiting(of, "behind", 4, priority=5)
    of.settle()

    def starts() -> dict[str, JobForecast]:
        found = forecast(of.state, of.config, of.now_ms, first=100)
        return {one.job.removeprefix("default/"): one for one in found.jobs}

    assert starts()["high"].expected_ms
    of.say(k.StartForecast(high.uid, high.version, of.now_ms + 1000, of.now_ms, of.now_ms + 2000))
    tried(of, high, refused=True)
    found = starts()
    assert (found["high"].expected_ms, found["high"].latest_ms, found["high"].why) == (0, 0, Unknown.REFUSED)
    assert found["behind"].expected_ms, "it doesn't wait for the room that the other one doesn't take"
    assert desired_status(of.state, high).get("expectedStartTime") is None
    start = explained(of.entries, "high").start
    assert start is not None and (start.certainty, start.why) == (Certainty.UNKNOWN, NoStart.REFUSED)
    log = to_file(of.entries, tmp_path / "forecast.log")
    assert "the API server refuses its pods" in Run(capsys, "forecast", *log).out
    tried(of, high)
    assert starts()["high"].expected_ms and behind.tried is None


def test_a_continuation_gives_room_to_a_job_only_once_the_api_server_takes_its_pods() -> None:
    of, high = competing()

    def continued(content: bytes, begin_ms: int, later: Sequence[Entry] = ()) -> bool:
        """Whether `high` has nodes ten minutes on, with what these entries tell."""
        recording, state = Recording(snapshot.restore(content), begin_ms=begin_ms), snapshot.restore(content)
        for entry in later:
            recording.feed(entry)
        meter, future = Meter(None, begin_ms), Future(recording.observations, {})
        Continuation(state, future, of.config, meter, begin_ms=begin_ms, until_ms=begin_ms + 600_000).go_on()
        return bool(state.jobs[high.uid].placements)

    assert continued(snapshot.encode(of.state), of.now_ms), "nobody was asked, so it is supposed to take them"
    tried(of, high, refused=True)
    point, begin_ms, known = snapshot.encode(of.state), of.now_ms, len(of.entries)
    assert not continued(point, begin_ms)
    of.pass_time(100)
    tried(of, high)
    assert continued(point, begin_ms, of.entries[known:])


# --- the applier ---------------------------------------------------------------------------------------------


class Stopped(SystemClock):
    """A clock that tests set."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        """The seconds that have passed."""
        return self.now_s


class Asking(Scene):
    """A job that others would give room to, an API server that answers dry runs so, one after the other (None: it takes
    the pod), and what the applier appends."""

    def __init__(self, *answers: ApiError | None) -> None:
        self.clock = Stopped()
        super().__init__(self.clock)
        self.answers, self.asked, self.appended = list(answers), list[str](), list[k.Event]()
        self.job.waits = k.Waits(self.job.uid, 0, ScheduleState.UNSCHEDULED, LackOfNodes(0, 1, untried=True))
        self.dry_run = self.applier._pods.reconciler._dry_run
        self.dry_run._writer = self  # type: ignore[assignment]
        self.cluster.try_create = self.answer  # type: ignore[method-assign]

    async def answer(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        self.asked.append(body["metadata"]["name"])
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer

    async def append(self, events: list[k.Event]) -> None:
        self.appended += events
        self.world.say(*events)

    async def ask(self, *, after_s: float = 0.0) -> None:
        self.clock.now_s += after_s
        await self.dry_run.look(self.look(), self.applier._pods.reconciler._templates)


def said(code: int, words: str) -> ApiError:
    return ApiError(code, "Forbidden", words)


async def test_each_group_is_tried_once_for_each_generation() -> None:
    scene = Asking()
    await scene.ask()
    assert scene.asked == ["j-learner-0"] and scene.appended == [k.PodsTried(scene.job.uid, 1)]
    await scene.ask(after_s=600)
    assert len(scene.asked) == 1


async def test_a_refusal_is_recorded_once_and_tried_again_more_and_more_rarely() -> None:
    refused = [said(403, WHY)] * 3
    scene = Asking(*refused)
    await scene.ask()
    assert scene.appended == [k.PodsTried(scene.job.uid, 1, Slot(0, 0), 403, "Forbidden", WHY)]
    await scene.ask(after_s=29)
    assert len(scene.asked) == 1
    await scene.ask(after_s=1)
    await scene.ask(after_s=59)
    assert (len(scene.asked), len(scene.appended)) == (2, 1)
    await scene.ask(after_s=1)
    await scene.ask(after_s=120)
    assert scene.appended[1:] == [k.PodsTried(scene.job.uid, 1)], "the API server takes it now"


@pytest.mark.parametrize("words", ["exceeded quota: compute, requested: pods=1", "hook x does not support dry run"])
async def test_a_refusal_that_says_nothing_of_the_pods_does_not_count(words: str) -> None:
    scene = Asking(said(403, words))
    await scene.ask()
    assert scene.appended == [k.PodsTried(scene.job.uid, 1)]


async def test_an_api_server_that_fails_keeps_nobody_from_room_for_long() -> None:
    scene = Asking(*[said(500, "etcd is slow")] * 3)
    for _ in range(2):
        with pytest.raises(ApiError):
            await scene.ask()
    assert scene.appended == []
    await scene.ask()
    assert scene.appended == [k.PodsTried(scene.job.uid, 1)]


async def test_jobs_to_which_nobody_would_give_room_are_not_tried() -> None:
    scene = Asking()
    scene.job.waits = None
    await scene.ask()
    assert scene.asked == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_job_with_a_reservation_is_tried_before_it_has_a_chance_to_take_room(allowed: bool) -> None:
    """An answer that came only then let jobs behind it go first."""
    scene = Asking()
    if not allowed:
        scene.parts.settings = msgspec.structs.replace(
            scene.parts.settings, preemption=dict.fromkeys(scene.parts.settings.preemption, "Never")
        )
    scene.job.waits = None
    decided = k.Reserved(scene.job.uid, scene.job.version, 0, (PlacedPods("n1", LEADER_GROUP, ((0, 0),)),))
    scene.world.state.reservations[scene.job.uid] = Reservation(decided, scene.world.now_ms, 0)
    await scene.ask()
    assert scene.appended == ([k.PodsTried(scene.job.uid, 1)] if allowed else [])
    await scene.ask(after_s=600)
    assert len(scene.asked) == allowed
