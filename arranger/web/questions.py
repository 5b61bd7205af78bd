"""The questions that the API answers, with their parameters: the reading commands, without their access to files.

A question becomes the arguments of a command, so that both give the same answer in the same words. Only parameters of
this table are passed on, and a value can't become an option or the name of a file.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from arranger import __version__
from arranger.points import is_point
from arranger.web.refusals import Refusal, refuse

#: Longer values and longer lists of values aren't passed on.
_LONGEST = 256
_MOST = 32


class Parameter(msgspec.Struct, frozen=True):
    """One parameter. Without a `flag` it is an argument. `point`: a point of the log. `switch`: true or false. With a
    `most`, it is a whole number from 1 to that (of a point, from 0)."""

    name: str
    flag: str
    meaning: str
    point: bool = False
    many: bool = False
    switch: bool = False
    required: bool = False
    most: int = 0


class Question(msgspec.Struct, frozen=True):
    """One question. `command` are the words of the command line, `pinned` is the parameter that is set to the present
    end of the log unless it is given. `reads_on`: events after the point may change the answer. `lines`: the command
    prints one JSON value in each line. `live`: the answer depends on more than the log. `manifests`: the option by
    which the command takes Kubernetes objects, the body of a POST; empty if it takes none. `grows`: something in the
    answer grows with time, up to the time of the point, which is now at the end of a live log."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    command: tuple[str, ...]
    pinned: str = ""
    reads_on: bool = False
    lines: bool = False
    live: bool = False
    manifests: str = ""
    grows: bool = False


class Asked(msgspec.Struct, frozen=True):
    """A question with its arguments; `words` are those that aren't options. `tag` is the answer's ETag, empty if later
    answers may differ. `present`: the question has no parameters, and is about the end of the log. `values` are the
    parameters by name, without those that may be given repeatedly."""

    question: Question
    arguments: tuple[str, ...]
    tag: str
    present: bool
    words: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


_POINT = "an offset or a time; or OFFSET@MILLISECONDS, after that event but as seen at that time since 1970"


def _point(name: str, meaning: str) -> Parameter:
    return Parameter(name, f"--{name}", f"{meaning}: {_POINT}", point=True)


_AT = _point("at", "the point of the log that the answer is about")
_FROM = _point("from", "the first event that counts")
_TO = _point("to", "the last event that counts")
_NAME = "a name, or namespace/name"

