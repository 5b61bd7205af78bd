"""Bad input and failures: every problem is reported, and nothing is lost, duplicated or disturbed."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis as redis_py
import yaml

from arranger.events.redis_scripts import APPEND
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import (
    PODS,
    TYJOBS,
    EmbeddedKube,
    Worker,
    apply,
    arranger,
    await_stage,
    end_offset,
    epoch_of,
    eventually,
    finish_jobs,
    fleet,
    job,
    kubelets,
    pods_of,
    stages,
    status_of,
)
from tests.e2e.history import History
from tests.servers import MERGE, RealKube, RealRedis, kube_assets, real_redis, tyjob_definition

NODE = NodeTemplate("node-1", cpu="16")
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tyjobs.arranger.dev"


def checks(worker: Worker) -> dict[str, str]:
    """Why a process isn't ready: check → reason."""
    _, body = worker.get("/readyz")
    return {name: check["reason"] for name, check in json.loads(body)["checks"].items() if not check["ok"]}


def heartbeats(redis: RealRedis) -> dict[bytes, bytes]:
    """What each member's last heartbeat wrote, which begins with the time when it expires."""
    with redis_py.Redis(port=redis.port) as client:
        (key,) = client.keys("arranger:*:members")
        return client.hgetall(key)


# --- unreachable servers -----------------------------------------------------------------------------------


def test_redis_that_cant_be_reached_at_start_is_awaited(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    redis.stop()
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        (worker,) = workers.start(wait=False)
        told = eventually("it says so", lambda: worker.log("the log can't be reached, trying again"))
        assert f"127.0.0.1:{redis.port}" in told[0]["problem"] and "doesn't answer" in told[0]["problem"]
        apply(kube, job("early"))
        eventually("it has tried again", lambda: len(worker.log("the log can't be reached, trying again")) >= 2)
        assert worker.get("/readyz")[0] == 503 and "Redis" in checks(worker)["log"]
        assert worker.get("/healthz")[0] == 200
        redis.start()
        worker.wait_ready()
        await_stage(kube, "Running", "early")
        assert worker.stop() == 0


def test_a_process_that_still_waits_for_redis_ends_at_once_when_told(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    redis.stop()
    with fleet(redis_url=redis.url, kube=kube, folder=tmp_path, verify=False) as workers:
        (worker,) = workers.start(wait=False)
        eventually("it waits", lambda: worker.log("the log can't be reached, trying again"))
        assert worker.stop() == 0


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "Redis is full"),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "read-only replica"),
    ],
    ids=["full", "replica"],
)
def test_a_redis_that_takes_no_writes_makes_everybody_unready_and_status_says_why(
    begin: tuple[str, ...], end: tuple[str, ...], said: str, kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        (worker,) = workers.start()
        redis.command(*begin)
        try:
            eventually("it isn't ready", lambda: "writes" in checks(worker))
            assert worker.get("/readyz")[0] == 503 and worker.get("/healthz")[0] == 200
            assert "arranger_writes_refused 1.0" in worker.get("/metrics")[1]

            def told() -> dict[str, Any]:
                answer: dict[str, Any] = json.loads(arranger("status", "--log", redis.url, "-o", "json").stdout)
                return answer

            eventually("nobody is seen any more", lambda: not told()["members"])
            status = told()
            (problem,) = status["problems"]
            assert said in problem["what"] and problem["next"] and not status["well"]
        finally:
            redis.command(*end)
        worker.wait_ready()
        apply(kube, job("after"))
        await_stage(kube, "Running", "after")
        assert worker.log("Redis refuses writes") and worker.log("Redis takes writes again")


def test_an_api_server_that_goes_away_and_comes_back(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(4)]
    history = History(kube.kubeconfig, outages=True)
    history.start()
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        (early,) = workers.start()
        apply(kube, *[job(name, workers=3) for name in names])
        eventually("pods are being created", lambda: len(history.created()) >= 3)
        kube.api.stop(kill=True)
        try:
            (late,) = workers.start(wait=False)
            for worker in (early, late):
                eventually(f"{worker.name} says so", lambda worker=worker: "api" in checks(worker))  # type: ignore[misc]
                assert worker.get("/healthz")[0] == 200
            assert str(kube.port) in checks(late)["api"]
        finally:
            kube.api.start()
        for worker in (early, late):
            worker.wait_ready()
        await_stage(kube, "Running", *names)
        finish_jobs(kube, *names)
        history.stop()
    assert history.faults() == []


#: Without these rights no process watches or applies anything.
TO_KNOW_THE_CLUSTER = {
    "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"],
}  # fmt: skip
TO_HOLD_THE_CLUSTER = {
    "apiGroups": ["arranger.dev"], "resources": ["clusterlogs"], "verbs": ["get", "create", "patch"],
}  # fmt: skip


