"""When the certificate of a TLS server expires, as the next connection will find it."""

import asyncio
import ssl
from contextlib import closing
from typing import NamedTuple

_TIMEOUT_S = 10.0


class TlsServer(NamedTuple):
    """The address of a server, and how its certificate is checked. Its certificate is for `name`, or else `host`."""

    host: str
    port: int
    context: ssl.SSLContext
    name: str | None = None


async def expiry_s(server: TlsServer) -> float | None:
    """When the server's certificate expires, in seconds since 1970; None if it isn't verified: Python then doesn't
    decode it. Raises `OSError`.

    A connection of its own: those in use may be older than the server's present certificate.
    """
    async with asyncio.timeout(_TIMEOUT_S):
        _, writer = await asyncio.open_connection(
            server.host, server.port, ssl=server.context, server_hostname=server.name or server.host
        )
        with closing(writer):
            found = writer.get_extra_info("peercert")
    return float(ssl.cert_time_to_seconds(found["notAfter"])) if found else None
