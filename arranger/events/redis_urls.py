"""URLs of a Redis, told from other places and shown without their secrets; importing this loads no client."""

from urllib.parse import urlsplit

SCHEMES = ("redis", "rediss", "unix")


def redacted(url: str) -> str:
    """The URL as it may be shown: without user, password and options."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
    except ValueError:
        return f"{url.partition('://')[0]}://…"


def scheme_of(url: str) -> str:
    """The URL's scheme, empty where there is none."""
    return url.partition("://")[0] if "://" in url else ""
