"""Structured logs on standard error: one line per event, in UTC, with searchable fields.

`log_event(logger, "pod created", pod="a/b", node="n1")` writes an aligned line with `key=value` at its end on a
terminal, and one JSON object per line elsewhere. Colour is used only on a terminal, and not if NO_COLOR is set.
"""

import datetime
import logging
import os
import sys
from typing import Any, TextIO

import msgspec

from arranger.model.text import one_line, safe_json

_FIELDS = "arranger_fields"
_COLOURS = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}

#: Loggers of libraries that log at INFO what is DEBUG to us.
_NOISY = (
    *("rq", "aiohttp.access", "asyncio", "urllib3", "kubernetes"),
    # rq sets a level on these when it is imported, which would override that of "rq".
    *("rq.worker", "rq.queue", "rq.job", "rq.scripts"),
)


def log_event(
    logger: logging.Logger, message: str, /, *, level: int = logging.INFO, exc_info: Any = None, **fields: Any
) -> None:
    """Log a message with fields. Values that JSON can't represent are logged as their text."""
    if logger.isEnabledFor(level):
        logger.log(level, message, exc_info=exc_info, extra={_FIELDS: fields}, stacklevel=2)


def configure_logging(level: str, form: str, *, stream: TextIO | None = None) -> None:
    """Send this process's logs to `stream` (standard error). `form`: auto, text or json; `level` as in the settings."""
    target = stream if stream is not None else sys.stderr
    terminal = target.isatty()
    handler = logging.StreamHandler(target)
    if form == "json" or (form == "auto" and not terminal):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(colour=terminal and not os.environ.get("NO_COLOR")))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def tell_malformed_requests_briefly() -> None:
    """Have aiohttp's servers log a request that isn't HTTP as one line, not as an error with its traceback: whoever
    reaches the port can send one. Calling it again changes nothing."""
    logging.getLogger("aiohttp.server").addFilter(_briefly)


def _briefly(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and type(error).__module__ == "aiohttp.http_exceptions":
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "a malformed request: %s", (type(error).__name__,)
        record.exc_info = None
    return record.levelno >= logging.getLogger().getEffectiveLevel()


def _utc(created_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(created_s, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, _FIELDS, {})
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the fields (as `field_…` if names clash)."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line[name if name not in line else f"field_{name}"] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return safe_json(msgspec.json.encode(line, enc_hook=str)).decode()


class TextFormatter(logging.Formatter):
    """Aligned text for people: time, level, logger, message, `key=value` fields."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower():7}"
        code = _COLOURS.get(record.levelno) if self._colour else None
        if code:
            level = f"\x1b[{code}m{level}\x1b[0m"
        line = f"{_utc(record.created)} {level} {record.name.removeprefix('arranger.'):26} "
        line += one_line(record.getMessage())
        for name, value in _fields(record).items():
            line += f" {name}={_shown(value)}"
        if record.exc_info:
            # Indented, so that no line of an error's text looks like a line of the log.
            line += "".join(f"\n  {one_line(part)}" for part in self.formatException(record.exc_info).split("\n"))
        return line


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return repr(text) if not text or not text.isprintable() or any(c in text for c in " =\"'") else text
