"""The fold: reading the log's bytes, folding observations, and snapshots of what they fold to, in one thread."""

import gc
import time
from collections.abc import Callable

from arranger.events import kinds as k
from arranger.events.codec import decode_batch, encode_batch
from arranger.events.log import Entry
from arranger.projections import snapshot
from arranger.projections.fold import apply_entry
from arranger.projections.state import Changes, State
from benchmarks.report import Figure
from benchmarks.workload import History, pod_seen

_BATCH = 500


def run(*, quick: bool) -> list[Figure]:
    """The benchmark."""
    nodes, pods, rounds = (50, 500, 2) if quick else (5_000, 50_000, 4)
    payloads = _payloads(nodes, pods, rounds)
    gc.freeze()
    entries: list[Entry] = []
    decode_s = seconds(lambda: entries.extend(_decoded(payloads)))
    state = State()
    fold_s = seconds(lambda: _fold(state, entries))
    content = b""

    def encode() -> None:
        nonlocal content
        content = snapshot.encode(state)

    encode_s = seconds(encode)
    restored: list[State] = []
    restore_s = seconds(lambda: restored.append(snapshot.restore(content)))
    same = snapshot.encode(restored[0]) == content
    what = f"{pods * rounds:,} pod observations, {pods:,} pods, {nodes:,} nodes"
    return [
        Figure(name="decode", value=state.offset / decode_s, unit="events/s", note=what),
        Figure(name="fold", value=state.offset / fold_s, unit="events/s"),
        Figure(name="fold, ratio to decode", value=decode_s / fold_s),
        Figure(name="snapshot encoded", value=1000 * encode_s, unit="ms", note=f"{len(content) / 1e6:.1f} MB"),
        Figure(name="snapshot restored", value=1000 * restore_s, unit="ms"),
        Figure(name="restored equals encoded", value=float(same), at_least=1.0),
    ]


def seconds(work: Callable[[], object]) -> float:
    """How long it took, begun without garbage."""
    gc.collect()
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _payloads(nodes: int, pods: int, rounds: int) -> list[bytes]:
    history = History()
    names = history.nodes(nodes)
    term = history.terms[k.Watched.POD]
    for round_ in range(rounds):
        for begin in range(0, pods, _BATCH):
            numbers = range(begin, min(begin + _BATCH, pods))
            history.say(*(pod_seen(term, n, names, pods, pods // 100, round_=round_) for n in numbers))
    return [encode_batch(batch) for batch in history.batches]


def _decoded(payloads: list[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    last = 0
    for payload in payloads:
        batch = decode_batch(payload, last + 1)
        first, last = last + 1, last + len(batch.events)
        entries.append(Entry(first, last, "", batch))
    return entries


def _fold(state: State, entries: list[Entry]) -> None:
    changes = Changes()
    for entry in entries:
        apply_entry(state, entry, changes)
