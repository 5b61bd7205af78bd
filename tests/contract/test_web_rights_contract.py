"""The API behind a real API server: each user sees exactly what `kubectl auth can-i` says."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.cli.main import main
from arranger.clock import SystemClock
from arranger.events.file_log import FileLog
from arranger.kube.client import HttpCluster
from arranger.kube.config import find_access
from arranger.web.masking import lacking
from arranger.web.refusals import Refusal
from arranger.web.rights import EVERYTHING, JOBS, NODES, QUEUES, ClusterGate, Right
from tests.commands import Run, to_file
from tests.servers import REPOSITORY, Certificates, RealKube, documents
from tests.unit.test_pseudonyms import secretive
from tests.unit.test_web_rights import guarded

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

HOME = "web-rights"
#: A job of the log that is shown.
JOB = "secret-space/secret-job-2"
#: User → what it is bound to: a ClusterRole, and the namespace of the binding, empty for all of the cluster.
USERS = {
    "overseer": (("web-everything", ""),),
    "member": (("web-jobs", "secret-space"), ("web-nodes", "")),
    "stranger": (),
}
ROLES = {
    "web-everything": [(right.group, right.resource, right.verb) for right in EVERYTHING],
    "web-jobs": [(JOBS.group, JOBS.resource, JOBS.verb)],
    "web-nodes": [(NODES.group, NODES.resource, NODES.verb)],
}


def bindings() -> Iterator[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    for role, rules in ROLES.items():
        told = [{"apiGroups": [of], "resources": [resource], "verbs": [verb]} for of, resource, verb in rules]
        yield {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": told}
    for user, bound in USERS.items():
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": user, "namespace": HOME}}
        for role, namespace in bound:
            metadata = {"name": f"{user}-{role}"} | ({"namespace": namespace} if namespace else {})
            yield {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": HOME}],
            }


def as_user(kube: RealKube, token: str) -> Path:
    """A kubeconfig with this token in place of the administrator's."""
    config = yaml.safe_load(kube.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    own = kube.home / "own.kubeconfig"
    own.write_text(yaml.safe_dump(config))
    return own


@pytest.fixture(scope="module")
def server(kube_server: RealKube, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the API's own account, with the rights in deploy/console and no others."""
    items = [
        one for one in documents((REPOSITORY / "deploy/console/console.yaml").read_text())
        if one["kind"] in ("ServiceAccount", "ClusterRoleBinding")
    ]  # fmt: skip
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "arranger-system"}}
    kube_server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([home, *items]))
    token = kube_server.kubectl("create", "token", "arranger-console", "-n", "arranger-system").stdout.strip()
    path = tmp_path_factory.mktemp("console") / "kubeconfig"
    path.write_text(as_user(kube_server, token).read_text())
    return path


@pytest.fixture(scope="module")
def tokens(kube_server: RealKube) -> Iterator[dict[str, str]]:
    """The users' tokens, from the API server."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (HOME, "secret-space")
    ]
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*namespaces, *bindings()]})
    kube_server.kubectl("apply", "-f", "-", stdin=made)
    yield {user: kube_server.kubectl("create", "token", user, "-n", HOME).stdout.strip() for user in USERS}
    kube_server.kubectl("delete", "--wait=false", "-f", "-", stdin=made)


def can_i(kube: RealKube, token: str, right: Right) -> bool:
    """What kubectl says. It asks with the user's own token."""
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    where = ["-n", right.namespace] if right.namespace else ["--all-namespaces"]
    own = as_user(kube, token)
    done = kube.kubectl(f"--kubeconfig={own}", "auth", "can-i", right.verb, resource, *where, check=False)
    assert done.stdout.strip() in ("yes", "no"), done.stderr
    return done.stdout.strip() == "yes"


