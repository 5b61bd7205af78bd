"""The console's page: static files that its build makes, with headers that let it load nothing from elsewhere.

Only files that were there at the start are served, by their exact paths. They hold nothing of any log, so they are for
everybody: the page itself asks for a token where one is needed.
"""

import mimetypes
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent / "static"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_NOT_BUILT = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>Arranger</title>"
    "<p>The console's page isn't built here. In the repository, <code>make console</code> builds it; "
    "a wheel of Arranger has it. The API is at <a href='/api/openapi.json'>/api/openapi.json</a>."
)


class Page:
    """The files in a folder, by their paths below it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        }

    @property
    def built(self) -> bool:
        return "index.html" in self._files

    async def serve(self, request: web.Request) -> web.Response:
        """The file at the request's path. Raises `HTTPNotFound`."""
        name = request.match_info["path"] or "index.html"
        path = self._files.get(name)
        if path is None:
            if name != "index.html":
                raise web.HTTPNotFound
            return web.Response(text=_NOT_BUILT, content_type="text/html", headers=HEADERS)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        text = kind.startswith("text/") or kind.endswith(("javascript", "json"))
        return web.Response(
            body=path.read_bytes(), content_type=kind, charset="utf-8" if text else None, headers=HEADERS
        )
