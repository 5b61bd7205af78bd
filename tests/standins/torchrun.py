"""A stand-in for torchrun: it takes the same flags, finds rank 0 by them, and exchanges ranks over TCP.

With `--master-addr`, the number of nodes is fixed: rank 0 listens, waits for all, and sends everyone the list of ranks.
With `--rdzv-endpoint`, nodes come and go: the host sends everyone the list at each change. Each list is printed as one
line of JSON, `{"world": [...]}`, and each change of the number of ready pods in the members file as `{"ready": ...}`.
"""

import argparse
import json
import os
import socket
import threading
import time
from contextlib import suppress

from tests.standins.hosts import members_file, resolve


def _say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nnodes", required=True)
    parser.add_argument("--node-rank", type=int, default=-1)
    parser.add_argument("--master-addr", default="")
    parser.add_argument("--master-port", type=int, default=0)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("--rdzv-backend", default="static")
    parser.add_argument("--rdzv-endpoint", default="")
    parser.add_argument("--rdzv-id", default="")
    parser.add_argument("--rdzv-conf", default="")
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("script")
    return parser.parse_args()


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens there."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    return listener


def connected(name: str, port: int) -> socket.socket:
    """A connection to a host, as soon as its name is known and it listens."""
    while True:
        try:
            return socket.create_connection((resolve(name), port))
        except OSError:
            time.sleep(0.05)


def meet(rank: int, nodes: int, address: str, port: int, *, me: int) -> None:
    """Exchange the numbers of so many nodes (of this one: `me`) through the node of rank 0, and print them."""
    if rank:
        with connected(address, port) as connection:
            connection.sendall(f"{me}\n".encode())
            _say(world=json.loads(connection.makefile().readline()))
        return
    with listening(resolve(address), port) as listener:
        others = [listener.accept()[0] for _ in range(nodes - 1)]
        world = sorted([me, *(int(other.makefile().readline()) for other in others)])
        for other in others:
            other.sendall(f"{json.dumps(world)}\n".encode())
        _say(world=world)


class Host:
    """The members of an elastic job, by rank. Each list of them is printed under a word."""

    def __init__(self, word: str = "world") -> None:
        self._word = word
        self._members: dict[int, socket.socket | None] = {0: None}
        self._lock = threading.Lock()

    def serve(self, connection: socket.socket) -> None:
        """Count a member from its first line to the end of its connection."""
        with connection, connection.makefile() as lines:
            rank = int(lines.readline())
            self._change(rank, connection)
            with suppress(OSError):
                lines.readline()  # until its end
            self._change(rank, None)

    def _change(self, rank: int, connection: socket.socket | None) -> None:
        with self._lock:
            if connection is None:
                del self._members[rank]
            else:
                self._members[rank] = connection
            world = sorted(self._members)
            for member in self._members.values():
                with suppress(OSError):  # that member ends too, and its own thread says so
                    if member is not None:
                        member.sendall(f"{json.dumps(world)}\n".encode())
            _say(**{self._word: world})


def _elastic(flags: argparse.Namespace) -> None:
    threading.Thread(target=_watch, daemon=True).start()
    name, _, port = flags.rdzv_endpoint.rpartition(":")
    if flags.rdzv_conf == "is_host=1":
        host, listener = Host(), listening(resolve(name), int(port))
        while True:
            threading.Thread(target=host.serve, args=(listener.accept()[0],), daemon=True).start()
    with connected(name, int(port)) as connection:
        connection.sendall(f"{os.environ['TYJOB_RANK']}\n".encode())
        for line in connection.makefile():
            _say(world=json.loads(line))


def _watch() -> None:
    """Print how many pods are ready according to the members file, at each change."""
    last = -1
    while True:
        ready = sum(sum(of["ready"]) for of in json.loads(members_file().read_text())["sets"])
        if ready != last:
            _say(ready=ready)
            last = ready
        time.sleep(0.05)


if __name__ == "__main__":
    given = _flags()
    if given.rdzv_endpoint:
        _elastic(given)
    else:
        rank = given.node_rank
        meet(rank, int(given.nnodes), given.master_addr, given.master_port, me=rank)
