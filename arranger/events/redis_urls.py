"""Redis URLs: their recognition, and their display without secrets. Importing this module loads no client.

`redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DATABASE?OPTIONS` names Sentinels, and the service whose
primary they know; with `rediss+sentinel://`, both Sentinels and Redis speak TLS. User, password, database and options
are those of Redis; the options `sentinel_username` and `sentinel_password` are what Sentinels themselves ask for.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_SENTINEL = "+sentinel"
SCHEMES = ("redis", "rediss", f"redis{_SENTINEL}", f"rediss{_SENTINEL}", "unix")
_SENTINEL_PORT = 26379
_OF_SENTINELS = "sentinel_"


class Sentinels(NamedTuple):
    """What a URL says of Sentinels: their addresses, the service, the options `username` and `password` for them, and a
    URL for Redis itself, whose host means nothing."""

    addresses: tuple[tuple[str, int], ...]
    service: str
    options: dict[str, str]
    redis: str


def names_sentinels(url: str) -> bool:
    """Whether the URL names Sentinels rather than Redis itself."""
    return scheme_of(url).endswith(_SENTINEL)


def sentinels_of(url: str) -> Sentinels:
    """The parts of a URL that names Sentinels. Raises `ValueError` without a host or a service, or for a wrong port."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = {name.removeprefix(_OF_SENTINELS): value for name, value in given if name.startswith(_OF_SENTINELS)}
    if not options.keys() <= {"username", "password"}:
        raise ValueError("an unknown option")
    of_redis = urlencode([(name, value) for name, value in given if not name.startswith(_OF_SENTINELS)])
    scheme = parts.scheme.removesuffix(_SENTINEL)
    redis = urlunsplit((scheme, f"{login}{at}sentinels", f"/{database}", of_redis, ""))
    return Sentinels(tuple(_address(host) for host in hosts.split(",")), service, options, redis)


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or _SENTINEL_PORT


def check_address(url: str) -> None:
    """Raises `ValueError` for a URL whose hosts or ports can't be used."""
    if names_sentinels(url):
        sentinels_of(url)
    else:
        _ = urlsplit(url).port


def redacted(url: str) -> str:
    """The URL without user, password and options, for display."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        if names_sentinels(url):
            hosts = ",".join(f"{host}:{port}" for host, port in sentinels_of(url).addresses)
            return f"{parts.scheme}://{hosts}{parts.path}"
        return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
    except ValueError:
        return f"{url.partition('://')[0]}://…"


def without_passwords(url: str) -> str:
    """The URL with its passwords, also those among its options, replaced by asterisks."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    netloc = f"{user}:***@{hosts}" if at and colon else parts.netloc
    query = re.sub(r"(?<=password=)[^&]+", "***", parts.query)
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def scheme_of(url: str) -> str:
    """The URL's scheme, empty if it has none."""
    return url.partition("://")[0] if "://" in url else ""
