"""A stand-in for `ray start`: the head listens at its port, and workers join it at the address that they are given.

At each change, the head sends everyone the ranks in its cluster. Each list is printed as one line of JSON,
`{"cluster": [...]}`. Other than Ray's, this head stays in the foreground.
"""

import argparse
import json
import os
import threading

from tests.standins.hosts import resolve
from tests.standins.torchrun import Host, connected, listening


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["start"])
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--address", default="")
    parser.add_argument("--num-cpus", type=int)
    parser.add_argument("--num-gpus", type=int)
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--disable-usage-stats", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = _flags()
    if given.head:
        host, listener = Host("cluster"), listening(resolve(os.environ["MASTER_ADDR"]), given.port)
        while True:
            threading.Thread(target=host.serve, args=(listener.accept()[0],), daemon=True).start()
    name, _, port = given.address.rpartition(":")
    with connected(name, int(port)) as connection:
        connection.sendall(f"{os.environ['TYJOB_RANK']}\n".encode())
        for line in connection.makefile():
            print(json.dumps({"cluster": json.loads(line)}), flush=True)
