"""The test servers themselves: what happens when they can't be built, and that they leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.build_servers import KUBERNETES, OPERATORS
from tests.servers import REPOSITORY, Daemon, ServersUnavailable, free_port, scratch_folder


def build(folder: Path, *, go: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run the build with an empty cache and this shell script as Go."""
    tool = folder / "bin" / "go"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{go}\n")
    tool.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    environment |= {"PATH": f"{tool.parent}:/usr/bin:/bin", "XDG_CACHE_HOME": str(folder / "cache"), "CI": ci}
    return subprocess.run(
        [sys.executable, "-m", "tests.servers", "--build"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


BROKEN = 'if [ "$1" = env ]; then echo go1.99.1; else echo "proxy: no such host" >&2; exit 1; fi'


def test_a_build_that_fails_is_a_failure_in_ci_and_leaves_nothing_half_built(tmp_path: Path) -> None:
    done = build(tmp_path, go=BROKEN, ci="true")
    assert done.returncode == 1
    assert "NO REAL SERVERS FOR TESTS" in done.stderr
    assert "proxy: no such host" in done.stderr
    assert [path.name for path in (tmp_path / "cache" / "arranger" / "testservers").iterdir()] == ["lock"]


def test_a_build_that_fails_is_a_loud_warning_elsewhere(tmp_path: Path) -> None:
    done = build(tmp_path, go=BROKEN, ci="")
    assert done.returncode == 0
    assert "NO REAL SERVERS FOR TESTS" in done.stderr
    assert "will be skipped" in done.stderr


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that holds a scratch folder and a server in it, and prints the server's ID and the folder."""
    program = (
        "import time\n"
        "from tests.servers import Daemon, scratch_folder\n"
        "with scratch_folder('unit') as folder:\n"
        "    daemon = Daemon('sleep', ['sleep', '300'], folder=folder, ready=lambda: True)\n"
        "    try:\n"
        "        daemon.start()\n"
        "        print(daemon.pid, folder, flush=True)\n"
        "        time.sleep(300)\n"
        "    finally:\n"
        "        daemon.stop()\n"
    )
    # A shell that runs the tests in the background has them ignore SIGINT, and a child would inherit that.
    program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and only Linux signals orphans")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_session_that_is_ended_takes_its_servers_and_files_with_it(tmp_path: Path, ending: signal.Signals) -> None:
    process = holder(tmp_path)
    assert process.stdout is not None
    pid_text, folder_text = process.stdout.readline().split()
    pid, folder = int(pid_text), Path(folder_text)
    assert is_running(pid) and folder.is_dir()
    process.send_signal(ending)
    process.wait(30)
    process.stdout.close()
    for _ in range(500):
        if not is_running(pid):
            break
        time.sleep(0.01)
    assert not is_running(pid)
    # After SIGKILL nobody could remove the folder: the next session does, once it is old enough.
    if folder.is_dir():
        os.utime(folder, (0, 0))
        with scratch_folder("unit"):
            pass
    assert not folder.exists()


def test_a_folder_in_use_is_not_taken_for_one_left_behind() -> None:
    with scratch_folder("unit") as mine:
        os.utime(mine, (0, 0))
        with scratch_folder("unit"):
            pass
        assert mine.is_dir()


def test_a_server_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon("broken", ["sh", "-c", "echo port in use; exit 3"], folder=tmp_path, ready=lambda: False)
    with pytest.raises(RuntimeError, match="port in use"):
        daemon.start()


def test_ports_are_given_once() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == len(ports)


def test_a_port_that_another_process_was_given_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "from tests.servers import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", told], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        theirs = int(other.stdout.readline())
        monkeypatch.setattr("tests.servers._PORTS", (theirs, theirs))
        with pytest.raises(ServersUnavailable, match=str(theirs)):
            free_port()
        other.stdin.close()
    assert free_port() == theirs


def test_the_page_on_operators_says_which_versions_the_tests_run() -> None:
    told = (REPOSITORY / "docs" / "operators.md").read_text().partition("## What the tests run")[2]
    rows = [line.split(" | ")[1] for line in told.splitlines() if line.startswith("| ")]
    assert rows[2:] == [KUBERNETES, *[of.version for of in OPERATORS]]
