"""Which jobs had each node over time, as bars."""

from typing import NamedTuple

import msgspec

from arranger.projections.state import State
from arranger.replay.console.moment import gpus_of_node

#: How many bars are kept in memory, and how many one answer has.
_BARS, _SHOWN = 400_000, 50_000


class NodeBar(NamedTuple):
    """A time (seconds since 1970) in which a job, the index into `NodeGantt.jobs`, had slots on a node, with so many
    GPUs."""

    job: int
    begin: float
    end: float
    gpus: int = 0


class GanttNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node with its bars, in the order in which they begin. Several may last at once. `gpus` are the most that it had
    when a bar began."""

    node: str
    bars: tuple[NodeBar, ...]
    gpus: int = 0


class NodeGantt(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes that jobs had, by name. `left` is the number of bars that aren't shown: those that began first."""

    jobs: tuple[str, ...]
    nodes: tuple[GanttNode, ...]
    left: int
    complete: bool = True


class _Span(msgspec.Struct):
    """A bar in the making; `end_ms` is -1 while it lasts."""

    job: str
    begin_ms: int
    gpus: int
    end_ms: int = -1


class NodeSpans:
    """Call `note` whenever the nodes of a job may have changed. When there are too many bars, the half of them that
    ended first is forgotten."""

    def __init__(self) -> None:
        self._of_node: dict[str, list[_Span]] = {}
        #: Job UID → node → the span that lasts.
        self._lasting: dict[str, dict[str, _Span]] = {}
        self._bars = 0
        #: Node → the most GPUs that it had when a bar began.
        self._gpus: dict[str, int] = {}

    def note(self, uid: str, job: str, nodes: dict[str, int], state: State) -> None:
        """`nodes` are those that the job, named `job`, has now, with its GPUs there."""
        lasting = self._lasting.setdefault(uid, {})
        for node in [of for of, span in lasting.items() if nodes.get(of) != span.gpus]:
            lasting.pop(node).end_ms = state.time_ms
        for node in [of for of in nodes if of not in lasting]:
            lasting[node] = _Span(job, state.time_ms, nodes[node])
            self._of_node.setdefault(node, []).append(lasting[node])
            self._gpus[node] = max(self._gpus.get(node, 0), gpus_of_node(state.nodes, node))
            self._bars += 1
        if not lasting:
            del self._lasting[uid]
        if self._bars > _BARS:
            self._forget()

    def _forget(self) -> None:
        ends = sorted(span.end_ms for spans in self._of_node.values() for span in spans if span.end_ms >= 0)
        until_ms = ends[len(ends) // 2] if ends else -1
        kept = {
            node: [span for span in spans if not 0 <= span.end_ms <= until_ms] for node, spans in self._of_node.items()
        }
        self._of_node = {node: spans for node, spans in kept.items() if spans}
        self._bars = sum(map(len, self._of_node.values()))

    def gantt(self, begin_ms: int, end_ms: int, *, complete: bool) -> NodeGantt:
        """The bars that meet a span of time. Bars that last end with it."""
        found = [
            (span.begin_ms, node, span)
            for node in sorted(self._of_node)
            for span in self._of_node[node]
            if span.begin_ms <= end_ms and not 0 <= span.end_ms < begin_ms and span.end_ms != span.begin_ms
        ]
        left = max(len(found) - _SHOWN, 0)
        if left:
            found = sorted(found, key=lambda of: of[:2])[left:]
        jobs: dict[str, int] = {}
        rows: dict[str, list[NodeBar]] = {}
        for _, node, span in found:
            bar_end_ms = span.end_ms if span.end_ms >= 0 else end_ms
            number = jobs.setdefault(span.job, len(jobs))
            bar = NodeBar(number, span.begin_ms / 1000, bar_end_ms / 1000, span.gpus)
            rows.setdefault(node, []).append(bar)
        nodes = tuple(GanttNode(node, tuple(rows[node]), self._gpus[node]) for node in sorted(rows))
        return NodeGantt(tuple(jobs), nodes, left, complete)
