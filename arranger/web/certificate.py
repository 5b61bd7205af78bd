"""The certificate of `arranger serve`, from PEM files that are read again when they change.

Kubernetes replaces the files of a Secret when the certificate is renewed, for example by cert-manager. Connections that
are open stay open; each new one gets the newest certificate.
"""

import logging
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from arranger.clock import Clock
from arranger.errors import UsageError
from arranger.logs import log_event

_log = logging.getLogger(__name__)

#: How often the files are looked at, at most, in seconds.
_LOOK_S = 5.0
#: From how long before its end a certificate is warned of, and how often, in seconds.
_SOON_S, _AGAIN_S = 7 * 86_400, 86_400
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python doesn't name.
_ALSO_EXPIRED = 0x200000


class Certificate:
    """A chain of certificates and its private key, in files.

    `context` is for a server. Each handshake gets what the files had when they were last good.
    """

    def __init__(self, chain: str, key: str, clock: Clock) -> None:
        """Raises `UsageError` if the files can't be used."""
        self._chain, self._key, self._clock = chain, key, clock
        self._seen = self._versions()
        self._looked_s = clock.monotonic_s()
        self._newest = self.context = self._read()
        self._expires_s = _expiry_s(self._newest, chain)
        self._warned_s: float | None = None
        # OpenSSL calls this in each handshake, also if the client names no server.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        self._look()
        connection.context = self._newest

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        self._read_again()
        self._warn(now_s)

    def _warn(self, now_s: float) -> None:
        if self._expires_s is None or self._expires_s - self._clock.now_ms() / 1000 > _SOON_S:
            return
        if self._warned_s is None or now_s - self._warned_s >= _AGAIN_S:
            self._warned_s = now_s
            at = datetime.fromtimestamp(self._expires_s, UTC).isoformat()
            log_event(_log, "the certificate expires soon", level=logging.WARNING, file=self._chain, at=at)

    def _read_again(self) -> None:
        versions = self._versions()
        if versions == self._seen:
            return
        try:
            self._newest = self._read()
        except UsageError as problem:  # perhaps half written: it is looked at again
            log_event(
                _log, "a new certificate can't be used; the last good one stays", level=logging.WARNING, problem=problem
            )
            return
        self._seen, self._warned_s = versions, None
        self._expires_s = _expiry_s(self._newest, self._chain)
        log_event(_log, "the certificate was read again", file=self._chain)

    def _versions(self) -> tuple[tuple[int, int, int], ...]:
        """What differs when a file was written or replaced; empty if one can't be read."""
        try:
            found = [Path(path).stat() for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for option, path in (("--tls-cert-file", self._chain), ("--tls-private-key-file", self._key)):
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as problem:
                raise UsageError(f"{option}: can't read {path}: {problem.strerror}") from problem
        try:
            # An encrypted key would ask for its passphrase on the terminal.
            context.load_cert_chain(self._chain, self._key, password=lambda: b"")
        except OSError as problem:  # one of SSL, or a file that has just gone
            why = getattr(problem, "reason", None) or problem.strerror or problem
            raise UsageError(
                f"--tls-cert-file {self._chain} and --tls-private-key-file {self._key} can't be used: {why}",
                hint="both are PEM, the key has no passphrase and belongs to the first certificate",
            ) from problem
        return context


def _expiry_s(server: ssl.SSLContext, chain: str) -> float | None:
    """When the certificate that the server shows expires, in seconds since 1970; None if that can't be found out.

    Python decodes only what it has verified: here a client in memory, which trusts the server's own chain, verifies it.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context = ssl.create_default_context(cafile=chain)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _ALSO_EXPIRED
        client = context.wrap_bio(to_client, to_server)
        for side in (client, server.wrap_bio(to_server, to_client, server_side=True), client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except OSError:  # one of SSL, or a file that has just gone
        return None
    found = client.getpeercert()
    return float(ssl.cert_time_to_seconds(str(found["notAfter"]))) if found else None
