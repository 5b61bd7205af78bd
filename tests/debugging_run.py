"""The run that docs/debugging.md describes: `python -m tests.debugging_run FILE` repeats it and keeps its log.

Three nodes of 4 GPUs under `arranger demo --keep`, with real workers and real kubectl. `eval` uses everything, `sweep`
and `train` wait. A user cordons node-3; `eval` ends, `sweep` gets the remaining room, `train` still waits. Then node-3
is uncordoned and `train` starts; later its leader fails once.

It needs kubectl, on the PATH or in KUBEBUILDER_ASSETS, and about a minute. The committed log is from such a run.
Another run has other offsets, so `python -m tests.debugging_document` must then rewrite the document's blocks.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds within which a step of the story must happen.
_PATIENCE_S = 60.0


class Story:
    """The user of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        found = shutil.which("kubectl", path=f"{assets}{os.pathsep}{os.environ.get('PATH', '')}" if assets else None)
        if found is None:
            raise SystemExit("kubectl is needed: put it on the PATH, or set KUBEBUILDER_ASSETS")
        self._kubectl = found

    def kubectl(self, *words: str, manifest: object = None) -> str:
        """Run kubectl, with the given manifest, if any, on its standard input."""
        done = subprocess.run(
            [self._kubectl, "--kubeconfig", str(self._folder / "kubeconfig"), *words],
            input=json.dumps(manifest) if manifest is not None else None,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def apply(self, manifest: object) -> None:
        """kubectl apply."""
        self.kubectl("apply", "-f", "-", manifest=manifest)

    def job(self, name: str) -> dict[str, Any]:
        """A TYJob's status."""
        status: dict[str, Any] = json.loads(self.kubectl("get", "tyj", name, "-o", "json")).get("status", {})
        return status

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"this didn't come about in {_PATIENCE_S:.0f} s: {what}")
            time.sleep(0.2)

    def stage(self, name: str, desired: str) -> None:
        """Wait until a job is in a stage."""
        self.until(f"{name} {desired}", lambda: self.job(name).get("stage") == desired)


def tyjob(name: str, *, workers: int, least: int, priority: int, leader: dict[str, str]) -> dict[str, Any]:
    """A job whose pods have 1 GPU each; the annotations in `leader` control its simulated leader."""

    def template(container: str, annotations: dict[str, str]) -> dict[str, Any]:
        amounts = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
        resources = {"requests": amounts, "limits": {"nvidia.com/gpu": "1"}}
        image = f"registry.example/rl/{container}:1.0"
        containers = [{"name": container, "image": image, "resources": resources}]
        metadata = {"annotations": {f"sandbox.arranger.dev/{key}": value for key, value in annotations.items()}}
        return {"metadata": metadata, "spec": {"containers": containers}}

    return {
        "apiVersion": "arranger.dev/v1",
        "kind": "TYJob",
        "metadata": {"name": name},
        "spec": {
            "priority": priority,
            "minWorkersNum": least,
            "leader": {"name": "learner", "template": template("learner", leader)},
            "workerSets": [{"name": "actors", "counts": workers, "template": template("actor", {})}],
        },
    }


def live(story: Story) -> None:
    # As important as `sweep`, which would otherwise take its room.
    story.apply(tyjob("eval", workers=11, least=11, priority=7, leader={"run-seconds": "12"}))
    story.stage("eval", "Running")
    story.apply(tyjob("sweep", workers=7, least=1, priority=7, leader={"run-seconds": "600"}))
    story.apply(tyjob("train", workers=4, least=3, priority=5, leader={"run-seconds": "600"}))
    time.sleep(2)
    story.kubectl("cordon", "node-3")
    story.stage("eval", "Succeeded")
    story.stage("sweep", "Running")
    time.sleep(12)
    story.kubectl("uncordon", "node-3")
    story.stage("train", "Running")
    time.sleep(3)
    story.kubectl("delete", "pod", "train-learner-0", "--wait=false")
    story.until("train again", lambda: story.job("train").get("attempt") == 1)
    story.stage("train", "Running")
    time.sleep(2)


def run(target: Path, story: Callable[[Story], None] = live) -> None:
    """Run a story and keep its log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "arranger.cli.main", "demo", "--keep", "--nodes", "3", "--gpus", "4"]
        with subprocess.Popen([*command, "--folder", str(folder)], stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            while "up after" not in (line := demo.stdout.readline()):
                if not line:
                    raise SystemExit("the demo didn't start")
            try:
                story(Story(folder))
            finally:
                demo.send_signal(signal.SIGINT)
                demo.stdout.read()
        shutil.copyfile(folder / "log", target)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
