"""`python -m tests.fuzz.web --requests 10000`: that many fuzzed requests to the API's server, which change nothing and
leak nothing."""

import asyncio
import hashlib
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import click

from arranger.events.file_log import FileLog
from arranger.kube.cluster import Object, Resource
from arranger.web.openapi import PREFIX
from arranger.web.rights import ACCESS_REVIEWS, TOKEN_REVIEWS
from tests.commands import to_file
from tests.fuzz.requests import ADMIN, STRANGER, Request, drawn
from tests.unit.test_pseudonyms import secretive
from tests.unit.test_web_rights import ALL, Asking, Reviews, guarded

_AT_ONCE = 8
#: A stream of news doesn't end, and neither does a request whose body doesn't come. Their answers are read for so long.
_PATIENCE_S = 0.3
_ANSWER_S = 90.0
_SECRET = re.compile(rb"secret[\w-]*")
_INTERNALS = (b"Traceback", b"site-packages", b'File "')


class Fuzzed(NamedTuple):
    """How many answers had which status, and what was wrong."""

    statuses: Counter[int]
    wrong: list[str]


class _Noting(Reviews):
    """Reviews that also notes each resource that the server creates."""

    def __init__(self, **rights: list[str]) -> None:
        super().__init__(**rights)
        self.created: Counter[str] = Counter()

    async def create(self, resource: Resource, namespace: str | None, body: dict[str, Any]) -> Object:
        self.created[resource.plural] += 1
        return await super().create(resource, namespace, body)


def run(requests: int, *, seed: int) -> Fuzzed:
    """Send that many requests, drawn from the seed, to a server on a log of secrets."""
    with tempfile.TemporaryDirectory() as folder:
        _, name = to_file(secretive().entries, Path(folder) / "secret.log")
        before = hashlib.sha256(Path(name).read_bytes()).digest()
        reviews = _Noting(**{ADMIN: ALL, STRANGER: []})
        outcome = asyncio.run(_sent(requests, reviews, name, seed=seed))
        if hashlib.sha256(Path(name).read_bytes()).digest() != before:
            outcome.wrong.append("the log's file changed")
        if more := sorted(reviews.created.keys() - {TOKEN_REVIEWS.plural, ACCESS_REVIEWS.plural}):
            outcome.wrong.append(f"the server created {more}")
        return outcome


async def _sent(requests: int, reviews: Reviews, log: str, *, seed: int) -> Fuzzed:
    outcome = Fuzzed(Counter(), [])
    async with guarded(reviews, log=FileLog(Path(log)), asked_of=log, patience_s=3_600) as api:
        place = (api.news.epoch, api.news.offset)
        rng, turn = random.Random(f"requests/{seed}"), asyncio.Semaphore(_AT_ONCE)

        async def one(request: Request) -> None:
            async with turn:
                answer = await _answer(request, api.port)
            outcome.statuses[_status(answer)] += 1
            for told in judged(request, answer, log):
                outcome.wrong.append(f"{told}: {request.sent[:300]!r} -> {answer[:300]!r}")

        await asyncio.gather(*(one(drawn(rng)) for _ in range(requests)))
        if (api.news.epoch, api.news.offset) != place:
            outcome.wrong.append("the server's place in the log changed")
        outcome.wrong.extend(await _sound(api))
    return outcome


def judged(request: Request, answer: bytes, log: str) -> list[str]:
    """What is wrong with an answer."""
    status, wrong = _status(answer), []
    if status >= 500:
        wrong.append("the server failed")
    if status == 200 and not request.known and request.target.startswith(PREFIX):
        wrong.append("an answer without a token")
    if any(one in answer for one in (*_INTERNALS, log.encode(), ADMIN.encode(), STRANGER.encode())):
        wrong.append("internals leaked")
    # A refusal may repeat what the client itself has sent.
    if not request.admin and {*_SECRET.findall(answer)} - {*_SECRET.findall(request.sent)}:
        wrong.append("a name leaked")
    return wrong


async def _answer(request: Request, port: int) -> bytes:
    """All that the server sends; empty if it closes the connection without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        writer.write(request.sent)
        ends_s = time.monotonic() + _ANSWER_S
        while piece := await asyncio.wait_for(reader.read(1 << 20), _PATIENCE_S if got else ends_s - time.monotonic()):
            got += piece
    except (ConnectionError, TimeoutError):
        pass  # what came until then is judged
    finally:
        writer.close()
    return got


def _status(answer: bytes) -> int:
    found = re.match(rb"(?:HTTP/1\.1 100 Continue\r\n\r\n)*HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


async def _sound(api: Asking) -> list[str]:
    """The server still answers those who may ask."""
    status, seen, _ = await api.get("replay", ADMIN)
    return [] if status == 200 and "secret" in str(seen) else [f"an admin gets {status} afterwards"]


@click.command()
@click.option("--requests", default=10_000, show_default=True, help="How many requests.")
@click.option("--seed", default=0, show_default=True)
def main(requests: int, seed: int) -> None:
    """Fuzzed requests to the API: nothing changes, no name leaks, and the server doesn't fail."""
    began_s = time.monotonic()
    outcome = run(requests, seed=seed)
    for told in outcome.wrong:
        click.echo(told)
    counted = ", ".join(f"{count} × {status or 'closed'}" for status, count in sorted(outcome.statuses.items()))
    click.echo(f"{requests} requests (seed {seed}): {len(outcome.wrong)} wrong; {counted}")
    click.echo(f"{time.monotonic() - began_s:.0f} s, {time.process_time():.0f} s of this process")
    sys.exit(bool(outcome.wrong))


if __name__ == "__main__":
    main()
