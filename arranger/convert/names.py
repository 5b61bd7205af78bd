"""Names that fit: DNS labels, cut where they are too long."""

import hashlib
import re

from arranger.model.fields import DNS_LABEL
from arranger.model.queue import MAX_QUEUE_NAME


def label(text: str) -> str:
    """The DNS label nearest to a text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "set"


def fitting(name: str, most: int) -> str:
    """The DNS label nearest to a name that begins with a letter, as a Service does, and has at most `most` characters.
    One that is cut ends in a digest of the whole."""
    made = label(name)
    if not made[0].isalpha():
        made = f"job-{made}"
    return _cut(made, name, most)


def queue_name(name: str) -> str:
    """The name of the Queue that comes of a queue, a ClusterQueue or a cohort of this name."""
    return (
        name if len(name) <= MAX_QUEUE_NAME and DNS_LABEL.fullmatch(name) else _cut(label(name), name, MAX_QUEUE_NAME)
    )


def _cut(made: str, name: str, most: int) -> str:
    if len(made) <= most:
        return made
    return f"{made[: most - 5].rstrip('-')}-{hashlib.blake2b(name.encode(), digest_size=2).hexdigest()}"
