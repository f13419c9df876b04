"""The example, and our own tasks: a margin of a policy that was trained here."""

import importlib.util
import re
from pathlib import Path

import numpy as np

from midstride.measure.margin import MarginSettings, margin, with_times
from midstride.measure.smoothness import smoothness
from midstride.tasks.settings import TaskSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "margin_of_your_policy.py"


def test_the_example(capsys):
    spec = importlib.util.spec_from_file_location("margin_of_your_policy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.main(episodes=8)
    # Nobody's word but the simulator's: upright at 20 ms, on the floor at 60 ms.
    mean = {round(1e3 * point.at): point.mean for point in found.curve}
    assert mean[20] == 200 > 100 > mean[60]
    assert found.delay_s == 0.04
    assert "stands 40 ms of latency" in capsys.readouterr().out


class Still:
    """A policy for Cartpole with its own number of columns: it does nothing."""

    description: dict = {}  # noqa: RUF012

    def __init__(self, columns):
        self.observation_size = columns

    def __call__(self, observation):
        return np.full(np.shape(observation)[:-1], 2)

    def reset(self, which=None):
        pass


def test_tasks_of_ours_keep_the_period_that_they_were_trained_with():
    """An execution time would make the period longer with the latency."""
    trained = TaskSettings(task="cartpole", latency="50ms", execution="0")
    fixed = with_times(trained, None, None, "pipelined")
    assert fixed.timing().period_s == 0.05
    assert fixed.execution is None
    assert with_times(trained, 0.1, None, "serial").timing().period_s == 0.1
    assert with_times(trained, None, None, "serial").thinker == "serial"


def test_a_policy_that_knows_pending_actions_keeps_the_columns_that_it_was_trained_with():
    """Trained at 50 ms in periods of 50 ms none was pending; beyond it some are, and unseen."""
    environment = TaskSettings(
        task="pendulum", latency="50ms", knowledge=("previous_action", "pending_actions")
    )
    envs = environment.make(1)
    columns = envs.single_observation_space.shape[0]
    envs.close()
    settings = MarginSettings(episodes=2, threshold=-1.0, margins=("delay",), longest="100ms")
    found = margin(Still(columns), environment, settings)
    assert found.curve[-1].at == 0.1
    assert found.delay.beyond


def test_smoothness_by_hand():
    from gymnasium import spaces

    box = spaces.Box(-2, 2, (1,))
    # 0, 1, 0, -1 in half ranges of 2 is 0, .5, 0, -.5: second differences -1 and 0, in (0.1 s)^2.
    found = smoothness(np.array([[0.0], [1.0], [0.0], [-1.0]]), box, 0.4)
    assert found.jerk is not None
    np.testing.assert_allclose(found.jerk, np.sqrt((100**2 + 0) / 2))
    assert found.changes_per_s == 0  # through the middle, not across it
    assert smoothness(np.array([[1.0], [-1.0], [1.0]]), box, 0.5).changes_per_s == 4
    assert smoothness(np.array([0, 1, 1, 2]), spaces.Discrete(3), 2.0).changes_per_s == 1
    assert smoothness(np.array([0, 1]), spaces.Discrete(3), 1.0).jerk is None
    wide = spaces.Box(-np.inf, np.inf, (1,))
    assert smoothness(np.array([[3.0], [-3.0]]), wide, 1.0).changes_per_s == 1


def test_the_python_of_the_page_runs(capsys):
    page = (EXAMPLE.parents[1] / "docs" / "margin.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "docs/margin.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) >= 4
