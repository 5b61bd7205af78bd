"""`python -m tests.image` (`make image`): build the image, and run a TYJob with processes that were started from it."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import arranger
from arranger.sandbox.nodes import NodeTemplate
from tests.e2e.harness import apply, await_stage, eventually, finish_leader, job, kubelets
from tests.image.build import CantBuild, Images, chosen, run, without_shells
from tests.servers import REPOSITORY, RealKube, RealRedis, real_kube, real_redis

USER = 65532
PACKAGES = (
    "import importlib.metadata as m, json, os, platform; "
    "print(json.dumps([os.getuid(), platform.python_version(), {d.name: d.version for d in m.distributions("
    "path=['/opt/arranger/lib/python' + '.'.join(platform.python_version_tuple()[:2]) + '/site-packages'])}]))"
)


def check_contents(images: Images) -> None:
    """The image runs as nobody's user, and holds the packages of the lock file and Arranger alone."""
    found = images.settings()
    assert (found["User"], found["Entrypoint"], found["Cmd"]) == (f"{USER}:{USER}", ["arranger"], ["run"]), found
    container = images.container()
    user, version, packages = json.loads(run(*images.argv(container, "python3", "-c", PACKAGES)))
    lock = (REPOSITORY / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    pins = [entry.split(" ")[0].partition("==") for entry in chosen(lock, version) if "==" in entry]
    expected = {name: pinned for name, _, pinned in pins} | {"arranger": arranger.__version__}
    assert user == USER
    assert {name.lower().replace("_", "-"): each for name, each in packages.items()} == expected
    said = run(*images.argv(container, "arranger", "--version"))
    assert said == f"arranger {arranger.__version__}\n", said
    images.command("rm", container)


def files(root: Path) -> dict[str, tuple[int, int]]:
    """Path → size and time of change in ns, of all files but those of /tmp and of the kernel."""
    found = {}
    for folder, inner, names in os.walk(root):
        if Path(folder) == root:
            inner[:] = [name for name in inner if name not in ("tmp", "proc", "sys", "dev")]
        for name in names:
            state = os.lstat(Path(folder) / name)
            found[str(Path(folder, name).relative_to(root))] = (state.st_size, state.st_mtime_ns)
    return found


def ended_by_signal(process: "subprocess.Popen[bytes]") -> int:
    """Send SIGTERM to the process in the container, as a kubelet does; returns the exit status."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    last = process.pid
    while inner := [child for child, parent in parents.items() if parent == last]:
        last = inner[0]
    os.kill(last, signal.SIGTERM)
    return process.wait(60)


@contextlib.contextmanager
def running(images: Images, container: str, kube: RealKube, redis: RealRedis) -> Iterator["subprocess.Popen[bytes]"]:
    """`arranger run` in a container."""
    with tempfile.TemporaryDirectory() as folder:
        access = Path(folder) / "kubeconfig"
        access.write_bytes(kube.kubeconfig.read_bytes())
        access.chmod(0o644)
        Path(folder).chmod(0o755)
        address = {"ARRANGER_REDIS_URL": redis.url, "ARRANGER_HTTP_PORT": "0"}
        mounts = [f"{folder}:/etc/arranger/access:ro"]
        flags = ("--kubeconfig", "/etc/arranger/access/kubeconfig")
        process = subprocess.Popen(images.argv(container, "arranger", "run", *flags, mounts=mounts, **address))
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def check_at_work(images: Images) -> None:
    """A TYJob runs through with processes from the image, which has no shell any more; they leave no file behind."""
    container = images.container()
    root = images.folder_of(container)
    assert "sh" in without_shells(root)
    with real_redis() as redis, real_kube() as kube:
        kube.install_crd()
        status = images.argv(container, "arranger", "status", ARRANGER_REDIS_URL=redis.url)
        assert subprocess.run(status, capture_output=True, check=False).returncode == 1
        before = files(root)
        with running(images, container, kube, redis) as process, kubelets(kube, NodeTemplate("n1", cpu="8")):
            apply(kube, job("from-the-image"))
            await_stage(kube, "Running", "from-the-image")
            eventually(
                "status is well", lambda: subprocess.run(status, capture_output=True, check=False).returncode == 0
            )
            finish_leader(kube, "from-the-image")
            await_stage(kube, "Succeeded", "from-the-image")
            assert ended_by_signal(process) == 0
        changed = {path for path, state in files(root).items() if before.get(path) != state}
        assert changed == set(), changed


def main() -> int:
    """Build the image and check it; the exit status is 1 if a tool is missing or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.image", description=main.__doc__)
    parser.add_argument("--suite", default="bookworm", help="release of Debian for the base (Python 3.11 or newer)")
    suite = parser.parse_args().suite
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arranger-image-") as folder, contextlib.ExitStack() as opened:
        try:
            images = opened.enter_context(contextlib.closing(Images(Path(folder))))
            for what, step in (
                (f"a base of Debian {suite}", lambda: images.make_base(suite)),
                ("the image", images.build),
                ("what is in it", lambda: check_contents(images)),
                ("a job with it", lambda: check_at_work(images)),
            ):
                step()
                print(f"[image] {what}: done after {time.monotonic() - started:.0f} s", flush=True)
        except CantBuild as error:
            print(f"[image] {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
