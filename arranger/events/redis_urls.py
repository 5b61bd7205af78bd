"""Redis URLs: their recognition, and their display without secrets. Importing this module loads no client."""

from urllib.parse import urlsplit

SCHEMES = ("redis", "rediss", "unix")


def redacted(url: str) -> str:
    """The URL without user, password and options, for display."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
    except ValueError:
        return f"{url.partition('://')[0]}://…"


def scheme_of(url: str) -> str:
    """The URL's scheme, empty if it has none."""
    return url.partition("://")[0] if "://" in url else ""
