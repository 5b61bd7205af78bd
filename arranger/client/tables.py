"""Events of the log as a table of pyarrow or pandas, where these are installed."""

import importlib
from collections.abc import Sequence
from typing import Any

import msgspec

from arranger.errors import UsageError

#: The columns: the fields of an event's line. What is particular to its kind is in `event`, as JSON text.
COLUMNS = ("offset", "time_ms", "writer", "kind", "subject", "job", "verdict", "reason", "text", "event")


def arrow_table(rows: Sequence[dict[str, Any]]) -> Any:
    """A `pyarrow.Table`. Raises `UsageError` if pyarrow isn't installed."""
    return _library("pyarrow").Table.from_pydict(_columns(rows))


def data_frame(rows: Sequence[dict[str, Any]]) -> Any:
    """A `pandas.DataFrame`. Raises `UsageError` if pandas isn't installed."""
    return _library("pandas").DataFrame(_columns(rows))


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    columns["event"] = [msgspec.json.encode(event).decode() for event in columns["event"]]
    return columns


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} isn't installed", hint=f"pip install {name}, or use events()") from error
