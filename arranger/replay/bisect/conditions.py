"""What a condition on a state is, for finding the event at which one starts to hold, and how conditions are combined.

A condition is asked of the state after every entry, so each is a few look-ups; those that would need a scheduling cycle
ask for one only when something has changed that it depends on.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from arranger.events.log import Entry
from arranger.projections.state import State

#: What a state says of one thing, by name.
Facts = dict[str, str]


class Condition(ABC):
    """Something that holds in a state or doesn't."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What holds, in words."""

    @property
    def denied(self) -> str:
        """That it doesn't hold, in words."""
        return f"not: {self.text}"

    def note(self, entry: Entry) -> None:  # noqa: B027  # most have nothing to note
        """An entry that is about to be folded, for conditions that depend on more than the state."""

    def means_something(self, state: State) -> bool:
        """Whether it can be asked of this state. Where it can't, it is taken to be as it was before."""
        return True

    @abstractmethod
    def holds(self, state: State) -> bool:
        """Whether it holds in this state."""

    def facts(self, state: State) -> Facts:
        """What the state says of the condition's subject, to be shown before and after."""
        return {}

    @property
    def subject(self) -> str:
        """The job or node that it is about, as `facts` are headed."""
        return ""

    @property
    def job_uid(self) -> str:
        """The UID of the job that it is about, empty if it is about none."""
        return ""


class Negated(Condition):
    """That another condition doesn't hold."""

    def __init__(self, of: Condition) -> None:
        self.of = of

    @property
    def text(self) -> str:
        return self.of.denied

    @property
    def denied(self) -> str:
        return self.of.text

    def note(self, entry: Entry) -> None:
        self.of.note(entry)

    def means_something(self, state: State) -> bool:
        return self.of.means_something(state)

    def holds(self, state: State) -> bool:
        return not self.of.holds(state)

    def facts(self, state: State) -> Facts:
        return self.of.facts(state)

    @property
    def subject(self) -> str:
        return self.of.subject

    @property
    def job_uid(self) -> str:
        return self.of.job_uid


class All(Condition):
    """That several conditions hold at once."""

    def __init__(self, of: Sequence[Condition]) -> None:
        self.of = of

    @property
    def text(self) -> str:
        return " and ".join(one.text for one in self.of)

    def note(self, entry: Entry) -> None:
        for one in self.of:
            one.note(entry)

    def means_something(self, state: State) -> bool:
        return all(one.means_something(state) for one in self.of)

    def holds(self, state: State) -> bool:
        return all([one.holds(state) for one in self.of])

    def facts(self, state: State) -> Facts:
        return {name: text for one in self.of for name, text in one.facts(state).items()}

    @property
    def subject(self) -> str:
        return self.of[0].subject

    @property
    def job_uid(self) -> str:
        return self.of[0].job_uid
