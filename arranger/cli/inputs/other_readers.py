"""Which log the further processes of a command read."""

from arranger.cli.inputs.server import server_of
from arranger.events.redis_urls import SCHEMES, scheme_of
from arranger.settings import SERVER_VARIABLE, SETTINGS, Settings

#: The settings that say which log is read. Variables, unlike arguments, can't be seen by other users.
_OF_THE_LOG = ("redis_url", "cluster", "archive_url", "log_key")


def log_of(target: str | None, settings: Settings) -> tuple[dict[str, str], str]:
    """The environment that names the log to another process, and the file for its arguments; empty for none."""
    environment = {SETTINGS[name].env: str(getattr(settings, name)) for name in _OF_THE_LOG}
    environment[SERVER_VARIABLE] = server_of(target)
    if target is not None and scheme_of(target) in SCHEMES:
        environment[SETTINGS["redis_url"].env] = target
        target = None
    return environment, target or ""
