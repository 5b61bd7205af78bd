"""Refusals of the API: one kind of error with an HTTP code, a reason that programs compare, and words for people.

The reasons are those of Kubernetes' `Status`. The words are those of the command line.
"""

from typing import NoReturn

import msgspec

from arranger.errors import ArrangerError

#: Reason → HTTP code.
CODES = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "Expired": 410,
    "RequestEntityTooLarge": 413,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}


class RefusalBody(msgspec.Struct, frozen=True):
    """The JSON of a refusal. `code` repeats the HTTP code."""

    code: int
    reason: str
    message: str


class Refusal(ArrangerError):
    """A question that isn't answered. `reason` is a key of `CODES`."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    @property
    def body(self) -> RefusalBody:
        return RefusalBody(CODES[self.reason], self.reason, str(self))


def refuse(reason: str, message: str, *, hint: str = "") -> NoReturn:
    raise Refusal(reason, message, hint=hint)
