"""Conditions on a state, and combinations of conditions. Bisect finds the event at which a condition starts to hold.

Every condition is evaluated after every entry, so it must cost only a few look-ups. A condition that needs a scheduling
cycle takes one only when an input of that cycle has changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from arranger.events.log import Entry
from arranger.projections.state import State

#: The facts that a state has about one job or node: name → value in words.
Facts = dict[str, str]


class Condition(ABC):
    """A condition that a state meets or doesn't meet. `text` describes it and `denied` its negation. `subject` is the
    job or node in question, as in the heading of `facts`; `job_uid` is that job's UID, empty if there is no job. `of`
    are the conditions that this one combines."""

    def __init__(
        self, text: str, *, subject: str, job_uid: str = "", denied: str = "", of: Sequence["Condition"] = ()
    ) -> None:
        self.text = text
        self.denied = denied or f"not: {text}"
        self.subject = subject
        self.job_uid = job_uid
        self.of = of

    def note(self, entry: Entry) -> None:
        """Look at an entry before it is folded: some conditions depend on more than the state."""
        for one in self.of:
            one.note(entry)

    def means_something(self, state: State) -> bool:
        """Whether the condition can be evaluated in this state. If not, its last value remains."""
        return all(one.means_something(state) for one in self.of)

    @abstractmethod
    def holds(self, state: State) -> bool:
        """Whether the state meets the condition."""

    def facts(self, state: State) -> Facts:
        """The facts about the condition's subject, shown before and after the event."""
        return {name: text for one in self.of for name, text in one.facts(state).items()}


class Negated(Condition):
    """Holds where another condition doesn't hold."""

    def __init__(self, of: Condition) -> None:
        super().__init__(of.denied, subject=of.subject, job_uid=of.job_uid, denied=of.text, of=[of])

    def holds(self, state: State) -> bool:
        return not self.of[0].holds(state)


class All(Condition):
    """Holds where several conditions on the same job or node all hold."""

    def __init__(self, of: Sequence[Condition]) -> None:
        subject, job_uid = (of[0].subject, of[0].job_uid) if of else ("", "")
        super().__init__(" and ".join(one.text for one in of), subject=subject, job_uid=job_uid, of=of)

    def holds(self, state: State) -> bool:
        return all([one.holds(state) for one in self.of])
