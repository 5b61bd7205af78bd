r"""Foreign text (of programs, users, webhooks, other processes) made safe to show to people in one line.

A terminal obeys control characters and escape sequences, bidirectional overrides change the shown order of a line, and
a line break forges a line. All of them are escaped: `\x1b`, `\u202e`; blanks become spaces.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

#: Runs that may contain characters which JSON need not escape and a terminal obeys.
_NOT_ASCII = re.compile(r"[^\x00-\x7e]+")


def one_line(text: str) -> str:
    """The text as one line of printable characters; blanks and line breaks become spaces."""
    return _printable(text, _shown)


def first_line(text: str, limit: int) -> str:
    """The first line of a text that isn't blank, as `one_line` shows it, cut to `limit` characters."""
    if text.isprintable() and len(text) <= limit:
        return text.strip()
    # Don't scan the part that is cut anyway: a text may be a megabyte.
    for line in text[: 16 * limit].splitlines():
        if line.strip():
            return cut(one_line(line.strip()), limit)
    return ""


def cut(text: str, limit: int) -> str:
    """The text in at most `limit` characters; a cut text ends with three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def counted(count: int, noun: str) -> str:
    """So many of something: "1 pod", "3 pods"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def states_text(running: int, failed: int) -> str:
    """How many pods run and how many failed: "7 running, 1 failed"; empty if none does."""
    return ", ".join([f"{count} {what}" for count, what in ((running, "running"), (failed, "failed")) if count])


def attempt_name(attempt: int) -> str:
    """An attempt, by what the names of its pods end in, which those of the first don't: "first", "r1"."""
    return f"r{attempt}" if attempt else "first"


def few(names: Sequence[str], shown: int) -> str:
    """The first of some names, and how many more there are: "a, b and 3 more"."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def rfc3339(ms: int) -> str:
    """Milliseconds since 1970 as Kubernetes writes times: whole seconds, UTC."""
    return _rfc3339(ms // 1000)


def rfc3339_from(ms: int) -> str:
    """The time before which nothing happens, rounded up to whole seconds."""
    return rfc3339(ms + 999)


@lru_cache(maxsize=4096)
def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def safe_json(content: bytes) -> bytes:
    """JSON with the same value, in which the control characters that JSON allows are escaped too."""
    if content.isascii() and b"\x7f" not in content:
        return content
    return _NOT_ASCII.sub(lambda run: _printable(run[0], _json_code), content.decode()).encode()


def _printable(text: str, escaped: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escaped(char) for char in text)


def _shown(char: str) -> str:
    """A character that `str.isprintable` rejects: a blank of any kind as a space, all others by their code."""
    if char in "\t\n\v\f\r\x85\u2028\u2029" or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape").decode()


def _json_code(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def duration(span_ms: int) -> str:
    """A duration in its two largest units: 850ms, 3.2s, 5m12s, 2h05m, 3d04h."""
    if span_ms < 1000:
        return f"{span_ms}ms"
    seconds = span_ms // 1000
    if seconds < 60:
        return f"{span_ms / 1000:.1f}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if hours == 0:
        return f"{minutes}m{seconds % 60:02}s"
    if days == 0:
        return f"{hours}h{minutes % 60:02}m"
    return f"{days}d{hours % 24:02}h"


def gpu_time(span_ms: int) -> str:
    """GPU-milliseconds in words: "200 GPU seconds", "1.5 GPU hours"."""
    if span_ms < 3_600_000:
        return f"{span_ms / 1000:g} GPU seconds"
    return f"{span_ms / 3_600_000:.4g} GPU hours"
