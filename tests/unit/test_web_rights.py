"""What viewers with few rights get to see, and that a server that can't ask shows nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from arranger.clock import SystemClock
from arranger.errors import LogUnavailable
from arranger.events.file_log import FileLog
from arranger.events.log import Entry, Log
from arranger.kube.cluster import ClusterUnavailable, Object, Resource
from arranger.web.asking import Asker
from arranger.web.moment_process import MomentProcess
from arranger.web.news import News
from arranger.web.rights import TOKEN_REVIEWS, ClusterGate, Creating
from arranger.web.server import ApiServer
from tests.commands import to_file
from tests.memory_log import MemoryLog
from tests.unit.test_pseudonyms import secretive
from tests.unit.test_web_api import HISTORY, MOMENTS, PROGRAM, events_of, grown, history, until

ALL = ["tyjobs", "nodes", "queues", "pods", "resourcequotas"]


class Reviews:
    """An API server that knows some users by their tokens: resource, or resource/namespace, of each right."""

    def __init__(self, **rights: list[str]) -> None:
        self.rights = rights
        self.asked: list[str] = []
        self.down = False

    async def create(self, resource: Resource, namespace: str | None, body: dict[str, Any]) -> Object:
        if self.down:
            raise ClusterUnavailable("connection refused")
        spec = body["spec"]
        self.asked.append(resource.plural)
        if resource == TOKEN_REVIEWS:
            known = spec["token"] in self.rights
            return {"status": {"authenticated": True, "user": {"username": spec["token"]}} if known else {}}
        of = spec["resourceAttributes"]
        names = (of["resource"], f"{of['resource']}/{of['namespace']}")
        return {"status": {"allowed": any(name in self.rights[spec["user"]] for name in names)}}


class Stepped(SystemClock):
    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


class Asking:
    """Requests with tokens."""

    def __init__(self, session: aiohttp.ClientSession, news: News, port: int) -> None:
        self.session, self.news, self.port = session, news, port

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(f"/api/v1/{path}", headers=headers) as response:
            content = await response.read()
            return response.status, json.loads(content) if content else None, response.headers


@contextlib.asynccontextmanager
async def guarded(
    reviews: Creating,
    clock: SystemClock | None = None,
    log: Log | None = None,
    *,
    asked_of: str = str(HISTORY),
    patience_s: float = 60,
) -> AsyncIterator[Asking]:
    news = News(log or FileLog(HISTORY))
    gate = ClusterGate(reviews, clock or SystemClock())
    moments = MomentProcess(MOMENTS, {}, log=asked_of)
    asker = Asker(PROGRAM, {}, log=asked_of)
    server = ApiServer(news, asker, host="127.0.0.1", port=0, gate=gate, moments=moments)
    await server.start()
    try:
        base = f"http://127.0.0.1:{server.port}"
        async with aiohttp.ClientSession(base) as session, asyncio.timeout(patience_s):
            await until(lambda: not news.problem)
            yield Asking(session, news, server.port)
    finally:
        await server.stop()
        await moments.stop()


async def test_nobody_without_a_token_of_the_cluster_sees_anything() -> None:
    async with guarded(Reviews(admin=ALL)) as api:
        for path in ("replay", "events", "live", "queue", "explain?job=x", "status"):
            for token in ("", "forged"):
                status, told, headers = await api.get(path, token)
                assert (status, told["reason"]) == (401, "Unauthorized")
                assert headers["WWW-Authenticate"] == "Bearer"
        for header in ("Basic YWRtaW46", "Bearer", "admin", "Bearer  "):
            assert (await api.get("replay", Authorization=header))[0] == 401


async def test_a_token_that_is_no_text_is_refused() -> None:
    async with guarded(Reviews(admin=ALL)) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(
            b"GET /api/v1/replay HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer \xff\r\n\r\n"
        )
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_who_may_see_all_of_it_sees_all_of_it() -> None:
    async with guarded(Reviews(admin=ALL)) as api:
        status, seen, headers = await api.get("replay", "admin")
        assert status == 200
        assert seen["nodes"]
        assert all(job["uid"] for job in seen["jobs"])
        again = await api.get("replay", "admin", **{"If-None-Match": headers["ETag"]})
        assert again[0] == 304
        assert (await api.get("replay", **{"If-None-Match": headers["ETag"]}))[0] == 401, "an ETag is no right"


def test_jobs_of_other_namespaces_have_pseudonyms_and_nothing_else_that_names(tmp_path: Path) -> None:
    _, name = to_file(secretive().entries, tmp_path / "secret.log")
    reviews = Reviews(admin=ALL, member=["tyjobs/secret-space"], stranger=[])

    async def answers() -> list[Any]:
        async with guarded(reviews, log=FileLog(Path(name))) as api:
            found = [await api.get("replay", token) for token in ("admin", "member", "stranger")]
            assert "ETag" not in found[1][2]
            return [answer for _, answer, _ in found]

    whole, seen, little = asyncio.run(answers())
    mine = [job for job in whole["jobs"] if job["namespace"] == "secret-space"]
    assert mine
    assert [job for job in seen["jobs"] if "uid" in job] == mine
    others = json.dumps([job for job in seen["jobs"] if "uid" not in job])
    assert "secret" in json.dumps(whole)
    assert "secret" not in others
    assert "secret" not in json.dumps(little)
    assert whole["digest"] not in json.dumps(little), "whoever guessed a state could check it"
    assert [job["stage"] for job in little["jobs"]] == [job["stage"] for job in whole["jobs"]]
    assert seen["nodes"] == little["nodes"] == []


#: The console's questions of which everybody with a token gets a part.
SHOWN = ("moment", "timeline", "series", "gantt", "decision?after=1")


def test_the_console_shows_the_part_of_each_answer_that_the_viewer_may_see(tmp_path: Path) -> None:
    _, name = to_file(secretive().entries, tmp_path / "secret.log")
    rights = {"admin": ALL, "member": ["tyjobs/default", "nodes"], "planner": ["queues"], "stranger": []}
    rights["lister"] = ["nodes"]

    async def answers() -> dict[str, dict[str, Any]]:
        async with guarded(Reviews(**rights), log=FileLog(Path(name)), asked_of=name) as api:
            while not (await api.get("gantt", "admin"))[1]["complete"]:  # noqa: ASYNC110  # the process tells nobody
                await asyncio.sleep(0.01)
            found = {user: {path: (await api.get(path, user))[1] for path in SHOWN} for user in rights}
            assert all(node["jobs"] == [] for node in found["lister"]["moment"]["nodes"])
            for user in ("admin", "member"):
                found[user]["node-gantt"] = (await api.get("node-gantt", user))[1]
            assert (await api.get("node-gantt", "stranger"))[0] == 403
            hidden = (await api.get("node-gantt", "lister"))[1]
            assert [node["bars"] for node in hidden["nodes"]] == [[]] * len(found["admin"]["node-gantt"]["nodes"])
            assert (await api.get("job?job=default/secret-job-1", "member"))[0] == 403
            return found

    found = asyncio.run(answers())
    whole, seen, little = (found[user]["moment"] for user in ("admin", "member", "stranger"))
    mine = [job for job in whole["jobs"] if job["job"].startswith("default/")]
    assert [job for job in seen["jobs"] if "gpus" in job] == mine
    assert 0 < len(mine) < len(whole["jobs"])
    assert sorted(job["stage"] for job in little["jobs"]) == sorted(job["stage"] for job in whole["jobs"])
    assert little["jobs"] == sorted(little["jobs"], key=lambda job: job["job"]), "not in the order of the names"
    assert [node["name"] for node in seen["nodes"]] == [node["name"] for node in whole["nodes"]]
    assert holders(seen) == holders(whole), "all are in default"
    assert any(holders(whole))
    assert (little["nodes"], little["queues"], little["topologyLevels"]) == ([], [], [])
    assert found["planner"]["moment"]["queues"] == whole["queues"]
    for name in ("queues", "queuesOwn"):
        assert found["planner"]["series"][name] == found["admin"]["series"][name]
        assert found["stranger"]["series"][name] == {}
    assert found["member"]["series"]["gpus"] == found["admin"]["series"]["gpus"]
    assert found["stranger"]["series"]["gpus"] == []
    bars = {row["job"]: row["bars"] for row in found["admin"]["gantt"]["jobs"]}
    assert {job: of for job, of in bars.items() if job.startswith("default/")} == {
        row["job"]: row["bars"] for row in found["member"]["gantt"]["jobs"] if row["job"].startswith("default/")
    }
    on_nodes, all_on_nodes = found["member"]["node-gantt"], found["admin"]["node-gantt"]
    own = [job.startswith("default/") for job in all_on_nodes["jobs"]]
    assert [[bar for bar in node["bars"] if own[bar[0]]] for node in all_on_nodes["nodes"]] == [
        node["bars"] for node in on_nodes["nodes"]
    ]
    assert any(own) and not all(own)
    assert [job.startswith("default/") for job in on_nodes["jobs"]] == own
    assert "secret" in json.dumps(found["admin"])
    assert "secret" not in json.dumps(found["stranger"])
    pseudonyms = [job["job"] for job in little["jobs"]]
    assert len(dict.fromkeys(pseudonyms)) == len(whole["jobs"])
    assert {row["job"] for row in found["stranger"]["gantt"]["jobs"]} <= set(pseudonyms), "one pseudonym in all views"


def holders(moment: Any) -> list[list[tuple[str, int]]]:
    """The jobs on each node with their GPUs."""
    return [[(moment["jobs"][job]["job"], gpus) for job, gpus in node["jobs"]] for node in moment["nodes"]]


async def test_nodes_and_queues_are_for_those_who_may_list_them() -> None:
    reviews = Reviews(admin=ALL, nodes=["nodes"], queues=["queues"])
    async with guarded(reviews) as api:
        whole, queues = (await api.get("replay", "admin"))[1], (await api.get("queue", "admin"))[1]
        assert (await api.get("replay", "nodes"))[1]["nodes"] == whole["nodes"]
        assert (await api.get("replay", "queues"))[1]["nodes"] == []
        assert (await api.get("queue", "queues"))[1] == queues
        status, told, _ = await api.get("queue", "nodes")
        assert (status, told["message"]) == (403, "the queues are for those who may list queues")
        assert (await api.get("queue?name=default", "queues"))[0] == 403, "its holders are jobs"


async def test_every_other_answer_needs_all_of_the_rights() -> None:
    others = ["events", "verify", "diff?a=1&b=2", "top", "waits", "forecast", "preemptions", "status", "what-if"]
    for lacks in ALL:
        reviews = Reviews(some=[right for right in ALL if right != lacks])
        async with guarded(reviews) as api:
            for path in (*others, "explain?job=x"):
                status, told, _ = await api.get(path, "some")
                assert (status, told["reason"]) == (403, "Forbidden")
                assert lacks in told["message"]


async def test_those_who_may_not_read_events_get_their_offsets_alone() -> None:
    of, log = await history(), MemoryLog()
    await grown(log, of[1:20])
    async with guarded(Reviews(stranger=[]), log=log) as api:
        async with api.session.get("/api/v1/live", headers={"Authorization": "Bearer stranger"}) as live:
            await grown(log, of[20:24])
            told = await events_of(live, 3)
        assert [set(line) for _, line in told] == [{"offset", "timeMs"}] * 3


async def test_those_without_a_token_are_told_no_addresses() -> None:
    class Away(MemoryLog):
        away = False

        async def read(self, *args: Any, **options: Any) -> Sequence[Entry]:
            if self.away:
                raise LogUnavailable("redis at 10.1.2.3 can't be reached")
            return await super().read(*args, **options)

    reviews, log = Reviews(user=ALL), Away()
    await grown(log, (await history())[1:20])
    async with guarded(reviews, log=log) as api:
        log.away = True
        await until(lambda: api.news.problem != "")
        async with api.session.get("/healthz") as response:
            assert (response.status, await response.json()) == (503, {"ok": False})
        reviews.down = True
        assert "connection refused" not in (await api.get("replay", "anything"))[1]["message"]


async def test_rights_are_kept_for_half_a_minute_and_asked_again_then() -> None:
    reviews, clock = Reviews(user=ALL), Stepped()
    async with guarded(reviews, clock) as api:
        assert (await api.get("queue", "user"))[0] == 200
        asked = len(reviews.asked)
        reviews.rights = {}
        clock.at_s = 29.0
        assert (await api.get("queue", "user"))[0] == 200
        assert len(reviews.asked) == asked
        clock.at_s = 31.0
        assert (await api.get("queue", "user"))[0] == 401


async def test_what_can_not_be_asked_is_not_shown() -> None:
    reviews = Reviews(user=ALL)
    async with guarded(reviews) as api:
        reviews.down = True
        status, told, _ = await api.get("replay", "user")
        assert (status, told["reason"]) == (503, "ServiceUnavailable")
        reviews.down = False
        assert (await api.get("replay", "user"))[0] == 200, "a failure isn't kept"
