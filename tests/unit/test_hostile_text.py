"""Text of others never does anything to who reads it: no command, log line or status carries control characters.

The log of these tests is as hostile as whoever can write to it: every name, reason and message in it has escape
sequences, C0 and C1 controls, bidirectional overrides, invisible characters and line breaks.
"""

import ast
import io
import json
import logging
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arranger
from arranger.cli.commands import status as status_command
from arranger.cli.rendering.demo_table import JobRow, QueueRow, TableScreen
from arranger.cli.rendering.output import print_json, print_table, print_text, say
from arranger.events import kinds as k
from arranger.events.facts import AdoptedMessage
from arranger.lifecycle.desired import MESSAGE_LIMIT, desired_status
from arranger.logs import configure_logging, log_event
from arranger.model.job import Slot, Stage
from arranger.model.node import Taint
from arranger.model.stages import StageReason
from arranger.model.text import first_line, one_line, safe_json
from arranger.workers.health.status import LogStatus, MemberStatus, Share, Status, WatchStatus
from tests.commands import Run, to_file
from tests.world import World, shape

PIECES = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://example.com\x1b\\", "\x9b31m", "\x90q\x9c", "\x00", "\x08\x08\x08",
    "\r", "\n", "\n2026-11-20 forged", "\t", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\ufeff", "\x7f",
    "\U000e0041", "\xa0", "漢字", "é", "😀", "[red]", "{0}", "%s", " ",
)  # fmt: skip
hostile_texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)


class Hostile:
    """Texts that are all different, each with a part that a test can look for."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        pieces = [self._chance.choice(PIECES) for _ in range(6)]
        return f"t{self._count}{''.join(pieces)}e"


@pytest.fixture(autouse=True)
def as_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click leaves out escape sequences where nobody looks at a terminal: not here."""
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)


def harmless(text: str) -> bool:
    """Whether a terminal that prints this does nothing but print."""
    return all(line.isprintable() for line in text.split("\n"))


@given(hostile_texts)
def test_one_line_is_one_line_that_can_be_printed(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line == text or not text.isprintable()
    assert one_line(line) == line


@given(hostile_texts, st.integers(4, 60))
def test_a_first_line_is_a_line_of_the_text_and_no_longer_than_allowed(text: str, limit: int) -> None:
    line = first_line(text, limit)
    assert len(line) <= limit and line.isprintable()
    assert bool(line) == any(part.strip() for part in text[: 16 * limit].splitlines())


@given(st.recursive(hostile_texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile_texts, inner)))
def test_json_is_escaped_and_has_the_same_value(value: object) -> None:
    content = safe_json(msgspec.json.encode(value))
    assert harmless(content.decode().replace("\xa0", " "))
    assert json.loads(content) == value


@given(st.lists(st.tuples(hostile_texts, hostile_texts), min_size=1, max_size=5), st.booleans())
def test_no_table_line_or_text_carries_control_characters(rows: list[tuple[str, str]], narrow: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
        patch.setattr("sys.stdout", out)
        patch.setattr("click.utils.should_strip_ansi", lambda *_: False)
        if narrow:
            patch.setenv("COLUMNS", "50")
        print_table(("name", "text"), rows, styles=lambda _: "red")
        for name, text in rows:
            say(text)
            print_text(text, indent=2)
            print_json({name: text})
        out.flush()
        printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert harmless(printed.replace("\xa0", " "))


def test_a_cell_cannot_forge_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "text"), [("one", "a\nforged  row"), ("two", "b\r\x1b[1Aforged")])
    assert len(capsys.readouterr().out.splitlines()) == 3


def hostile_world(seed: int) -> World:
    """Jobs that ran, failed and wait, on nodes and with pods whose every text is hostile."""
    text = Hostile(seed)
    world = World()
    for number in range(3):
        taints = [Taint(text(), text(), "NoSchedule")] if number == 2 else []
        world.node(f"n{number}{text()}", gpus=4, taints=taints, labels={text(): text()})
    world.pod(text(), world.state.nodes.names[0], gpus=1, reason=text(), waiting=text(), namespace=text())
    one = shape(cpu=1, gpus=1)
    for number in range(4):
        sets = [(f"set{text()}", 2, one)]
        world.job(
            f"job{number}", uid=f"uid-{number}", leader=one, workers=sets, min_workers=2, namespace=f"ns{text()}",
            created=world.now_ms, restart_limit=1, user=text(),
        )  # fmt: skip
        world.settle()
        world.pass_time(5)
    world.job("wrong", invalid=text())
    job = world.state.jobs["uid-0"]
    refused = k.EffectFailed(job.uid, job.attempt, text(), Slot(1, 1), 403, text(), text(), False)
    waiting = next(job for job in world.state.jobs.values() if job.waits is not None)
    pod = next(iter(world.pods_of(job).values()))
    facts = AdoptedMessage(text())
    world.say(refused, k.StageDecided(waiting.uid, waiting.version, 0, Stage.PENDING, StageReason.SUSPENDED, facts))
    world.change_pod(pod.uid, phase="Failed", reason=text(), message=text(), waiting=text(), ip=text())
    world.settle()
    queue = f"q{text()}"
    world.queue(queue, parent=text(), guarantee=((text(), 1),))
    world.job("lost", leader=one, of_queue=queue)
    world.job("unknown", leader=one, of_queue=text())
    return world


