"""Replay with traceable data: observation = its own time, so that an off-by-one is visible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.learn.priorities import Priorities
from midstride.learn.replay import Replay, Row
from tests.helpers import step_of

ROW = Row(columns=2, switch=True)
PERIOD_S = 0.5


def traceable(time: int, num_envs: int, done=(), lstm: bool = False):
    """Step `time` of environment e observes (time, e), earns 1 before and time after the switch."""
    here = np.stack([np.full(num_envs, time), np.arange(num_envs)], axis=1).astype(np.float32)
    notes = {"h": np.full((num_envs, 2), time), "c": np.full((num_envs, 2), -time)} if lstm else {}
    return step_of(
        observation_capture=here,
        observation_next=here + np.array([1, 0]),
        observation_switch=here + np.array([0.5, 0]),
        action=np.full(num_envs, time % 5),
        reward_before_switch=np.ones(num_envs),
        reward_after_switch=np.full(num_envs, float(time)),
        latency_s=np.full(num_envs, 0.25),
        period_s=np.full(num_envs, PERIOD_S),
        terminated=np.isin(np.arange(num_envs), done),
        notes=notes,
    )


def filled(steps: int, capacity: int = 60, num_envs: int = 3, lstm: int = 0) -> Replay:
    replay = Replay(capacity, num_envs, ROW, lstm_size=lstm)
    for time in range(steps):
        replay.add(traceable(time, num_envs, lstm=bool(lstm)))
    return replay


def gathered(replay: Replay, rows, envs, n_step: int, gamma_per_s: float) -> dict:
    batch = ROW.unpack(replay.gather(rows, envs, n_step, gamma_per_s))
    reward = batch["reward_before_switch"] + batch["reward_after_switch"]
    return batch | {"reward": reward}


@given(steps=st.integers(1, 70), n_step=st.integers(1, 5), seed=st.integers(0, 100))
def test_samples_are_whole_and_of_what_is_held(steps, n_step, seed):
    replay = filled(steps)
    rng = np.random.default_rng(seed)
    if min(steps, 20) < n_step:
        with pytest.raises(ValueError, match="cannot sample"):
            replay.rows(rng, 10, n_step)
        return
    rows, envs = replay.rows(rng, 200, n_step)
    batch = gathered(replay, rows, envs, n_step, gamma_per_s=0.25)
    times = batch["observation_capture"][:, 0]
    assert times.min() >= max(0, steps - 20)
    assert times.max() <= steps - n_step
    assert (batch["observation_capture"][:, 1] == envs).all()
    assert (batch["observation_next"][:, 0] == times + n_step).all()
    assert (batch["observation_switch"][:, 0] == times + 0.5).all()
    assert (batch["action"] == times % 5).all()
    assert batch["period_s"] == pytest.approx(n_step * PERIOD_S)
    assert batch["latency_s"] == pytest.approx(0.25)
    # a period of half a second discounts by the root of 0.25
    expected = sum(0.5**k * (1 + times + k) for k in range(n_step))
    assert batch["reward"] == pytest.approx(expected)


def test_every_place_is_sampled():
    replay = filled(35)
    rows, envs = replay.rows(np.random.default_rng(0), 3000, 2)
    batch = gathered(replay, rows, envs, 2, 0.9)
    assert set(batch["observation_capture"][:, 0]) == set(range(15, 34))


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_n_step_stops_where_an_episode_ends(how):
    replay = Replay(30, 1, ROW)
    for time in range(6):
        replay.add(step_of(**{**vars(traceable(time, 1)), how: np.array([time == 2])}))
    batch = gathered(replay, np.array([1]), np.array([0]), 4, gamma_per_s=0.25)
    # steps 1 and 2: (1 + 1) + 0.5 (1 + 2)
    assert batch["reward"].tolist() == [3.5]
    assert batch["period_s"].tolist() == [2 * PERIOD_S]
    assert batch["observation_next"][0, 0] == 3
    assert batch["terminated"].tolist() == [how == "terminated"]
    batch = gathered(replay, np.array([2]), np.array([0]), 4, gamma_per_s=0.25)
    assert batch["reward"].tolist() == [3.0]


@given(steps=st.integers(5, 70), seed=st.integers(0, 100))
def test_segments_are_in_order_with_the_state_of_their_start(steps, seed):
    replay = filled(steps, lstm=2)
    batch = replay.segments(np.random.default_rng(seed), (2, 7), span=5)
    times = ROW.unpack(batch["transitions"])["observation_capture"][..., 0]
    assert times.shape == (2, 7, 5)
    assert (np.diff(times, axis=2) == 1).all()
    assert (batch["h"][..., 0] == times[..., 0]).all()
    assert (batch["c"][..., 1] == -times[..., 0]).all()
    assert times.min() >= max(0, steps - 20)


def test_length():
    assert [len(filled(n)) for n in (0, 1, 20, 50)] == [0, 3, 60, 60]


def test_priorities_sample_in_proportion():
    priorities = Priorities(10, alpha=1.0, beta=1.0)
    priorities.set_new(np.arange(10))
    priorities.update(np.arange(10), np.arange(10.0))
    places, weights = priorities.sample(np.random.default_rng(0), 20_000)
    shares = np.bincount(places, minlength=10) / 20_000
    assert shares == pytest.approx(np.arange(10) / 45, abs=0.012)
    # weights undo the preference: the rarest sampled place weighs most
    by_place = {int(p): float(w) for p, w in zip(places, weights, strict=True)}
    assert max(by_place.values()) == pytest.approx(1)
    assert by_place[8] == pytest.approx(by_place[4] / 2, rel=1e-4)


def test_new_transitions_are_sampled_soon():
    priorities = Priorities(100)
    priorities.set_new(np.arange(50))
    priorities.update(np.arange(50), np.full(50, 0.001))
    priorities.set_new(np.array([70]))
    places, _ = priorities.sample(np.random.default_rng(0), 1000)
    assert (places == 70).mean() > 0.4
    assert set(places) <= {*range(50), 70}


def test_what_an_agent_noted_of_its_action_is_kept_and_rewards_are_scaled():
    replay = Replay(4, 1, Row(columns=2, switch=False))
    step = traceable(3, 1)
    replay.add(
        step_of(**{**vars(step), "action": np.array([[0.25]]), "notes": {"action": np.array([2])}}),
        reward_scale=0.5,
    )
    found = replay.row.unpack(replay.data["transitions"][0])
    assert found["action"].tolist() == [2]
    assert found["reward_before_switch"].tolist() == [0.5]
    assert found["reward_after_switch"].tolist() == [1.5]
    assert found["period_s"].tolist() == [PERIOD_S]
    assert "observation_switch" not in found
