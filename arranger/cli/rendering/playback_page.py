"""A played part of a log as one HTML file that needs nothing else: the console's build makes its script and its style
sheet, and its facts stand beside them as JSON.

The page may run this script alone and load nothing: its policy names script and style sheet by their hashes.
"""

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from arranger import __version__
from arranger.errors import UsageError
from arranger.model.text import safe_json
from arranger.replay.console.playback import Playback
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.waiting import Waiting
from arranger.replay.reading.describe import as_object
from arranger.web.naming import named
from arranger.web.page import FOLDER

#: What the page shows of an explanation, and of why a job waits.
_SHOWN = ("offset", "began", "time_ms", "standing", "waiting", "consequences", "takings", "givings", "kept")
_OF_WAITING = (
    "why", "position", "queue_length", "queue_policy", "ahead", "shortfall", "takers", "passed_by", "blockers",
    "earlier", "remedies", "tried", "gets", "in_queue", "takes_none",
)  # fmt: skip
_OF_SHORTFALL = ("closest",)
#: The most rows of a list that may be long.
_ROWS = 20


def facts(playback: Playback, explanations: Iterable[Explanation]) -> bytes:
    """What the page plays, as JSON without a character that could end the element around it."""
    told: dict[str, list[Any]] = {}
    for one in explanations:
        told.setdefault(one.standing.job, []).append(named(shown(one)))
    whole = {"version": __version__, "playback": playback, "explanations": told}
    content = safe_json(msgspec.json.encode(whole, enc_hook=str))
    return content.replace(b"<", b"\\u003c").replace(b">", b"\\u003e")


def shown(answer: Explanation) -> dict[str, Any]:
    """The part of an explanation that the page shows, with the names of the command's JSON."""
    found = {name: as_object(getattr(answer, name)) for name in _SHOWN if name != "waiting"}
    return {**found, "waiting": _waiting(answer.waiting) if answer.waiting is not None else None}


def _waiting(waiting: Waiting) -> dict[str, Any]:
    found = {name: getattr(waiting, name) for name in _OF_WAITING}
    found["takers"] = [one for one in waiting.takers if one.holds][:_ROWS]
    found["ahead"] = waiting.ahead[:_ROWS]
    found["passed_by"] = waiting.passed_by[:_ROWS]
    short = waiting.shortfall
    found["shortfall"] = {name: getattr(short, name) for name in _OF_SHORTFALL} if short is not None else None
    return {name: as_object(value) for name, value in found.items()}


def document(content: bytes, *, folder: Path = FOLDER) -> bytes:
    """The HTML file for facts. Raises `UsageError` if the console's page isn't built here."""
    try:
        script, style = ((folder / f"replay.{kind}").read_bytes().strip() for kind in ("js", "css"))
    except FileNotFoundError:
        built = "in the repository: make console; a wheel of Arranger has it"
        raise UsageError("the page that plays a log isn't built here", hint=built) from None
    for text, end in ((script, b"</script"), (script, b"<!--"), (style, b"</style"), (content, b"<")):
        assert end not in text, f"the page would end at {end!r}"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return b"".join(
        (
            b'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'.encode(),
            b'<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            b'<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
            b'<link rel="icon" href="data:,">\n<title>Arranger: a replay</title>\n',
            b"<style>" + style + b"</style>\n</head>\n<body>\n",
            b'<div id="app"></div>\n<noscript>This replay needs JavaScript, and nothing else.</noscript>\n',
            b'<script type="application/json" id="facts">' + content + b"</script>\n",
            b'<script type="module">' + script + b"</script>\n</body>\n</html>\n",
        )
    )


def facts_of(page: bytes) -> bytes:
    """The facts in an HTML file that `document` made."""
    return page.partition(b'id="facts">')[2].partition(b"</script>")[0]


def _hash(text: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"
