"""Changes to the order of the waiting jobs: what keeps the job out of it, the jobs ahead, and the configuration."""

from collections.abc import Iterator, Sequence

import msgspec

from arranger.events import kinds as k
from arranger.model.job import Stage
from arranger.projections.derived.awaited_room import refused_when_started
from arranger.projections.jobs.records import JobRecord
from arranger.projections.verdicts.ownership import has_earlier_pods
from arranger.replay.explain.candidate_changes.case import WaitingCase
from arranger.replay.explain.candidate_changes.change import Change, ChangeSteps, names_text
from arranger.replay.reading.describe import label
from arranger.replay.reading.edits import changed, shown, told_from_before
from arranger.replay.what_if import hypothesis

#: The highest priority that a TYJob may have.
_HIGHEST = 10
#: The highest value of the setting `reservations`.
_MOST_RESERVATIONS = 100


def _after_back_off(job: JobRecord, left_ms: int) -> str:
    before = ", if the API server takes its pods, as it didn't last time" if refused_when_started(job) else ""
    return f"in {left_ms / 1000:g} s, when its back-off is over{before}"


def out_of_queue(case: WaitingCase) -> Iterator[Change]:
    """Bring a job into the queue that isn't in it."""
    job, state, spec = case.job, case.state, case.spec
    pods = [p for p in state.pods_of.get(job.uid, {}).values() if p.owner is not None and p.owner.attempt < job.attempt]
    stay = job.stage in (Stage.PENDING, Stage.RESCHEDULING) and has_earlier_pods(state, job)
    when = f"when the pods of its earlier attempt are gone: {names_text([pod.name for pod in pods])}" if stay else ""
    gone = hypothesis.pods_gone(state, pods) if stay else ()
    left_ms = job.not_before_ms - state.time_ms
    if left_ms > 0:
        when = _after_back_off(job, left_ms) + (f", and {when}" if when else "")
    if spec.suspend:
        edit = next((e for e in reversed(case.edits(job)) if e.before is None or not e.before.suspend), None)
        offset = edit.offset if edit is not None else case.story.created_at
        yield Change(
            "spec",
            "spec.suspend false" + (f", {when}" if when else ""),
            (hypothesis.job_seen(job, state, msgspec.structs.replace(spec, suspend=False)), *gone),
            offset,
            "it was suspended" if edit is not None else "it was created suspended",
        )
    elif spec.unmet:
        yield _without_unmet(case, when, gone)
    elif stay or left_ms > 0:
        began = next(
            (one for one in reversed(case.story.consequences) if one.what not in ("Replaced", "GivenUp")), None
        )
        yield Change(
            "pod" if stay else "wait",
            when,
            gone,
            began.offset if began is not None else 0,
            began.message if began is not None else "",
            time_ms=job.not_before_ms if left_ms > 0 else None,
        )


def _without_unmet(case: WaitingCase, when: str, gone: tuple[k.Event, ...]) -> Change:
    """Let the job start without the end of the jobs that it waits for. That reverts the event by which it began to."""
    job, spec = case.job, case.spec
    met = msgspec.structs.replace(spec, after=tuple(of for of in spec.after if of.met))
    unmet = [of.name for of in spec.unmet]
    what = f"spec.after without {', '.join(unmet)}" + (f", {when}" if when else "")
    offset, undone, several = case.story.created_at, f"it was created to start after {names_text(unmet)}", False
    for edit in reversed(case.edits(job)):
        before = {of.name for of in edit.before.after} if edit.before is not None else set()
        if not before.issuperset(unmet):  # with this edit alone undone, it may still wait for some of them
            undone = "its spec was edited"
            if edit.before is not None and edit.after is not None:
                undone = f"its spec was edited: {changed(edit.before, edit.after)}"
            offset, several = edit.offset, not before.isdisjoint(unmet)
            break
    return Change("spec", what, (hypothesis.job_seen(job, case.state, met), *gone), offset, undone, several=several)


def edits_ahead(case: WaitingCase) -> Iterator[Change]:
    """Revert an edit of a job ahead."""
    edits = [(edit, other) for other in case.ahead for edit in case.edits(other)]
    for edit, other in sorted(edits, key=lambda one: -one[0].offset):
        if edit.before is not None and edit.after is not None:
            what = f"{label(other)}: {told_from_before(edit.before, edit.after)}"
            seen = hypothesis.job_seen(other, case.state, edit.before)
            edited = f"{label(other)} was edited: {changed(edit.before, edit.after)}"
            yield Change("queue", f"{what}, as before its edit", (seen,), edit.offset, edited, label(other))


def configurations(case: WaitingCase) -> Iterator[Change]:
    """Use the configuration of earlier cycles."""
    for configured in reversed(case.around.configured[-3:]):
        before, after = configured.before, configured.after
        said = [
            f"{name} {shown(getattr(before, name))} instead of {shown(getattr(after, name))}"
            for name in ("queue_policy", "pod_policy", "weights")
            if getattr(before, name) != getattr(after, name)
        ]
        if said:
            what = ", ".join(said)
            usable = case.policies.usable(before)
            yield Change(
                "config", what, (), configured.offset, f"the configuration of cycles changed: {what}", config=usable
            )


def more_reservations(case: WaitingCase) -> Sequence[Change]:
    """Let more jobs have reservations, where a present one may last for ever: it waits for jobs without an expected
    end, or for one that has outlived it."""
    known, config, now_ms = case.state.reservations, case.config, case.state.time_ms
    decided = [of.decided for of in known.values() if of.decided.awaits]
    lasting = any(of.start_ms <= now_ms or not set(of.awaits).isdisjoint(of.outlived) for of in decided)
    if not (config.reservations and lasting) or case.job.uid in known:
        return ()

    def with_more(number: int) -> Change:
        more = config.reservations + 1 + number
        what = f"the setting reservations {more} instead of {config.reservations}; then room is reserved for it"
        return Change("config", what, config=msgspec.structs.replace(config, reservations=more))

    return ChangeSteps(min(len(case.ahead) + 1, _MOST_RESERVATIONS - config.reservations), with_more)


def priorities(case: WaitingCase) -> Sequence[Change]:
    """Raise the priority step by step: above that of jobs ahead, or of those that may give the job room."""
    spec = case.spec
    alone = not case.ahead and not any(other.placements for other in case.state.jobs.values())
    if spec.priority_class or alone:  # the value of a class can't be edited
        return ()
    first: dict[int, str] = {}
    for other in case.ahead:
        if other.spec is not None:
            first.setdefault(other.spec.priority, f" would put it before {label(other)}")

    def raised(number: int) -> Change:
        priority = spec.priority + 1 + number
        seen = hypothesis.job_seen(case.job, case.state, msgspec.structs.replace(spec, priority=priority))
        text = f"priority {priority}"
        below = max((level for level in first if level < priority), default=0)
        return Change("queue", text + first.get(below, ""), (seen,), taking=f"{text} would let it")

    return ChangeSteps(_HIGHEST - spec.priority, raised)


def ahead(case: WaitingCase) -> Sequence[Change]:
    """Remove a job ahead that has no placements, the latest arrival first."""
    arrived = case.around.arrived
    others = [other for other in case.ahead if not other.placements]
    others.sort(key=lambda one: -arrived.get(one.uid, 0))

    def without(number: int) -> Change:
        other = others[number]
        name = label(other)
        gone = hypothesis.job_gone(other, case.state)
        return Change(
            "queue", f"if {name} weren't ahead of it", gone, arrived.get(other.uid, 0), f"{name} was created", name
        )

    return ChangeSteps(len(others), without)
