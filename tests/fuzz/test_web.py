"""Whatever is sent to the API: it changes nothing, and nobody learns a name by it."""

from tests.fuzz import web
from tests.fuzz.requests import STRANGER, Request


def test_fuzzed_requests_change_nothing_and_leak_nothing() -> None:
    outcome = web.run(150, seed=1)
    assert outcome.wrong == []
    assert {200, 400, 401, 403, 404, 405} <= outcome.statuses.keys()


def test_answers_that_leak_are_found() -> None:
    """The test of this test."""
    asked = Request(b"GET /api/v1/replay?x=secret-a HTTP/1.1", "/api/v1/replay", known=False, admin=False)
    good, bad = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 x\r\n\r\n"
    assert web.judged(asked, good, "/log") == ["an answer without a token"]
    stranger = asked._replace(known=True)
    assert web.judged(stranger, good + b"secret-a", "/log") == [], "it sent the name itself"
    assert web.judged(stranger, good + b"secret-b", "/log") == ["a name leaked"]
    assert web.judged(stranger, good + b"/log", "/log") == ["internals leaked"]
    assert web.judged(stranger, good + STRANGER.encode(), "/log") == ["internals leaked"]
    assert web.judged(stranger, bad, "/log") == ["the server failed"]