def test_each_user_sees_what_kubectl_says_it_may(
    kube_server: RealKube, server: Path, tokens: dict[str, str], tmp_path: Path
) -> None:
    _, name = to_file(secretive().entries, tmp_path / "secret.log")
    namespaces = ("secret-space", "default")

    async def answers() -> dict[str, dict[str, tuple[int, Any]]]:
        cluster = HttpCluster(find_access(server))
        try:
            async with guarded(cluster, SystemClock(), FileLog(Path(name)), asked_of=name) as api:
                paths = ("replay", "queue", "top", "moment", "series", "gantt", "node-gantt", f"job?job={JOB}")
                token = tokens["overseer"]
                while not (await api.get("gantt", token))[1]["complete"]:  # noqa: ASYNC110  # the process tells nobody
                    await asyncio.sleep(0.01)
                return {
                    user: {path: (await api.get(path, token))[:2] for path in paths} for user, token in tokens.items()
                }
        finally:
            await cluster.close()

    found = asyncio.run(answers())
    for user, token in tokens.items():
        status, seen = found[user]["replay"]
        assert status == 200
        shown = {job["namespace"] for job in seen["jobs"] if "uid" in job}
        jobs = {of for of in namespaces if can_i(kube_server, token, Right(JOBS.verb, JOBS.group, JOBS.resource, of))}
        assert shown == jobs, user
        assert bool(seen["nodes"]) == can_i(kube_server, token, NODES), user
        assert (found[user]["queue"][0] == 200) == can_i(kube_server, token, QUEUES), user
        for view in ("moment", "gantt"):
            named = {one["job"].partition("/")[0] for one in found[user][view][1]["jobs"]}
            assert named & {*namespaces} == jobs, (user, view)
        may_nodes, may_queues = can_i(kube_server, token, NODES), can_i(kube_server, token, QUEUES)
        moment, series = found[user]["moment"][1], found[user]["series"][1]
        assert (bool(moment["nodes"]), bool(moment["queues"])) == (may_nodes, may_queues), user
        assert (bool(series["gpus"]), bool(series["queues"])) == (may_nodes, may_queues), user
        assert (found[user]["node-gantt"][0] == 200) == may_nodes, user
        everything = all(can_i(kube_server, token, right) for right in EVERYTHING)
        assert (found[user]["top"][0] != 403) == everything, user
        assert (found[user][f"job?job={JOB}"][0] == 200) == everything, user
    assert [user for user in tokens if found[user]["top"][0] != 403] == ["overseer"]
    for view in ("replay", "moment", "series", "gantt"):
        assert "secret" not in json.dumps(found["stranger"][view])


async def test_a_token_of_nobody_is_refused(server: Path, tokens: dict[str, str]) -> None:
    cluster = HttpCluster(find_access(server))
    gate = ClusterGate(cluster, SystemClock())
    forged = tokens["overseer"][:-6] + "AAAAAA"
    try:
        assert await lacking(await gate.viewer(f"Bearer {tokens['overseer']}")) == []
        with pytest.raises(Refusal, match="doesn't know this token"):
            await gate.viewer(f"Bearer {forged}")
    finally:
        await cluster.close()


