"""`arranger queue` and `arranger top`, run as a user runs them, on a log file and on a stand-in for the API server."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete
from rich.cells import cell_len

from arranger.cli.commands import queue as queue_module
from arranger.cli.commands import top as top_module
from arranger.cli.main import cli
from arranger.cli.rendering.queue_page import bar
from arranger.events import kinds as k
from arranger.kube.cluster import ApiError, ClusterUnavailable, Object
from arranger.model.pod import Requirement
from arranger.model.queue import NamespaceRule, NonPreemptible, QueueState, ScheduledFailed
from tests.commands import Run, to_file
from tests.servers import REPOSITORY
from tests.world import GIB, World, shape

GPU = "nvidia.com/gpu"
ONE = shape(cpu=2, memory=4 * GIB, gpus=1)


def teams() -> World:
    """Two nodes of 8 GPUs; vision doesn't need all that it deserves, and robots, below research, borrows the rest."""
    there = World()
    for number in range(2):
        there.node(f"n{number}", cpu=64, gpus=8)
    there.queue("research", deserved=((GPU, 8),))
    there.queue("robots", parent="research", weight=2)
    there.queue("plans", parent="research")
    there.queue("vision", deserved=((GPU, 8),))
    there.job("grasp", leader=ONE, workers=8, min_workers=8, of_queue="robots", user="ann")
    there.job("route", leader=ONE, workers=2, min_workers=2, of_queue="plans", namespace="plans")
    there.job("segment", leader=ONE, workers=1, min_workers=1, of_queue="vision", user="bob")
    there.settle()
    there.pod("proxy", "n0", cpu=0.5)
    there.pass_time(5)
    there.job("walk", leader=ONE, workers=3, min_workers=3, of_queue="robots", user="ann")
    there.settle()
    return there


@pytest.fixture
def log(tmp_path: Path) -> list[str]:
    return to_file(teams().entries, tmp_path / "run.log")


