"""The Python client: TYJobs on an embedded cluster, and questions to a server on a log."""

import asyncio
import html
import inspect
import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pandas
import pyarrow
import pytest
import yaml
from click.testing import CliRunner

from arranger.cli.main import cli
from arranger.client import AsyncClient, Client, JobEnded, JobGone, Refused, Stage
from arranger.client.answers import typed
from arranger.client.jobs import Given, Job, JobPod, job_object
from arranger.client.tables import EVENT_COLUMNS, arrow_table, columns_of
from arranger.client.views import JobList, PodList
from arranger.errors import ArrangerError, LogUnavailable, UsageError
from arranger.events.facts import BeyondLimit, LackOfNodes, LevelLack, Objected, Objection, ShortageFacts, UnitLack
from arranger.events.file_log import FileLog
from arranger.kube.cluster import NAMESPACES, TYJOBS, ApiError
from arranger.model.job import TopologyScope
from arranger.model.quota import LimitKind, QuotaLack
from arranger.model.text import counted
from arranger.replay.reading.describe import as_object
from arranger.sandbox.admission import WriteOptions
from arranger.sandbox.embedded import EmbeddedCluster
from arranger.sandbox.patching import MERGE
from arranger.web.asking import Asker, Limits
from arranger.web.naming import named
from arranger.web.openapi import document
from tests.e2e.harness import job
from tests.servers import CRD_FILES
from tests.unit.test_web_api import HISTORY, PROGRAM, serving


class Scene:
    """A cluster without Arranger, whose part the test plays, and a client of it."""

    def __init__(self, cluster: EmbeddedCluster, client: AsyncClient) -> None:
        self.cluster, self.client = cluster, client

    def tell(self, stage: Stage, **status: Any) -> None:
        """Write a status, as an applier does."""
        self.cluster.store.patch(TYJOBS, "default", "ppo", {"status": {"stage": stage, **status}}, subresource="status")


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with (
        EmbeddedCluster(crds=CRD_FILES) as cluster,
        AsyncClient(kubeconfig=cluster.kubeconfig(folder / "kubeconfig")) as client,
    ):
        yield Scene(cluster, client)


# --- TYJobs ---------------------------------------------------------------------------------------------------------


async def test_whoever_asks_for_the_log_of_a_job_that_has_ended_is_told_how_pods_keep_theirs(tmp_path: Path) -> None:
    async with scene(tmp_path) as there:
        await there.client.submit(job("ppo") | {"metadata": {"name": "ppo"}})
        there.tell(Stage.SUCCEEDED)
        with pytest.raises(ArrangerError, match=r"it is Succeeded.*cleanPodPolicy Running"):
            await there.client.logs("ppo")


async def test_a_job_is_submitted_as_an_object_as_text_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ppo.yaml"
    file.write_text(json.dumps(job("from-file")))
    given: list[Given] = [job("from-object"), json.dumps(job("from-text")), file, str(tmp_path / "ppo.yaml")]
    async with scene(tmp_path) as here:
        made = [await here.client.submit(one) for one in given[:3]]
        assert [of.name for of in made] == ["from-object", "from-text", "from-file"]
        assert [of.name for of in await here.client.jobs()] == ["from-file", "from-object", "from-text"]
        assert (made[0].stage, made[0].message, made[0].conditions) == (Stage.PENDING, "", {})
        with pytest.raises(ApiError, match="AlreadyExists"):
            await here.client.submit(given[3])


async def test_jobs_without_a_namespace_are_those_of_the_contexts_as_for_kubectl(tmp_path: Path) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster:
        cluster.store.create(NAMESPACES, "", {"metadata": {"name": "team-a"}})
        config = yaml.safe_load(cluster.kubeconfig(tmp_path / "kubeconfig").read_text())
        config["contexts"][0]["context"]["namespace"] = "team-a"
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

        def there(namespace: str) -> list[str]:
            return sorted(name for of, name in cluster.store.collection(TYJOBS).objects if of == namespace)

        async with AsyncClient(kubeconfig=tmp_path / "kubeconfig") as client:
            assert client.namespace == "team-a"
            made = await client.submit(job("ppo") | {"metadata": {"name": "ppo", "namespace": ""}})
            assert made.namespace == "team-a"
            await client.apply(job("applied") | {"metadata": {"name": "applied"}})
            await client.submit(job("elsewhere") | {"metadata": {"name": "elsewhere", "namespace": "default"}})
            assert (there("team-a"), there("default")) == (["applied", "ppo"], ["elsewhere"])
            assert [of.name for of in await client.jobs()] == ["applied", "ppo"]
            assert (await client.job("ppo")).namespace == "team-a"
            assert (await client.scale("ppo", 3)).namespace == (await client.suspend("ppo")).namespace == "team-a"
            with pytest.raises(ArrangerError, match="ppo has no pods"):
                await client.logs("ppo")
            assert not await client.pods("ppo")
            with pytest.raises(ApiError, match="NotFound"):
                await client.job("elsewhere")
            await client.delete("ppo")
            assert there("team-a") == ["applied"]
        async with AsyncClient(kubeconfig=tmp_path / "kubeconfig", namespace="default") as client:
            assert [of.name for of in await client.jobs()] == ["elsewhere"]
        with Client(kubeconfig=tmp_path / "kubeconfig") as blocking:
            assert blocking.namespace == "team-a"


