"""The watch of requests for nodes begins once anybody wants them, and only then."""

from typing import Any

import pytest

from arranger.events import kinds as k
from arranger.model.provisioning import Provisioning
from arranger.projections.state import Changes
from arranger.workers.roles import OnceAsked
from tests.parts import parts
from tests.unit.test_applier import Following
from tests.world import World


def begun(world: World, **settings: Any) -> tuple[list[str], OnceAsked]:
    """How often the watch has begun, and what begins it."""
    found: list[str] = []
    once = OnceAsked(parts(follower=Following(world.state), settings=settings), lambda: found.append("begun"))
    return found, once


def test_a_queue_that_wants_requests_begins_the_watch_once() -> None:
    world = World()
    found, once = begun(world)
    world.queue("ours")
    once.changed(Changes())
    assert found == []
    for name in ("cloud", "another"):
        world.queue(name, provisioning=Provisioning.REQUEST)
        once.changed(Changes())
        once.epoch_began()
    assert found == ["begun"]


@pytest.mark.parametrize(("provisioning", "begins"), [("Request", ["begun"]), ("None", [])])
def test_the_setting_begins_the_watch_with_the_process(provisioning: str, begins: list[str]) -> None:
    assert begun(World(), provisioning=provisioning)[0] == begins
    assert k.Watched.PROVISIONING in k.OPTIONAL, "an API server without the kind stops nobody"


def test_a_watch_that_another_process_began_goes_on_though_nobody_wants_requests_any_more() -> None:
    """Nothing is decided while a kind that was claimed isn't listed."""
    world = World()
    found, once = begun(world)
    world.say(k.claim(k.Watched.PROVISIONING, "another"))
    assert not world.state.synced
    once.changed(Changes())
    assert found == ["begun"]
