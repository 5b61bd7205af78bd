"""Answers as tables of pyarrow or pandas (the extra `tables`); anything that takes Arrow streams reads them too.

Columns have the names of the commands' JSON. Amounts by resource or node become a column each, `used.nvidia.com/gpu`,
with 0 where there is none (a limit: None). What has fields of its own is JSON text.
"""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from arranger.errors import UsageError
from arranger.install import install_hint

#: The columns of events. What is particular to a kind is in `event`.
EVENT_COLUMNS = ("offset", "time_ms", "writer", "kind", "subject", "job", "verdict", "reason", "text", "event")
#: What an amount is where there is none, if not 0: a limit that isn't there isn't a limit of nothing.
_ABSENT: dict[str, int | None] = {"capability": None}
_PLAIN = (str, int, float, bool, type(None))

Columns = dict[str, list[Any]]


def arrow_table(columns: Columns) -> Any:
    """A `pyarrow.Table`. Raises `UsageError` if pyarrow isn't installed."""
    return _library("pyarrow").Table.from_pydict(columns)


def data_frame(columns: Columns) -> Any:
    """A `pandas.DataFrame`. Raises `UsageError` if pandas isn't installed."""
    return _library("pandas").DataFrame(columns)


def columns_of(rows: Sequence[Any], kind: type[msgspec.Struct]) -> Columns:
    """The rows of this type by column."""
    columns: Columns = {}
    for field in msgspec.structs.fields(kind):
        column = [getattr(row, field.name) for row in rows]
        if _is_amounts(field.type):
            for key in sorted({key for amounts in column for key in amounts}):
                columns[f"{field.name}.{key}"] = [amounts.get(key, _ABSENT.get(field.name, 0)) for amounts in column]
        elif get_args(field.type) and str not in get_args(field.type):
            # By its type: an empty list of what has fields is JSON text as well, so the column has one type.
            columns[field.name] = [of if isinstance(of, _PLAIN) else _json(of) for of in column]
        else:
            columns[field.name] = list(map(plain, column))
    return columns


def event_columns(rows: Sequence[dict[str, Any]]) -> Columns:
    """Events by column."""
    return {name: [plain(row[name]) for row in rows] for name in EVENT_COLUMNS}


def _is_amounts(kind: Any) -> bool:
    return bool(kind == dict[str, int])


def plain(value: Any) -> Any:
    """The value of a cell."""
    if isinstance(value, str):
        return str(value)  # not an enumeration
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return list(map(str, value))
    return _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(_named(value)).decode()


def _named(value: Any) -> Any:
    """With the names of fields, also of what the log stores as arrays."""
    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return list(map(_named, value))
    return {key: _named(item) for key, item in value.items()} if isinstance(value, dict) else value


class Tabular:
    """What has rows: a table of pyarrow or pandas, an Arrow stream, and a table in a notebook."""

    __slots__ = ()

    def columns(self) -> Columns:
        """The rows by column, with plain values."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`. Raises `UsageError` if pyarrow isn't installed."""
        return arrow_table(self.columns())

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`. Raises `UsageError` if pandas isn't installed."""
        return data_frame(self.columns())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For other libraries, such as polars and duckdb. Needs pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def rows_by_column(columns: Columns) -> Iterable[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} isn't installed", hint=f"{install_hint('tables')}, or use columns()") from error
