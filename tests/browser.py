"""The browser of the console's tests: Debian's Chromium, which `python -m tests.browser` installs as root."""

import os
import shutil
import subprocess
import sys

from tests.servers import ServersUnavailable

#: It asks no other host for anything: the tests hold the page to that, and the browser itself shall be quiet.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """The path of the browser. Raises `ServersUnavailable`."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise ServersUnavailable("no chromium on the PATH: run `python -m tests.browser` as root, or install it")
    return found


def main() -> int:
    """Install what is missing, if this is root on Debian; else say that tests will be skipped."""
    if shutil.which("chromium") or shutil.which("chromium-browser"):
        return 0
    if os.geteuid() or not shutil.which("apt-get"):
        print("no chromium: the console's tests are skipped; with CI=true they fail", file=sys.stderr)
        return 0
    # Another installation may be under way on the machine, and a mirror may fail once.
    patient = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
        subprocess.run(["apt-get", "-qq", *patient, *arguments], check=True, stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
