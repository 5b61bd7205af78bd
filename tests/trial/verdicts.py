"""The result of a scenario: figures and faults."""

from dataclasses import asdict, dataclass, field
from typing import Any

Figure = int | float | str | bool | None


@dataclass
class Verdict:
    """One scenario's outcome. It passes if `faults` is empty."""

    row: str
    scenario: str
    #: The measured figures by name; the names end in their units.
    figures: dict[str, Figure] = field(default_factory=dict)
    #: Violated expectations, in words.
    faults: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.faults

    def told(self, **figures: Figure) -> None:
        """Add figures."""
        self.figures |= {name: round(of, 3) if isinstance(of, float) else of for name, of in figures.items()}

    def expect(self, holds: bool, fault: str) -> None:
        """Add a fault unless `holds` is true."""
        if not holds:
            self.faults.append(fault)

    def line(self) -> str:
        """The verdict for people: one line, and one more for each fault."""
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        first = f"{self.row:4} {'holds' if self.holds else 'FAILS'}  {self.scenario} ({self.took_s:.0f} s): {figures}"
        return "\n".join([first, *(f"       - {fault}" for fault in self.faults)])

    def document(self) -> dict[str, Any]:
        """The verdict as JSON for programs."""
        return {**asdict(self), "holds": self.holds}
