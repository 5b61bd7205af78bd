"""Stores of the embedded cluster that serve TYJobs and Queues."""

import functools
from collections.abc import Callable
from pathlib import Path

from arranger.sandbox.history import Collection
from arranger.sandbox.kinds import Kind, custom_kind
from arranger.sandbox.store import Store
from tests.servers import CRD_FILES, definition_of


@functools.cache
def _kind_of(definition: Path) -> Kind:
    return custom_kind(definition_of(definition))


def store_of_jobs(now: Callable[[], float] = lambda: 1_700_000_000.0) -> Store:
    """A store that serves both kinds as if their definitions had been created, which takes a tenth of a second."""
    store = Store(now=now)
    for kind in map(_kind_of, CRD_FILES):
        store.collections[kind.key] = Collection(kind, 20_000)
    return store
