"""Whether a process is slow, by the times that its changes of the cluster take."""

from contextlib import ExitStack

from arranger.workers.flow.effect_times import EffectTimes
from tests.members import HandClock


class Scene:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.times = EffectTimes(self.clock)

    def effects(self, *seconds: float) -> float:
        for took_s in seconds:
            with self.times.timed():
                self.clock.now_s += took_s
        return self.times.slow_s()


def test_a_process_is_slow_while_half_of_its_effects_in_a_minute_take_long() -> None:
    scene = Scene()
    assert scene.effects(*[0.1] * 20) == 0
    assert scene.effects(*[2.5] * 19) == 0
    assert 2 < scene.effects(*[2.5] * 5) <= 2.5001
    assert scene.effects(*[0.1] * 30) == 0


def test_few_effects_prove_nothing_and_old_ones_are_forgotten() -> None:
    scene = Scene()
    assert scene.effects(*[9.0] * 4) == 0
    assert scene.effects(9.0) == 9.0
    scene.clock.now_s += 60
    assert scene.times.slow_s() == 0


def test_effects_that_never_end_count_as_long_as_they_last() -> None:
    scene = Scene()
    with ExitStack() as begun:
        for _ in range(5):
            begun.enter_context(scene.times.timed())
        assert scene.times.slow_s() == 0
        scene.clock.now_s += 30
        assert scene.times.slow_s() == 30
