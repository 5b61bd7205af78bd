"""The real kubectl against the embedded cluster, with commands as a user would type them."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from arranger.sandbox.embedded import EmbeddedCluster
from arranger.sandbox.nodes import NodeTemplate
from tests.servers import CRD_FILES, ServersUnavailable, in_ci, kube_assets

JOB = """
apiVersion: arranger.dev/v1
kind: TYJob
metadata: {name: j1}
spec:
  priority: 5
  leader: {name: l, template: {spec: {containers: [{name: c, image: i}]}}}
  workerSets: [{name: w, counts: 2, template: {spec: {containers: [{name: c, image: i}]}}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p1, labels: {a: b}, annotations: {sandbox.arranger.dev/run-seconds: "RUN"}}
spec:
  nodeName: n0
  restartPolicy: Never
  containers: [{name: c, image: i, env: [{name: A, value: b}], resources: {requests: {cpu: 1}}}]
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: e1}
involvedObject: {kind: Pod, name: p1, namespace: default, uid: UID}
reason: Tested
message: an event
type: Normal
lastTimestamp: "2026-01-01T00:00:00Z"
"""


def found_kubectls() -> list[str]:
    """The available kubectls: the one in the real server's assets, and the one on the PATH."""
    found = []
    try:
        found.append(str(kube_assets() / "kubectl"))
    except ServersUnavailable:
        if (folder := os.environ.get("KUBEBUILDER_ASSETS")) and (Path(folder) / "kubectl").exists():
            found.append(str(Path(folder) / "kubectl"))
    if on_path := shutil.which("kubectl"):
        found.append(on_path)
    return list(dict.fromkeys(found))


@pytest.fixture(params=["assets", "path"])
def kubectl(request: pytest.FixtureRequest) -> str:
    """Each available kubectl in turn; there may be none on the PATH."""
    found = found_kubectls()
    place = ["assets", "path"].index(request.param)
    if place < len(found):
        return found[place]
    if not found and in_ci():
        pytest.fail("NO REAL SERVER: no kubectl; set KUBEBUILDER_ASSETS", pytrace=False)
    pytest.skip(f"no {'second ' if found else ''}kubectl here: set KUBEBUILDER_ASSETS or install one")