async def test_questions_about_a_job_without_a_namespace_are_about_the_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        yaml.safe_dump({"contexts": [{"name": "one", "context": {"namespace": "team-a"}}], "current-context": "one"})
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        with pytest.raises(Refused, match="team-a/ppo"):
            await client.explain("ppo")
        for whole in (client.forecast("ppo"), client.what_if(job="ppo", priority=1), client.events(job="ppo")):
            try:
                assert not [of for of in await whole if "default/ppo" in str(of)]
            except Refused as refused:
                assert "team-a/ppo" in str(refused)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "Job"}, "kind is 'Job' .*kind: TYJob"),
        ({"kind": "TYJob"}, r"apiVersion is None .*apiVersion: arranger.dev/v1"),
        ({"kind": "TYJob", "apiVersion": "arranger.dev/v1"}, r"metadata.name is missing .*generateName"),
        ({"kind": "TYJob", "apiVersion": "arranger.dev/v1", "spec": object()}, "can't be written as JSON: <object .*"),
        ("kind: [", "can't read the TYJob"),
        ("kind: TYJob\n---\nkind: TYJob\n", "a TYJob is one object, and this is 2"),
        (Path("/does/not/exist.yaml"), "can't read the TYJob: .*exist.yaml"),
    ],
)
async def test_what_is_no_job_is_refused_before_it_is_sent(tmp_path: Path, given: Any, words: str) -> None:
    async with scene(tmp_path) as here:
        with pytest.raises(UsageError, match=words):
            await here.client.submit(given)


