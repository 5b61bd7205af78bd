"""Helm for tests: the real one, with its caches in a folder of the test, and the chart's objects beside kustomize's."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.servers import REPOSITORY, documents, helm_binary, kube_assets

CHART = REPOSITORY / "deploy" / "chart"
NAMESPACE = "arranger-system"

Objects = list[dict[str, Any]]


class Helm:
    """Helm with caches in `folder`, speaking to the cluster of `kubeconfig` if there is one."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._binary = helm_binary()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))},
            **{f"HELM_{kind}_HOME": str(folder / f"helm-{kind.lower()}") for kind in ("CACHE", "CONFIG", "DATA")},
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig or os.devnull),
        }

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Helm. With `check`, a failure raises an error with Helm's output."""
        done = subprocess.run(
            [str(self._binary), *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=self._environment,
        )
        if check and done.returncode:
            raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def rendered(self, *values: str, chart: Path = CHART) -> Objects:
        """The objects of the chart with these values (`name=value`), without the definitions."""
        return by_name(documents(self.run("template", "arranger", str(chart), *self._values(values)).stdout))

    def refused(self, *values: str) -> str:
        """What Helm says when it refuses these values."""
        done = self.run("template", "arranger", str(CHART), *self._values(values), check=False)
        assert done.returncode, values
        return done.stderr

    def _values(self, values: Iterable[str]) -> list[str]:
        return ["--namespace", NAMESPACE, *(part for value in values for part in ("--set", value))]


def kustomized(folder: Path) -> Objects:
    """What `kubectl kustomize` makes of a folder."""
    command = [str(kube_assets() / "kubectl"), "kustomize", str(folder)]
    return by_name(documents(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def by_name(objects: Iterable[dict[str, Any] | None]) -> Objects:
    """The objects in an order of their own, without empty documents."""
    return sorted((item for item in objects if item), key=lambda item: (item["kind"], item["metadata"]["name"]))


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """The objects of one kind by name."""
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def relative(path: Path, start: Path) -> str:
    """The path from a folder; kustomize takes no absolute ones."""
    return str(Path(*[".."] * len(start.resolve().parts[1:]), *path.resolve().parts[1:]))
