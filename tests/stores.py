"""Stores of the embedded cluster that serve TYJobs and Queues."""

import functools
from collections.abc import Callable
from pathlib import Path

from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import ServedKind, custom_kinds
from arranger.sandbox.store import Store
from tests.servers import CRD_FILES, definition_of


@functools.cache
def _kinds_of(definition: Path) -> list[ServedKind]:
    return custom_kinds(definition_of(definition))


def store_of_jobs(now: Callable[[], float] = lambda: 1_700_000_000.0) -> Store:
    """A store that serves both kinds as if their definitions had been created, which takes a tenth of a second."""
    store = Store(now=now)
    for kinds in map(_kinds_of, CRD_FILES):
        store.collections[kinds[0].key] = Collection(kinds, 20_000)
    return store