QUESTIONS = {
    one.name: one
    for one in (
        Question(
            "status", "The running processes, how far each has read, and what is missing. Needs Redis.",
            (Parameter("maxLag", "--max-lag", "seconds after which a process lags"),), ("status",), live=True,
        ),
        Question("replay", "The jobs in queue order, and the nodes with their use.", (_AT,), ("replay",), "at"),
        Question(
            "events", "The events, each with its verdict.",
            (
                _FROM, _TO,
                Parameter("job", "--job", _NAME),
                Parameter("node", "--node", "a node"),
                Parameter("pod", "--pod", _NAME),
                Parameter("queue", "--queue", "a queue"),
                Parameter("kind", "--kind", "a kind of event", many=True),
            ), ("events",), "to", lines=True,
        ),
        Question(
            "explain", "Why a job waits, or why its pods are where they are.",
            (
                Parameter("job", "", _NAME, required=True), _AT,
                Parameter("pod", "--pod", "a pod of the job"),
                Parameter("node", "--node", "a node to compare with"),
            ), ("explain",), "at", grows=True,
        ),
        Question("verify", "Whether every recorded cycle gives the same again.", (_FROM, _TO), ("verify",), "to"),
        Question(
            "what-if", "A past cycle as it was and with changes.",
            (
                _AT,
                Parameter("withNode", "--with-node", "a node to add a copy of", many=True),
                Parameter("without", "--without", f"a job to leave out: {_NAME}", many=True),
                Parameter("withoutNode", "--without-node", "a node to leave out", many=True),
                Parameter("withoutQueue", "--without-queue", "a queue to leave out", many=True),
                Parameter("changedJob", "--job", f"a job to change by priority, queue and gpus: {_NAME}"),
                Parameter("priority", "--priority", "with changedJob: its priority, 1 to 10"),
                Parameter("queue", "--queue", "with changedJob: its queue"),
                Parameter("gpus", "--gpus", "with changedJob: GPUs of each of its pods that asks for any"),
                Parameter("queuePolicy", "--queue-policy", "another queue policy"),
                Parameter("policy", "--policy", "another pod policy"),
                Parameter("weights", "--weights", "weights of resources, such as cpu=1,*/gpu=5"),
                Parameter("preemption", "--preemption", "On, Off or KIND=MODE,…"),
                Parameter("backfill", "--backfill", "Guests, Known or Off"),
                Parameter("reservations", "--reservations", "how many jobs get a reservation"),
                Parameter("everyJob", "--every-job", "apply the policies also to jobs that name one", switch=True),
                Parameter("until", "--until", "where both runs end: an offset, a time, a duration, or drained"),
                Parameter("lasting", "--lasting", "how long an attempt lasts if its end isn't in the log"),
            ), ("what-if",), "at", reads_on=True, manifests="--with", grows=True,
        ),
        Question(
            "diff", "What changed between two points of the log.",
            (
                Parameter("a", "", "one point: an offset or a time", point=True, required=True),
                Parameter("b", "", "the other point", point=True, required=True),
            ), ("diff",),
        ),
        Question(
            "queue", "All queues as a tree, or one queue in detail.",
            (Parameter("name", "", "a queue"), _AT), ("queue", "show"), "at",
        ),
        Question(
            "top", "Who holds GPUs.",
            (_AT, Parameter("by", "--by", "queue, namespace, user or job")), ("top",), "at",
        ),
        Question(
            "waits", "What jobs waited for, and who held the room.",
            (
                _FROM, _TO,
                Parameter("by", "--by", "queue, user, namespace, day or job"),
                Parameter("heldBy", "--held-by", "queue, user or job"),
            ), ("waits",), "to", grows=True,
        ),
        Question(
            "forecast", "When each waiting job would start.",
            (
                Parameter("job", "", _NAME, many=True), _AT,
                Parameter("until", "--until", "how far to look ahead, such as 6h"),
                Parameter("first", "--first", "how many waiting jobs to look at"),
            ), ("forecast",), "at", reads_on=True, grows=True,
        ),
        Question(
            "preemptions", "Who gave room to whom, and what it cost.",
            (_FROM, _TO, Parameter("within", "--within", "a duration, such as 5m")), ("preemptions",), "to",
            reads_on=True, grows=True,
        ),
    )
}  # fmt: skip


def asked(
    question: Question, given: Sequence[tuple[str, str]], *, epoch: int, end: int, now_ms: int | None = None
) -> Asked:
    """The question with its arguments, as of a log that ends at the offset `end`, and to which others write at
    `now_ms`; None for one that has ended. Raises `Refusal`."""
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    known = {one.name: one for one in question.parameters}
    for name in values:
        if name not in known:
            allowed = ", ".join(known) or "none"
            refuse("BadRequest", f"{question.name} has no parameter {name!r}", hint=f"allowed: {allowed}")
    present = not values
    for one in question.parameters:
        _check(one, values.get(one.name, []))
    if question.pinned and question.pinned not in values:
        # To the second, so that all who ask meanwhile get one answer.
        now = f"@{now_ms // 1000 * 1000}" if question.grows and now_ms is not None else ""
        values[question.pinned] = [f"{end}{now}"]
    arguments = _arguments(question, values)
    tag = _tag(question, values, arguments, epoch=epoch, end=end)
    single = tuple(
        (one.name, values[one.name][0]) for one in question.parameters if one.name in values and not one.many
    )
    return Asked(question, arguments, tag, present, arguments[arguments.index("--") + 1 :], single)


def with_manifests(inquiry: Asked) -> Asked:
    """The question with the objects that the command reads from standard input. It has no ETag."""
    arguments = inquiry.arguments
    end = arguments.index("--")
    arguments = (*arguments[:end], f"{inquiry.question.manifests}=-", *arguments[end:])
    return msgspec.structs.replace(inquiry, arguments=arguments, tag="", present=False)


