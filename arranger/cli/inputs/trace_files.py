"""Traces from CSV files in the format of the openb cluster trace, checked line by line.

Nodes: sn, cpu_milli, memory_mib, gpu (number), model. Pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each
GPU; below 1000 is a part of one), and optionally gpu_spec (allowed models, separated by |). The first line names the
columns; unknown columns are ignored. An unusable file raises `UsageError`, which names file, line and column.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from arranger.errors import UsageError
from arranger.scheduling import GPU_MILLI
from arranger.scheduling.experiment import TraceNode, TracePod

_Row = TypeVar("_Row", TraceNode, TracePod)

#: More than any node has, but small enough that sums fit into 64 bits.
_MOST = 10**12
_MOST_GPUS = 64


class _Line:
    """One line of a file with its line number."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str | None]) -> None:
        self._path, self._number, self._cells = path, number, cells

    def text(self, column: str) -> str:
        """A cell that must exist."""
        cell = self._cells.get(column)
        if cell is None:
            raise self.wrong(column, "the line ends before this column")
        return cell.strip()

    def optional(self, column: str) -> str:
        """A cell, or an empty string."""
        return (self._cells.get(column) or "").strip()

    def name(self, column: str) -> str:
        """A cell that isn't empty."""
        found = self.text(column)
        if not found:
            raise self.wrong(column, "a name is missing")
        return found

    def whole(self, column: str, *, most: int = _MOST) -> int:
        """A whole number from 0 to `most`."""
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= most):
            raise self.wrong(column, f"{text!r} is not a whole number from 0 to {most}")
        return int(text)

    def wrong(self, column: str, what: str) -> UsageError:
        return UsageError(f"{self._path}: line {self._number}, column {column}: {what}")


def read_nodes(path: Path) -> list[TraceNode]:
    return _read(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), "sn", _node)


def read_pods(path: Path) -> list[TracePod]:
    return _read(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), "name", _pod)


def _read(path: Path, columns: Sequence[str], key: str, build: Callable[[_Line], _Row]) -> list[_Row]:
    first_line: dict[str, int] = {}
    found: list[_Row] = []
    for number, line in _lines(path, columns):
        row = build(line)
        if row.name in first_line:
            raise line.wrong(key, f"{row.name!r} is already in line {first_line[row.name]}")
        first_line[row.name] = number
        found.append(row)
    if not found:
        raise UsageError(f"{path}: nothing follows the first line", hint="give at least one line")
    return found


def _lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, _Line]]:
    number = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(
                    f"{path}: line 1 lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                    hint=f"needed: {', '.join(columns)}",
                )
            for cells in reader:
                number = reader.line_num
                yield number, _Line(path, number, cells)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file in UTF-8: {error.reason} after line {number}") from error
    except csv.Error as error:
        raise UsageError(f"{path}: after line {number}: {error}") from error


def _node(line: _Line) -> TraceNode:
    return TraceNode(
        name=line.name("sn"),
        cpu_milli=line.whole("cpu_milli"),
        memory_mib=line.whole("memory_mib"),
        gpus=line.whole("gpu", most=_MOST_GPUS),
        model=line.text("model"),
    )


def _pod(line: _Line) -> TracePod:
    gpus = line.whole("num_gpu", most=_MOST_GPUS)
    gpu_milli = line.whole("gpu_milli", most=GPU_MILLI)
    if gpus > 1 and gpu_milli != GPU_MILLI:
        raise line.wrong(
            "gpu_milli", f"{gpu_milli} of each of {gpus} GPUs; a pod with several GPUs needs whole ones, {GPU_MILLI}"
        )
    if gpus == 1 and gpu_milli == 0:
        raise line.wrong("gpu_milli", f"0 of a GPU; allowed: 1 to {GPU_MILLI}")
    return TracePod(
        name=line.name("name"),
        cpu_milli=line.whole("cpu_milli"),
        memory_mib=line.whole("memory_mib"),
        gpus=gpus,
        gpu_milli=gpu_milli if gpus else 0,
        models=tuple(model for model in line.optional("gpu_spec").split("|") if model),
    )