COMMANDS = (
    ("events",),
    ("events", "--kind", "PodSeen"),
    ("replay",),
    ("queue",),
    ("queue", "default"),
    ("queue", "nothing\x1b[2J"),
    ("top",),
    ("top", "--by", "namespace"),
    ("top", "--by", "user", "--resource", "cpu\x1b[2J"),
    ("top", "--by", "job"),
    ("events", "--queue", "default"),
    ("explain", "job0", "--all"),
    ("explain", "job1"),
    ("explain", "job3", "--all"),
    ("explain", "wrong"),
    ("verify",),
    ("what-if", "--policy", "Gang", "--all"),
    ("diff", "8", "20"),
    ("bisect", "--job", "job3", "--blocked"),
    ("bisect", "--job", "nobody\x1b[2J", "--blocked"),
    ("explain", "job\x1b[2J\u202e"),
)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_command_prints_control_characters_of_a_hostile_log(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = to_file(hostile_world(seed).entries, tmp_path / "run.log")
    for columns in ("", "90"):
        monkeypatch.setenv("COLUMNS", columns)
        for command in COMMANDS:
            for output in ("table", "json"):
                done = Run(capsys, *command, *log, "-o", output)
                assert done.status in (0, 1), (command, done.err)
                assert done.out or done.status, command
                for text in (done.out, done.err):
                    assert harmless(text.replace("\xa0", " ")), (command, output, text)


def test_what_is_hostile_is_shown_not_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.pod("a\x1b[2Jb\u202ec", "n1")
    out = Run(capsys, "events", *to_file(world.entries, tmp_path / "run.log")).out
    assert "a\\x1b[2Jb\\u202ec" in out


def test_status_prints_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = Hostile(1)
    member = MemberStatus(text(), (text(),), text(), 1, 1, 0.5, 1, 1, 0, 0.0, {"applier": Share(1, 100.0)})
    watch = WatchStatus(text(), text(), 1, 1.0, True)
    status = Status(text(), 2, LogStatus(1, 1, 1, 1, 1), None, None, (member,), (watch,), 1, {text(): 1})
    status_command._print(status, [f"{text()}\n-> {text()}"])
    assert harmless(capsys.readouterr().out)


def test_the_demos_table_prints_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = Hostile(1)
    row = JobRow("job")
    row.stage, row.schedule, row.message = text(), text(), text()
    queue = QueueRow(text(), 1, 1, 1, 1, 1)
    with TableScreen({"job": row}, {"queue": queue}, gpus=1) as screen:
        screen.show()
        screen._console.print(screen._table())
        screen._console.print(screen._queue_table())
    assert harmless(capsys.readouterr().out)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_log_line_carries_control_characters_or_forges_another(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, text, stream = logging.getLogger(), Hostile(1), io.StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    configure_logging("info", form, stream=stream)
    logger = logging.getLogger("arranger.test")
    try:
        raise ValueError(f"{text()}\n2026-11-20T00:00:00.000Z info forged")
    except ValueError as problem:
        log_event(logger, text(), exc_info=problem, job=text(), why=text(), told=text)
    out = stream.getvalue()
    assert harmless(out)
    lines = out.splitlines()
    assert len(lines) == 1 or all(line.startswith("  ") for line in lines[1:])


def test_commands_print_in_one_place() -> None:
    """Text of others can be anywhere: nothing but `output.py` and what prints our own text alone may print."""
    own = {"output.py", "main.py", "crd.py", "completion.py"}
    for path in Path(arranger.__file__).parent.joinpath("cli").rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
        printing += [call for call in calls if isinstance(call, ast.Attribute) and call.attr in ("echo", "secho")]
        assert path.name in own or not printing, f"{path.name} prints without arranger.cli.rendering.output"


def test_a_status_has_no_control_characters_and_stays_within_its_limits() -> None:
    text = Hostile(1)
    for seed in (1, 2, 3):
        world = hostile_world(seed)
        job = next(iter(world.state.jobs.values()))
        job.failure = k.EffectFailed(job.uid, job.attempt, "create", None, 403, "x", (text() + " ") * 500, False)
        for each in world.state.jobs.values():
            status = desired_status(world.state, each)
            told = [status["message"], *(one["message"] for one in status["conditions"])]
            assert all(message.isprintable() and len(message) <= MESSAGE_LIMIT for message in told)
