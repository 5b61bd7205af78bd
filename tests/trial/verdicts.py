"""What a scenario found: figures, and what is wrong with them."""

from dataclasses import asdict, dataclass, field
from typing import Any

Figure = int | float | str | bool | None


@dataclass
class Verdict:
    """One scenario's outcome. It holds when nothing is in `faults`."""

    row: str
    scenario: str
    #: What was measured, by name; units at the end of the names.
    figures: dict[str, Figure] = field(default_factory=dict)
    #: What must not be, in words.
    faults: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing was found that must not be."""
        return not self.faults

    def told(self, **figures: Figure) -> None:
        """Note figures."""
        self.figures |= {name: round(of, 3) if isinstance(of, float) else of for name, of in figures.items()}

    def expect(self, holds: bool, fault: str) -> None:
        """Note a fault unless this holds."""
        if not holds:
            self.faults.append(fault)

    def line(self) -> str:
        """The verdict for people, on one line and one more for each fault."""
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        first = f"{self.row:4} {'holds' if self.holds else 'FAILS'}  {self.scenario} ({self.took_s:.0f} s): {figures}"
        return "\n".join([first, *(f"       - {fault}" for fault in self.faults)])

    def document(self) -> dict[str, Any]:
        """The verdict for programs."""
        return {**asdict(self), "holds": self.holds}
