"""How the delays of failing keys grow: at once where everything fails, later where other keys succeed meanwhile."""

from arranger.workers.flow.retries import Retries
from tests.members import HandClock


def delays(*, others_succeed: bool, times: int = 6) -> list[float]:
    """The delays of one key that fails again as soon as it may be tried, in seconds."""
    clock = HandClock()
    retries = Retries(clock)
    found = []
    for _ in range(times):
        found.append(retries.failed("j1", version=1, what={"create"}))
        clock.now_s += found[-1] / 2
        if others_succeed:
            retries.succeeded()
        clock.now_s += found[-1] / 2
    return found


def test_on_a_server_that_is_gone_each_delay_is_longer() -> None:
    for nth, delay_s in enumerate(delays(others_succeed=False)):
        assert min(2**nth, 30) / 2 <= delay_s <= min(2**nth, 30)


def test_where_other_keys_succeed_the_first_delays_are_even() -> None:
    found = delays(others_succeed=True)
    assert all(0.5 <= delay_s <= 1.0 for delay_s in found[:4])
    assert 1.0 <= found[4] <= 2.0 <= found[5] <= 4.0
