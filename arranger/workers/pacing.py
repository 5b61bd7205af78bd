"""The pace of what can wait, such as statuses and Events of jobs that wait for nodes, by namespace.

A namespace has some turns at once, and further ones a while apart. While several namespaces are ahead of their time,
each waits as many times as long: so all of them together do as much as one alone, and one with much to do delays none
with little.
"""

#: The least distance of two turns.
_LEAST_APART_S = 0.0001


class Pace:
    """When each namespace has its next turn, after `at_once` of them."""

    def __init__(self, at_once: int = 0) -> None:
        self._at_once = at_once
        #: Namespace → how many turns it is ahead of its time, and when that was so.
        self._ahead: dict[str, tuple[float, float]] = {}

    def next_s(self, namespace: str, now_s: float, apart_s: float) -> float:
        """Give a namespace a turn; returns when it is. A namespace alone has turns that are `apart_s` from each other,
        which may differ from call to call."""
        apart_s = max(apart_s, _LEAST_APART_S) * max(len(self._ahead), 1)
        left = {of: ahead - (now_s - at_s) / apart_s for of, (ahead, at_s) in self._ahead.items()}
        self._ahead = {of: (ahead, now_s) for of, ahead in left.items() if ahead > 0}
        ahead = max(left.get(namespace, 0.0), 0.0)
        self._ahead[namespace] = (ahead + 1, now_s)
        return now_s + max(ahead - self._at_once, 0.0) * apart_s
