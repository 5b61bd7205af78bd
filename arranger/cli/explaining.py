"""The program that `arranger serve` and `arranger ui` run for the question `explain`: it stays, so that neither its
start nor what it has read already is paid again with each answer. It takes questions as `moments` does."""

import asyncio
import contextlib
import io
from collections.abc import Mapping

import click
import msgspec

from arranger.cli.inputs.explainer import Explainer, as_json
from arranger.cli.inputs.log_options import log_options
from arranger.cli.inputs.reading import namespace_and_name, opened
from arranger.cli.moments import limited, refusal, serve, standard_input, write
from arranger.errors import ArrangerError, EpochLost
from arranger.events.log import Log
from arranger.points import parse_at
from arranger.replay.explain.job_history import AskedJob
from arranger.replay.reading.history import Point
from arranger.settings import Settings
from arranger.web.moment_process import MomentRequest
from arranger.web.news import encoded

#: What was read is kept for so long after the last question, in seconds.
_KEPT_S = 300.0


class Explanations:
    """Answers `explain` from an open log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._epoch = 0
        self._explainer = self._new()
        self._forgetting: asyncio.TimerHandle | None = None

    def _new(self) -> Explainer:
        return Explainer(self._log)

    async def answer(self, name: str, values: Mapping[str, str], *, end: int = 0, epoch: int = 0) -> tuple[bytes, bool]:
        """The answer as JSON in the API's names, which is final. `at` has an offset. With an epoch, it is about the log
        of that epoch. Raises `NotFound`, `UsageError` and errors of the log, `EpochLost` if it is of another one."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        try:
            present = (await self._log.open()).epoch
            if present != self._epoch:
                self._epoch, self._explainer = present, self._new()
            if epoch and epoch != present:
                raise EpochLost(f"the log is in epoch {present}, not {epoch}")
            namespace, job = namespace_and_name(values["job"])
            asked = AskedJob(job, namespace, values.get("pod", ""), values.get("node", ""))
            point = parse_at(values["at"], now_ms=0) if "at" in values else Point(offset=end)
            with contextlib.redirect_stderr(io.StringIO()):  # remarks are for who is at a terminal
                return encoded(as_json(await self._explainer.explain(asked, point))), True
        finally:
            self._forgetting = asyncio.get_running_loop().call_later(_KEPT_S, self._forget)

    def _forget(self) -> None:
        self._explainer = self._new()


@click.command()
@log_options
def command(target: str | None, settings: Settings) -> None:
    """Answer `explain` on standard input until it ends."""
    limited()  # and as urgent as the server, unlike other questions: it works only while somebody waits
    asyncio.run(_answer(target, settings))


async def _answer(target: str | None, settings: Settings) -> None:
    requests = await standard_input()
    try:
        async with opened(target, settings) as log:
            await serve(requests, Explanations(log), write)
    except ArrangerError as problem:  # the log can't be opened: who asks next is told, and the one after gets a new try
        if line := await requests.readline():
            write(refusal(msgspec.json.decode(line, type=MomentRequest), problem))


if __name__ == "__main__":
    command()
