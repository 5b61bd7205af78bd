"""Whatever becomes of queues, no job waits without a reason that `explain` names, and to explain changes nothing."""

from hypothesis import example, given, settings

from arranger.projections import snapshot
from arranger.projections.derived.departing import ends_by_itself
from arranger.replay.explain.answer import explanation
from arranger.replay.explain.in_queue import KeptBy
from tests.random_worlds import LONG, Step, live_through, steps
from tests.unit.replay_worlds import histories_of

#: What keeps a job that isn't in the order of the waiting jobs.
_OUT = (KeptBy.NO_QUEUE, KeptBy.PROBLEM, KeptBy.NOT_ADMITTED, KeptBy.CLOSED)


@settings(max_examples=40, deadline=None)
@given(steps(least=20, most=60))
@example(LONG)
def test_each_waiting_job_has_a_reason(history: list[Step]) -> None:
    world = live_through(history)
    world.cycle()
    content = snapshot.encode(world.state)
    for name in sorted({job.seen.name for job in world.state.jobs.values()}):
        histories = histories_of(world.entries, name)
        for uid, story in histories.stories.items():
            job = histories.state.jobs.get(uid)
            if job is None:
                continue
            waiting = explanation(story, job, histories.retaken(uid)).waiting
            assert snapshot.encode(histories.state) == content
            if waiting is None or not histories.state.synced:
                continue
            there = waiting.in_queue
            assert there is not None and waiting.why
            if (
                waiting.position
                and not waiting.gets
                and not ends_by_itself(histories.state, job, histories.state.time_ms)
            ):
                assert there.kept_by is not None and there.kept_by not in _OUT and there.position
            elif not waiting.position:
                assert there.kept_by in (None, *_OUT) and not there.position
            if there.kept_by in (KeptBy.CAPABILITY, KeptBy.MAX_RUNNING, KeptBy.MAX_WAITING, *_OUT):
                assert there.kept_at