def right(user: str, rule: dict[str, list[str]]) -> list[dict[str, Any]]:
    name, group = f"{user}-{rule['resources'][0]}", "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    of = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    return [
        {**of, "kind": "ClusterRole", "rules": [rule]},
        {**of, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]


def test_rights_that_are_missing_are_named(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    with fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        worker = Worker(
            "stranger",
            ["--redis", redis.url, "--kubeconfig", str(kube.stranger_kubeconfig), "--http-port", "0"],
            folder=tmp_path,
            environment={},
        )
        workers.workers["stranger"] = worker
        worker.start()
        eventually(
            "it says which it needs first",
            lambda: worker.get("/readyz")[0] == 503 and "namespace kube-system" in checks(worker).get("api", ""),
        )
        apply(kube, *right("stranger", TO_KNOW_THE_CLUSTER))
        eventually("what it needs next", lambda: "may not get the ClusterLog" in checks(worker).get("api", ""))
        apply(kube, *right("stranger", TO_HOLD_THE_CLUSTER))
        eventually(
            "it says so", lambda: worker.get("/readyz")[0] == 503 and "forbidden" in checks(worker).get("api", "")
        )
        eventually("for each watch", lambda: {"watch-pod", "watch-node", "watch-tyjob"} <= set(checks(worker)))
        assert worker.running


def test_a_cluster_without_the_tyjob_resource_is_told_how_to_get_it(redis: RealRedis, tmp_path: Path) -> None:
    kube_assets()
    kube = EmbeddedKube(tmp_path, crds=[])
    try:
        with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
            (worker,) = workers.start(wait=False)
            eventually("it says so", lambda: worker.get("/readyz")[0] == 503 and "api" in checks(worker))
            eventually("and how", lambda: "arranger crd | kubectl apply -f -" in checks(worker)["api"])
            kube.kubectl("apply", "-f", "-", stdin=arranger("crd").stdout)
            worker.wait_ready()
            apply(kube, job("first"))
            await_stage(kube, "Running", "first")
    finally:
        kube.close()


# --- unusable input ----------------------------------------------------------------------------------------


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def refused(*arguments: str, **environment: str) -> str:
    """The last line of `arranger run`, without the log lines before it."""
    done = arranger("run", *arguments, **environment)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 2, done
    assert len(lines) == 1 and lines[0].startswith("arranger: "), done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["sheduler"], {}, ["no role 'sheduler'", "roles are watcher, controller"]),
        (["--redis", "http://127.0.0.1"], {}, ["redis_url", "--redis", "redis://"]),
        (["--redis", "redis://127.0.0.1:x"], {}, ["redis_url", "--redis"]),
        (["--lease-s", "soon"], {}, ["lease_s", "'soon'", "--lease-s", "from 2 to 600"]),
        ([], {"ARRANGER_LOG_LEVEL": "loud"}, ["log_level", "ARRANGER_LOG_LEVEL", "debug, info, warning, error"]),
        ([], {"ARRANGER_LEASE": "9"}, ["ARRANGER_LEASE", "did you mean ARRANGER_LEASE_S?"]),
        (["--config", "{folder}/none.toml"], {}, ["config", "none.toml"]),
        (["--config", "{folder}/odd.toml"], {}, ["odd.toml", "lease_sec", "did you mean lease_s?"]),
        (["--kubeconfig", "{folder}/none"], {}, ["kubeconfig", "{folder}/none", "--kubeconfig"]),
        (["--kubeconfig", "{folder}/odd"], {}, ["kubeconfig", "{folder}/odd"]),
        (["--kubeconfig", "{folder}/config", "--context", "prod"], {}, ["no context 'prod'", "it has: here"]),
        (["--kubeconfig", "{folder}/ftp"], {}, ["ftp://127.0.0.1", "http:// nor an https://"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cant_be_used_is_one_line_and_exit_status_2(
    arguments: list[str], environment: dict[str, str], told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "odd.toml").write_text("lease_sec = 5\n")
    (tmp_path / "odd").write_text("clusters: [\n")
    for name, scheme in (("config", "http"), ("ftp", "ftp")):
        cluster = {"name": "here", "cluster": {"server": f"{scheme}://127.0.0.1:1"}}
        context = {"name": "here", "context": {"cluster": "here", "user": "here"}}
        parts = {"clusters": [cluster], "contexts": [context], "users": [{"name": "here", "user": {}}]}
        head = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
        (tmp_path / name).write_text(yaml.safe_dump(head | parts))
    given = [argument.replace("{folder}", str(tmp_path)) for argument in ["--http-port", "0", *arguments]]
    line = refused(*given, **environment)
    for part in told:
        assert part.replace("{folder}", str(tmp_path)) in line


def test_a_wrong_password_is_told_without_showing_it(kube_server: RealKube) -> None:
    with real_redis(password="right") as server:
        flags = ("--kubeconfig", str(kube_server.kubeconfig), "--http-port", "0")
        for url in (server.url.replace("right", "wrong-one"), server.url.replace(":right@", "")):
            line = refused("--redis", url, *flags)
            assert f"127.0.0.1:{server.port}" in line and "password" in line and "wrong-one" not in line


def test_a_port_in_use_is_told(kube_server: RealKube, redis: RealRedis, busy_port: int) -> None:
    line = refused(*("--redis", redis.url, "--kubeconfig", str(kube_server.kubeconfig), "--http-port", str(busy_port)))
    assert f"port {busy_port} of 127.0.0.1 is in use" in line and "--http-port" in line


# --- a log that can't be read ------------------------------------------------------------------------------


def _unknown_kind(redis: RealRedis) -> None:
    """Append an event that only a newer version may write."""
    payload = msgspec.msgpack.encode(("newer", 1, 1, (("FutureEvent.1", "hello"),)))
    keys = [f"arranger:{{default}}:{name}" for name in ("log", "meta", "writers", "cursors", "snapshots")]
    with redis_py.Redis.from_url(redis.url) as client:
        end, epoch = client.hget(keys[1], "end"), client.hget(keys[1], "epoch")
        assert end is not None and epoch is not None
        batch, unfenced, unsigned = ("newer", 1, 1, payload), ("", "", "", 1, ""), ("", "", "", "", 0, 0)
        answer: Any = client.eval(APPEND, len(keys), *keys, epoch, 0, "", *batch, *unfenced, *unsigned)
        assert answer[0] == b"appended"


def _damage(redis: RealRedis) -> None:
    """Append an entry whose payload doesn't match its chain."""
    with redis_py.Redis.from_url(redis.url) as client:
        end: Any = client.hget("arranger:{default}:meta", "end")
        offset = int(end) + 1
        client.xadd("arranger:{default}:log", {"p": b"\x00", "c": "0" * 40, "n": 1}, id=f"{offset}-0")
        client.hset("arranger:{default}:meta", mapping={"end": offset, "chain": "0" * 40})


@pytest.mark.parametrize(
    ("spoil", "reason"), [(_unknown_kind, "FutureEvent"), (_damage, "its chain hash doesn't follow")]
)
def test_an_entry_that_cant_be_read_stops_the_fold_and_says_where(
    spoil: Callable[[RealRedis], None], reason: str, kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path, verify=False) as workers:
        (worker,) = workers.start()
        apply(kube, job("steady"))
        await_stage(kube, "Running", "steady")
        spoil(redis)
        assert worker.wait() == 1
        stop = worker.log("the fold stops")[0]
        assert stop["offset"] > 1 and reason in stop["reason"]
        last = worker.log()[-1]["text"]
        assert last.startswith(f"arranger: log entry at offset {stop['offset']} can't be read: ") and reason in last
        worker.start()  # the new process stops there too, and changes nothing
        assert worker.wait() == 1
        assert reason in worker.log()[-1]["text"]
        assert status_of(kube, "steady")["stage"] == "Running"
        assert len(pods_of(kube, "steady")) == 3


# --- the end of a process ----------------------------------------------------------------------------------


def test_sigterm_in_the_middle_leaves_nothing_half_done(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(6)]
    history = History(kube.kubeconfig)
    history.start()
    with (
        kubelets(kube, NodeTemplate("node-1", cpu="64")),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers,
    ):
        (worker,) = workers.start()
        apply(kube, *[job(name, workers=6) for name in names])
        for pods in (3, 15, 28):
            eventually("pods are being created", lambda pods=pods: len(history.created()) >= pods, every_s=0.01)  # type: ignore[misc]
            eventually("its roles have begun", lambda: worker.log("watching"))
            assert worker.stop() == 0
            assert worker.log("draining") and not worker.log("not drained in time")
            worker.start()
        worker.wait_ready()
        await_stage(kube, "Running", *names)
        finish_jobs(kube, *names)
        history.stop()
    assert history.faults() == []


# --- impossible jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def loose_schema(kube: RealKube) -> Iterator[Callable[[], None]]:
    """Let the TYJob resource accept anything, as an older definition, without the version for statuses. Yields a
    function that restores the definition."""
    versions = tyjob_definition()["spec"]["versions"]

    def put(desired: list[dict[str, Any]]) -> None:
        definition = kube.request("GET", CRD)[1]
        definition["spec"]["versions"] = desired
        kube.request("PUT", CRD, definition)

    def refuses() -> bool:
        wrong = job("probe", priority=99)
        return kube.request("POST", f"{TYJOBS}?dryRun=All", wrong, check=False)[0] == 422

    def restore() -> None:
        put(versions)
        eventually("the schema holds again", refuses)

    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    put([{**versions[0], "schema": {"openAPIV3Schema": anything}}])
    eventually("the schema is loose", lambda: not refuses())
    yield restore
    kube.clear()
    restore()


def told_by_events(kube: RealKube, name: str) -> str:
    """The messages of the Kubernetes Events about a job."""
    events = kube.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    return " ".join(event["message"] for event in events if event["involvedObject"]["name"] == name)


@pytest.mark.parametrize("restored", [False, True], ids=["schema still loose", "schema restored"])
def test_a_job_forced_past_the_schema_fails_and_disturbs_nothing(
    restored: bool, kube: RealKube, redis: RealRedis, tmp_path: Path, loose_schema: Callable[[], None]
) -> None:
    wrong = {
        "wrong-priority": job("wrong-priority", priority=99),
        "wrong-leader": job("wrong-leader", leader={"name": "learner", "template": {"spec": {}}}),
        "wrong-counts": job("wrong-counts", workers=2, least=7),
        "wrong-shape": {**job("wrong-shape"), "spec": {"leader": [], "workerSets": "none"}},
    }
    for one in wrong.values():
        kube.request("POST", TYJOBS, one)
    if restored:
        loose_schema()
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        workers.start()
        apply(kube, job("good", run_s=1))
        await_stage(kube, "Failed", *wrong)
        await_stage(kube, "Succeeded", "good")
        for name, field in (("wrong-shape", "spec.leader"), ("wrong-leader", "containers")):
            eventually("an Event says so", lambda name=name, field=field: field in told_by_events(kube, name))  # type: ignore[misc]
    messages = {name: status_of(kube, name)["message"] for name in wrong}
    assert "spec.priority" in messages["wrong-priority"] and "10" in messages["wrong-priority"]
    assert "spec.leader.template.spec.containers" in messages["wrong-leader"]
    assert "spec.minWorkersNum" in messages["wrong-counts"] and "2" in messages["wrong-counts"]
    assert "spec.leader" in messages["wrong-shape"]
    assert all(pods_of(kube, name) == [] for name in wrong)


def test_a_pod_that_the_api_server_finds_invalid_fails_its_job_alone(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    bad = job("bad")
    bad["spec"]["workerSets"][0]["template"]["spec"]["dnsPolicy"] = (
        "None"  # also requires a dnsConfig, but no schema says so
    )
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        (worker,) = workers.start()
        apply(kube, bad, job("good", run_s=1))
        await_stage(kube, "Failed", "bad")
        await_stage(kube, "Succeeded", "good")
        assert "dnsConfig" in status_of(kube, "bad")["message"]
        eventually("its leader is cleaned", lambda: pods_of(kube, "bad") == [])
        assert worker.metrics()['arranger_events_appended_total{kind="EffectFailed"}'] >= 1
        history = arranger("explain", "bad", "--log", redis.url)
        assert history.returncode == 0 and "dnsConfig" in history.stdout, history


@contextmanager
def a_quota(kube: RealKube, pods: int, **spec: Any) -> Iterator[Callable[[int], None]]:
    """A quota in `default`, and a function that changes it. No quota controller runs here, so only admission counts."""
    quotas = "/api/v1/namespaces/default/resourcequotas"

    def hard(count: int) -> None:
        kube.request("PATCH", f"{quotas}/few/status", {"status": {"hard": {"pods": str(count)}}}, content_type=MERGE)

    kube.request("POST", quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(pods)}, **spec}})
    kube.request("PATCH", f"{quotas}/few/status", {"status": {"used": {"pods": "0"}}}, content_type=MERGE)
    hard(pods)
    try:
        yield hard
    finally:
        kube.request("DELETE", f"{quotas}/few", check=False)


