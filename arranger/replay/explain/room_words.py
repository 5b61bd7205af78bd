"""The words of `explain` that are about room: taken from others, given to others, and kept."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from arranger.events.facts import PreemptionKind
from arranger.model.text import counted, duration, few, gpu_time
from arranger.replay.explain.answer import Explanation
from arranger.replay.explain.expected import Certainty, NoStart, Start
from arranger.replay.explain.shortfall import Added
from arranger.replay.explain.taken_room import Gave, Giving, KeptFor, KeptReservation, RoomTaking, SparedJob, TakesNone
from arranger.replay.explain.waiting import Waiting
from arranger.replay.reading.describe import amounts_text
from arranger.scheduling import NoRoomKind

#: A time within a line.
_Time = Callable[[int], str]

#: How many jobs a line names.
_NAMED = 3

_KINDS = {
    PreemptionKind.SURPLUS: "surplus",
    PreemptionKind.PRIORITY: "lower priority",
    PreemptionKind.RECLAIM: "queue above its share",
    PreemptionKind.GUEST: "its guest",
    PreemptionKind.GUEST_SURPLUS: "surplus of its guest",
}


def room_rows(answer: Explanation, time: _Time) -> Iterator[tuple[str, str]]:
    """The room that others gave to the job, and that it gave to others: a name and a text each."""
    for taken in answer.takings:
        yield "took room", _taken(taken, answer.time_ms, time)
    for given in answer.givings:
        yield "gave room", _given(given, answer.time_ms, time)


def start_rows(answer: Explanation, time: _Time) -> Iterator[tuple[str, str]]:
    """When the job starts, how sure that is, and the room that is kept for it: a name and a text each."""
    if answer.start is not None:
        yield "start", _start(answer.start, answer.time_ms, time)
    if answer.kept is not None:
        yield "reserved", _kept(answer.kept, answer.time_ms, time)
    if (limit := answer.kept_limit) is not None:
        yield "kept for it", f"{limit.text}; {_enough_left(limit.start_ms, limit.awaits, answer.time_ms, time)}"


def waiting_rows(waiting: Waiting, now_ms: int, time: _Time) -> Iterator[tuple[str, str]]:
    """What of its requests isn't its own, the room that is kept from a waiting job, and why it takes none: a name and a
    text each."""
    for added in waiting.added:
        yield "requests", _added(added)
    for one in waiting.reserved[:_NAMED]:
        yield "reserved for" if one.nodes else "limit kept for", _kept_for(one, now_ms, time)
    if waiting.takes_none:
        told = [takes_none_text(one, time) for one in waiting.takes_none]
        yield "takes no room", "; ".join(told)


def _added(added: Added) -> str:
    """Where a part of what a pod asks for comes from."""
    what = "the overhead of its" if added.kind == "RuntimeClass" else "the default of the"
    whose = f"{what} {added.kind} {few(list(added.names), _NAMED)}"
    return f"of what each pod asks for, {amounts_text(added.amounts)} is {whose}"


def room_moments(answer: Explanation) -> Iterator[int]:
    """The times in these texts, in milliseconds since 1970."""
    for taken in answer.takings:
        yield from (taken.time_ms, taken.until_ms)
    yield from (given.time_ms for given in answer.givings)
    if answer.kept is not None:
        yield answer.kept.start_ms
    if answer.kept_limit is not None:
        yield answer.kept_limit.start_ms
    if (start := answer.start) is not None:
        yield from (start.expected_ms, start.earliest_ms, start.latest_ms, start.made_ms)
        yield from (start.forecast_ms, start.first_ms)
    if answer.waiting is not None:
        yield from (one.start_ms for one in answer.waiting.reserved)
        yield from (one.until_ms for one in answer.waiting.takes_none)


def gave_text(gave: Gave) -> str:
    """A victim in words."""
    return f"{gave.job} ({counted(gave.pods, 'pod')}, {_KINDS[gave.kind]}, {gpu_time(gave.lost_ms)} of work lost)"


def _taken(taken: RoomTaking, now_ms: int, time: _Time) -> str:
    parts = [f"at {time(taken.time_ms)} (offset {taken.offset}) from {', '.join(map(gave_text, taken.victims))}"]
    if taken.leaving:
        parts.append(f"and from {counted(taken.leaving, 'pod')} that left anyway")
    for needless, words in ((True, "not needed after all"), (False, "not reached")):
        spared = [_spared(of) for of in taken.spared if of.needless == needless]
        if spared:
            parts.append(f"spared, {words}: {few(spared, _NAMED)}")
    if taken.begun_ms:
        parts.append(f"it began {duration(taken.begun_ms - taken.time_ms)} later")
    elif taken.lost_ms:
        parts.append(f"it gave the nodes back after {duration(taken.lost_ms - taken.time_ms)}, without having begun")
    else:
        waits = duration(max(now_ms - taken.time_ms, 0))
        parts.append(f"it waits for them to leave since {waits}, at most until {time(taken.until_ms)}")
    return "; ".join(parts)


def _spared(of: SparedJob) -> str:
    return f"{of.job} ({gpu_time(of.lost_ms)})"


def _given(given: Giving, now_ms: int, time: _Time) -> str:
    what = f"{counted(given.pods, 'pod')} at {time(given.time_ms)} (offset {given.offset})"
    why = f"which has priority {given.to_priority}"
    if given.guest:
        why = "whose guest it was"
    elif given.reclaimed:
        why = f"whose queue {given.to_queue} is below its share, while its own queue was above"
        why += ", by however little: jobs aren't divided" if given.whole else ""
    parts = [f"{what} to {given.to}, {why}", f"{gpu_time(given.lost_ms)} of work lost", "no restart counts"]
    if given.whole and given.again_ms:
        parts.append(f"it had nodes again {duration(given.again_ms - given.time_ms)} later")
    elif given.whole:
        parts.append(f"it waits again since {duration(max(now_ms - given.time_ms, 0))}")
    else:
        parts.append("it runs on with the rest")
    return "; ".join(parts)


def _kept(kept: KeptReservation, now_ms: int, time: _Time) -> str:
    expected = "expected" if kept.start_ms > now_ms else "where it was expected"
    start = f"{expected} to start at {time(kept.start_ms)}" if kept.start_ms else "at an unknown time"
    parts = [f"{few(kept.nodes, _NAMED)}, {start} (offset {kept.offset})"]
    if kept.awaits:
        parts.append(f"after the end of {few(kept.awaits, _NAMED)}")
    if kept.moved:
        later = kept.start_ms - kept.first_ms if kept.start_ms and kept.first_ms else 0
        by = f", by {duration(abs(later))} to {'a later' if later > 0 else 'an earlier'} time" if later else ""
        parts.append(f"the expected start moved {counted(kept.moved, 'time')}{by}")
    if kept.outlived:
        parts.append(f"ran for longer than expected: {few(kept.outlived, _NAMED)}")
    return "; ".join(parts)


def _start(start: Start, now_ms: int, time: _Time) -> str:
    if start.certainty == Certainty.UNKNOWN:
        assert start.why is not None
        guess = f"; `arranger forecast` guesses {time(start.forecast_ms)}: {GUESSED}" if start.forecast_ms else ""
        return f"unknown: {_no_start(start)}{guess}"
    if start.certainty == Certainty.PROMISED:
        return _promised(start, now_ms, time)
    at = f"at {time(start.expected_ms)}, in {duration(max(start.expected_ms - now_ms, 0))}"
    made = "as of this point" if start.made_ms == now_ms else f"of {time(start.made_ms)}"
    # That of an earlier forecast may be over.
    earliest = time(start.earliest_ms) if start.earliest_ms >= now_ms else "now"
    if start.guess:
        guess = f"a guess by a forecast {made}, because {_endless(start)}: {GUESSED}"
        likely = f"between {earliest} and {time(start.latest_ms)}" if start.latest_ms else f"not before {earliest}"
        return f"{at}: {guess}; likely {likely}"
    latest = f"and {time(start.latest_ms)}" if start.latest_ms else f"and an unknown time: {_no_start(start)}"
    return f"{at}: a forecast {made}, if nothing new comes; likely between {earliest} {latest}"


#: What a guess supposes.
GUESSED = "such jobs are taken to last as long again as they have run, or as half of the earlier jobs did"


def _promised(start: Start, now_ms: int, time: _Time) -> str:
    at = time(start.expected_ms)
    uncertain = start.estimated or start.contested or start.guests or start.ahead
    said = "expected" if uncertain else "promised"
    first = f", which {said} {time(start.first_ms)} at first" if start.first_ms else ""
    how, why = (
        ("guesses", f", with jobs of whose end nothing is known: {GUESSED}") if start.guessed else ("expects", "")
    )
    other = f"; `arranger forecast` {how} {time(start.forecast_ms)}{why}" if start.forecast_ms else ""
    if start.expected_ms > now_ms:
        sure = f"{'expected' if first else said} by its reservation{first}"
        sure += " (estimated from earlier runs)" if start.estimated else ""
        sure += " (jobs of other queues may get their turns first)" if start.contested else ""
        sure += " (a guest of another queue may stay in the room)" if start.guests else ""
        sure += f" (pods of {few(start.ahead, _NAMED)} go first, also there)" if start.ahead else ""
        return f"at {at}, in {duration(start.expected_ms - now_ms)}: {sure}{other}"
    late = duration(now_ms - start.expected_ms)
    return f"overdue since {at}, for {late}, by its reservation{first}: {overdue_text(start, time)}{other}"


def overdue_text(start: Start, time: _Time) -> str:
    """What a job still waits for whose promised start is over."""
    waits = [f"{few(start.endless, _NAMED)} to end"] if start.endless else []
    if start.leaving:
        own = f", {start.own} of them its own," if start.own else ""
        own = " of its own" if start.own == len(start.leaving) else own
        waits.append(f"{counted(len(start.leaving), 'pod')}{own} to leave those nodes ({few(start.leaving, _NAMED)})")
    if waits:
        return f"it waits for {' and for '.join(waits)}"
    by = f"a cycle decides anew by {time(start.revised_ms)} at the latest"
    return by if start.revised_ms else "the next cycle decides anew"


def _endless(start: Start) -> str:
    """That jobs may never end."""
    if start.endless:
        return f"nothing is known of the end of {few(start.endless, _NAMED)}"
    return _NO_START[NoStart.ENDLESS]


def _no_start(start: Start) -> str:
    if start.why == NoStart.ENDLESS:
        return _endless(start)
    if start.why == NoStart.AWAITED:
        if not start.endless:
            return "the jobs have ended for which its reservation waited, and no cycle has revised it since"
        return f"its reservation waits for the end of {few(start.endless, _NAMED)}, and nobody knows when that comes"
    return _NO_START[start.why].format(job=start.failing) if start.why is not None else ""


_NO_START = {
    NoStart.ENDLESS: "jobs that may never end hold room",
    NoStart.NEVER: "it doesn't fit even when all other jobs have ended",
    NoStart.GUARANTEES: "even when all other jobs have ended, the guarantees of other queues leave too little for it",
    NoStart.LIMIT: "even when all other jobs have ended, a quota or a limit of its queue leaves too little for it",
    NoStart.QUEUE: "it can't use its queue",
    NoStart.INFEASIBLE: "its quorum would not fit even if nothing else ran",
    NoStart.REFUSED: "the API server refuses a pod of it in a dry run, which is repeated now and then",
    NoStart.REFUSED_BEFORE: "the API server refused pods of it when it last got nodes",
    NoStart.DEPENDENCY_OVERDUE: "job {job} is expected to reach its deadline, and this job fails then",
    NoStart.DEPENDENCY_FAILS: "job {job} is expected to fail, and this job fails then",
    NoStart.LATER: "a forecast takes too long here: arranger forecast",
    NoStart.NOT_FORECAST: "no forecast was made (forecast_every_s)",
    NoStart.TOO_LARGE: "the cluster has too many pods for a forecast here: arranger forecast",
    NoStart.TOO_MANY_JOBS: "more jobs wait than a forecast here looks at: arranger forecast",
    NoStart.HELD: "something other than room keeps it",
}


def _enough_left(start_ms: int, awaits: Sequence[str], now_ms: int, time: _Time) -> str:
    """When enough of a limit is left for the job for which it is kept."""
    expected = "is expected" if start_ms > now_ms else "was expected"
    at = f"enough {expected} to be left at {time(start_ms)}" if start_ms else "enough is left at an unknown time"
    return f"{at}, after the end of {few(awaits, _NAMED)}" if awaits else at


def _kept_for(one: KeptFor, now_ms: int, time: _Time) -> str:
    if not one.nodes:
        return f"{one.job}; {_enough_left(one.start_ms, one.awaits, now_ms, time)}"
    over = 0 < one.start_ms <= now_ms
    expected = f"which {'was' if over else 'is'} expected to start there at"
    start = f"{expected} {time(one.start_ms)}" if one.start_ms else "at an unknown time"
    after = f", after the end of {few(one.awaits, _NAMED)}" if one.awaits else ""
    still = ", and hasn't yet" if over else ""
    return f"{one.job}, {start}{after}{still}: {few(one.nodes, _NAMED)}"


def takes_none_text(one: TakesNone, time: _Time) -> str:
    """Why a job takes no room, in words."""
    who = _who(one.jobs)
    above = f"queue {one.above}" if one.above else "its own queue"
    until, of = time(one.until_ms) if one.until_ms else "", " and ".join(one.resources)
    first, hosts = _who(one.hosts), _reservations_of(one.hosts)
    return _TAKES_NONE[one.kind].format(who=who, until=until, above=above, of=of, first=first, hosts=hosts)


def _reservations_of(hosts: Collection[str]) -> str:
    """Jobs whose reservations wait for the same, and that they do."""
    return f"reservation of {_who(hosts)} waits" if len(hosts) == 1 else f"reservations of {_who(hosts)} wait"


def _who(jobs: Iterable[str]) -> str:
    return few(list(jobs), _NAMED)


_TAKES_NONE = {
    NoRoomKind.OFF: "the setting preemption is Never",
    NoRoomKind.QUEUE_NEVER: "the setting or spec.preemption of its queue is Never",
    NoRoomKind.QUOTA: "nobody is preempted for the quota or limit that it lacks",
    NoRoomKind.INFEASIBLE: "not even an empty cluster would have room",
    NoRoomKind.RESERVED: "the room that it would have is reserved for a job before it",
    NoRoomKind.COMES: "it has room once the pods have left that leave anyway, or are about to finish",
    NoRoomKind.OVER_LIMIT: "its queue has more than a limit allows, and jobs that have nodes keep them",
    NoRoomKind.HAS_NODES: "it has nodes for its quorum",
    NoRoomKind.NOT_LOWER: "not of lower priority in its queue: {who}",
    NoRoomKind.PRIORITY_NEVER: (
        "spec.preemption.priority of its queue, or priority in the setting preemption, is Never: {who}"
    ),
    NoRoomKind.RECLAIM_NEVER: (
        "spec.preemption.reclaim of its queue, or reclaim in the setting preemption, is Never: {who}"
    ),
    NoRoomKind.SURPLUS_NEVER: (
        "spec.preemption.surplus of its queue, or surplus in the setting preemption, is Never, and without surplus the "
        "queues of these aren't above their shares: {who}"
    ),
    NoRoomKind.NOT_PREEMPTIBLE: "not preemptible: {who}",
    NoRoomKind.TOO_YOUNG: "kept for the minRuntimeSeconds of the queue, until {until} at the earliest: {who}",
    NoRoomKind.JUST_TOOK: "room that was taken is kept for min_runtime_s, until {until} at the earliest: {who}",
    NoRoomKind.ABOVE_SHARE: "{above} would be above its share of {of}, so nothing is reclaimed from {who}",
    NoRoomKind.OWN_ABOVE_SHARE: (
        "the own jobs of its queue, beside those of the queues below it, would be above their part of its share, so "
        "nothing is reclaimed from {who}"
    ),
    NoRoomKind.WITHIN_SHARE: "in queues that aren't above their share: {who}",
    NoRoomKind.OWN_WITHIN_SHARE: "own jobs of a queue, which aren't above their part of its share: {who}",
    NoRoomKind.NOT_RECLAIMABLE: "in queues that aren't reclaimable: {who}",
    NoRoomKind.UNUSABLE: "in queues that don't exist or have a problem, until that is mended: {who}",
    NoRoomKind.AWAITED: "the {hosts} for the end of {who}",
    NoRoomKind.RETURNING: "{first} may take their room once pods of an earlier attempt have left: {who}",
    NoRoomKind.TOO_LITTLE: "what others may give isn't enough: {who}",
    NoRoomKind.NOBODY: "no other job has what it lacks where its pods may run",
    NoRoomKind.REFUSED: "the API server refuses a pod of it in a dry run, which is repeated now and then",
    NoRoomKind.IN_VAIN: (
        "it took room and didn't start; it takes none again until its spec, a quota of its namespace or one of the "
        "nodes that it got changes, or a pod leaves one of these where others didn't in time"
    ),
}
