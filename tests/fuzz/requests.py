"""Requests with anything in them, as bytes: methods, paths, queries, tokens, headers and bodies."""

import random
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from arranger.web.naming import PREFIX
from arranger.web.questions import QUESTIONS

#: Tokens of the fuzz's cluster: who may see everything, and who may see nothing.
ADMIN, STRANGER = "admin-token", "stranger-token"
_METHODS = ("POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", "G\x00T", "X" * 9_000)
_PATHS = (
    "/", "/healthz", "/api/openapi.json", f"{PREFIX}/live", f"{PREFIX}/", "/api", f"{PREFIX}/replay/", "*", "//replay",
    f"{PREFIX}/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", f"{PREFIX}/%00", "/\\..\\..",
    f"{PREFIX}/" + "a" * 20_000, "http://127.0.0.1/api/v1/replay", "/assets/../../settings.py", "replay", "/%ff%fe",
)  # fmt: skip
_VALUES = (
    "0", "1", "20", "-1", "1e9", "9" * 18, "9" * 19, "9" * 400, "", " ", "true", "null", "--log=/etc/passwd", "-o",
    "--", "../x", "/etc/passwd", "x" * 256, "x" * 257, "\0", "\n--help", "é", "\u202e", "%", "a=b&c", "$(id)", "5m",
    "5m ago", "2026-05-04T10:30:00Z", "99999-99-99", "{}", "[1]", "secret-space/secret-job", "default",
)  # fmt: skip
_STRANGE_HEADERS = (
    b"If-None-Match: *", b'If-None-Match: "0-0-0"', b"Last-Event-ID: 0-0", b"Last-Event-ID: 1-999999999999999999",
    b"Last-Event-ID: x", b"Last-Event-ID: " + b"9" * 5_000, b"Expect: 100-continue", b"Expect: tea", b"Host: evil",
    b"Content-Length: -1", b"Content-Length: 18446744073709551616", b"Transfer-Encoding: chunked",
    b"Upgrade: websocket", b"X-Forwarded-User: admin", b"Impersonate-User: admin", b"X-Remote-User: admin",
    b"Range: bytes=0-1", b"Accept-Encoding: gzip, br", b"no colon", b"X: " + b"y" * 20_000, b"X-\xff: \xfe",
    b"Cookie: token=admin-token",
)  # fmt: skip
_BODIES = (b"", b"{}", b"\0" * 1_000, b"0\r\n\r\n", b"zz\r\n", b"x" * 100_000, b"GET /api/v1/replay HTTP/1.1\r\n\r\n")


class Request(NamedTuple):
    """The bytes that are sent, and what its answer is judged by. `known`: it has a token of the cluster in the header
    that counts. `admin`: it has one that may see everything."""

    sent: bytes
    target: str
    known: bool
    admin: bool


def drawn(rng: random.Random) -> Request:
    """A request, most of it sound and some of it wrong."""
    method = "GET" if rng.random() < 0.75 else rng.choice(_METHODS)
    target = _target(rng)
    authorization = _authorization(rng)
    headers = [
        b"Host: 127.0.0.1",
        b"Connection: close",
        *([b"Authorization: " + authorization] if authorization else []),
    ]
    headers += rng.choices(_STRANGE_HEADERS, k=rng.choice((0, 0, 0, 1, 2)))
    body = rng.choice(_BODIES) if rng.random() < 0.2 else b""
    if body and rng.random() < 0.7:
        headers.append(b"Content-Length: %d" % len(body))
    version = "HTTP/1.1" if rng.random() < 0.98 else rng.choice(("HTTP/0.9", "HTTP/2.0", "HTTP/1.1 x", ""))
    line = f"{method} {target} {version}".encode("utf-8", "surrogateescape")
    sent = b"\r\n".join((line, *headers, b"", body))
    tokens = (ADMIN.encode(), STRANGER.encode())
    return Request(sent, target, any(one in authorization for one in tokens), tokens[0] in authorization)


def _authorization(rng: random.Random) -> bytes:
    lot = rng.random()
    if lot < 0.01:  # few, because most answers to an admin cost a process
        return b"Bearer " + ADMIN.encode()
    if lot < 0.5:
        return b"Bearer " + STRANGER.encode()
    wrong: Sequence[bytes] = (
        b"", b"Bearer", b"Bearer  ", b"Basic YWRtaW46", b"Bearer forged", b"Bearer " + b"x" * 6_000, b"Bearer \xff\xfe",
        b"Bearer null", b"Bearer admin", b"bearer\tforged", b"Bearer " + rng.randbytes(8).hex().encode(),
        b"Negotiate x",
    )  # fmt: skip
    return rng.choice(wrong)


def _target(rng: random.Random) -> str:
    if rng.random() < 0.25:
        return rng.choice(_PATHS)
    question = rng.choice([*QUESTIONS.values()])
    names = [one.name for one in question.parameters] + ["at", "log", "output", "__class__", "x" * 300]
    some = rng.choices(names, k=rng.choice((0, 0, 1, 1, 2, 3, 40)))
    raw = rng.random() < 0.1
    given = [(one, rng.choice(_VALUES)) for one in some]
    query = "&".join(f"{one}={value if raw else quote(value, safe='')}" for one, value in given)
    return f"{PREFIX}/{question.name}" + (f"?{query}" if query else "")
