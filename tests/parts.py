"""The parts of a process under test: those that a test gives, and placeholders for the rest."""

from dataclasses import fields
from typing import Any

from arranger.clock import SystemClock
from arranger.metrics import Metrics
from arranger.plugins import Installed
from arranger.scheduling.queues.registry import BUILT_IN
from arranger.settings import Settings
from arranger.workers.members.problems import MemberProblems
from arranger.workers.members.timekeeping import Timekeeper
from arranger.workers.parts import Parts


class _Right(Timekeeper):
    """A clock that is always right."""

    right = True  # type: ignore[assignment]


class _TestParts(Parts):
    lease_given: Any = None
    writer_given: Any = None

    def lease(self, name: str) -> Any:
        return self.lease_given

    def writer(self, role: str) -> Any:
        return self.writer_given if self.writer_given is not None else super().writer(role)


def parts(*, lease: Any = None, writer: Any = None, settings: dict[str, Any] | None = None, **given: Any) -> Parts:
    """`settings` differ from the defaults; `clock` is both the machine's clock and the roles' clock."""
    clock = given.setdefault("clock", SystemClock())
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(Parts) if field.init)
    known |= {
        "settings": Settings(**(settings or {})),
        "installed": Installed(BUILT_IN, ()),
        "member_id": "us",
        "time": clock if isinstance(clock, Timekeeper) else _Right(clock, bound_ms=0),
        "metrics": Metrics(clock),
        "problems": MemberProblems(clock),
    }
    found = _TestParts(**(known | given))
    found.lease_given, found.writer_given = lease, writer
    return found
