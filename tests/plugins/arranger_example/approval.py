"""A permit: in some namespaces, somebody has to approve a job that has room, before it gets it."""

from arranger.scheduling.policies.consent import Hold, Permit, QuorumAsked

LABEL = "example.com/approval"
#: The word in the annotation `arranger.dev/permits` of an approved TYJob.
APPROVED = "approved"
#: For so many seconds, the room of a job that isn't approved yet is kept for it.
SECONDS = 600


class Approval(Permit):
    """Where the namespace's label asks for it, a TYJob has to be approved by its annotation arranger.dev/permits."""

    name, version = "Approval", 1

    def holds(self, asked: QuorumAsked) -> Hold | None:
        """The answer depends on two facts that are in the log: a label and an annotation."""
        if asked.namespace_labels.get(LABEL) != "required" or APPROVED in asked.job.seen.permits:
            return None
        return Hold("it isn't approved", SECONDS, keep_room=True)