def example(text: str | None, command: str) -> list[str]:
    """The output that a help shows below a command."""
    lines = [line.strip() for line in (text or "").splitlines()]
    rest = lines[lines.index(f"$ {command}") + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def table(out: str) -> list[str]:
    """The first table of an output, below its heading."""
    return [line.rstrip() for line in out.split("\n\n")[1].splitlines()]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_the_tree_is_as_the_help_shows_it(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = Run(capsys, "queue", *log)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.startswith("offset ") and "; the nodes offer 16 GPUs\n" in shown.out
    assert [line.strip() for line in table(shown.out)] == example(queue_module.command.help, "arranger queue")
    assert "  robots" in shown.out and "█" not in shown.out


def test_who_holds_gpus_is_as_the_help_shows_it(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = Run(capsys, "top", *log)
    assert (shown.status, shown.err) == (0, "")
    assert table(shown.out) == example(top_module.command.help, "arranger top")


@pytest.mark.parametrize(("command", "document"), [("queue", "queues"), ("queue", "debugging"), ("top", "debugging")])
def test_documents_show_what_the_commands_print(
    log: list[str], capsys: pytest.CaptureFixture[str], command: str, document: str
) -> None:
    text = (REPOSITORY / "docs" / f"{document}.md").read_text(encoding="utf-8")
    assert f"$ arranger {command}\n" + "\n".join(table(Run(capsys, command, *log).out)) + "\n" in text


def test_one_queue_has_its_fields_its_holders_and_its_waiting_jobs(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Run(capsys, "queue", "research", *log)
    facts, tree, holding, waiting = (part.splitlines() for part in shown.out.split("\n\n")[1:])
    assert "deserved  8 nvidia.com/gpu" in facts and "share     32 cpu, 64Gi memory, 14 nvidia.com/gpu" in facts
    assert [line.split()[0] for line in tree] == ["QUEUE", "research", "plans", "robots"]
    assert [line.split()[:4] for line in holding[1:]] == [
        ["default/grasp", "robots", "9", "9"],
        ["plans/route", "plans", "3", "3"],
    ]
    assert waiting[1].split()[:5] == ["1", "default/walk", "robots", "ann", "5"] and "required pods fit" in waiting[1]
    assert "capability" not in shown.out


def test_a_queue_shows_every_field_that_is_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = World()
    namespaces = NamespaceRule(selector=(Requirement("team", "In", ("rl", "lab")), Requirement("gpu", "Exists", ())))
    limits = {"max_running": 0, "max_waiting": 7, "max_priority": 5, "min_runtime_s": 60}
    there.queue(
        "rl",
        namespaces=namespaces,
        reclaimable=False,
        user_fairness=True,
        queue_policy="DRF",
        **limits,
        scheduled_failed=ScheduledFailed.NEVER,
        non_preemptible=NonPreemptible.WITHIN_DESERVED,
    )
    log = to_file(there.entries, tmp_path / "run.log")
    expected = {
        "reclaimable": "false", "maxPriority": "5", "maxRunning": "0", "maxWaiting": "7", "jobQueuePolicy": "DRF",
        "userFairness": "true", "minRuntimeSeconds": "60", "scheduledFailed": "Never",
        "nonPreemptible": "WithinDeserved", "namespaces": "team In rl,lab and gpu Exists",
    }  # fmt: skip
    assert Run(capsys, "queue", "rl", *log, "-o", "json").json["queue"]["fields"] == expected
    rows = [line.split(maxsplit=1) for line in Run(capsys, "queue", "rl", *log).out.splitlines()]
    assert not [row for row in map(list, expected.items()) if row not in rows]
    assert "; maxRunning 0; maxWaiting 7" in Run(capsys, "events", "--queue", "rl", *log).out


def test_programs_get_all_resources(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    tree = Run(capsys, "queue", *log, "-o", "json").json
    robots = next(of for of in tree["queues"] if of["name"] == "robots")
    assert (robots["used"], robots["share"][GPU]) == ({"cpu": 18000, "memory": 36 * GIB, GPU: 9}, 11)
    assert (robots["parent"], robots["depth"], robots["state"], robots["own_waiting"]) == ("research", 2, "Open", 1)
    assert tree["total"][GPU] == 16 and tree["time"].startswith("2023-")
    one = Run(capsys, "queue", "robots", *log, "-o", "json").json
    assert [job["position"] for job in one["waiting"]] == [1] and one["queue"] == robots
    held = Run(capsys, "top", "--by", "user", "--resource", "cpu", *log, "-o", "json").json
    assert [(of["name"], of["amounts"]["cpu"]) for of in held["holders"]] == [
        ("ann", 18000), ("plans", 6000), ("bob", 4000), ("", 500),
    ]  # fmt: skip


def test_a_point_in_the_log_is_shown_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = teams()
    before = there.state.offset
    there.queue("robots", parent="research", state=QueueState.CLOSED)
    there.queue("vision", parent="gone")
    log = to_file(there.entries, tmp_path / "run.log")
    states = {
        of["name"]: (of["state"], of["message"]) for of in Run(capsys, "queue", *log, "-o", "json").json["queues"]
    }
    assert states["robots"] == ("Closed", "closed")
    assert states["vision"][0] == "Unusable" and "which doesn't exist" in states["vision"][1]
    earlier = Run(capsys, "queue", *log, "--at", str(before), "-o", "json").json
    assert {of["state"] for of in earlier["queues"]} == {"Open"}
    closed = Run(capsys, "queue", "robots", *log)
    assert "waits for queue robots, which is closed" in closed.out and "state   Closed: closed" in closed.out


def test_an_unknown_queue_is_an_error_that_names_similar_ones(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Run(capsys, "queue", "robot", *log)
    assert (missing.status, missing.out) == (1, "")
    assert "there is no queue 'robot' at offset" in missing.err and "did you mean robots?" in missing.err
    assert Run(capsys, "queue", "show", "create", *log).status == 1
    assert Run(capsys, "top", "--by", "team", *log).status == 2


@pytest.mark.parametrize("words", [("delete", "robots"), ("get", "robots"), ("robots", "vision")])
def test_a_word_that_is_no_subcommand_is_an_error_that_names_them(
    log: list[str], capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    done = Run(capsys, "queue", *words, *log)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"'{words[0]}' is no subcommand of arranger queue" in done.err and "close, create, open, show" in done.err
    assert ("kubectl delete queue" in done.err) == (words[0] == "delete")


def test_the_priority_that_counts_is_shown_beside_that_of_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = World()
    there.queue("interns", max_priority=2)
    there.job("high", of_queue="interns", priority=9)
    there.job("low", of_queue="interns", priority=1)
    log = to_file(there.entries, tmp_path / "run.log")
    rows = [line.split() for line in Run(capsys, "queue", "interns", *log).out.splitlines()]
    assert [row[1:7] for row in rows if row[1:2] == ["default/high"]] == [
        ["default/high", "interns", "default", "2", "(job:", "9)"]
    ]
    found = Run(capsys, "queue", "interns", *log, "-o", "json").json["waiting"]
    assert [(one["job"], one["priority"], one["own_priority"]) for one in found] == [
        ("default/high", 2, 9), ("default/low", 1, 1),
    ]  # fmt: skip
    assert "(priority 2, because of maxPriority of its queue: the job has 9; created " in (
        Run(capsys, "explain", "high", *log).out
    )


def test_a_change_that_gives_no_nodes_yet_is_not_called_one_that_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = World()
    there.queue("shut", state=QueueState.CLOSED)
    there.job("j", of_queue="shut")
    log = to_file(there.entries, tmp_path / "run.log")
    shown = Run(capsys, "explain", "j", *log).out
    assert "What would put it into the queue, each tried" in shown and "What would give it nodes" not in shown


def test_changes_that_give_nodes_stand_apart_from_those_that_only_put_it_into_a_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = World()
    there.node("n1", gpus=8)
    there.queue("full", capability=(("nvidia.com/gpu", 1),))
    there.queue("open")
    there.queue("shut", state=QueueState.CLOSED)
    there.job("j", of_queue="shut", leader=shape(gpus=2))
    there.cycle()
    shown = Run(capsys, "explain", "j", *to_file(there.entries, tmp_path / "run.log")).out
    _, gives, enters = re.split("What would give it nodes|What would put it into the queue", shown)
    assert "+1  -          queue open instead of shut" in gives and "queue full" not in gives
    assert "queue full instead of shut" in enters and "queue open" not in enters


def test_a_queue_that_does_not_exist_has_no_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = World()
    there.queue("other")
    there.job("j", of_queue="gone")
    log = to_file(there.entries, tmp_path / "run.log")
    assert ["weight", "-"] in [line.split() for line in Run(capsys, "queue", "gone", *log).out.splitlines()]


def test_a_cluster_without_gpus_is_shown_by_its_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = World()
    there.node("n1", cpu=8)
    there.job("j", leader=shape(cpu=1.5))
    there.settle()
    log = to_file(there.entries, tmp_path / "run.log")
    assert table(Run(capsys, "queue", *log).out)[1].split()[:6] == ["default", "Open", "1", "1500m", "1500m", "1500m"]
    assert table(Run(capsys, "top", *log).out)[1].split() == ["default", "1", "1", "1500m", "19%", "0"]
    memory = Run(capsys, "queue", "--resource", "memory", *log).out
    assert "the nodes offer 256Gi memory" in memory


def test_gpus_are_what_is_shown_where_there_are_any_whoever_holds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = World()
    there.node("n0", cpu=64, gpus=8)
    there.pod("other", "n0", cpu=1, gpus=8)
    there.job("sweep", leader=shape(cpu=4), workers=0, min_workers=0)
    there.settle()
    log = to_file(there.entries, tmp_path / "run.log")
    top = Run(capsys, "top", "--by", "job", *log)
    assert "the nodes offer 8 GPUs\n" in top.out
    assert [line.split() for line in table(top.out)] == [
        ["JOB", "QUEUE", "PODS", "GPUS", "OF", "ALL", "CPU", "MEMORY"],
        ["default/sweep", "default", "1", "0", "0%", "4", "0"],
        ["(other", "pods)", "-", "1", "8", "100%", "1", "0"],
    ]
    programs = Run(capsys, "top", "-o", "json", *log).json
    assert (programs["resource"], programs["total"][GPU]) == ("gpus", 8)
    for command in (("queue",), ("queue", "default")):
        shown = Run(capsys, *command, *log).out
        assert "the nodes offer 0 GPUs to jobs, and other pods hold 8\n" in shown
    cpu = Run(capsys, "queue", "--resource", "cpu", *log).out
    assert "the nodes offer 63 cpu to jobs, and other pods hold 1\n" in cpu


def test_it_is_said_that_queues_may_not_be_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = teams()
    there.say(k.WatchRefused(k.Watched.QUEUE, there.watch_queues(), 403))
    log = to_file(there.entries, tmp_path / "run.log")
    shown = Run(capsys, "queue", *log).out
    assert "the API server doesn't let Arranger list queues (403): only default is known" in shown
    assert "robots   Unusable" in shown and Run(capsys, "queue", *log, "-o", "json").json["refused"] == 403


def test_long_lists_of_one_queue_are_cut_unless_all_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = teams()
    for number in range(12):
        there.job(f"more-{number:02}", leader=shape(gpus=9), of_queue="robots")
    log = to_file(there.entries, tmp_path / "run.log")
    cut = Run(capsys, "queue", "robots", *log).out
    assert "more-00" in cut and "more-11" not in cut and "and 3 more jobs: --all shows all of them" in cut
    assert "more-11" in Run(capsys, "queue", "robots", "--all", *log).out


@pytest.mark.parametrize("columns", [150, 90, 80, 60, 50])
def test_a_queue_takes_one_line_and_has_a_bar_on_a_terminal_that_is_wide_enough(
    log: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PAGER", "")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    out = re.sub(r"\x1b\[\d+m", "", Run(capsys, "queue", *log).out)
    lines = out.partition("\n\n")[2].splitlines()
    assert max(map(cell_len, out.splitlines())) <= columns
    assert [line.split()[0] for line in lines[:6]] == ["QUEUE", "default", "research", "plans", "robots", "vision"]
    bars = [line.split()[-1] for line in lines if line.rstrip().endswith(("█", "░")) and "█" in line]
    assert bars == (["███████████████░░", "████", "███████████░░", "██"] if columns >= 90 else [])
    assert any(line.startswith("the share is what a queue is entitled to") for line in lines) == (columns >= 90)
    assert ("WEIGHT" in lines[0]) == (columns >= 80) and "USED GPUS" in lines[0] and "RUNNING" in lines[0]


@pytest.mark.parametrize(
    ("used", "share", "total", "shown"),
    [
        (0, 0, 16, ""),
        (8, 16, 16, "██████████░░░░░░░░░░"),
        (12, 8, 16, "██████████▓▓▓▓▓"),
        (1, 1, 1000, "█"),
        (3, 30, 16, "████" + "░" * 16),
    ],
)
def test_a_bar_shows_parts_of_the_cluster(used: int, share: int, total: int, shown: str) -> None:
    assert bar(used, share, total) == shown


# --- writing ---------------------------------------------------------------------------------------------------------


class Server:
    """Stands in for the API server: keeps the request, and answers it or raises."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.problem: Exception | None = None

    async def get(self, resource: Any, namespace: Any, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}}

    async def create(self, _resource: Any, _namespace: Any, body: Object) -> Object:
        return self._answer("create", body["metadata"]["name"], body["spec"])

    async def patch(self, _resource: Any, _namespace: Any, name: str, body: Object) -> Object:
        return self._answer("patch", name, body["spec"])

    def _answer(self, verb: str, name: str, spec: Object) -> Object:
        self.asked.append((verb, name, spec))
        if self.problem is not None:
            raise self.problem
        return {"metadata": {"name": name, "uid": "u1"}, "spec": spec}

    async def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(queue_module, "find_access", lambda kubeconfig, context: (kubeconfig, context))
    monkeypatch.setattr(queue_module, "HttpCluster", lambda access, *, strict: made)
    return made


def test_a_queue_is_created_with_the_given_fields_alone(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    done = Run(capsys, "queue", "create", "a")
    assert (done.status, done.out) == (0, "queue a is created\n") and server.asked[-1] == ("create", "a", {})
    given = ("--parent", "all", "--weight", "3", "--deserved", f"{GPU}=8", "--deserved", "cpu=64", "--closed")
    done = Run(capsys, "queue", "create", "b", *given, "--namespace", "x", "--namespace", "y", "-o", "json")
    spec = {
        "parent": "all", "weight": 3, "deserved": {GPU: "8", "cpu": "64"}, "namespaces": {"names": ["x", "y"]},
        "state": "Closed",
    }  # fmt: skip
    assert server.asked[-1] == ("create", "b", spec) and done.json == {"name": "b", "uid": "u1", "spec": spec}


def test_a_queue_is_closed_and_opened(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert Run(capsys, "queue", "close", "a").out == "queue a is closed: its jobs that have nodes run on\n"
    assert Run(capsys, "queue", "open", "a").out == "queue a is open\n"
    assert server.asked == [("patch", "a", {"state": "Closed"}), ("patch", "a", {"state": "Open"})]


@pytest.mark.parametrize(
    ("verb", "problem", "says"),
    [
        ("create", ApiError(403, "Forbidden", 'User "ann" cannot create resource "queues"'),
         'arranger: you may not create queue a: User "ann" cannot create resource "queues" '
         "(this needs the right to create queues: bind the ClusterRole arranger-queues-edit)"),
        ("close", ApiError(403, "Forbidden", "no"), "this needs the right to patch queues"),
        ("create", ApiError(409, "AlreadyExists", "a exists"), "there is a queue a already (kubectl edit queue a"),
        ("create", ApiError(422, "Invalid", "spec.weight: too large"), "spec.weight: too large"),
        ("create", ApiError(404, "NotFound", "the server could not find the requested resource"), "arranger crd |"),
        ("close", ApiError(404, "NotFound", 'queues.arranger.dev "a" not found'),
         "there is no queue a on the API server (arranger queue create a)"),
        ("open", ClusterUnavailable("connection refused"), "arranger: connection refused"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_cause_and_the_next_step(
    server: Server, capsys: pytest.CaptureFixture[str], verb: str, problem: Exception, says: str
) -> None:
    server.problem = problem
    done = Run(capsys, "queue", verb, "a")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert says in done.err


@pytest.mark.parametrize("arguments", [("--weight", "0"), ("--deserved", "gpus"), ("--deserved", "cpu=")])
def test_bad_usage_is_refused_before_any_request(
    server: Server, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    done = Run(capsys, "queue", "create", "a", *arguments)
    assert done.status == 2 and "arranger queue create --help" in done.err and server.asked == []


@pytest.mark.parametrize(
    ("arguments", "incomplete", "found"), [(["queue"], "cl", ["close"]), (["top", "--by"], "u", ["user"])]
)
def test_subcommands_and_groupings_are_completed(arguments: list[str], incomplete: str, found: list[str]) -> None:
    complete = BashComplete(cli, {}, "arranger", "_ARRANGER_COMPLETE")
    assert [item.value for item in complete.get_completions(arguments, incomplete)] == found


def test_who_has_the_room_of_a_failed_pod_is_its_only_holder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failed pod's job keeps its place in the queue, and nobody the room: together they seemed to have 12 of 8."""
    there = World()
    there.node("n1", gpus=8)
    there.queue("rl")
    first = there.job("first", workers=2, worker=shape(gpus=4), min_workers=1, of_queue="rl", equals=True)
    there.settle()
    there.change_pod(first.bound[1, 1], phase="Failed", ready=False)
    second = there.job("second", workers=1, worker=shape(gpus=4), min_workers=1, of_queue="rl", equals=True)
    there.cycle()
    assert len(first.placements) == 2 and second.placements
    log = to_file(there.entries, tmp_path / "run.log")
    held = Run(capsys, "top", "--by", "job", *log, "-o", "json").json
    assert {of["name"]: of["amounts"][GPU] for of in held["holders"]} == {"default/first": 4, "default/second": 4}
    assert Run(capsys, "queue", "rl", *log, "-o", "json").json["queue"]["used"][GPU] == 12


def test_what_pods_of_other_programs_hold_is_a_part_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.node("n1", cpu=32, gpus=8)
    world.pod("theirs", "n1", cpu=1, gpus=6)
    world.job("mine", leader=shape(cpu=1, gpus=2))
    world.settle()
    out = Run(capsys, "top", *to_file(world.entries, tmp_path / "top.log")).out
    assert "the nodes offer 8 GPUs" in out
    assert [line.split()[-3] for line in out.splitlines() if "default" in line or "other" in line] == ["25%", "75%"]


def test_a_share_of_nothing_that_nobody_asked_for_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.node("n1", cpu=32, gpus=8, memory=64)
    world.job("mine", leader=shape(cpu=1, gpus=2))
    world.settle()
    [share] = [
        line
        for line in Run(capsys, "queue", "default", *to_file(world.entries, tmp_path / "q.log")).out.splitlines()
        if line.startswith("share")
    ]
    assert "memory" not in share and "2 nvidia.com/gpu" in share
