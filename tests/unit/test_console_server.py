"""The console's server: its questions over HTTP, its page, and who gets which."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st

from arranger.cli import answering
from arranger.events.file_log import FileLog
from arranger.web.console_questions import CONSOLE
from arranger.web.masking import check
from arranger.web.moment_process import MomentProcess
from arranger.web.naming import PREFIX
from arranger.web.openapi import document
from arranger.web.page import Page
from arranger.web.questions import asked
from arranger.web.refusals import Refusal
from arranger.web.rights import EVERYTHING, Right
from tests.unit.test_web_api import HISTORY, MOMENTS, Serving, serving

PARAMETERS = ["at", "buckets", "points", "from", "to", "sinceMs", "untilMs", "after", "before", "job", "log"]


def served(use: Callable[[Serving], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with serving(FileLog(HISTORY)) as api:
            return await use(api)

    return asyncio.run(run())


@pytest.mark.slow
def test_every_question_is_answered_kept_by_its_etag_and_refused_in_words() -> None:
    async def use(api: Serving) -> None:
        found = {}
        while True:
            status, found["timeline"], _ = await api.get("timeline?buckets=10")
            assert status == 200
            if found["timeline"]["complete"]:
                break
        for path in ("moment?at=300", "series", "gantt", "decision?after=1", "job?job=answer&at=300"):
            status, body, tag = await api.get(path)
            assert (status, bool(tag)) == (200, True), path
            assert (await api.get(path, **{"If-None-Match": tag}))[0] == 304, path
            found[path] = body
        assert found["moment?at=300"]["totals"]["gpus"] == 12
        assert (await api.get("moment?at=99999"))[1]["message"] == "the log has no offset 99999 yet, it ends at 602"
        assert (await api.get("decision"))[0] == (await api.get("decision?after=1&before=9"))[0] == 400
        assert (await api.get("job?job=nobody"))[0] == 404

    served(use)


@pytest.mark.slow
def test_the_process_that_answers_is_started_again_after_its_end() -> None:
    async def run() -> tuple[Any, Any]:
        process = MomentProcess(MOMENTS, {}, log=str(HISTORY))
        try:
            first, _ = await process.answer("moment", {"at": "9"}, end=602)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(Refusal, match="has ended"):
                await process.answer("moment", {"at": "9"}, end=602)
            return first, (await process.answer("moment", {"at": "9"}, end=602))[0]
        finally:
            await process.stop()

    first, second = asyncio.run(run())
    assert first == second


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(CONSOLE)),
    st.dictionaries(
        st.sampled_from(["at", "buckets", "points", "from", "to", "after", "before", "job", "log"]),
        st.text(max_size=30),
    ),
)
def test_a_question_with_any_parameters_is_checked_or_refused(name: str, values: Mapping[str, str]) -> None:
    try:
        found = asked(CONSOLE[name], [*values.items()], epoch=1, end=100)
    except Refusal as problem:
        assert problem.reason == "BadRequest"
    else:
        numbers = {one.name: one for one in CONSOLE[name].parameters if one.most}
        assert all(int(value) <= numbers[one].most for one, value in found.values if one in numbers)


def test_answers_that_may_name_anything_need_the_right_to_see_everything_and_all_are_described() -> None:
    class Nobody:
        async def may(self, right: Right) -> bool:
            return False

    refused: dict[str, str] = {}
    for name, question in CONSOLE.items():
        inquiry = asked(question, [("job", "a")] if name == "job" else [], epoch=1, end=1)
        try:
            asyncio.run(check(inquiry, Nobody(), list(EVERYTHING)))
        except Refusal as problem:
            assert problem.reason == "Forbidden"
            refused[name] = str(problem)
        described = document()["paths"][f"{PREFIX}/{name}"]["get"]
        assert [one["name"] for one in described["parameters"]] == [one.name for one in question.parameters]
        assert "$ref" in described["responses"]["200"]["content"]["application/json"]["schema"]
    assert refused.keys() == {"job", "node-gantt"}
    assert "you may not get tyjobs" in refused["job"]
    assert refused["node-gantt"] == "the nodes are for those who may list nodes"


def test_no_question_of_the_console_is_a_command() -> None:
    assert not any(question.command for question in CONSOLE.values())
    assert answering.answer(["moment"]) == 1


def page(folder: Path, path: str) -> web.Response:
    request = make_mocked_request("GET", f"/{path}", match_info={"path": path})
    return asyncio.run(Page(folder).serve(request))


def test_the_page_loads_nothing_from_elsewhere_and_only_what_was_built(tmp_path: Path) -> None:
    static = tmp_path / "static"
    static.mkdir()
    (tmp_path / "secret").write_text("secret")
    missing = page(static, "")
    assert "make console" in (missing.text or "")
    for name, content in (("index.html", "<p>page"), ("console.js", "1"), (".hidden", "2")):
        (static / name).write_text(content)
    assert page(static, "").text == "<p>page"
    script = page(static, "console.js")
    assert script.content_type == "text/javascript"
    for response in (missing, script):
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
    for path in ("../secret", ".hidden", "%2e%2e/secret", "nothing.js", "static/../../secret"):
        with pytest.raises(web.HTTPNotFound):
            page(static, path)


@pytest.mark.slow
def test_the_console_prints_its_address_and_answers_there_until_it_is_ended() -> None:
    words = (sys.executable, "-m", "arranger.cli.main", "ui", f"--log={HISTORY}", "--port=0", "--no-browser")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("the console is at http://127.0.0.1:")
        address = line.split()[4]

        async def get(path: str, host: str) -> tuple[int, str]:
            async with (
                aiohttp.ClientSession() as session,
                session.get(address + path, headers={"Host": host}) as response,
            ):
                return response.status, await response.text()

        assert asyncio.run(get("", "localhost"))[0] == 200
        assert asyncio.run(get("", "evil.example"))[0] == 403
        status, body = asyncio.run(get("api/v1/nothing", "localhost"))
        assert (status, json.loads(body)["reason"]) == (404, "NotFound")
        process.terminate()
        assert process.wait(timeout=20) == 0


@pytest.mark.slow
def test_ctrl_c_ends_the_console_quietly() -> None:
    words = (sys.executable, "-m", "arranger.cli.main", "ui", f"--log={HISTORY}", "--port=0", "--no-browser")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[4]
        with urllib.request.urlopen(f"{address}api/v1/timeline?buckets=1", timeout=20) as answer:
            assert answer.status == 200, "the process that answers is there"
        os.killpg(process.pid, signal.SIGINT)  # a terminal tells all processes
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0
