"""The demo from the user's view: it tells its story and ends by itself, the printed commands work, and Ctrl-C leaves
nothing behind."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_rewritten_words import same_whatever_is_said
from tests.servers import REPOSITORY, kube_assets

ARRANGER = [sys.executable, "-m", "arranger.cli.main"]
ENDS = {
    "goes-first": "Succeeded", "waits-its-turn": "Succeeded", "sweep-1": "Succeeded", "sweep-2": "Succeeded",
    "segment": "Succeeded", "loses-a-worker": "Succeeded", "never-fits": "Failed",
}  # fmt: skip
#: The single jobs in examples/.
EXAMPLES = {
    "quickstart": "Succeeded", "goes-first": "Succeeded", "waits-its-turn": "Succeeded", "elastic": "Succeeded",
    "never-fits": "Failed", "wrong-spec": "Refused", "ended-by-user": "Succeeded",
}  # fmt: skip
#: What the story tells, in this order but for the borrowing; in less than so many seconds each.
STORY = (
    ("queue robots uses 32 GPUs, and borrows 16 of them from others", 10),
    (r"waits-its-turn waits: 2 pods of it start together or not at all: \d of 2 required pods fit; ", 10),
    (r"segment of queue vision takes room back from default/sweep-2 \(1 pod, queue above its share, ", 20),
    (r"loses-a-worker runs on without pod loses-a-worker-actors-3, which failed; another one follows", 25),
    (r"waits-its-turn runs; it waited for [123]\d\.\ds", 40),
    (r"loses-a-worker has all of its pods again, after \d+\.\ds", 35),
)


def arranger(*arguments: str, check: bool = True) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
    done = subprocess.run(
        [*ARRANGER, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        cwd=REPOSITORY,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of a complete demo, and the path of its log."""
    folder = tmp_path_factory.mktemp("demo")
    return arranger("demo", "--folder", str(folder)), folder


def ends(output: str) -> dict[str, list[tuple[str, str, str]]]:
    """Job → its stages, schedule states and ready workers, in the order in which they were shown."""
    lines = [line.split() for line in output.splitlines() if re.match(r" *\d+\.\ds  [^>]", line)]
    seen: dict[str, list[tuple[str, str, str]]] = {}
    for _, name, stage, schedule, ready, *_ in (line for line in lines if line[1] != "queue"):
        seen.setdefault(name, []).append((stage, schedule, ready))
    return seen


