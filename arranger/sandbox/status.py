"""Refusals in Kubernetes' own wording: the `Status` object in the response to every failed request."""

from typing import Any, Literal

import msgspec

from arranger.kube.cluster import ApiError, Expired, Object

#: The code of an error: Kubernetes' codes, as they appear in `details.causes[].reason` of a refusal.
CauseReason = Literal[
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueDuplicate",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
]


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field: its path (`spec.priority`), a message with the allowed values, and the code of the cause."""

    field: str
    message: str
    reason: CauseReason = "FieldValueInvalid"


class ApiRefusal(ApiError):
    """A refused request: HTTP code, reason, message and the details of its `Status`."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(code, reason, message)
        self.details = details

    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.detail,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    named = {"name": name, "group": group}
    return {key: value for key, value in named.items() if value} | {"kind": kind} | more


def _qualified(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind


def not_found(plural: str, group: str, name: str) -> ApiRefusal:
    message = f'{_qualified(plural, group)} "{name}" not found'
    return ApiRefusal(404, "NotFound", message, _details(name, group, plural))


def no_such_resource() -> ApiRefusal:
    """404 for a path at which nothing is served."""
    return ApiRefusal(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiRefusal:
    message = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiRefusal(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(kind: str, group: str, name: str, why: str) -> ApiRefusal:
    """409 for a write or delete whose condition doesn't hold."""
    message = f'Operation cannot be fulfilled on {_qualified(kind, group)} "{name}": {why}'
    return ApiRefusal(409, "Conflict", message, _details(name, group, kind))


def invalid(kind: str, group: str, name: str, errors: list[FieldError]) -> ApiRefusal:
    """422 with one cause per wrong field."""
    listed = ", ".join(f"{error.field}: {error.message}" for error in errors)
    shown = listed if len(errors) == 1 else f"[{listed}]"
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    message = f'{_qualified(kind, group)} "{name}" is invalid: {shown}'
    return ApiRefusal(422, "Invalid", message, _details(name, group, kind, causes=causes))


def bad_request(message: str) -> ApiRefusal:
    return ApiRefusal(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str, **more: Any) -> ApiRefusal:
    message = f'{_qualified(plural, group)} "{name}" is forbidden: {why}'
    return ApiRefusal(403, "Forbidden", message, _details(name, group, plural, **more))


class HistoryExpired(ApiRefusal, Expired):
    """410: a resourceVersion or a continuation that is no longer in the history."""

    def __init__(self, message: str) -> None:
        super().__init__(410, "Expired", message)


def too_old(asked: int, oldest: int) -> HistoryExpired:
    """The refusal of a watch from a version that is no longer in the history."""
    return HistoryExpired(f"too old resource version: {asked} ({oldest})")


def unsupported_media_type(accepted: list[str]) -> ApiRefusal:
    """415 for a patch in a format that the resource doesn't accept."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiRefusal(415, "UnsupportedMediaType", message)
