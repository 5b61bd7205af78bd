"""The program that `arranger serve` runs for a question: a reading command, with errors that a program understands.

It runs a command of the table below in this process. It prints the command's JSON. An error becomes one line of JSON on
standard error, with the reason by which the API chooses an HTTP code, and the words of the command line.
"""

import contextlib
import gc
import os
import resource
import sys
from collections.abc import Sequence

import click
import msgspec

from arranger.cli.inputs.reading import NotFound
from arranger.cli.main import cli, usage_line
from arranger.cli.rendering.output import say
from arranger.errors import ArrangerError, DamagedEntry, LogUnavailable, TooOld, UsageError
from arranger.model.text import one_line, safe_json
from arranger.web.questions import QUESTIONS
from arranger.web.refusals import Refusal

#: A question that needs more memory than this is refused, in bytes.
_MEMORY_BYTES = 8 << 30
TOO_LARGE = f"the answer needs too much memory: an answer may use {_MEMORY_BYTES >> 30} GiB"
#: Added to this process's priority number, so that what is live goes first.
_NICE = 5

#: The error → the reason of the refusal. The first match counts, and any other error has the last one.
_REASONS = (
    (NotFound, "NotFound"),
    (UsageError, "BadRequest"),
    (TooOld, "Expired"),
    (LogUnavailable, "ServiceUnavailable"),
    (DamagedEntry, "InternalError"),
    (ArrangerError, "NotFound"),
)


def run() -> None:
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, most))
    gc.freeze()  # what was imported is never garbage
    sys.exit(answer(sys.argv[1:]))


def answer(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    try:
        if not any(tuple(arguments[: len(one.command)]) == one.command for one in QUESTIONS.values()):
            raise UsageError("this is not a question that is answered here")
        status = cli.main(list(arguments), prog_name="arranger", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as problem:
        return _refused(Refusal("BadRequest", usage_line(problem, arguments, "arranger")))
    except MemoryError:
        return _refused(Refusal("RequestEntityTooLarge", TOO_LARGE))
    except ArrangerError as problem:
        return _refused(Refusal(reason_of(problem), one_line(str(problem))))
    return status if isinstance(status, int) else 0


def reason_of(problem: ArrangerError) -> str:
    """The reason of the refusal that an error becomes."""
    if isinstance(problem, Refusal):
        return problem.reason
    return next(reason for kind, reason in _REASONS if isinstance(problem, kind))


def _refused(problem: Refusal) -> int:
    sys.stdout.flush()
    say(safe_json(msgspec.json.encode(problem.body)).decode(), err=True)
    return 1


if __name__ == "__main__":
    run()