def test_the_story_has_each_of_its_parts_in_time_and_says_so_truly(demo: tuple[str, Path]) -> None:
    output, folder = demo
    assert {name: states[-1][0] for name, states in ends(output).items()} == ENDS
    said = [re.fullmatch(r" *(\d+\.\d)s  > (.*)", line) for line in output.splitlines()]
    told = [(float(found[1]), found[2]) for found in said if found]
    at = []
    for pattern, within_s in STORY:
        [when] = [seconds for seconds, text in told if re.match(pattern, text)][:1] or [float("inf")]
        assert when < within_s, f"{pattern}: {told}"
        at.append(when)
    assert at[1:] == sorted(at[1:]) and [seconds for seconds, _ in told] == sorted(seconds for seconds, _ in told)
    # The first page shows some of these lines, cut.
    first_page = re.findall(r"^ *\d+\.\ds  > (.*)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert len(first_page) == 5
    for line in first_page:
        assert any(_without_numbers(text).startswith(_without_numbers(line.rstrip("…"))) for _, text in told), line
    # The times are those of the log.
    events = [json.loads(line) for line in arranger("events", "--log", str(folder / "log"), "-o", "json").splitlines()]
    times = {kind: [event["time_ms"] for event in events if event["kind"] == kind] for kind in ("Preempted", "Waits")}
    assert abs((times["Preempted"][0] - times["Waits"][0]) / 1000 - (at[2] - at[1])) < 0.2
    assert "\x1b" not in output, "colours are for terminals"


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+\.\d+|(?<= )\d+(?= of)", "N", text).rstrip(" N")


def test_the_room_that_is_taken_back_was_needed(demo: tuple[str, Path]) -> None:
    found = json.loads(arranger("preemptions", "--log", str(demo[1] / "log"), "-o", "json"))
    assert [(of["job"], of["queue"], of["needless"]) for of in found["preemptions"]] == [
        ("default/segment", "vision", False)
    ]


def test_every_example_ends_as_it_should_and_passes_the_states_that_it_is_there_to_show(tmp_path: Path) -> None:
    seen = ends(arranger("demo", "--jobs", "examples", "--folder", str(tmp_path)))
    assert {name: states[-1][0] for name, states in seen.items()} == EXAMPLES
    assert "Pending" in {stage for stage, _, _ in seen["waits-its-turn"]}
    elastic = [(schedule, ready) for stage, schedule, ready in seen["elastic"] if stage == "Running"]
    assert elastic[0][0] == "ScheduledPartly" and elastic[-1] == ("ScheduledSucceed", "8/8")


def test_of_three_teams_one_borrows_until_the_other_needs_what_it_deserves(tmp_path: Path) -> None:
    output = arranger("demo", "--jobs", "examples/teams", "--folder", str(tmp_path))
    lines = output.splitlines()

    def first(pattern: str) -> int:
        return next(number for number, line in enumerate(lines) if re.search(pattern, line))

    borrowed = first(r"queue robots: 16 GPUs used, share 16, demand 32; 2 waiting, 2 running")
    needed = first(r"segment +Pending +ScheduledSucceed .* waits for 1 pod of 1 preempted job to leave them")
    walks = sorted(first(rf"walk-{number} +Running") for number in range(1, 5))
    assert max(walks[1], borrowed) < needed < walks[2], "two jobs of robots waited before vision's came"
    taken = first(r"walk-\d +Rescheduling .* preempted for job segment .*, whose queue vision is below its share")
    # Both jobs may have changed at the same look at the cluster.
    assert max(needed, taken) < first(r"segment +Running") < walks[3], "robots gives back what it borrowed"
    queues = re.search(r"queue --at \d+ --log \S+", output)
    assert queues is not None and "robots" in arranger(*queues[0].split())
    assert "0 different" in arranger("verify", "--log", str(tmp_path / "log"))


def test_every_command_that_the_demo_prints_works_on_the_log_that_it_kept(demo: tuple[str, Path]) -> None:
    output, folder = demo
    commands = [line.split("arranger.cli.main ")[-1] for line in output.splitlines() if f"--log {folder}" in line]
    commands = [re.sub(r"^.*?(ui|explain|preemptions|queue|verify) ", r"\1 ", command) for command in commands]
    assert [command.split()[0] for command in commands] == ["ui", "explain", "preemptions", "queue", "verify"]
    answers = [arranger(*command.split()) for command in commands[1:]]
    assert answers[0].startswith("default/waits-its-turn waits since ")
    assert "insufficient nvidia.com/gpu" in answers[0] and "promised by its reservation" in answers[0]
    assert "none of them needless" in answers[1] and "robots" in answers[2]
    assert "0 different" in answers[-1]


def test_the_cycles_of_the_kept_log_come_out_the_same_whatever_words_are_said(demo: tuple[str, Path]) -> None:
    verified = same_whatever_is_said(demo[1] / "log")
    assert verified["identical"] == verified["cycles"] > 0


def test_the_kept_log_tells_that_the_pods_of_ended_jobs_are_gone(demo: tuple[str, Path]) -> None:
    assert '"pods":0' in arranger("replay", "--log", str(demo[1] / "log"), "-o", "json")


def test_a_second_demo_takes_neither_the_folder_nor_the_log_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of the demo before")
    (tmp_path / "log.snapshot-7").write_text("its snapshot")
    first = subprocess.Popen(
        [*ARRANGER, "demo", "--keep", "--folder", str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline().startswith("starting Redis")
        assert first.stdout.readline().startswith("up after")
        assert "a demo already runs in" in arranger("demo", "--folder", str(tmp_path), check=False)
    finally:
        first.send_signal(signal.SIGTERM)
        told, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert f"the log of the previous demo is {tmp_path / 'log.before'}; --folder names another folder" in told
    assert (tmp_path / "log.before").read_text() == "of the demo before"
    assert (tmp_path / "log.before.snapshot-7").read_text() == "its snapshot"
    assert arranger("events", "--log", str(tmp_path / "log"), "--kind", "EpochBegun")


def workers_of(pid: int) -> list[int]:
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0") for child in children_of(pid)}
    return [child for child, command in commands.items() if command[-2:] == [b"run", b""]]


def test_a_kept_demo_goes_on_without_a_process_that_is_killed_and_starts_another(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*ARRANGER, "demo", "--keep", "--folder", str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    try:
        assert demo.stdout is not None
        while "explain quickstart" not in demo.stdout.readline():
            pass
        killed, other = workers_of(demo.pid)
        os.kill(killed, signal.SIGKILL)
        while "was killed by signal 9: the other one takes over" not in (told := demo.stdout.readline()):
            assert told
        until_s = time.monotonic() + 30
        while len(workers_of(demo.pid)) < 2 and time.monotonic() < until_s:
            time.sleep(0.1)
        now = workers_of(demo.pid)
        assert len(now) == 2 and other in now and killed not in now
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=60)
    assert demo.returncode == 0
    assert arranger("events", "--log", str(tmp_path / "log"), "--kind", "EpochBegun")


def test_a_kept_demo_starts_a_redis_that_is_killed_again_with_the_same_log_and_a_console_too(tmp_path: Path) -> None:
    """The folder is relative: the paths that are printed hold in another working directory too."""
    demo = subprocess.Popen(
        [*ARRANGER, "demo", "--keep", "--folder", "here"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert demo.stdout is not None
        hints = []
        while "explain quickstart" not in (hints or [""])[-1]:
            hints.append(demo.stdout.readline().strip())
        assert f"export KUBECONFIG={tmp_path / 'here/kubeconfig'}" in hints
        [apply] = [hint for hint in hints if hint.startswith("kubectl apply -f ")]
        assert Path(apply.split()[-1]).expanduser().is_absolute()
        [url] = [hint.partition("=")[2] for hint in hints if hint.startswith("export ARRANGER_REDIS_URL=")]
        events = ["events", "--log", url, "-o", "json"]
        before = arranger(*events)
        port = url.removesuffix("/0").rpartition(":")[2].encode()
        [killed] = [pid for pid in children_of(demo.pid) if port in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(killed, signal.SIGKILL)
        while "Redis ended with status -9: it is started again, with all that it had" not in (
            told := demo.stdout.readline()
        ):
            assert told
        until_s = time.monotonic() + 30
        while not (after := arranger(*events, check=False)).startswith(before) and time.monotonic() < until_s:
            time.sleep(0.1)
        assert before and after.startswith(before)
        arranger("queue", "create", "later", "--kubeconfig", str(tmp_path / "here/kubeconfig"))
        while '"kind":"QueueSeen"' not in (after := arranger(*events)) and time.monotonic() < until_s:
            time.sleep(0.5)
        assert '"subject":"later"' in after, "the workers write on"
        assert len(workers_of(demo.pid)) == 2
        [console] = [
            pid for pid in children_of(demo.pid) if b"ui" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        ]
        os.kill(console, signal.SIGKILL)
        while "the console ended with status -9: it is started again at http://" not in (
            told := demo.stdout.readline()
        ):
            assert told
        address = told.split()[-1]
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10) as page:
                assert page.status == 200
                break
            assert time.monotonic() < until_s
            time.sleep(0.2)
    finally:
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0, output
    log = arranger("events", "--log", str(tmp_path / "here" / "log"), "--kind", "EpochBegun", "-o", "json")
    assert len(log.splitlines()) == 1


@pytest.mark.real
def test_ctrl_c_at_a_terminal_ends_a_kept_demo_with_its_log_and_leaves_nothing_behind(tmp_path: Path) -> None:
    kubectl = str(kube_assets() / "kubectl")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPOSITORY)
        os.execv(sys.executable, [*ARRANGER, "demo", "--keep", "--folder", str(tmp_path)])
    output = bytearray()
    reader = threading.Thread(target=read_all, args=(terminal, output))
    reader.start()
    while b"explain quickstart" not in output:
        time.sleep(0.05)
    config = f"--kubeconfig={tmp_path / 'kubeconfig'}"
    applied = subprocess.run(
        [kubectl, config, "apply", "-f", str(REPOSITORY / "examples")], capture_output=True, text=True, check=False
    )
    assert applied.stdout.count(" created") == 6 and "spec.priority" in applied.stderr
    subprocess.run(
        [kubectl, config, "wait", "--for=condition=Succeeded", "tyj/quickstart", "--timeout=60s"], check=True
    )
    subprocess.run([kubectl, config, "delete", "tyj", "--all", "--timeout=60s"], check=True)
    children = children_of(pid)
    assert len(children) == 4
    os.write(terminal, b"\x03")
    reader.join(timeout=60)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, output.decode()
    assert (tmp_path / "log").exists() and not (tmp_path / "kubeconfig").exists()
    assert b"6 jobs: 6 deleted; " in output and b"the log is kept; these commands read it" in output
    until_s = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def read_all(terminal: int, output: bytearray) -> None:
    """Read all output until the other side is closed, as a terminal does."""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65536):
            output += chunk


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
