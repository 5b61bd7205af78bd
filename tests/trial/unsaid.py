"""Row E5: what nothing said before: a slow applier, a definition that is being deleted; and what came too late."""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import eventually, job
from tests.servers import MERGE, free_port
from tests.trial.faults import Wire
from tests.trial.forged import stage
from tests.trial.scene import Lab, Scene, scene, within
from tests.trial.streams import create, tyjobs
from tests.trial.verdicts import Verdict

NODES = [NodeTemplate("node-0", cpu="64")]
#: For so long nobody may have run an earlier release before the first snapshot; not again in the next epoch.
_GRACE_S = 20
#: How late each byte of the slow applier is, in each direction.
SLOW_S = 1.2
_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tyjobs.arranger.dev"


def unsaid(lab: Lab, *, settings: Mapping[str, object] | None = None) -> Verdict:
    """Two appliers, one far from the API server; a new epoch; annotations that no pod may have; half requests to
    `serve`; and at last a definition that a finalizer of somebody else keeps."""
    found = Verdict("E5", "what nothing said")
    with (
        Wire(lab.kube.port, delay_s=SLOW_S) as wire,
        scene(lab, nodes=NODES, settings={**(settings or {}), "upgrade_grace_s": _GRACE_S}) as there,
    ):
        there.start("watcher", "decider", "applier")
        (slow,) = there.start("applier", api_url=wire.url("https"))
        for number in range(24):
            create(lab.kube, "default", job(f"job-{number:02}", workers=1))
        named = within(lambda: _said(there, "is slow", "has been slow"), within_s=60, every_s=1)
        found.told(slow=str(named)[:160])
        found.expect(bool(named) and f"-{slow.pid}-" in str(named), f"the slow applier isn't named: {named}")
        _annotations(there, found)
        _new_epoch(there, found)
        _half_requests(there, found)
        _definition(there, found)
        found.faults += there.tracebacks()
    return found


def _said(there: Scene, *words: str) -> str:
    """The first problem of `arranger status` with one of these words."""
    problems = there.status()[2].get("problems") or []
    return next((str(one["what"]) for one in problems if any(word in one["what"] for word in words)), "")


def _annotations(there: Scene, found: Verdict) -> None:
    made = job("annotated", workers=1)
    made["spec"]["leader"]["template"]["metadata"] = {"annotations": {"a": "x" * 200_000, "b": "y" * 100_000}}
    create(there.kube, "default", made)
    path = f"{tyjobs('default')}/annotated"
    eventually("it fails", lambda: stage(there, "annotated") == "Failed")
    said = there.kube.request("GET", path)[1]["status"]["message"]
    had = any(
        event.name == "annotated" and (event.object.get("status") or {}).get("allocations")
        for event in there.history.since(0)
        if event.kind == "job"
    )
    found.told(annotations=said[:120])
    found.expect("262144" in said and not had, f"a job that no pod can be made of had nodes: {had}, {said}")


def _new_epoch(there: Scene, found: Verdict) -> None:
    eventually("the first one has", lambda: (there.status()[2].get("snapshot") or {}).get("offset"), within_s=130)
    there.redis.command("FLUSHALL")
    began_s = time.monotonic()
    stored = within(lambda: (there.status()[2].get("snapshot") or {}).get("offset"), within_s=3 * _GRACE_S, every_s=2)
    found.told(snapshot_s=time.monotonic() - began_s)
    found.expect(bool(stored), "the new epoch has no snapshot")


def _half_requests(there: Scene, found: Verdict, *, many: int = 300) -> None:
    port = free_port()
    argv = [sys.executable, "-m", "arranger.cli.main", "serve", "--log", there.redis.url, "--port", str(port)]
    with subprocess.Popen(argv, cwd=there.lab.code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            eventually("it serves", lambda: _connected(port))
            halves = [socket.create_connection(("127.0.0.1", port)) for _ in range(many)]
            for half in halves:
                half.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
            began_s, left = time.monotonic(), many
            for half in halves:
                half.settimeout(max(0.1, 100 - (time.monotonic() - began_s)))
                try:
                    left -= half.recv(1) == b""
                except OSError as problem:
                    left -= isinstance(problem, ConnectionError)
                half.close()
            found.told(half_requests_s=time.monotonic() - began_s, half_requests_left=left)
            found.expect(not left, f"{left} of {many} half requests stay open")
        finally:
            server.terminate()


def _connected(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _definition(there: Scene, found: Verdict) -> None:
    kept = {"metadata": {"finalizers": ["example.org/keep"]}}
    there.kube.request("PATCH", _CRD, kept, content_type=MERGE)
    there.kube.request("DELETE", _CRD)
    try:
        said = within(lambda: _said(there, "in deletion"), within_s=90, every_s=1)
        found.told(definition=str(said)[:160])
        found.expect("example.org/keep" in str(said), f"nothing says what keeps the definition: {said}")
    finally:
        there.kube.request("PATCH", _CRD, {"metadata": {"finalizers": None}}, content_type=MERGE, check=False)
