"""gym:ID and dmc:DOMAIN/TASK: settings, many of them, pictures."""

import gymnasium
import numpy as np
import pytest

from midstride.envs.vector import interact
from midstride.envs.wrapped import WrappedSettings


def test_settings_reach_the_environment():
    settings = WrappedSettings(
        "gym:CartPole-v1", latency="lost:0.5:60ms", thinker="serial", period="40ms", step="20ms",
        hold=(1,), knowledge=("previous_action",),
    )  # fmt: skip
    again = WrappedSettings.from_dict(settings.to_dict())
    assert again == settings
    env = again.make_one()
    env.reset(seed=0)
    followed, own = [], env.unwrapped.step
    env.unwrapped.step = lambda action: [followed.append(int(action)), own(action)][1]
    info = env.step(0)[4]
    assert info["latency_s"] == pytest.approx(0.06)
    assert info["period_s"] == pytest.approx(0.08)  # serial: two periods of two steps
    assert followed[:3] == [1, 1, 1]
    assert followed[3] == (1 if info["lost"] else 0)
    assert env.get_wrapper_attr("longest_episode") == 125


def test_the_loop_runs_on_environments_that_are_no_physics():
    """Each step's record is whole, also where an episode ends in the middle of a period."""
    settings = WrappedSettings("gym:CartPole-v1", latency="40ms", period="60ms", step="20ms")
    envs = settings.make(3)
    rng, ended = np.random.default_rng(0), 0
    steps = interact(envs, lambda o: (rng.integers(0, 2, 3), {}), 0, lambda which: None)
    for _, step in zip(range(60), steps, strict=False):
        own_steps = np.rint(step.period_s / 0.02)
        assert np.array_equal(step.reward, own_steps)  # 1 for each
        assert np.array_equal(step.reward_before_switch, np.minimum(own_steps, 2))
        assert (own_steps[~step.done] == 3).all()
        ended += step.done.sum()
    assert ended > 3
    assert envs.hints.longest_episode == 167


class Canvas(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    dt = 0.1

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shade = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.shade += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        return np.full((4, 6, 3), self.shade, np.uint8)


class Blank(Canvas):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012


class Unpainted(Canvas):
    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")


@pytest.fixture
def painted():
    kinds = {"Canvas-v0": Canvas, "Blank-v0": Blank, "Unpainted-v0": Unpainted}
    for name, kind in kinds.items():
        gymnasium.register(name, kind, disable_env_checker=True)
    yield
    for name in kinds:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("painted")
def test_environments_draw_themselves_if_they_can():
    envs = WrappedSettings("gym:Canvas-v0").make(2, render_mode="rgb_array")
    envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    assert [image.tolist() for image in envs.render()] == [np.ones((4, 6, 3)).tolist()] * 2
    with pytest.raises(ValueError, match="gym:Blank-v0 cannot draw itself"):
        WrappedSettings("gym:Blank-v0").make(1, render_mode="rgb_array")
    envs = WrappedSettings("gym:Unpainted-v0").make(1, render_mode="rgb_array")
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="cannot draw itself: pygame is not installed"):
        envs.render()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": "soon"}, "'soon' is not a time"),
        ({"thinker": "both"}, "thinker must be one of pipelined, serial"),
        ({"hold": "left"}, "hold must be"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        WrappedSettings.from_dict({"task": "gym:CartPole-v1", **values})


def test_bad_hold():
    with pytest.raises(ValueError, match="one of the actions of Discrete"):
        WrappedSettings("gym:CartPole-v1", step="20ms", hold=(0.5,)).make_one()
