"""A real Redis with a replica and three Sentinels, for tests and the failovers of `tests.failovers`.

Each server is reached at one port with and without TLS, as the wheel's server has none: Sentinels use the port plainly.
"""

import contextlib
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import redis
from redis.exceptions import RedisError

from tests.servers import Certificates, Daemon, RealRedis, TlsFront, free_port, redis_binary, scratch_folder

SERVICE = "arranger"
PASSWORD = "the/primary's"
SENTINEL_PASSWORD = "the&sentinels'"
#: The user of Arranger's processes, who may change no configuration.
USER, USER_PASSWORD = "scheduler", "p@ss:word/"
_RIGHTS = ("on", f">{USER_PASSWORD}", "~arranger:*", "~rq:*", "resetchannels", "+@all", "-@admin")
#: Milliseconds without an answer after which a Sentinel counts a server as down, and those that a failover may take.
_DOWN_MS, _FAILOVER_MS = 500, 2000
_PATIENCE_S = 60.0

_CONFIGURATION = """
port {port}
bind 127.0.0.1
dir "{folder}"
requirepass "{of_sentinels}"
sentinel sentinel-pass "{of_sentinels}"
sentinel monitor {service} 127.0.0.1 {primary} 2
sentinel auth-pass {service} "{of_redis}"
sentinel down-after-milliseconds {service} {down_ms}
sentinel failover-timeout {service} {failover_ms}
"""


class Sentinel:
    """One Sentinel."""

    def __init__(self, folder: Path, certificates: Certificates, *, primary: int) -> None:
        """`primary` is the port of the server that is the primary now."""
        folder.mkdir()
        self.port = free_port()
        self.front = TlsFront(certificates, port=free_port(), target_port=self.port)
        self.client = redis.Redis(port=self.port, password=SENTINEL_PASSWORD, socket_timeout=5)
        file = folder / "sentinel.conf"
        file.write_text(
            _CONFIGURATION.format(
                port=self.port, folder=folder, primary=primary, service=SERVICE, of_redis=PASSWORD,
                of_sentinels=SENTINEL_PASSWORD, down_ms=_DOWN_MS, failover_ms=_FAILOVER_MS,
            )
        )  # fmt: skip
        self.daemon = Daemon(
            "sentinel", [str(redis_binary()), str(file), "--sentinel"], folder=folder, ready=self._ready
        )

    def primary_port(self) -> int:
        """The port of the server that it takes for the primary."""
        _, port = self.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(port)

    def sees_all(self, replica: int) -> bool:
        """Whether it knows the other two Sentinels, and the replica at this port as one that can be promoted."""
        primary = self.client.sentinel_master(SERVICE)
        fit = [
            one for one in self.client.sentinel_slaves(SERVICE) if one["port"] == replica and one["flags"] == "slave"
        ]
        return bool(fit) and primary["num-other-sentinels"] == 2 and primary["flags"] == "master"

    def _ready(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False


class WatchedRedis:
    """Two servers, one of them the other's replica, and the Sentinels that watch them. Nothing is on a disk."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        self.ca_file = certificates.ca_file
        self.servers: list[RealRedis] = []
        self._fronts: list[TlsFront] = []
        for name in ("one", "two"):
            own = folder / name
            own.mkdir()
            server = RealRedis(own, password=PASSWORD, tls=False, appendonly=False, appendfsync="no")
            self.servers.append(server)
            self._fronts.append(TlsFront(certificates, port=free_port(), target_port=server.port, plain_too=True))
            server.announced_port = self._fronts[-1].port
        first = self.servers[0].announced_port
        self.sentinels = [Sentinel(folder / f"sentinel-{n}", certificates, primary=first) for n in range(3)]

    def start(self) -> None:
        for server in self.servers:
            self._start(server)
        self._follow(self.servers[1], self.servers[0])
        for sentinel in self.sentinels:
            sentinel.daemon.start()
        self.await_whole()

    def url(self, *, tls: bool = False) -> str:
        """The URL that names the Sentinels, with Arranger's user."""
        hosts = ",".join(f"127.0.0.1:{sentinel.front.port if tls else sentinel.port}" for sentinel in self.sentinels)
        options = {"sentinel_password": SENTINEL_PASSWORD} | ({"ssl_ca_certs": str(self.ca_file)} if tls else {})
        login = f"{USER}:{urllib.parse.quote(USER_PASSWORD, safe='')}"
        scheme = "rediss+sentinel" if tls else "redis+sentinel"
        return f"{scheme}://{login}@{hosts}/{SERVICE}/0?{urllib.parse.urlencode(options)}"

    @property
    def primary(self) -> RealRedis:
        """The server that the first Sentinel takes for the primary."""
        port = self.sentinels[0].primary_port()
        return next(server for server in self.servers if server.announced_port == port)

    @property
    def replica(self) -> RealRedis:
        """The other server."""
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    def hold_back(self) -> None:
        """From now on, the replica gets nothing more from the primary."""
        self.replica.command("CONFIG", "SET", "masterauth", "wrong")
        self.primary.command("CLIENT", "KILL", "TYPE", "replica")

    def fail_over(self) -> float:
        """Kill the primary, and wait until all Sentinels name the other. Returns the seconds that this took."""
        killed, promoted = self.primary, self.replica
        began_s = time.monotonic()
        killed.stop(kill=True)
        self._until(
            "the replica is promoted",
            lambda: (
                all(sentinel.primary_port() == promoted.announced_port for sentinel in self.sentinels)
                and b"role:master" in promoted.command("INFO", "replication")
            ),
        )
        return time.monotonic() - began_s

    def mend(self) -> None:
        """Start the server that was killed as the other's replica, and wait until Sentinels could promote it."""
        primary, killed = self.primary, self.replica
        primary.command("CONFIG", "SET", "masterauth", PASSWORD)
        self._start(killed)
        self._follow(killed, primary)
        self.await_whole()

    def await_whole(self) -> None:
        """Wait until a failover is possible."""
        replica = self.replica
        self._until(
            "all know the replica, and it follows",
            lambda: (
                all(sentinel.sees_all(replica.announced_port) for sentinel in self.sentinels)
                and b"master_link_status:up" in replica.command("INFO", "replication")
            ),
        )

    def close(self) -> None:
        for sentinel in self.sentinels:
            sentinel.client.close()
            sentinel.daemon.stop(kill=True)
            sentinel.front.close()
        for server in self.servers:
            server.close()
        for front in self._fronts:
            front.close()

    def _start(self, server: RealRedis) -> None:
        server.start()
        for words in (
            ("CONFIG", "SET", "masterauth", PASSWORD),
            ("CONFIG", "SET", "replica-announce-port", str(server.announced_port)),
            ("CONFIG", "SET", "repl-diskless-sync-delay", "0"),
            ("ACL", "SETUSER", USER, *_RIGHTS),
        ):
            answer = server.command(*words)
            assert answer.startswith(b"+OK"), answer

    def _follow(self, replica: RealRedis, primary: RealRedis) -> None:
        assert replica.command("REPLICAOF", "127.0.0.1", str(primary.announced_port)).startswith(b"+OK")

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(RedisError, OSError):
                if holds():
                    return
            assert time.monotonic() < deadline, f"still not: {what}"
            time.sleep(0.05)


@contextlib.contextmanager
def watched_redis() -> Iterator[WatchedRedis]:
    """A primary, its replica and three Sentinels."""
    with scratch_folder("sentinel") as folder:
        group = WatchedRedis(folder)
        try:
            group.start()
            yield group
        finally:
            group.close()