def test_the_command_asks_the_cluster_and_ends_in_order(server: Path, tokens: dict[str, str], tmp_path: Path) -> None:
    _, name = to_file(secretive().entries, tmp_path / "secret.log")
    command = [sys.executable, "-m", "arranger.cli.main", "serve", "--log", name, "--port", "0", "--access", "cluster"]
    environment = {**os.environ, "KUBECONFIG": str(server)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition(" is the console")[0].rstrip("/")
            assert asked(f"{address}/api/v1/replay", "") == 401
            assert asked(f"{address}/api/v1/replay", tokens["stranger"]) == 200
            assert asked(f"{address}/api/v1/events", tokens["stranger"]) == 403
            assert asked(f"{address}/api/v1/events?to=5", tokens["overseer"]) == 200
        finally:
            process.terminate()
        assert process.wait(30) == 0


def other_address() -> str:
    """An address of this machine that isn't loopback: an API server refuses to be a proxy to those."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def service(address: str, port: int, *, tls: bool) -> str:
    """The Service of deploy/console, or with deploy/console-tls, and this server behind it."""
    (found,) = [
        one for one in documents((REPOSITORY / "deploy/console/console.yaml").read_text()) if one["kind"] == "Service"
    ]
    del found["spec"]["selector"]
    if tls:
        (patch,) = yaml.safe_load((REPOSITORY / "deploy/console-tls/service.yaml").read_text())
        found["spec"]["ports"] = patch["value"]
    (of_service,) = found["spec"]["ports"]
    named = {key: found["metadata"][key] for key in ("name", "namespace")}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": named,
        "spec": {"nodeName": "nowhere", "containers": [{"name": "arranger", "image": "arranger"}]},
    }
    # The API server is a proxy to addresses of pods alone.
    of_pod = {"ip": address, "targetRef": {"kind": "Pod", **named}}
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": named,
        "subsets": [{"addresses": [of_pod], "ports": [{"name": of_service["name"], "port": port}]}],
    }
    return yaml.safe_dump_all([found, pod, endpoints])


@pytest.fixture(scope="module")
def proxied(kube_server: RealKube, tokens: dict[str, str]) -> None:
    """Gives two of the users the right to the API server's proxy."""
    may = ["-n", "arranger-system", "create"]
    kube_server.kubectl(*may, "role", "web-proxy", "--verb=get", "--resource=services/proxy")
    for user in ("overseer", "member"):
        bound = f"--serviceaccount={HOME}:{user}"
        kube_server.kubectl(*may, "rolebinding", f"web-proxy-{user}", "--role=web-proxy", bound)


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_commands_read_the_log_through_the_proxy_of_the_api_server(
    kube_server: RealKube,
    server: Path,
    tokens: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tls: bool,
) -> None:
    _, name = to_file(secretive().entries, tmp_path / "secret.log")
    address = other_address()
    command = [sys.executable, "-m", "arranger.cli.main", "serve", "--log", name, "--access", "cluster"]
    if tls:
        made = Certificates(tmp_path)
        command += ["--tls-cert-file", str(made.certificate_file), "--tls-private-key-file", str(made.key_file)]
    environment = {**os.environ, "KUBECONFIG": str(server)}

    def run(token: str) -> Run:
        config = ["--config", str(tmp_path / "own.toml")]
        (tmp_path / "own.toml").write_text(f"kubeconfig = {str(as_user(kube_server, token))!r}")
        return Run(capsys, "replay", "--server", "cluster", *config)

    with subprocess.Popen(
        [*command, "--host", address, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().partition(" is the console")[0].rstrip("/")
            assert url.startswith("https:" if tls else "http:")
            port = int(url.rpartition(":")[2])
            kube_server.kubectl("apply", "-f", "-", stdin=service(address, port, tls=tls))
            address_of_pod = json.dumps({"status": {"podIP": address, "podIPs": [{"ip": address}]}})
            patched = ("pod", "arranger-console", "-n", "arranger-system", "--subresource=status")
            kube_server.kubectl("patch", *patched, "--type=merge", "-p", address_of_pod)
            shown = run(tokens["overseer"])
            assert not shown.err
            assert shown.out == Run(capsys, "replay", "--log", name).out
            assert main(["replay", "--config", str(tmp_path / "own.toml")], prog_name="kubectl arranger") == 0
            assert capsys.readouterr().out == shown.out, "the plugin finds the server by itself"
            few, stranger = run(tokens["member"]), run(tokens["stranger"])
        finally:
            process.terminate()
        process.wait(30)
        gone = run(tokens["overseer"])
    assert (few.status, few.out) == (1, "")
    assert "the log names what you may not see: get tyjobs, list queues, list pods, list resourcequotas" in few.err
    assert (stranger.status, stranger.out) == (1, "")
    assert 'cannot get resource "services/proxy"' in stranger.err
    assert (gone.status, gone.out) == (1, "")
    assert "arranger serve in the cluster: " in gone.err


def asked(url: str, token: str) -> int:
    """The status of an answer, once the server has read its log."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code != 503:
                    return refused.code
        time.sleep(0.05)
