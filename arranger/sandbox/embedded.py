"""The embedded cluster in this process: store, HTTP front, custom resources and simulated nodes, ready to use."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import yaml

from arranger.kube.cluster import CRDS
from arranger.sandbox.direct import DirectCluster
from arranger.sandbox.http import EmbeddedApiServer
from arranger.sandbox.kubelet import SimulatedKubelets
from arranger.sandbox.nodes import NodeTemplate
from arranger.sandbox.store import Store
from arranger.sandbox.watching import BOOKMARK_S


class EmbeddedCluster:
    """`async with EmbeddedCluster(crds=[...], nodes=[...]) as cluster:` serves at `cluster.url` with `cluster.token`.

    `crds` are YAML files. `direct` is a client without HTTP, `kubelets` run the pods of `nodes`.
    """

    def __init__(
        self,
        *,
        crds: Iterable[Path] = (),
        nodes: Sequence[NodeTemplate] = (),
        bookmark_s: float = BOOKMARK_S,
    ) -> None:
        self.store = Store(now=time.time)
        self.direct = DirectCluster(self.store)
        self.kubelets = SimulatedKubelets(self.direct, nodes=nodes)
        self._server = EmbeddedApiServer(self.store, now=time.time, bookmark_s=bookmark_s)
        self._crds = list(crds)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def token(self) -> str:
        """The bearer token that every request needs."""
        return self._server.token

    async def __aenter__(self) -> Self:
        for path in self._crds:
            for crd in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                self.store.create(CRDS, "", crd)
        await self._server.start()
        await self.kubelets.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kubelets.stop()
        await self._server.stop()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this cluster, readable by its owner alone; returns the path."""
        # kubectl sends no bearer token over plain HTTP, so the path has the token as well.
        name = "arranger-sandbox"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"{self.url}/{self.token}"}}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path
