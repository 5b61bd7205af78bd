"""`python -m benchmarks.canned PODS PAGE`: an API server of made-up pods that is as fast as bytes can be sent.

Its pages are encoded in advance, so that a listing measures its reader. It serves no objects but pods, takes
no writes but of who holds the cluster, and its watches stay silent. The first line that it prints is its URL.
"""

import asyncio
import sys

import msgspec
from aiohttp import web

from arranger.kube.cluster import Object


def _pod(number: int) -> Object:
    """A running pod with about the fields and the size that a kubelet's status gives it."""
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "env": [{"name": f"VARIABLE_{n}", "value": "x" * 20} for n in range(5)],
        "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "metadata": {
            "name": f"app-{number:06}",
            "namespace": "default",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "app", "pod-template-hash": "6d4cf56db6"},
            "managedFields": [
                {
                    "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:status": {f"f:field{n}": {".": {}, "f:type": {}} for n in range(12)}},
                }
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 5000:05}",
            "restartPolicy": "Always",
            "containers": [container],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "main", "ready": True, "started": True, "restartCount": number % 3,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }  # fmt: skip


def _pages(pods: int, size: int) -> list[bytes]:
    pages: list[bytes] = []
    for begin in range(0, pods, size):
        end = min(begin + size, pods)
        metadata = {"resourceVersion": "1", "continue": str(len(pages) + 1) if end < pods else ""}
        items = [_pod(number) for number in range(begin, end)]
        pages.append(msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    return pages


async def _serve(pods: int, size: int) -> None:
    pages = _pages(pods, size)
    # Empty as a listing, and by its UID what tells one cluster from another.
    nothing = msgspec.json.encode({"metadata": {"resourceVersion": "1", "uid": "canned"}, "items": []})

    holders: list[Object] = []  # of the cluster: the one thing that a watcher writes

    async def answer(request: web.Request) -> web.StreamResponse:
        if "/clusterlogs/" in request.path:
            holders[:] = (await request.json())["holders"] if request.method == "PATCH" else holders
            return web.json_response({"metadata": {"resourceVersion": "1", "uid": "canned"}, "holders": holders})
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        body = pages[int(request.query.get("continue") or 0)] if request.path.endswith("/pods") else nothing
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
