"""Reads a part of a log for the page that plays it."""

from collections.abc import Callable

from arranger.cli.inputs.reading import feed, progress
from arranger.errors import LogError
from arranger.events.log import Entry, Log, Position
from arranger.plugins import installed
from arranger.projections import snapshot
from arranger.projections.state import State
from arranger.replay.console.playback import Playback, PlaybackIndex, PointExplainer, TooLong
from arranger.replay.explain.answer import Explanation
from arranger.replay.reading.history import Point
from arranger.workers.log.last_config import last_config

#: Explanations from which on their making is worth a bar.
_WORTH_A_BAR = 20


async def played(
    log: Log,
    after: Position,
    state: State,
    until: int,
    job: str = "",
    *,
    changed: Callable[[Entry], Entry] = lambda entry: entry,
) -> tuple[Playback, list[Explanation]]:
    """What happened after a position, at which the state is this one, up to an offset, and the explanations of its
    longest states, those of the job that was asked for before others. `changed` gives what is shown of an entry. Raises
    `LogError`."""
    again, end = snapshot.restore(snapshot.encode(state)) if state.offset else State(), Point(offset=until)
    index = PlaybackIndex(state, job)
    try:
        await feed(log, after, lambda entry: index.feed(changed(entry)), until=end, doing="reading the log")
    except TooLong as problem:
        raise LogError(f"{problem}, more than a page plays", hint="use an earlier --until or a later --from") from None
    asked = index.to_explain()
    explanations: list[Explanation] = []
    with progress("explaining", sum(map(len, asked.values())), worth=_WORTH_A_BAR) as moved:

        def told(one: Explanation) -> None:
            explanations.append(one)
            moved(1)

        config = await last_config(log, again, after)
        explaining = PointExplainer(again, config, asked, told, policies=installed())
        await feed(log, after, lambda entry: explaining.feed(changed(entry)), until=end, doing="")
        explaining.finish()
    return index.playback(), explanations