def question_of(arguments: Sequence[str]) -> str:
    """The name of the question that these arguments ask, or "" for such that no question of the table becomes. Whoever
    takes arguments from elsewhere runs no other command, and gives none a file or a log to read."""
    for question in QUESTIONS.values():
        begun = (*question.command, "--output=json")
        if tuple(arguments[: len(begun)]) == begun and _are_of(question, arguments[len(begun) :]):
            return question.name
    return ""


def _are_of(question: Question, arguments: Sequence[str]) -> bool:
    """Whether these are options of a question, `--`, and its words."""
    if "--" not in arguments:
        return False
    end = list(arguments).index("--")
    values = _values_of(question, arguments[:end])
    unnamed = [one for one in question.parameters if not one.flag]
    words = arguments[end + 1 :]
    if values is None or (words and not unnamed):
        return False
    for at, word in enumerate(words):
        values.setdefault(unnamed[min(at, len(unnamed) - 1)].name, []).append(word)
    try:
        for one in question.parameters:
            _check(one, values.get(one.name, []))
    except Refusal:
        return False
    return True


def _values_of(question: Question, options: Sequence[str]) -> dict[str, list[str]] | None:
    """The values of options, by the names of their parameters; None if one is no option of the question."""
    flags = {one.flag: one for one in question.parameters if one.flag}
    values: dict[str, list[str]] = {}
    for option in options:
        if question.manifests and option == f"{question.manifests}=-":
            continue
        flag, _, value = option.partition("=")
        one = flags.get(flag)
        if one is None or (one.switch and option != flag):
            return None
        values.setdefault(one.name, []).append("true" if one.switch else value)
    return values


def by_parameters(question: Question, refusal: Refusal) -> Refusal:
    """What a command says, for those who asked it by parameters: with these names, and without the command's manual."""
    message = re.sub(r" \(see [^()]* --help\)$", "", str(refusal)).replace("standard input", "the body")
    for one in question.parameters:
        if one.flag:
            message = re.sub(rf"'?(?<![\w-]){one.flag}(?![\w-])'?", one.name, message)
    return Refusal(refusal.reason, message)


def _check(one: Parameter, values: Sequence[str]) -> None:
    if one.required and not values:
        refuse("BadRequest", f"the parameter {one.name} is missing: {one.meaning}")
    if len(values) > (_MOST if one.many else 1):
        refuse("BadRequest", f"{one.name}: at most {_MOST if one.many else 1} of them")
    for value in values:
        if not value or len(value) > _LONGEST or not value.isprintable():
            refuse("BadRequest", f"{one.name}: a value has 1 to {_LONGEST} printable characters")
        if one.most and not _counts(one, value):
            refuse("BadRequest", f"{one.name}: {value!r} is not a whole number up to {one.most}")
        if one.point and not is_point(value):
            refuse(
                "BadRequest", f"{one.name}: {value!r} is not a point in the log", hint="an offset, a time, or 10m ago"
            )
        if one.switch and value not in ("true", "false"):
            refuse("BadRequest", f"{one.name}: {value!r} is neither true nor false")


def _counts(one: Parameter, value: str) -> bool:
    """Whether a value is a whole number that the parameter allows. That of a point may have a time behind it."""
    number = value.partition("@")[0] if one.point and is_point(value) else value
    return number.isascii() and number.isdigit() and (not one.point) <= int(number) <= one.most


def _arguments(question: Question, values: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    options, words = [], []
    for one in question.parameters:
        for value in values.get(one.name, ()):
            if one.switch:
                options += [one.flag] if value == "true" else []
            elif one.flag:
                options.append(f"{one.flag}={value}")
            else:
                words.append(value)
    return (*question.command, "--output=json", *options, "--", *words)


def _tag(
    question: Question, values: Mapping[str, Sequence[str]], arguments: Sequence[str], *, epoch: int, end: int
) -> str:
    """The ETag: the offset up to which the answer depends on the log, and a digest of the question.

    A time has none: it may be one that the log hasn't reached yet.
    """
    points = [value.partition("@")[0] for one in question.parameters if one.point for value in values.get(one.name, ())]
    if question.live or not all(point.isdigit() for point in points):
        return ""
    offset = end if question.reads_on else max((min(int(point), end) for point in points), default=end)
    digest = hashlib.sha256("\0".join((__version__, question.name, *arguments)).encode()).hexdigest()[:16]
    return f'"{epoch}-{offset}-{digest}"'
