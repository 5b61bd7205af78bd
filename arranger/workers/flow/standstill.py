"""A standstill of the fold, for a reader of the projection who needs more than one turn of the event loop."""

import asyncio


class Standstill:
    """While its context lasts, the follower folds nothing; entries are folded afterwards. It is for one reader at a
    time, and for fractions of a second."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._over.set()

    async def __aenter__(self) -> None:
        self._over.clear()

    async def __aexit__(self, *_: object) -> None:
        self._over.set()

    @property
    def lasts(self) -> bool:
        """Whether the fold stands still."""
        return not self._over.is_set()

    async def over(self) -> None:
        """Wait until the fold may go on."""
        await self._over.wait()
