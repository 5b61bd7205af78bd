"""The questions that the console asks, with their parameters. They have no command: `moments` answers them."""

from arranger.web.questions import Parameter, Question


def _number(name: str, meaning: str, *, most: int = 10**18) -> Parameter:
    return Parameter(name, f"--{name}", meaning, point=name in ("at", "from", "to", "after", "before"), most=most)


_AT = _number("at", "the point of the log that the answer is about: an offset, or OFFSET@MILLISECONDS")
_SPAN = (
    _number("from", "the offset with whose time the bars begin"),
    _number("to", "the offset with whose time they end"),
)
_TIME = (
    _number("sinceMs", "the time, in milliseconds since 1970, with which the answer begins"),
    _number("untilMs", "the time with which it ends"),
)

CONSOLE = {
    one.name: one
    for one in (
        Question(
            "moment", "The cluster at a point: jobs, nodes with their GPUs, queues.", (_AT,), (), "at", grows=True,
        ),
        Question(
            "standings", "Of each job at a point: its place in the queue, expected start, user, and GPU hours.", (_AT,),
            (), "at", grows=True,
        ),
        Question(
            "timeline", "The number of events over the log or a span of its time, and marks of what went wrong.",
            (_number("buckets", "into how many parts the time is divided", most=2_000), *_TIME), (), reads_on=True,
        ),
        Question(
            "series", "GPUs and jobs over the whole log, or over a span of time.",
            (_number("points", "how many points at most", most=32_768), *_TIME), (), reads_on=True,
        ),
        Question("gantt", "When each job waited and ran.", (*_SPAN, *_TIME), (), reads_on=True),
        Question("node-gantt", "Which jobs had each node, and when.", (*_SPAN, *_TIME), (), reads_on=True),
        Question(
            "decision", "The next or the last event that gave a job nodes, or took them from others.",
            (_number("after", "an offset before it"), _number("before", "an offset after it")), (), reads_on=True,
        ),
        Question(
            "job", "A job's events up to a point, and its pods there.",
            (Parameter("job", "", "a name, or namespace/name", required=True), _AT), (), "at", grows=True,
        ),
    )
}  # fmt: skip
