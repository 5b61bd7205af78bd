"""The keys of a log as an operator gives them: a list in the setting `log_key`, or a file with such a list."""

import re
from pathlib import Path

from arranger.errors import UsageError
from arranger.events.log_keys import KEY_CHARS, NO_KEY, UNKEYED, LogKeys

_FILE = "file:"
_KEY = re.compile(rf"[A-Za-z0-9_-]{{{KEY_CHARS},}}")


def parsed_keys(text: str) -> tuple[str, ...]:
    """The keys in a list, in their order. Raises `ValueError`, which doesn't show them, for one that can't be used."""
    if text.startswith(_FILE):
        return ()
    keys = tuple(part for part in re.split(r"[,\s]+", text) if part)
    if not all(key == NO_KEY or _KEY.fullmatch(key) for key in keys):
        raise ValueError("a key can't be used")
    return keys


def log_keys(text: str) -> LogKeys:
    """The keys of the setting `log_key`, which may name a file. Raises `UsageError` for a file that can't be used."""
    if text.startswith(_FILE):
        path = Path(text.removeprefix(_FILE))
        try:
            keys = parsed_keys(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            # Neither the error nor its cause may show a part of a key.
            why = problem.strerror if isinstance(problem, OSError) else "it has something else than keys"
            raise _unusable(path, why or "it can't be read") from None
        if not keys:
            raise _unusable(path, "it is empty")
        return LogKeys(keys)
    keys = parsed_keys(text)
    return LogKeys(keys) if keys else UNKEYED


def _unusable(path: Path, why: str) -> UsageError:
    hint = f"it has one key of at least {KEY_CHARS} letters and digits in a line, such as openssl rand -hex 32 prints"
    return UsageError(f"log_key: the file {path} can't be used: {why}", hint=hint)
