"""Listings: the selection of objects, and the pages of one listing, all of the same moment."""

import base64
import itertools
from collections.abc import Callable

import msgspec

from arranger.sandbox.history import Stored
from arranger.sandbox.selectors import Matches, every, field_selector, label_selector
from arranger.sandbox.status import HistoryExpired, bad_request

#: How long a continuation is valid, and how many listings may be open at once.
CONTINUATION_S = 300.0
OPEN_LISTINGS = 64


class Selection(msgspec.Struct, frozen=True):
    """A selection of objects: by namespace (empty: all), by labels, by fields of the given plural."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    plural: str = ""

    def matches(self) -> Matches | None:
        """The predicate for one object, None to select everything; raises `Refusal` 400 for a malformed selector."""
        requirements = label_selector(self.labels) + field_selector(self.plural, self.fields)
        if namespace := self.namespace:
            requirements.insert(0, lambda obj: obj["metadata"].get("namespace") == namespace)
        return every(requirements)


class ListedPage(msgspec.Struct, frozen=True):
    """One page, the resourceVersion of the whole listing, and the continuation (empty: it was the last page)."""

    items: list[Stored]
    version: int
    continuation: str = ""
    remaining: int = 0


class _Open(msgspec.Struct):
    items: list[Stored]
    version: int
    opened_s: float


class Pages:
    """The listings that are being read in pages. If there are too many, it forgets the oldest."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(1)

    def first(self, items: list[Stored], version: int, limit: int) -> ListedPage:
        """The first page of a new listing; a limit of 0 means no limit."""
        if not limit or len(items) <= limit:
            return ListedPage(items, version)
        number = next(self._numbers)
        self._open[number] = _Open(items, version, self._now())
        if len(self._open) > OPEN_LISTINGS:
            del self._open[next(iter(self._open))]
        return self._page(number, 0, limit)

    def more(self, continuation: str, limit: int) -> ListedPage:
        """The next page; raises `Refusal` 400 for a malformed token, 410 if its listing is forgotten."""
        try:
            number, start, version = msgspec.json.decode(
                base64.urlsafe_b64decode(continuation.encode()), type=tuple[int, int, int]
            )
        except (ValueError, msgspec.DecodeError) as error:
            raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
        listing = self._open.get(number)
        if listing is None or listing.version != version or self._now() - listing.opened_s > CONTINUATION_S:
            raise HistoryExpired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter."
            )
        return self._page(number, start, limit or len(listing.items))

    def _page(self, number: int, start: int, limit: int) -> ListedPage:
        listing = self._open[number]
        items = listing.items[start : start + limit]
        remaining = len(listing.items) - start - len(items)
        if not remaining:
            return ListedPage(items, listing.version)
        token = msgspec.json.encode((number, start + len(items), listing.version))
        return ListedPage(items, listing.version, base64.urlsafe_b64encode(token).decode(), remaining)

    def clear(self) -> None:
        self._open.clear()
