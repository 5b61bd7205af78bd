"""What a running job lacks of its quorum, what a job's user can do about its failure or about pods that can't start,
and until when these have time."""

from arranger.lifecycle.config import LifecycleConfig
from arranger.lifecycle.hindrances import gives_up_text, start_remedy_text, stuck_of
from arranger.messages.failures import failure_remedy_text
from arranger.messages.readiness import below_quorum_text
from arranger.projections.jobs.records import JobRecord
from arranger.replay.explain.story import Story


def below_quorum(story: Story, job: JobRecord) -> str:
    return below_quorum_text(story.state, job)


def remedy(story: Story, job: JobRecord) -> str:
    failed = failure_remedy_text(job.decided) if job.decided is not None else ""
    return failed or start_remedy_text(story.state, job)


def gives_up(story: Story, job: JobRecord) -> str:
    """When a job whose pods can't start fails or gives its nodes up, by the bounds that the last cycle recorded."""
    of = story.around.config.starts
    if of is None:
        return ""
    config = LifecycleConfig(image_grace_ms=of.image_ms, start_ms=of.start_ms, ready_ms=of.ready_ms)
    return gives_up_text(story.state, job, config, story.no_image_ms)


def stuck(story: Story, job: JobRecord) -> str:
    """Its first pod that can't start or fails, and what becomes of failed workers; empty for none."""
    return stuck_of(story.state, job)
