"""Log lines that a person reads on a terminal and a machine reads everywhere else."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from arranger.logs import configure_logging, log_event

logger = logging.getLogger("arranger.workers.applying.applier")


class Terminal(io.StringIO):
    """Text in memory that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_away_from_a_terminal_a_line_is_one_json_object() -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream=stream)
    log_event(logger, "pod created", pod="ns/a", code=201, level_asked=None, message_id=object)
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("message_id") == "<class 'object'>"
    assert line == {
        "level": "info",
        "logger": "arranger.workers.applying.applier",
        "message": "pod created",
        "pod": "ns/a",
        "code": 201,
        "level_asked": None,
    }


def test_on_a_terminal_a_line_is_text_with_fields_at_its_end() -> None:
    stream = Terminal()
    configure_logging("info", "auto", stream=stream)
    log_event(logger, "pod refused", level=logging.WARNING, pod="ns/a", reason="no room")
    assert stream.getvalue().endswith(
        "Z \x1b[33mwarning\x1b[0m workers.applying.applier   pod refused pod=ns/a reason='no room'\n"
    )


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure_logging("info", "auto", stream=stream)
    log_event(logger, "pod refused", level=logging.ERROR)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failure_carries_its_traceback(form: str) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream=stream)
    try:
        raise ValueError("on purpose")
    except ValueError as problem:
        log_event(logger, "failed", level=logging.ERROR, exc_info=problem)
    assert "ValueError: on purpose" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1 or form == "text"


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure_logging("warning", "json", stream=stream)
    log_event(logger, "pod created")
    assert stream.getvalue() == ""


def test_a_field_never_hides_what_every_line_has() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    log_event(logger, "seen", time="noon", logger_name="x")
    line = json.loads(stream.getvalue())
    assert line["time"] != "noon"
    assert line["field_time"] == "noon"
