"""What a terminal shows: rows that fit its width, whatever they say, and moments without what they have in common."""

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from arranger.cli.commands.events import KindType
from arranger.cli.main import main
from arranger.cli.rendering.output import Times, ToldTime, print_table, print_text
from arranger.cli.rendering.terminal import Layout, folded
from tests.commands import to_file
from tests.unit.replay_worlds import crowded

AT_MS = 1_780_000_000_007  # 2026-05-28 22:26:40.007 in Berlin


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Callable[[], list[str]]:
    """Standard output is a terminal of so many columns; answers the lines on it, bold or not."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    return lambda: re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()


wide = pytest.mark.parametrize("terminal", [64], indirect=True)
narrow = pytest.mark.parametrize("terminal", [40], indirect=True)


def test_columns_makes_rows_fit_where_there_is_no_terminal_and_without_it_they_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(COLUMNS, ROWS, right=["offset"])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 64
    monkeypatch.setenv("COLUMNS", "64")
    print_table(COLUMNS, ROWS, right=["offset"])
    print_text("words " * 40)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 64 and "\x1b" not in out
    for nothing in ("0", "", "wide"):
        monkeypatch.setenv("COLUMNS", nothing)
        print_text("words " * 40)
        assert len(capsys.readouterr().out.splitlines()) == 1


COLUMNS = ("offset", "kind", "subject", "text")
ROWS = [
    (7, "NodeSeen", "n1", "ready, with a line of words that goes on for longer than that"),
    (12, "Placed", "default/train", "short"),
]


@wide
def test_the_last_column_is_folded_under_itself(terminal: Callable[[], list[str]]) -> None:
    print_table(COLUMNS, ROWS, right=["offset"])
    assert terminal() == [
        "OFFSET  KIND      SUBJECT        TEXT",
        "     7  NodeSeen  n1             ready, with a line of words",
        "                                 that goes on for longer than",
        "                                 that",
        "    12  Placed    default/train  short",
    ]


def test_columns_makes_an_explanation_the_page_that_a_terminal_of_that_width_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["explain", "big", *to_file(crowded().entries, tmp_path / "run.log")]
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PAGER", "cat")
    assert main(asked, prog_name="arranger") == 0
    piped = capsys.readouterr().out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    assert main(asked, prog_name="arranger") == 0
    assert piped == re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)


@narrow
def test_where_it_is_narrow_the_last_column_goes_below(terminal: Callable[[], list[str]]) -> None:
    print_table(COLUMNS, ROWS, right=["offset"])
    assert terminal() == [
        "OFFSET  KIND      SUBJECT",
        "        TEXT",
        "     7  NodeSeen  n1",
        "        ready, with a line of words that",
        "        goes on for longer than that",
        "    12  Placed    default/train",
        "        short",
    ]


@wide
def test_a_column_in_which_nothing_stands_is_left_out(terminal: Callable[[], list[str]]) -> None:
    print_table(("job", "verdict", "text"), [("a", "", "x"), ("b", None, "y")])
    assert terminal() == ["JOB  TEXT", "a    x", "b    y"]


@wide
def test_moments_are_as_short_as_the_others_let_them_be(terminal: Callable[[], list[str]]) -> None:
    print_table(("time", "n"), [(ToldTime(AT_MS), 1), (ToldTime(0), 2)], times=Times.of([AT_MS]))
    print_table(("time", "n"), [(ToldTime(AT_MS), 1)])
    assert terminal() == [
        "TIME          N",
        "22:26:40.007  1",
        "-             2",
        "TIME                           N",
        "2026-05-28 22:26:40.007+02:00  1",
    ]


def test_piped_moments_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("time", "n"), [(ToldTime(AT_MS), 1)], times=Times.of([AT_MS]))
    assert capsys.readouterr().out.splitlines()[1] == "2026-05-28 22:26:40.007+02:00  1"


@pytest.mark.parametrize(
    ("later_ms", "heading", "text"),
    [
        (60_000, "times are of 2026-05-28, UTC+02:00", "22:26:40.007"),
        (86_400_000, "times are UTC+02:00", "2026-05-28 22:26:40.007"),
        (200 * 86_400_000, "", "2026-05-28 22:26:40.007+02:00"),  # it is winter by then
    ],
)
def test_what_all_moments_share_is_said_once(later_ms: int, heading: str, text: str) -> None:
    times = Times.of([AT_MS, 0, AT_MS + later_ms])
    assert (times.heading, times.text(AT_MS)) == (heading, text)


@wide
def test_a_line_is_folded_between_words_and_indented(terminal: Callable[[], list[str]]) -> None:
    print_text("  message   " + "word " * 20, indent=12)
    lines = terminal()
    assert lines[0].startswith("  message   word") and all(line.startswith(" " * 12 + "word") for line in lines[1:])
    assert max(map(len, lines)) <= 64 and " ".join(lines).split() == ["message", *["word"] * 20]


def test_a_piped_line_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("word " * 100, indent=4)
    assert capsys.readouterr().out == "word " * 100 + "\n"


_TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=60)


@given(st.lists(st.lists(_TEXTS, min_size=4, max_size=4), min_size=1, max_size=4), st.integers(20, 130), st.data())
def test_whatever_a_table_says_no_line_is_too_long_and_nothing_is_lost(
    rows: list[list[str]], width: int, data: st.DataObject
) -> None:
    widths = [max(cell_len(row[column]) for row in rows) for column in range(4)]
    if data.draw(st.booleans(), label="the widths are guessed"):
        widths = [6, 4, 5, 10]
    layout = Layout(widths, width=width, right=(0,))
    for row in rows:
        lines = list(layout.row(row))
        assert "".join("".join(lines).split()) == "".join("".join(row).split())
        if widths != [6, 4, 5, 10]:
            assert max(map(cell_len, lines)) <= width


@given(_TEXTS, st.integers(2, 30))
def test_a_folded_text_fits_and_is_whole(text: str, width: int) -> None:
    lines = folded(text, width)
    assert max(map(cell_len, lines), default=0) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


# --- messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--redis"], "Option '--redis' requires an argument (see arranger run --help)"),
        (["replay", "--at", "10m", "ago"], "quote a point that has a space in it, as in --at '10m ago' (see"),
        (["explain", "j", "--at", "2026-05-04", "10:30"], "quote a point that has a space in it"),
        (["events", "--kind", "Plced"], "no kind 'Plced': did you mean Placed? allowed: EpochBegun, WatchClaimed,"),
        (["events", "--kind", "pod"], "no kind 'pod': "),
        (["demo", "--nodes", "x"], "'--nodes': 'x' is not a whole number from 1 to 1000 (see arranger demo --help)"),
        (["demo", "--nodes", "0"], "'--nodes': 0 is not a whole number from 1 to 1000 (see arranger demo --help)"),
        (["simulate", "--load", "0"], "'--load': 0.0 is not a number above 0 and at most 10 (see"),
    ],
)
def test_wrong_usage_says_what_is_allowed_and_whose_help_to_read(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, prog_name="arranger") == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_every_setting_comes_with_its_meaning_and_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--lease-s", "20"], prog_name="arranger") == 0
    *rows, note = capsys.readouterr().out.splitlines()
    assert note == "These are the settings of a process started here. Processes of a cluster may have others."
    lines = {line.split()[0]: line for line in rows}
    assert "seconds after which another process takes over" in lines["lease_s"]
    assert lines["lease_s"].endswith("Allowed: a whole number from 2 to 600")
    assert "flag --lease-s" in lines["lease_s"]


def test_a_redis_where_nothing_listens_is_said_plainly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        port = taken.getsockname()[1]
        for url in (f"redis://127.0.0.1:{port}", f"unix://{tmp_path}/none.sock"):
            assert main(["replay", "--log", url], prog_name="arranger") == 1
            told = capsys.readouterr().err
            assert told.startswith(f"arranger: Redis at {url} doesn't answer: nothing listens there (is it running?")


def test_without_a_log_named_a_redis_that_is_not_there_leads_to_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ARRANGER_REDIS_URL", f"unix://{tmp_path}/none.sock")
    assert main(["events"], prog_name="arranger") == 1
    told = capsys.readouterr().err
    assert "nothing listens there" in told and "--log URL|FILE or ARRANGER_REDIS_URL names another log" in told


def test_a_kind_may_be_written_in_any_case() -> None:
    assert KindType().convert("placed", None, None) == "Placed"
    with pytest.raises(click.BadParameter):
        KindType().convert("placed ", None, None)
