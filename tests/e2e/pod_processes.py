"""Real processes in place of pods: each has its pod's environment and command, and finds the others by the names that
the cluster's DNS would have, on addresses of its own on loopback.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.harness import PATIENCE_S, eventually, pods_of
from tests.servers import REPOSITORY, KubeServer

CORE = "/api/v1/namespaces/default"

#: A program → the module that stands in for it. A template's command is one of them, or a shell that starts one.
STAND_INS = {program: f"tests.standins.{program}" for program in ("torchrun", "vllm", "ray")}
_SHELL = "bash"


def environment_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a pod's first container."""
    found: dict[str, str] = {}
    for variable in pod["spec"]["containers"][0]["env"]:
        found[variable["name"]] = expanded(variable.get("value", ""), found)
    return found


def command_of(pod: Mapping[str, Any]) -> list[str]:
    """The command and arguments of a pod's first container, as the kubelet gives them to it."""
    container, environment = pod["spec"]["containers"][0], environment_of(pod)
    return [expanded(part, environment) for part in (*container["command"], *container.get("args", ()))]


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced; a name that isn't there stays."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


class PodProcesses:
    """The processes of one job's pods."""

    def __init__(self, kube: KubeServer, job: str, folder: Path) -> None:
        self._kube, self._job, self._folder = kube, job, folder
        self._hosts, self._root, self._bin = folder / "hosts.json", folder / "root", folder / "bin"
        self._addresses: dict[str, str] = {}
        #: UID of a pod → its process.
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for program, module in STAND_INS.items():
            script = self._bin / program
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            script.chmod(0o755)

    def mount(self) -> None:
        """Write the DNS names and the members file as they are now, each as a whole."""
        self._replace(self._hosts, json.dumps(self._names()))
        code, found = self._kube.request("GET", f"{CORE}/configmaps/{self._job}-members", check=False)
        if code == 200:
            self._replace(self._root / "etc/arranger/members.json", found["data"]["members.json"])

    def _names(self) -> dict[str, str]:
        """What the DNS has: the host names of the pods that the job's Service selects, below its name."""
        service = self._kube.request("GET", f"{CORE}/services/{self._job}")[1]["spec"]
        assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
        found = {}
        for pod in pods_of(self._kube, self._job):
            selected = service["selector"].items() <= pod["metadata"]["labels"].items()
            selected &= pod["status"].get("phase") not in ("Succeeded", "Failed")
            if selected and pod["status"].get("podIP") and pod["spec"]["subdomain"] == self._job:
                address = self._addresses.setdefault(pod["status"]["podIP"], _loopback())
                found[f"{pod['spec']['hostname']}.{self._job}.default.svc"] = address
        return found

    @staticmethod
    def _replace(path: Path, content: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(content)
        new.replace(path)

    def follow(self) -> None:
        """Start a process for each new pod whose program has a stand-in, and kill those whose pods are gone."""
        self.mount()
        pods = {pod["metadata"]["uid"]: pod for pod in pods_of(self._kube, self._job)}
        going = [uid for uid, pod in pods.items() if "deletionTimestamp" in pod["metadata"]]
        for uid in [uid for uid in self._processes if uid not in pods or uid in going]:
            _end(self._processes.pop(uid))
        for uid in [uid for uid in pods if uid not in self._processes and uid not in going]:
            program, *arguments = command_of(pods[uid])
            if program not in (*STAND_INS, _SHELL):
                continue
            environment = environment_of(pods[uid]) | {
                "STANDIN_HOSTS": str(self._hosts),
                "STANDIN_ROOT": str(self._root),
                "PYTHONPATH": str(REPOSITORY),
                "PATH": f"{self._bin}:{os.environ['PATH']}",
            }
            argv = [program if program == _SHELL else str(self._bin / program), *arguments]
            with self._output(pods[uid]["metadata"]["name"]).open("ab") as output:
                self._processes[uid] = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.out"

    def said(self, name: str, what: str) -> list[Any]:
        """What the process of a pod has printed under this word, in order."""
        written = self._output(name).read_text() if self._output(name).exists() else ""
        told = [json.loads(line) for line in written.split("\n")[:-1]]  # the last line may be written just now
        return [line[what] for line in told if what in line]

    def until(self, what: str, look: Any) -> None:
        """Follow the pods until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not look():
            self.follow()
            assert time.monotonic() < deadline, f"still not: {what}; {self._outputs()}"
            time.sleep(0.1)

    def _outputs(self) -> dict[str, str]:
        return {path.name: path.read_text()[-500:] for path in sorted(self._folder.glob("*.out"))}

    def close(self) -> None:
        for process in self._processes.values():
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started, as the end of a container does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    eventually("nothing of the pod runs any more", lambda: not _group_exists(process.pid))


def _group_exists(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def _loopback() -> str:
    """An address that no other test uses."""
    chance = random.SystemRandom()
    return f"127.{chance.randrange(1, 255)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"


@contextmanager
def pod_processes(kube: KubeServer, job: str, folder: Path) -> Iterator[PodProcesses]:
    """The processes of a job, which end with the test."""
    running = PodProcesses(kube, job, folder)
    try:
        yield running
    finally:
        running.close()
