"""The cluster's DNS for processes on loopback: host names that a test writes into the file `STANDIN_HOSTS`."""

import json
import os
import time
from pathlib import Path


def resolve(name: str) -> str:
    """The address of a host name; waits until there is one, as programs do while the other pods start."""
    while True:
        address = json.loads(Path(os.environ["STANDIN_HOSTS"]).read_text()).get(name)
        if address:
            return str(address)
        time.sleep(0.05)


def members_file() -> Path:
    """Where the test mounts the members file: below `STANDIN_ROOT` in place of the container's root."""
    return Path(os.environ["STANDIN_ROOT"] + os.environ["TYJOB_MEMBERS_FILE"])
