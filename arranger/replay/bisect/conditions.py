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
    """Something that holds in a state or doesn't. `text` says what holds, `denied` that it doesn't. `subject` is the
    job or node that it is about, as `facts` are headed, and `job_uid` that job's UID, empty if it is about none."""

    def __init__(self, text: str, *, subject: str, job_uid: str = "", denied: str = "") -> None:
        self.text = text
        self.denied = denied or f"not: {text}"
        self.subject = subject
        self.job_uid = job_uid

    def note(self, entry: Entry) -> None:  # noqa: B027  # most have nothing to note
        """An entry that is about to be folded, for conditions that depend on more than the state."""

    def means_something(self, state: State) -> bool:
        """Whether it can be asked of this state. Where it can't, it is taken to be as it was before."""
        return True

    @abstractmethod
    def holds(self, state: State) -> bool:
        """Whether it holds in this state."""

    @abstractmethod
    def facts(self, state: State) -> Facts:
        """What the state says of the condition's subject, to be shown before and after."""


class Negated(Condition):
    """That another condition doesn't hold."""

    def __init__(self, of: Condition) -> None:
        super().__init__(of.denied, subject=of.subject, job_uid=of.job_uid, denied=of.text)
        self.of = of

    def note(self, entry: Entry) -> None:
        self.of.note(entry)

    def means_something(self, state: State) -> bool:
        return self.of.means_something(state)

    def holds(self, state: State) -> bool:
        return not self.of.holds(state)

    def facts(self, state: State) -> Facts:
        return self.of.facts(state)


class All(Condition):
    """That several conditions on the same job or node hold at once."""

    def __init__(self, of: Sequence[Condition]) -> None:
        subject, job_uid = (of[0].subject, of[0].job_uid) if of else ("", "")
        super().__init__(" and ".join(one.text for one in of), subject=subject, job_uid=job_uid)
        self.of = of

    def note(self, entry: Entry) -> None:
        for one in self.of:
            one.note(entry)

    def means_something(self, state: State) -> bool:
        return all(one.means_something(state) for one in self.of)

    def holds(self, state: State) -> bool:
        return all([one.holds(state) for one in self.of])

    def facts(self, state: State) -> Facts:
        return {name: text for one in self.of for name, text in one.facts(state).items()}
