"""Long work in steps, between which a process may do other work."""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Steps(Generic[_Result]):
    """The steps of a generator, and what it returns: `result`, once all steps are taken."""

    result: _Result

    def __init__(self, work: Generator[None, None, _Result]) -> None:
        self._work = work

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._work

    def finish(self) -> _Result:
        """Take all steps at once."""
        for _ in self:
            pass
        return self.result
