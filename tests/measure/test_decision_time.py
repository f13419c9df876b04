"""Decision times, on a clock that only the policy moves."""

import numpy as np
import pytest

from midstride.measure.decision_time import decision_time


class Clock:
    """Seconds that pass while somebody thinks."""

    def __init__(self, thoughts_s):
        self.now_s = 100.0
        self.asked = 0
        self.thoughts_s = thoughts_s

    def __call__(self):
        return self.now_s

    def policy(self, observation):
        assert observation == "seen"
        self.now_s += self.thoughts_s(self.asked)
        self.asked += 1


def test_the_first_decisions_do_not_count():
    clock = Clock(lambda k: 9e-3 if k < 5 else 1e-3)
    found = decision_time(clock.policy, "seen", decisions=100, warm_up=5, timer=clock)
    assert found.decisions == 100
    assert clock.asked == 105
    assert found.p50_s == pytest.approx(1e-3)
    assert found.p99_s == pytest.approx(1e-3)


def test_quantiles_are_over_single_decisions():
    clock = Clock(lambda k: 1e-3 * (k % 101))
    found = decision_time(clock.policy, "seen", decisions=101, warm_up=0, timer=clock)
    assert (found.p50_s, found.p99_s) == pytest.approx((0.050, 0.099))


def test_a_slow_policy_is_asked_less_often():
    clock = Clock(lambda k: 1.0)
    found = decision_time(clock.policy, "seen", at_most_s=4.0, timer=clock)
    assert found.decisions == 20
    assert clock.asked < 24
    clock = Clock(lambda k: 0.125)
    found = decision_time(clock.policy, "seen", warm_up=0, at_most_s=4.0, timer=clock)
    assert found.decisions == 33  # the one that goes beyond is the last


@pytest.mark.parametrize("wrong", [{"decisions": 0}, {"warm_up": -1}])
def test_wrong_counts(wrong):
    with pytest.raises(ValueError, match="at least 1 decision and a warm-up of at least 0"):
        decision_time(np.sin, 0.0, **wrong)
