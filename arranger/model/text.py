r"""Text of others (programs, users, webhooks, other processes) made fit for one line that people read.

A terminal obeys control characters and escape sequences, bidirectional overrides show a line in another order than it
has, and a line break forges a line. All of them are shown as what they are: `\x1b`, `\u202e`; blanks become spaces.
"""

import re
import unicodedata
from collections.abc import Sequence

#: Where JSON may hold characters that it need not escape and a terminal obeys.
_NOT_ASCII = re.compile(r"[^\x00-\x7e]+")


def one_line(text: str) -> str:
    """The text as one line in which every character is one that a terminal shows; blanks and line breaks are spaces."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _shown(char) for char in text)


def first_line(text: str, limit: int) -> str:
    """The first line of a text that says anything, as `one_line` shows it, cut to so many characters."""
    if text.isprintable() and len(text) <= limit:
        return text.strip()
    # What is cut anyway isn't looked at: a text may be a megabyte.
    for line in text[: 16 * limit].splitlines():
        if line.strip():
            return cut(one_line(line.strip()), limit)
    return ""


def cut(text: str, limit: int) -> str:
    """The text in at most so many characters; where some are missing it ends with three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def counted(count: int, noun: str) -> str:
    """So many of something: "1 pod", "3 pods"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def few(names: Sequence[str], shown: int) -> str:
    """The first of some names, and how many more there are: "a, b and 3 more"."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def safe_json(content: bytes) -> bytes:
    """JSON with the same value in which every control character that JSON itself allows is escaped too."""
    if content.isascii() and b"\x7f" not in content:
        return content
    return _NOT_ASCII.sub(lambda run: _escaped(run[0]), content.decode()).encode()


def _shown(char: str) -> str:
    """A character that `str.isprintable` refuses: a blank of any kind as a space, all others by their code."""
    if char in "\t\n\v\f\r\x85\u2028\u2029" or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape").decode()


def _escaped(run: str) -> str:
    if run.isprintable():
        return run
    return "".join(char if char.isprintable() else _json_code(char) for char in run)


def _json_code(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