def test_a_quorum_beyond_its_quota_is_told_so_and_gets_its_nodes_as_soon_as_the_quota_is_raised(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    with (
        a_quota(kube, 2) as hard,
        kubelets(kube, NODE),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers,
    ):
        workers.start()
        apply(kube, job("many", workers=4))
        lack = "quota few has too little pods (needs 5, 2 left); even an empty namespace can't hold it (hard 2)"
        eventually("the message says so", lambda: lack in status_of(kube, "many").get("message", ""))
        assert status_of(kube, "many")["stage"] == "Pending" and pods_of(kube, "many") == []
        apply(kube, job("few", workers=1))
        await_stage(kube, "Running", "few")
        explained = arranger("explain", "many", "--log", redis.url)
        assert "raise pods of quota few by 5 to 7" in " ".join(explained.stdout.split()), explained
        hard(7)
        await_stage(kube, "Running", "many")
        assert "quota" not in status_of(kube, "many")["message"] and len(pods_of(kube, "many")) == 5


def test_a_quota_that_is_not_known_beforehand_is_told_by_its_refusal_and_the_job_goes_on_when_there_is_room(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    # It is unknown whether a pod without a PriorityClass gets the cluster's default one.
    others = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["another"]}
    with (
        a_quota(kube, 2, scopeSelector={"matchExpressions": [others]}),
        kubelets(kube, NODE),
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers,
    ):
        workers.start()
        apply(kube, job("many", workers=4))
        eventually("the message says so", lambda: "exceeded quota" in status_of(kube, "many").get("message", ""))
        kube.request("DELETE", "/api/v1/namespaces/default/resourcequotas/few")
        await_stage(kube, "Running", "many")
        eventually("it doesn't say so any more", lambda: "quota" not in status_of(kube, "many")["message"])
        assert len(pods_of(kube, "many")) == 5


def test_a_job_whose_pods_are_refused_makes_room_says_until_when_and_comes_again(
    kube: RealKube, redis: RealRedis, tmp_path: Path
) -> None:
    label = "pod-security.kubernetes.io/enforce"

    def enforce(level: str | None) -> None:
        body = {"metadata": {"labels": {label: level}}}
        kube.request("PATCH", "/api/v1/namespaces/default", body, content_type=MERGE)

    enforce("restricted")
    try:
        with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
            workers.start()
            apply(kube, job("unsafe", workers=1))
            eventually("it makes room", lambda: "scheduled again from" in status_of(kube, "unsafe").get("message", ""))
            status = status_of(kube, "unsafe")
            assert (status["stage"], status["restarts"]) == ("Rescheduling", 0) and not status.get("allocations")
            assert 'violates PodSecurity "restricted' in status["message"]
            assert "it backs off" in arranger("explain", "unsafe", "--log", redis.url).stdout
            enforce(None)
            await_stage(kube, "Running", "unsafe")
    finally:
        enforce(None)


# --- reports of a process ----------------------------------------------------------------------------------


def test_metrics_and_health_tell_what_a_process_does(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    with kubelets(kube, NODE), fleet(redis_url=redis.url, kube=kube, folder=tmp_path) as workers:
        (worker,) = workers.start()
        apply(kube, job("one", run_s=2), job("huge", cpu="99"))
        await_stage(kube, "Succeeded", "one")
        eventually("huge waits", lambda: "cpu" in status_of(kube, "huge").get("message", ""))
        metrics = worker.metrics()
        reader = 'reader="watcher,controller,scheduler,applier,maintenance"'
        assert metrics[f"arranger_lag_events{{{reader}}}"] >= 0
        assert metrics[f"arranger_lag_seconds{{{reader}}}"] >= 0
        eventually(
            "it has folded all",
            lambda: worker.metrics()[f"arranger_offset{{{reader}}}"] == end_offset(redis),
        )
        assert metrics["arranger_epoch"] == epoch_of(redis)
        assert metrics["arranger_ready"] == 1
        assert metrics['arranger_appends_total{result="ok"}'] > 10
        assert metrics["arranger_append_seconds_count"] > 10
        assert metrics["arranger_cycle_seconds_count"] > 0
        for kind in ("CycleTaken", "Placed", "StageDecided", "Waits"):
            assert metrics[f'arranger_decisions_folded_total{{kind="{kind}",verdict="accepted"}}'] >= 1
        assert metrics['arranger_api_requests_total{code="201",resource="pods",verb="create"}'] == 3
        assert metrics['arranger_api_requests_total{code="200",resource="tyjobs",verb="patch"}'] >= 3
        assert metrics['arranger_api_requests_total{code="200",resource="pods",verb="watch"}'] >= 1
        for kind in ("node", "pod", "tyjob"):
            assert 0 <= metrics[f'arranger_watch_heard_age_seconds{{kind="{kind}"}}'] < 300
        for path in ("/healthz", "/readyz"):
            status, body = worker.get(path)
            assert status == 200 and json.loads(body)["ok"] is True
        assert {"api", "fold", "log", "watch-pod"} <= set(json.loads(worker.get("/readyz")[1])["checks"])


def test_processes_of_one_role_share_the_work(kube: RealKube, redis: RealRedis, tmp_path: Path) -> None:
    names = [f"job-{number:02}" for number in range(16)]
    with (
        kubelets(kube, NodeTemplate("node-1", cpu="64")),
        # A process that gets no processor for three heartbeats loses its share; on a busy machine, one second is short.
        fleet(redis_url=redis.url, kube=kube, folder=tmp_path, heartbeat_s=4, lease_s=12) as workers,
    ):
        workers.start(("watcher", "scheduler"), ("controller",), ("controller",), ("applier",), ("applier",))
        known = heartbeats(redis)
        assert len(known) == 5
        eventually("each sees the others", lambda: all(heartbeats(redis)[one] != at for one, at in known.items()))
        apply(kube, *[job(name, workers=2) for name in names])
        await_stage(kube, "Running", *names)
        assert stages(kube) == dict.fromkeys(names, "Running")
        created = 'arranger_api_requests_total{code="201",resource="pods",verb="create"}'
        shares = [worker.metrics()[created] for worker in workers.of_role("applier")]
        assert all(shares) and sum(shares) == 16 * 3 == len(kube.request("GET", PODS)[1]["items"])
        decided = 'arranger_events_appended_total{kind="StageDecided"}'
        assert all(worker.metrics()[decided] for worker in workers.of_role("controller"))
