"""The command's shell: help without imports, one line for an error, output for people and for programs."""

import json
import os
import pty
import subprocess
import sys
import time
import types
from collections.abc import Iterator

import click
import pytest

from arranger.cli import main as main_module
from arranger.cli.main import COMMANDS, main
from arranger.cli.rendering.output import duration, local_time, print_table
from arranger.errors import LogUnavailable, UsageError
from arranger.kube.crd import queue_crd, tyjob_crd
from arranger.points import parse_at
from arranger.replay.reading.history import Point
from arranger.web.questions import QUESTIONS, asked
from tests.servers import QUEUE_CRD, TYJOB_CRD, documents
from tests.typed_points import FOR_COMMANDS, NOW_MS, ZONE


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", ZONE)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def arranger(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARRANGER_")}
    return subprocess.run(
        [sys.executable, "-m", "arranger.cli.main", *arguments],
        env=kept | environ,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `broken` that raises what the test puts into the list."""
    raised: list[BaseException] = []

    @click.command()
    def command() -> None:
        raise raised[0]

    module = types.ModuleType("arranger.cli.commands.broken")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(COMMANDS, "broken", "Fail.")
    return raised


def test_help_lists_commands_and_imports_none_of_what_they_need() -> None:
    program = (
        "import sys\n"
        "from arranger.cli.main import main\n"
        "status = main(['--help'], prog_name='arranger')\n"
        "heavy = {'msgspec', 'rich', 'redis', 'rq', 'kubernetes', 'numpy', 'aiohttp', 'yaml'} & set(sys.modules)\n"
        "print(status, sorted(heavy))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "  settings       Show every setting" in result.stdout
    assert result.stdout.endswith("0 []\n")


def test_every_listed_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = main_module.cli.list_commands(click.Context(main_module.cli))
    assert {"settings", "crd", "completion"} <= set(listed)
    for name in listed:
        assert main([name, "--help"], prog_name="arranger") == 0
        assert f"Usage: arranger {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["setings"], "arranger: no command 'setings': did you mean settings? (see arranger --help)\n"),
        (["settings", "--nope"], "arranger: No such option '--nope' (see arranger settings --help)\n"),
        (
            ["settings", "--http-port", "x"],
            "arranger: http_port: 'x' can't be used, from flag --http-port (allowed: a whole number from 0 to 65535)\n",
        ),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, prog_name="arranger") == 2
    assert capsys.readouterr().err.replace("No such option: --nope", "No such option '--nope'") == said


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (UsageError("no such context", hint="kubectl config get-contexts"), 2),
        (LogUnavailable("Redis at 127.0.0.1:1\n refuses"), 1),
    ],
)
def test_an_error_on_purpose_is_one_line(
    failing: list[BaseException], problem: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(problem)
    assert main(["broken"], prog_name="arranger") == status
    told = capsys.readouterr().err
    assert told == "arranger: " + " ".join(str(problem).split()) + "\n"


def test_a_bug_keeps_its_traceback(failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["broken"], prog_name="arranger")


def test_ctrl_c_is_status_130(failing: list[BaseException]) -> None:
    failing.append(KeyboardInterrupt())
    assert main(["broken"], prog_name="arranger") == 130


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m arranger.cli.main crd | head -n 1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("# The TYJob")
    assert result.stderr == ""


def test_the_plugin_names_itself_as_kubectl_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--help"], prog_name="kubectl arranger") == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl arranger settings")


def test_help_says_of_whom_and_of_when_the_shown_values_are(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for command in ("settings", "status"):
        assert main([command, "--help"], prog_name="arranger") == 0
        said[command] = " ".join(capsys.readouterr().out.split())
    assert "Those of running processes may be others." in said["settings"]
    assert "OFFSET and LAG of a process are as of its last heartbeat" in said["status"]


def test_settings_tell_value_and_origin() -> None:
    result = arranger(
        "settings", "-o", "json", "--http-port", "99", ARRANGER_LOG_LEVEL="debug", ARRANGER_REDIS_URL="redis://:pw@h/0"
    )
    rows = {row["name"]: row for row in map(json.loads, result.stdout.splitlines())}
    assert (rows["http_port"]["value"], rows["http_port"]["origin"]) == (99, "flag --http-port")
    assert rows["log_level"]["origin"] == "environment variable ARRANGER_LOG_LEVEL"
    assert rows["redis_url"]["value"] == "redis://:***@h/0"
    assert rows["lease_s"] | {"meaning": ""} == {
        "name": "lease_s",
        "value": 15,
        "origin": "default",
        "default": 15,
        "variable": "ARRANGER_LEASE_S",
        "flag": "--lease-s",
        "allowed": "a whole number from 2 to 600",
        "meaning": "",
    }


def test_the_definitions_printed_are_the_ones_in_the_repository() -> None:
    assert tyjob_crd() == TYJOB_CRD.read_text(encoding="utf-8")
    assert queue_crd() == QUEUE_CRD.read_text(encoding="utf-8")
    names = [each["metadata"]["name"] for each in documents(arranger("crd").stdout)]
    assert names == ["tyjobs.arranger.dev", "queues.arranger.dev", "clusterlogs.arranger.dev"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    result = arranger("completion", shell)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"_ARRANGER_COMPLETE={shell}_complete" in result.stdout


def test_completion_completes_commands_and_values() -> None:
    program = "from arranger.cli.main import run; run()"
    environ = os.environ | {"_ARRANGER_COMPLETE": "bash_complete", "COMP_WORDS": "arranger set", "COMP_CWORD": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert answer.split() == ["plain,settings"]
    environ |= {"COMP_WORDS": "arranger settings --log-level d", "COMP_CWORD": "3"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert answer.split() == ["plain,debug"]


def test_piped_tables_are_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["job", "pods", "message"], [["a", 3, "x" * 300], ["日本", 10, None]], right=["pods"])
    assert capsys.readouterr().out == f"JOB   PODS  MESSAGE\na        3  {'x' * 300}\n日本    10\n"


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["job"], [], empty="no jobs")
    assert capsys.readouterr().out == "no jobs\n"


@pytest.mark.parametrize(("environ", "colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colour_unless_no_color_is_set(environ: dict[str, str], colour: bool) -> None:
    program = (
        "from arranger.cli.rendering.output import print_table\n"
        "print_table(['job'], [['a[red]b']], styles=lambda row: 'red')\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    here, there = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=there, env=kept | environ | {"TERM": "xterm-256color"}
    )
    os.close(there)
    content = b""
    while True:
        try:
            part = os.read(here, 4096)
        except OSError:
            break
        if not part:
            break
        content += part
    os.close(here)
    assert child.wait() == 0
    assert b"a[red]b" in content, "what a user named is never taken for markup"
    assert (b"\x1b[31m" in content) is colour


@pytest.mark.parametrize(("typed", "point"), FOR_COMMANDS)
def test_commands_read_the_points_of_the_table(typed: str, point: Point | None) -> None:
    if point is None:
        with pytest.raises(ValueError):
            parse_at(typed, now_ms=NOW_MS)
    else:
        assert parse_at(typed, now_ms=NOW_MS) == point


@pytest.mark.parametrize(("typed", "point"), FOR_COMMANDS)
def test_the_api_passes_on_what_commands_take(typed: str, point: Point | None) -> None:
    if point is not None and typed.isprintable():
        assert asked(QUESTIONS["replay"], [("at", typed)], epoch=1, end=7).arguments


def test_times_are_local_with_their_offset() -> None:
    assert local_time(NOW_MS + 7) == "2026-05-28 22:26:40.007+02:00"
    assert local_time(0) == "-"


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(0, "0ms"), (850, "850ms"), (3200, "3.2s"), (312_000, "5m12s"), (7_500_000, "2h05m"), (273_600_000, "3d04h")],
)
def test_durations_show_their_two_largest_units(span_ms: int, text: str) -> None:
    assert duration(span_ms) == text