class Kubectl:
    """Runs kubectl on one cluster."""

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self._program = program
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}

    async def start(self, *arguments: str, stdin: str | None = None) -> asyncio.subprocess.Process:
        """Start a kubectl without waiting for its end."""
        return await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )

    async def __call__(self, *arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        """Run a command, check its exit status, and return its output."""
        process = await self.start(*arguments, stdin=stdin)
        output, _ = await process.communicate(stdin.encode() if stdin is not None else None)
        assert (process.returncode != 0) is fails, f"kubectl {' '.join(arguments)}: {output.decode()}"
        return output.decode()


@asynccontextmanager
async def cluster(kubectl: str, folder: Path) -> AsyncIterator[Kubectl]:
    """An embedded cluster with two nodes."""
    nodes = [NodeTemplate("n0", gpus=8), NodeTemplate("n1")]
    async with EmbeddedCluster(crds=CRD_FILES, nodes=nodes) as embedded:
        yield Kubectl(kubectl, embedded.kubeconfig(folder / "kubeconfig"))


async def test_a_tyjob_is_applied_changed_shown_and_deleted(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        assert "condition met" in await k("wait", "--for=condition=Established", "crd/tyjobs.arranger.dev")
        assert "created" in await k("apply", "-f", "-", stdin=JOB)
        assert "unchanged" in await k("apply", "-f", "-", stdin=JOB)
        assert "configured" in await k("apply", "-f", "-", stdin=JOB.replace("priority: 5", "priority: 7"))
        head, row = (await k("get", "tyj")).splitlines()
        assert head.split() == ["NAME", "STAGE", "READY", "GPUS", "POSITION", "STARTED", "AGE"]
        assert row.split()[0] == "j1"
        await k("patch", "tyj", "j1", "--subresource=status", "--type=merge", "-p", '{"status":{"priority":7}}')
        head, row = (await k("get", "tyj", "-o", "wide")).splitlines()
        assert "MESSAGE" in head and row.split()[2] == "7"
        assert (await k("get", "tyj", "j1", "-o", "name")).strip() == "tyjob.arranger.dev/j1"
        assert "No resources found" in await k("get", "tyj", "-A", "-l", "a=b")
        assert "Priority:" in await k("describe", "tyj", "j1")
        shown = yaml.safe_load(await k("get", "tyj", "j1", "-o", "yaml"))
        assert shown["spec"]["restartLimit"] == 3
        shown["spec"]["priority"] = 6
        assert "replaced" in await k("replace", "-f", "-", stdin=yaml.safe_dump(shown))
        assert "deleted" in await k("delete", "tyj", "j1")
        await k("wait", "--for=delete", "tyj/j1", "--timeout=10s")


async def test_a_wrong_tyjob_is_refused_naming_the_field(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        unknown = await k("apply", "-f", "-", stdin=JOB.replace("priority: 5", "prioritee: 5"), fails=True)
        assert 'unknown field "spec.prioritee"' in unknown
        high = await k("apply", "-f", "-", stdin=JOB.replace("priority: 5", "priority: 11"), fails=True)
        assert "spec.priority: Invalid value: 11: spec.priority in body should be less than or equal to 10" in high
        few = await k("apply", "-f", "-", stdin=JOB.replace("priority: 5", "minWorkersNum: 9"), fails=True)
        assert "spec.minWorkersNum" in few
        assert "No resources found" in await k("get", "tyj")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("kind: TYJob", "kind: TYjob", 'no matches for kind "TYjob" in version "arranger.dev/v1"'),
        ("arranger.dev/v1", "arranger.dev/v2", 'no matches for kind "TYJob" in version "arranger.dev/v2"'),
        ("arranger.dev/v1", "aranger.dev/v1", 'no matches for kind "TYJob" in version "aranger.dev/v1"'),
    ],
    ids=["kind", "version", "group"],
)
async def test_a_misspelt_kind_or_version_is_said_to_be_unknown(
    kubectl: str, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    async with cluster(kubectl, tmp_path) as k:
        assert said in await k("apply", "-f", "-", stdin=JOB.replace(right, wrong), fails=True)


async def test_patches_waits_labels_and_server_side_apply(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        assert "serverside-applied" in await k("apply", "--server-side", "-f", "-", stdin=JOB)
        assert "serverside-applied" in await k("apply", "--server-side", "-f", "-", stdin=JOB.replace("5", "6", 1))
        await k("patch", "tyj", "j1", "--type=merge", "-p", '{"spec":{"priority":3}}')
        await k("patch", "tyj", "j1", "--type=json", "-p", '[{"op":"replace","path":"/spec/priority","value":4}]')
        condition = (
            '{"type":"Running","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"A","message":"m"}'
        )
        status = f'{{"status":{{"stage":"Running","conditions":[{condition}]}}}}'
        await k("patch", "tyj", "j1", "--subresource=status", "--type=merge", "-p", status)
        await k("wait", "--for=condition=Running", "tyj/j1", "--timeout=10s")
        await k("wait", "--for=jsonpath={.status.stage}=Running", "tyj/j1", "--timeout=10s")
        await k("label", "tyj", "j1", "x=y")
        await k("annotate", "tyj", "j1", "x=y")
        assert "j1" in await k("get", "tyj", "-l", "x in (y,z),!q")
        assert "1 to 10, higher goes first and may take room from lower ones" in await k("explain", "tyj.spec.priority")
        assert (await k("auth", "can-i", "create", "tyjobs")).strip().endswith("yes")


async def test_a_watch_shows_changes_as_they_happen(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        await k("apply", "-f", "-", stdin=JOB)
        watching = await k.start("get", "tyj", "-w")
        assert watching.stdout is not None
        try:
            async with asyncio.timeout(30):
                await watching.stdout.readline()
                assert (await watching.stdout.readline()).split()[0] == b"j1"
                await k(
                    "patch", "tyj", "j1", "--subresource=status", "--type=merge", "-p", '{"status":{"stage":"Running"}}'
                )
                assert (await watching.stdout.readline()).split()[:2] == [b"j1", b"Running"]
        finally:
            watching.kill()
            await watching.communicate()


async def test_pods_run_are_described_and_deleted(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        await k("apply", "-f", "-", stdin=POD.replace("RUN", "1"))
        await k("patch", "pod", "p1", "-p", '{"metadata":{"labels":{"q":"r"}}}')
        await k("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/p1", "--timeout=20s")
        assert "Completed" in await k("get", "pods", "-o", "wide")
        assert "no logs" in await k("logs", "p1")
        uid = await k("get", "pod", "p1", "-o", "jsonpath={.metadata.uid}")
        await k("apply", "-f", "-", stdin=EVENT.replace("UID", uid))
        assert "an event" in await k("get", "events")
        assert "an event" in await k("describe", "pod", "p1")
        await k("delete", "pod", "p1")
        await k("apply", "-f", "-", stdin=POD.replace("RUN", "600"))
        await k("wait", "--for=condition=Ready", "pod/p1", "--timeout=20s")
        await k("delete", "pod", "p1")
        assert "No resources found" in await k("get", "pods")


async def test_nodes_are_cordoned_tainted_and_described(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        await k("cordon", "n1")
        assert "Ready,SchedulingDisabled" in await k("get", "nodes")
        await k("uncordon", "n1")
        await k("taint", "node", "n1", "a=b:NoSchedule")
        assert "a=b:NoSchedule" in await k("describe", "node", "n1")
        await k("taint", "node", "n1", "a-")
        await k("label", "node", "n1", "zone=a")
        assert "n1" in await k("get", "nodes", "-l", "zone=a", "-o", "name")
        assert "nvidia.com/gpu" in await k("describe", "node", "n0")


async def test_namespaces_come_and_go_with_their_content(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:
        await k("create", "namespace", "team")
        await k("create", "configmap", "c", "--from-literal=a=b", "-n", "team")
        await k("apply", "-n", "team", "-f", "-", stdin=JOB)
        assert "team" in await k("get", "tyj", "-A")
        await k("delete", "namespace", "team")
        assert "No resources found" in await k("get", "tyj", "-A")


async def test_what_kubectl_creates_in_its_own_format_is_taken_whole(kubectl: str, tmp_path: Path) -> None:
    async with cluster(kubectl, tmp_path) as k:

        async def made(kind: str, *words: str) -> dict[str, Any]:
            await k("create", kind, "made", *words)
            found: dict[str, Any] = json.loads(await k("get", kind, "made", "-o", "json"))
            return found

        low = await made("priorityclass", "--value=-5", "--description=last", "--preemption-policy=Never")
        assert (low["value"], low["description"], low["preemptionPolicy"]) == (-5, "last", "Never")
        quota = await made("quota", "--hard=pods=8,requests.nvidia.com/gpu=4", "--scopes=BestEffort")
        assert quota["spec"] == {"hard": {"pods": "8", "requests.nvidia.com/gpu": "4"}, "scopes": ["BestEffort"]}
        budget = await made("pdb", "--selector=app=x", "--min-available=50%")
        assert budget["spec"] == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}}
        await k("delete", "pdb", "made")
        most = await made("pdb", "--selector=app in (x,y)", "--max-unavailable=2")
        expressions = [{"key": "app", "operator": "In", "values": ["x", "y"]}]
        assert most["spec"] == {"maxUnavailable": 2, "selector": {"matchExpressions": expressions}}