async def test_the_api_server_says_which_field_is_wrong(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        with pytest.raises(ApiError, match=r"spec\.restartLimit"):
            await here.client.submit(job("ppo", restartLimit=-1))


async def test_waiting_ends_at_the_stage(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        waiting = asyncio.create_task(here.client.wait("ppo", Stage.RUNNING, timeout_s=20))
        here.tell(Stage.STARTING)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        here.tell(Stage.RUNNING, readyWorkers=2, gpus=3)
        found = await waiting
        assert (found.stage, found.ready_workers, found.gpus) == (Stage.RUNNING, 2, 3)
        assert (await here.client.wait("ppo", "Running", "Succeeded", timeout_s=20)).stage == Stage.RUNNING
        here.tell(Stage.SUCCEEDED)
        assert (await here.client.wait("ppo", timeout_s=20)).ended


async def test_waiting_says_how_else_it_ended(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        here.tell(Stage.PENDING, message="waits for room")
        with pytest.raises(TimeoutError, match="ppo still is Pending: waits for room"):
            await here.client.wait("ppo", Stage.RUNNING, timeout_s=0.2)
        waiting = [asyncio.create_task(here.client.wait("ppo", of, timeout_s=20)) for of in ("Running", "Starting")]
        here.tell(Stage.FAILED, message="the leader failed")
        for each in waiting:
            with pytest.raises(JobEnded, match="default/ppo ended as Failed: the leader failed") as ended:
                await each
            assert ended.value.job.stage == Stage.FAILED


async def test_waiting_ends_when_the_job_is_deleted_whoever_has_its_name_then(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        waiting = asyncio.create_task(here.client.wait("ppo", timeout_s=20))
        await asyncio.sleep(0.1)
        await here.client.delete("ppo")
        await here.client.submit(job("ppo"))
        here.tell(Stage.SUCCEEDED)
        with pytest.raises(JobGone, match="default/ppo was deleted"):
            await waiting
        with pytest.raises(ApiError, match="NotFound"):
            await here.client.wait("another", timeout_s=20)


async def test_jobs_are_scaled_suspended_and_resumed(tmp_path: Path) -> None:
    more = {"name": "critics", "counts": 1, "template": job("x")["spec"]["workerSets"][0]["template"]}
    made = job("ppo", least=1)
    made["spec"]["workerSets"].append(more)
    async with scene(tmp_path) as here:
        await here.client.submit(made)
        await here.client.scale("ppo", 5)
        scaled = await here.client.scale("ppo", 3, worker_set="critics")
        spec = scaled.object["spec"]
        assert (spec["replicas"], spec["workerSets"][1]["counts"]) == (5, 3)
        with pytest.raises(UsageError, match=r"no worker set 'judges' .*allowed: actors, critics"):
            await here.client.scale("ppo", 3, worker_set="judges")
        assert (await here.client.suspend("ppo")).object["spec"]["suspend"] is True
        assert (await here.client.resume("ppo")).object["spec"]["suspend"] is False


async def test_a_job_whose_minimum_allows_it_is_scaled_to_zero_as_by_kubectl_scale(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo", least=0))
        scaled = await here.client.scale("ppo", 0)
        assert scaled.object["spec"]["replicas"] == 0 and scaled.object["spec"]["workerSets"][0]["counts"] > 0


async def test_a_number_below_the_minimum_is_refused_in_the_words_of_kubectl_scale(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo", least=2))
        with pytest.raises(ApiError, match=r"spec.replicas.*must be at least 2, so that all worker sets together have"):
            await here.client.scale("ppo", 1)


async def test_scaling_writes_the_number_that_counts_and_refuses_what_kubectl_scale_refuses(tmp_path: Path) -> None:
    more = {"name": "critics", "counts": 1, "template": job("x")["spec"]["workerSets"][0]["template"]}
    made = job("ppo", least=1)
    made["spec"]["workerSets"][0]["minCount"] = 2
    made["spec"]["workerSets"].append(more)

    def numbers(of: Job) -> tuple[int | None, list[int]]:
        return of.object["spec"].get("replicas"), [one["counts"] for one in of.object["spec"]["workerSets"]]

    async with scene(tmp_path) as here:
        before = numbers(await here.client.submit(made))[1][0]
        with pytest.raises(ApiError, match="minCount"):
            await here.client.scale("ppo", 1)
        body = {"spec": {"replicas": 3}}  # kubectl scale
        here.cluster.store.scale(TYJOBS, "default", "ppo", body, media_type=MERGE, options=WriteOptions())
        assert numbers(await here.client.scale("ppo", 5)) == (5, [before, 1])
        assert numbers(await here.client.scale("ppo", 4, worker_set="actors")) == (4, [before, 1])
        assert numbers(await here.client.scale("ppo", 2, worker_set="critics")) == (4, [before, 2])
        with pytest.raises(ApiError, match="must not be below minCount"):
            await here.client.scale("ppo", 1)
        here.cluster.store.patch(TYJOBS, "default", "ppo", {"spec": {"scaledSet": "critics"}})
        assert numbers(await here.client.scale("ppo", 0)) == (0, [before, 2])
        assert numbers(await here.client.scale("ppo", 6, worker_set="actors")) == (0, [6, 2])


async def test_numbers_that_a_job_cannot_have_are_refused_by_name(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        for wrong, words in ((float("nan"), "no number that JSON has"), (float("inf"), "no number that JSON has")):
            given = job("ppo")
            given["spec"]["workerSets"][0]["counts"] = wrong
            with pytest.raises(UsageError, match=rf"spec\.workerSets\.0\.counts is {words}"):
                await here.client.submit(given)
        given["spec"]["workerSets"][0]["counts"] = 2.5
        for verb in (here.client.submit, here.client.apply):
            with pytest.raises(ApiError, match=r"counts.*must be of type integer") as refused:
                await verb(given)
            assert len(str(refused.value)) < 300
        assert not await here.client.jobs()
        given["spec"]["workerSets"][0]["counts"] = 3.0
        assert (await here.client.submit(given)).object["spec"]["workerSets"][0]["counts"] == 3


async def test_a_wait_that_ends_says_what_it_waited_for(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        here.tell(Stage.RUNNING, message="all is well")
        for timeout_s in (0, -1, 0.5):
            with pytest.raises(TimeoutError, match="ppo still is Running: all is well"):
                await here.client.wait("ppo", timeout_s=timeout_s)
        assert (await here.client.wait("default/ppo", "Running", timeout_s=0)).stage == Stage.RUNNING
        with pytest.raises(UsageError, match=r"there is no stage 'Ended' .*allowed: .*Succeeded"):
            await here.client.wait("ppo", "Ended", timeout_s=0)
        waits = asyncio.ensure_future(here.client.wait("ppo", timeout_s=3))
        await asyncio.sleep(0.5)
        await here.cluster.__aexit__(None, None, None)
        with pytest.raises(TimeoutError, match=r"the API server can't be reached.*ppo was Running: all is well"):
            await waits


async def test_names_and_objects_of_another_namespace_than_the_clients_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        assert (await here.client.job("default/ppo")).name == "ppo"
        for call in (here.client.job, here.client.pods, here.client.wait, here.client.delete):
            with pytest.raises(UsageError, match="team-a/ppo is in another namespace than this client, default"):
                await call("team-a/ppo")
        async with AsyncClient(kubeconfig=tmp_path / "kubeconfig", namespace="team-a") as client:
            elsewhere = job("other") | {"metadata": {"name": "other", "namespace": "default"}}
            for verb in (client.submit, client.apply):
                with pytest.raises(UsageError, match="namespace is 'default', and the client's namespace 'team-a'"):
                    await verb(elsewhere)


async def test_what_if_takes_one_name_for_several_and_lists_its_own_parameters() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        one = await client.what_if(at=400, without="wide", queue_policy="DRF")
        assert one == await client.what_if(at=400, without=["wide"], queuePolicy="DRF")
        with pytest.raises(UsageError, match=r"no parameter 'priorty' .*allowed: at, job, priority.*every_job"):
            await client.what_if(at=400, job="wide", priorty=3)


async def test_an_edit_meanwhile_is_not_overwritten_by_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(tmp_path) as here:
        made = job("ppo")
        made["spec"]["workerSets"].append({**made["spec"]["workerSets"][0], "name": "critics"})
        await here.client.submit(made)
        read, edits = here.client.job, 0

        async def raced(name: str) -> Any:
            nonlocal edits
            found = await read(name)
            edits += 1
            if edits == 1:
                actors, critics = found.object["spec"]["workerSets"]
                sets = [actors, {**critics, "minCount": 1}]
                here.cluster.store.patch(TYJOBS, "default", "ppo", {"spec": {"workerSets": sets}})
            return found

        monkeypatch.setattr(here.client, "job", raced)
        of = (await here.client.scale("ppo", 4, worker_set="critics")).object["spec"]["workerSets"][1]
        assert (of["counts"], of["minCount"], edits) == (4, 1, 2)


# --- the log --------------------------------------------------------------------------------------------------------


async def test_answers_have_the_commands_types() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        overview = await client.overview(at=400)
        assert overview.offset == 400 and overview.time_ms > 0
        name = overview.jobs[0].name
        told = await client.explain(name, at=400)
        assert told.offset == 400 and told.standing.job == f"default/{name}" and told.standing.stage_since_ms > 0
        assert "research" in [of.name for of in (await client.queues(at=400)).queues]
        assert [of.job for of in (await client.forecast("wide", at=400)).jobs] == ["default/wide"]
        edited = await client.what_if(at=400, job="wide", priority=1, until="1m")
        assert edited.until is not None
        cycle, later = counted(len(edited.differences), "job"), counted(len(edited.until.starts), "start")
        assert f": {cycle} otherwise in this cycle, {later} otherwise later; as of " in repr(edited)


@pytest.mark.parametrize(
    "shortage",
    [
        LackOfNodes(0, 4, group="actors", topology=UnitLack(TopologyScope.SET, 1, 4, 0, (LevelLack("rack", 2, 3),))),
        BeyondLimit(1, 2, further=True, quota=QuotaLack("", "cpu", 4, 2, 3, "capped", LimitKind.CAPABILITY)),
        Objected(0, 1, objection=Objection("plugin", "no licence")),
    ],
)
def test_each_kind_of_shortage_comes_back_as_what_it_was(shortage: ShortageFacts) -> None:
    class Told(msgspec.Struct):
        shortage: ShortageFacts | None

    content = json.loads(msgspec.json.encode(named(as_object(Told(shortage)))))
    assert typed(content, Told).shortage == shortage


async def test_a_question_that_is_refused_says_why() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        with pytest.raises(Refused, match="the log has no job 'default/nobody'") as refused:
            await client.explain("nobody")
        assert (refused.value.code, refused.value.reason) == (404, "NotFound")
    async with AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        with pytest.raises(ArrangerError, match=r"no answer from http://127.0.0.1.*is arranger serve running"):
            await client.overview()
    async with AsyncClient() as client:
        with pytest.raises(UsageError, match="no server to ask"):
            await client.overview()
    accepted = 'is no address of a server .give one such as .* or "cluster"'
    for wrong in ("ftp://here", "localhost:8470", "clustre"):
        async with AsyncClient(server=wrong) as client:
            with pytest.raises(UsageError, match=f"{wrong!r} {accepted}"):
                await client.overview()


async def test_a_forecast_of_a_job_that_does_not_wait_is_refused_with_how_it_stands() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        told = {"nope": "no job 'default/nope' at", "endless": "it runs already", "fix": "it has succeeded"}
        for name, said in told.items():
            with pytest.raises(Refused, match=said) as refused:
                await client.forecast(name)
            assert (refused.value.code, refused.value.reason) == (404, "NotFound")


async def test_without_a_server_in_the_cluster_it_is_said_that_there_is_none(tmp_path: Path) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        async with AsyncClient(kubeconfig=kubeconfig, server="cluster") as client:
            with pytest.raises(LogUnavailable, match=r"there is no arranger serve in the cluster: .*install it"):
                await client.overview()


async def test_events_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arranger.client.asynchronous._EVENTS", 150)
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        whole = await client.events()
        assert [of["offset"] for of in whole] == list(range(1, whole[-1]["offset"] + 1)) and len(whole) > 300
        assert await client.events(first=1) == whole
        assert await client.events(first=101, last=260) == whole[100:260]
        placed = await client.events(kinds=["Placed"])
        assert placed == [of for of in whole if of["kind"] == "Placed"] != []
        about = await client.events(job=placed[0]["job"])
        assert placed[0] in about and len(about) < len(whole)


async def test_tables_need_their_library_and_have_the_names_of_the_commands_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, Any] = {}

    class Library:
        """What pandas does with columns."""

        DataFrame = staticmethod(kept.update)

    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        events, queues = await client.events(last=20), await client.queues(at=400)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(UsageError, match=r"pyarrow isn't installed .pip install (-e )?'\.\[tables\]'"):
            events.to_arrow()
    monkeypatch.setitem(sys.modules, "pandas", Library)
    events.to_pandas()
    assert tuple(kept) == EVENT_COLUMNS and {len(column) for column in kept.values()} == {20}
    assert json.loads(kept["event"][0])["reason"] == "the log was empty"
    kept.clear()
    queues.to_pandas()
    assert kept["name"] == [of.name for of in queues.queues]
    resources = {name for queue in queues.queues for name in queue.demand}
    assert resources
    for name in resources:
        assert kept[f"demand.{name}"] == [of.demand.get(name, 0) for of in queues.queues]


def test_a_queue_without_a_capability_has_none_in_a_table_and_not_nothing() -> None:
    class Row(msgspec.Struct):
        capability: dict[str, int]
        guarantee: dict[str, int]

    columns = columns_of([Row({"cpu": 4}, {}), Row({}, {"cpu": 2})], Row)
    assert columns["capability.cpu"] == [4, None] and columns["guarantee.cpu"] == [0, 2]


async def test_answers_become_tables_of_the_real_libraries() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        last = await client.overview()
        answers = [last, await client.queues(), await client.queue("default"), await client.top(by="job")]
        answers += [await client.waits(by="job"), await client.preemptions(), await client.forecast(at=400)]
        for answer in (*answers, await client.what_if(), events := await client.events()):
            table, frame = answer.to_arrow(), answer.to_pandas()
            assert table.column_names == [*frame.columns] == [*answer.columns()]
            assert table.num_rows == len(frame)
            assert table.to_pydict() == answer.columns(), "values as they are"
            assert pyarrow.RecordBatchReader.from_stream(answer).read_all() == table
        for answer in answers:
            assert pyarrow.table(answer) == answer.to_arrow(), "other libraries take it as it is"
        assert pandas.api.types.is_integer_dtype((await client.waits()).to_pandas()["gpu_ms"])
        assert pandas.to_datetime(events.to_pandas()["time_ms"], unit="ms").max() == pandas.Timestamp(
            max(of["time_ms"] for of in events), unit="ms"
        )


def test_a_column_has_one_type_whatever_its_cells_have() -> None:
    class Part(msgspec.Struct):
        name: str

    class Row(msgspec.Struct):
        parts: tuple[Part, ...]
        names: tuple[str, ...]
        part: Part | None
        ends_ms: int | None

    rows = [Row((), (), None, None), Row((Part("a"),), ("a",), Part("b"), 7)]
    table = arrow_table(columns_of(rows, Row))
    assert table.to_pylist() == [
        {"parts": "[]", "names": [], "part": None, "ends_ms": None},
        {"parts": '[{"name":"a"}]', "names": ["a"], "part": '{"name":"b"}', "ends_ms": 7},
    ]


def test_answers_have_the_fields_of_the_commands_json_and_its_words() -> None:
    async def answers() -> dict[str, Any]:
        async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as of:
            return {
                "replay --at 400": await of.overview(at=400),
                "queue show --at 400": await of.queues(at=400),
                "queue show research --at 400": await of.queue("research", at=400),
                "top --by user --at 400": await of.top(by="user", at=400),
                "waits --by job --held-by job": await of.waits(by="job", held_by="job"),
                "preemptions --within 5m": await of.preemptions(within="5m"),
                "forecast wide --at 400": await of.forecast("wide", at=400),
                "explain wide --at 400": await of.explain("wide", at=400),
                "what-if --at 400 --job default/wide --priority 9": await of.what_if(at=400, job="wide", priority=9),
                "what-if --at 400 --job wide --priority 9": await of.what_if(at=400, job="default/wide", priority=9),
                "what-if --at 400 --without wide": await of.what_if(at=400, without="wide"),
                "what-if --at 400 --queue-policy DRF --until 30m": await of.what_if(
                    at=400, queue_policy="DRF", until="30m"
                ),
                "waits --by day": await of.waits(by="day"),
            }

    for command, answer in asyncio.run(answers()).items():
        done = CliRunner().invoke(cli, [*command.split(), "--log", str(HISTORY), "-o", "json"])
        told = json.loads(done.output)
        shown = json.loads(msgspec.json.encode(as_object(answer)))
        renamed = {"as_it_was": "asItWas", "what_if": "whatIf"}
        shown = {renamed.get(name, name): value for name, value in shown.items()}
        if "--until" in command:
            del shown["until"]  # its fields have such names as well
        assert shown == {name: value for name, value in _as_listed(told).items() if name in shown}, command
        assert len(repr(answer)) < 400 and "\n" not in repr(answer), command
        complete = [] if command.startswith(("explain", "what-if", "queue show --at")) else ["--all"]
        said = CliRunner().invoke(cli, [*command.split(), "--log", str(HISTORY), *complete]).output
        shown_by_print = str(answer).replace("arranger explain default/wide", f"arranger explain wide --log {HISTORY}")
        assert shown_by_print.splitlines() == said.splitlines(), command
        page = answer._repr_html_()
        assert page.count("<pre") == 1 and "background:#" not in page
        [shown_in_notebook] = re.findall(r"<pre[^>]*>([^<]*)</pre>", page)
        assert html.unescape(shown_in_notebook) == str(answer), command


def _as_listed(value: Any) -> Any:
    """A command's JSON without the local times that it has beside times in milliseconds."""
    if isinstance(value, dict):
        return {name: _as_listed(item) for name, item in value.items() if not (name == "time" and "time_ms" in value)}
    return [_as_listed(item) for item in value] if isinstance(value, list) else value


def test_what_a_notebook_shows_is_escaped() -> None:
    metadata = {"name": "x", "namespace": "default", "uid": "1"}
    shown = Job({"metadata": metadata, "status": {"stage": "Pending", "message": "<script>alert(1)</script>\x1b[2J"}})
    assert "<script" not in shown._repr_html_() and "\x1b" not in shown._repr_html_()
    assert "&lt;script&gt;" in shown._repr_html_()
    assert repr(shown).startswith("<Job default/x: Pending, 0 workers ready, 0 GPUs: <script>")
    assert "\x1b" not in repr(shown)
    pods = PodList([JobPod("<b>", "actors", 0, "n1", "Running", True)])
    assert "&lt;b&gt;" in JobList([shown])._repr_html_() + pods._repr_html_()
    assert "none" in JobList()._repr_html_()


async def test_a_notebook_shows_the_columns_of_events_that_fit_beside_each_other_and_a_table_all_of_them() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        events = await client.events(last=400)
    events[0]["text"] = "of many words " * 20
    page = events._repr_html_()
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', page) == [
        *("offset", "time", "kind", "subject", "verdict", "text"),
    ]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert cells[:4] == ["1", events[0]["time"], events[0]["kind"], events[0]["subject"] or ""]
    assert max(map(len, map(html.unescape, cells))) <= 100 and cells[5].endswith("...")
    assert tuple(events.columns()) == EVENT_COLUMNS and events.columns()["text"][0] == events[0]["text"]


async def test_the_rows_of_an_explanation_are_its_timeline() -> None:
    async with serving(FileLog(HISTORY)) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        found = await client.explain("default/wide", at=400)
        overview = await client.overview(at=400)
    frame = found.to_pandas()
    assert list(frame["offset"]) == [of.offset for of in found.timeline] != []
    assert list(frame["text"]) == [of.text for of in found.timeline]
    assert found.to_arrow().to_pydict() == found.columns()
    # What docs/client.md says of all other lists of an answer.
    for rows in (found.intervals, overview.nodes):
        assert len(pandas.DataFrame(map(msgspec.structs.asdict, rows))) == len(rows) > 0


@pytest.mark.parametrize("wrong", ["4", 2.5, True, None, -1, 10_001, [3]])
async def test_a_number_of_workers_that_is_none_is_named_before_anything_is_sent(wrong: Any) -> None:
    async with AsyncClient(kubeconfig="/nowhere") as client:
        with pytest.raises(UsageError, match=r"^count must be a whole number from 0 to 10000, and not ") as refused:
            await client.scale("ppo", wrong)
    assert str(refused.value).endswith(repr(wrong))


async def test_a_number_of_numpy_is_a_number_of_workers(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo", least=1))
        assert (await here.client.scale("ppo", numpy.int64(3))).object["spec"]["replicas"] == 3


async def test_wrong_values_are_named_with_what_is_allowed_before_anything_is_sent(tmp_path: Path) -> None:
    nobody = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "current-context": "c"}
    nobody["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(nobody))
    async with AsyncClient(kubeconfig=tmp_path / "kubeconfig", namespace="default") as client:
        wrong: list[tuple[Awaitable[Any], str]] = [
            (client.wait("ppo", "runing"), r"there is no stage 'runing' \(did you mean Running\? allowed: Pending, "),
            (client.wait("ppo", 600), r"there is no stage 600 \(allowed: Pending, .*; timeout_s= is the time to wait"),  # type: ignore[arg-type]
            (client.wait("ppo", ["Running"]), r"there is no stage \['Running'\] \(allowed: Pending"),  # type: ignore[arg-type]
            (client.wait("ppo", timeout_s="60"), r"timeout_s must be a number of seconds or None, and not '60'"),  # type: ignore[arg-type]
            (client.wait("ppo", timeout_s=float("nan")), r"timeout_s must be a number of seconds or None, and not nan"),
            (client.wait_until("ppo", "Running"), r"holds must be a function of a Job, and not 'Running'"),  # type: ignore[arg-type]
            (client.scale("ppo", 3, worker_set=1), r"worker_set must be a text, and not 1"),  # type: ignore[arg-type]
            (client.logs("ppo", tail="9"), r"tail must be a whole number from 0 to \d+, and not '9'"),  # type: ignore[arg-type]
            (client.logs("ppo", pod=3), r"pod must be a text, and not 3"),  # type: ignore[arg-type]
            (client.job(3), r"the name of a job must be a text that isn't empty, and not 3"),  # type: ignore[arg-type]
            (client.delete(""), r"the name of a job must be a text that isn't empty, and not ''"),
            (client.explain(None), r"the name of a job must be a text that isn't empty, and not None"),  # type: ignore[arg-type]
        ]
        for asked, words in wrong:
            with pytest.raises(UsageError, match=words):
                await asked


@pytest.mark.parametrize("given", ["hello", [1], None, 7, "- a\n- b\n"])
def test_what_is_no_tyjob_is_refused_with_what_is_accepted(given: Any) -> None:
    with pytest.raises(UsageError, match=r"this is no TYJob: .*give a dict, YAML text, the path of a .yaml"):
        job_object(given, "default")


async def test_a_name_that_is_taken_is_refused_with_the_verb_that_changes_the_job(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.client.submit(job("ppo"))
        with pytest.raises(ApiError, match=r"409 AlreadyExists.*apply changes it to what is given"):
            await here.client.submit(job("ppo"))


async def test_the_server_of_the_variable_is_asked_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FileLog(HISTORY)) as api:
        monkeypatch.setenv("ARRANGER_SERVER", f"http://127.0.0.1:{api.server.port}")
        async with AsyncClient(namespace="default") as client:
            assert (await client.forecast("wide", at=400, first=9)).jobs[0].job == "default/wide"
            with pytest.raises(UsageError, match=r"what is otherwise of 'r'.*priority=, queue= or gpus="):
                await client.what_if(job="r", without="xx")
            with pytest.raises(UsageError, match=r"priority: of which job.*job="):
                await client.what_if(priority=7)
            answer = await client.what_if(at=400, job="wide", priority=9)
            assert "as of " in repr(answer) and "as of " in answer._repr_html_()
    monkeypatch.delenv("ARRANGER_SERVER")
    async with AsyncClient(namespace="default") as client:
        with pytest.raises(UsageError, match=r"no server to ask .*or set ARRANGER_SERVER"):
            await client.queues()


# --- both clients ---------------------------------------------------------------------------------------------------


def test_both_clients_have_the_same_methods_with_the_same_arguments_and_words() -> None:
    ours = {name: of for name, of in vars(AsyncClient).items() if callable(of) and not name.startswith("_")}
    theirs = {name: of for name, of in vars(Client).items() if callable(of) and not name.startswith("_")}
    assert ours.keys() - theirs.keys() == {"changes"} and theirs.keys() <= ours.keys()
    for name, of in theirs.items():
        assert inspect.signature(of) == inspect.signature(ours[name]), name
        assert of.__doc__, name


def test_every_question_that_the_client_asks_is_in_the_description_of_the_api() -> None:
    paths = document()["paths"]
    asked = {"explain": {"job", "at", "pod", "node"}, "replay": {"at"}, "queue": {"at", "name"}}
    asked |= {"top": {"by", "at"}, "waits": {"by", "heldBy", "from", "to"}, "preemptions": {"within", "from", "to"}}
    asked |= {"what-if": {"at", "changedJob", "priority", "queue", "gpus", "until", "without", "withNode"}}
    asked |= {"forecast": {"job", "at", "until"}, "events": {"job", "kind", "from", "to"}}
    source = inspect.getsource(AsyncClient)
    for question, names in asked.items():
        assert re.search(rf'(ask|_lines)\("{question}"', source)
        assert names <= {of["name"] for of in paths[f"/api/v1/{question}"]["get"]["parameters"]}
    assert set(re.findall(r'(?:ask|_lines)\("([a-z-]+)"', source)) == asked.keys()


async def test_the_blocking_client_works_beside_a_running_loop_and_ends_its_thread(tmp_path: Path) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")

        def notebook() -> list[str]:
            with Client(kubeconfig=kubeconfig) as client:
                client.submit(job("ppo"))
                with pytest.raises(TimeoutError):
                    client.wait("ppo", timeout_s=0.1)
                names = [of.name for of in client.jobs()]
            client.close()
            return names

        assert await asyncio.to_thread(notebook) == ["ppo"]
        assert "arranger-client" not in [of.name for of in threading.enumerate()]


_LEFT_OPEN = """
import sys
from arranger.client import ApiError, Client, Refused

client = Client(kubeconfig=sys.argv[1], server=sys.argv[2])
print(len(client.jobs()), len(client.events()) > 300)
for asked, refusal in ((client.job, ApiError), (client.explain, Refused)):
    try:
        asked("nobody")
    except refusal as refused:
        print(refused.reason)
another = Client(kubeconfig=sys.argv[1])
another.jobs()
another = None
"""


async def test_a_client_that_nobody_closes_leaves_no_warning(tmp_path: Path) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster, serving(FileLog(HISTORY)) as api:
        given = (str(cluster.kubeconfig(tmp_path / "kubeconfig")), f"http://127.0.0.1:{api.server.port}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", "-W", "error", "-c", _LEFT_OPEN, *given),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (process.returncode, out.decode().split(), err.decode()) == (0, ["0", "True", "NotFound", "NotFound"], "")


_DROPPED = """
import asyncio, gc, sys
from arranger.client import AsyncClient

async def used(ending):
    client = AsyncClient(kubeconfig=sys.argv[1], server=sys.argv[2])
    await client.jobs()
    await client.queues()
    if ending == "raised":
        raise ValueError("before it was closed")
    if ending == "closed":
        await client.close()

try:
    asyncio.run(used(sys.argv[3]))
except ValueError as error:
    print(error)
gc.collect()
"""


@pytest.mark.parametrize("ending", ["dropped", "raised", "closed"])
async def test_an_asynchronous_client_that_nobody_closes_says_how_to_and_nothing_else(
    tmp_path: Path, ending: str
) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster, serving(FileLog(HISTORY)) as api:
        given = (str(cluster.kubeconfig(tmp_path / "kubeconfig")), f"http://127.0.0.1:{api.server.port}", ending)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "always", "-c", _DROPPED, *given),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0
    told = [line for line in err.decode().splitlines() if "ResourceWarning: " in line or "Unclosed" in line]
    if ending == "raised":
        # Its event loop is gone before the traceback that holds the client: asyncio's connections tell of themselves.
        told = [line for line in told if "unclosed transport" not in line and "unclosed <socket" not in line]
    told = [line for line in told if "tracemalloc" not in line]
    assert len(told) == (0 if ending == "closed" else 1), err.decode()
    for line in told:
        assert "ResourceWarning: unclosed AsyncClient" in line
        assert "async with" in line and "await client.close()" in line
    assert out.decode().strip() == ("before it was closed" if ending == "raised" else "")


async def test_a_dropped_asynchronous_client_closes_its_connections(tmp_path: Path) -> None:
    async with EmbeddedCluster(crds=CRD_FILES) as cluster:
        client = AsyncClient(kubeconfig=cluster.kubeconfig(tmp_path / "kubeconfig"))
        await client.jobs()
        before = _sockets()
        with pytest.warns(ResourceWarning, match="unclosed AsyncClient"):
            del client
        await asyncio.sleep(0.1)
        assert _sockets() == before - 2, "both ends of one connection"


def _sockets() -> int:
    open_files = [of for of in Path("/proc/self/fd").iterdir() if of.is_symlink()]
    return sum(str(of.readlink()).startswith("socket:") for of in open_files)


def test_a_client_that_was_never_used_or_never_made_has_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AsyncClient()
        with pytest.raises(TypeError):
            AsyncClient(sever="http://127.0.0.1:1")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            Client(sever="http://127.0.0.1:1")  # type: ignore[call-arg]


async def test_a_closed_client_says_so(tmp_path: Path) -> None:
    client = Client(server="http://127.0.0.1:1")
    client.close()
    with pytest.raises(UsageError, match="this client is closed"):
        client.queues()
    of = AsyncClient(server="http://127.0.0.1:1")
    await of.close()
    await of.close()
    for asked in (of.queues, of.jobs):
        with pytest.raises(UsageError, match="this client is closed"):
            await asked()


def test_a_client_ends_although_closing_a_connection_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(AsyncClient, "close", fails)
    client = Client(server="http://127.0.0.1:1")
    client.close()
    assert "arranger-client" not in [of.name for of in threading.enumerate()]


def test_a_call_as_the_client_is_closed_elsewhere_never_hangs() -> None:
    for _ in range(20):
        client = Client(server="http://127.0.0.1:1")
        ends: list[str] = []

        def ask(client: Client = client, ends: list[str] = ends) -> None:
            try:
                while True:
                    client._run(asyncio.sleep(0))
            except UsageError as end:
                ends.append(str(end))

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        client.close()
        for thread in threads:
            thread.join(10)
        assert len(ends) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_client_that_a_process_got_by_fork_says_so() -> None:
    with Client(server="http://127.0.0.1:1") as client:
        child = os.fork()
        if not child:
            try:
                client.queues()
            except UsageError as refused:
                os._exit(0 if "another process" in str(refused) else 2)
            finally:
                os._exit(1)
        ended = time.monotonic() + 10
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > ended:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(done[1]) == 0


def test_events_have_the_names_of_the_commands_json() -> None:
    async def events() -> list[dict[str, Any]]:
        address = "http://127.0.0.1:{}"
        async with serving(FileLog(HISTORY)) as api, AsyncClient(server=address.format(api.server.port)) as client:
            return await client.events(first=1, last=40)

    told = asyncio.run(events())
    done = CliRunner().invoke(cli, ["events", "--log", str(HISTORY), "--to", "40", "-o", "json"])
    assert told == [json.loads(line) for line in done.output.splitlines()]


async def test_events_that_are_too_many_for_an_answer_are_asked_for_in_smaller_parts() -> None:
    asker = Asker(PROGRAM, {}, log=str(HISTORY), limits=Limits(answer_bytes=100_000))
    log = FileLog(HISTORY)
    async with serving(log, asker=asker) as api, AsyncClient(server=f"http://127.0.0.1:{api.server.port}") as client:
        with pytest.raises(Refused, match="more than") as refused:
            await client.events()
        assert refused.value.reason == "RequestEntityTooLarge"
        whole = await client.events(first=1)
    assert [of["offset"] for of in whole] == list(range(1, whole[-1]["offset"] + 1)) and len(whole) > 300
