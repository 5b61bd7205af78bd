"""A group check: nothing new starts in a namespace that is frozen."""

from arranger.scheduling.policies.consent import GroupCheck, QuorumAsked

LABEL = "example.com/frozen"


class Freeze(GroupCheck):
    """The namespace isn't labelled as frozen. Jobs that run keep their nodes, and may still get further ones."""

    name, version = "Freeze", 1

    def refuses(self, asked: QuorumAsked) -> str:
        """One sentence for all, whichever job it is."""
        return "its namespace is frozen" if asked.namespace_labels.get(LABEL) == "true" else ""
