"""What is wrong with a queue, and why a job can't use it."""

from collections.abc import Mapping
from types import MappingProxyType

from arranger.model.quantity import amount_text
from arranger.model.queue import MAX_DEPTH, QUEUE_ANNOTATION
from arranger.projections.derived.queue_membership import Denial, DenialKind
from arranger.projections.queues.tree import QueueProblem, QueueProblemKind

_K = QueueProblemKind
_PROBLEMS: Mapping[QueueProblemKind, str] = MappingProxyType(
    {
        _K.INVALID: "queue {queue} is invalid: edit it",
        _K.UNKNOWN_PARENT: "queue {queue} is below {parent}, which doesn't exist: create it, or edit spec.parent",
        _K.CYCLE: "queue {queue} would be below itself, by way of its parent {parent}: edit spec.parent of one of them",
        _K.TOO_DEEP: "queue {queue} is at depth {depth}, and the most is {most}: edit spec.parent",
        _K.ABOVE_PARENT: "{field} of {resource} is {amount}, above that of the parent {parent}, which is {limit}",
        _K.GUARANTEE_CUT: "of its {field} of {amount} {resource}, {limit} are kept, because the guarantees below "
        "{parent} add up to more than is kept for that: lower some",
        _K.ABOVE_CLUSTER: "the guarantees of all open queues add up to {amount} {resource}, above the {limit} that the "
        "nodes offer, so jobs get none beyond the guarantee of their queue: lower guarantees",
        _K.UNKNOWN_RESOURCE: "{field} is of {resource}, which no node has: did you mean {meant}?",
    }
)


def problem_text(problem: QueueProblem) -> str:
    """What is wrong with a queue, in one line."""
    return _PROBLEMS[problem.kind].format(
        queue=problem.queue,
        parent=problem.parent,
        depth=problem.depth,
        most=MAX_DEPTH,
        field=problem.field,
        resource=problem.resource,
        amount=amount_text(problem.resource, problem.amount),
        limit=amount_text(problem.resource, problem.limit),
        meant=problem.meant,
    )


def state_text(name: str, problem: QueueProblem | None, *, closed: str, exists: bool = True) -> str:
    """Why new jobs of a queue get no nodes, or what else is wrong with it, in one line; empty without either. `closed`
    is the queue itself or the one above it that is closed, "" for none."""
    if problem is not None:
        return problem_text(problem)
    if not exists:
        return "jobs name it, and it doesn't exist: create it"
    if not closed:
        return ""
    return "closed" if closed == name else f"closed, because {closed} is"


def condition_text(name: str, problem: QueueProblem | None, *, closed: str) -> str:
    """The message of a queue's condition: `state_text`, and for a closed queue also what to do."""
    text = state_text(name, problem, closed=closed)
    if problem is not None or not closed:
        return text
    return f"{text}: arranger queue open {closed} opens {'it' if closed == name else 'that one'}"


def passed_text(queue: str, policy: str, key: str, *, behind: bool, took: bool = False) -> str:
    """Why a job was placed before a waiting one: it is of another `queue`, it was `behind` and fit, or `took` the room
    from others, its turn came first by the `policy` of their queue (empty for seniority), or by the `key` in words."""
    if queue:
        return f"the turns of its own queue {queue}"
    if behind:
        return f"room {'that others gave it' if took else 'for it'}, although it was behind"
    return f"its turn by {policy}, or what was reserved for it" if policy else key


def denial_text(denial: Denial, refused: int = 0, *, of_namespace: str = "") -> str:
    """Why a job can't use its queue, in one line. `refused` is the HTTP status with which the API server refuses to
    list queues, 0 if it doesn't. `of_namespace` is the job's namespace if its annotation names the queue, and not the
    job itself."""
    name = denial.queue
    if denial.kind == DenialKind.PROBLEM and denial.problem is not None:
        return f"can't use queue {name}: {problem_text(denial.problem)}"
    if denial.kind == DenialKind.NOT_ADMITTED:
        return f"can't use queue {name}: its spec.namespaces doesn't include the job's namespace"
    if denial.kind == DenialKind.CLOSED:
        above = f", because {denial.closed} is" if denial.closed != name else ""
        return f"waits for queue {name}, which is closed{above}"
    if refused:
        return f"waits for queue {name}: the API server doesn't let Arranger list queues ({refused})"
    if of_namespace:
        return (
            f"waits for queue {name}, which the annotation {QUEUE_ANNOTATION} of namespace {of_namespace} names and "
            "which doesn't exist: create it, edit the annotation, or name another in spec.queue"
        )
    return f"waits for queue {name}, which doesn't exist: create it, or name another in spec.queue"
