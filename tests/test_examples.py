"""The examples run, and show what they say they show."""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import midstride

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wrap_your_environment():
    module = load("wrap_your_environment")

    def balanced(make, policy, latencies_s):
        return [module.seconds_balanced(make, policy, s, episodes=3) for s in latencies_s]

    upright, fallen = balanced(module.pendulum, module.balance, (0.0, 0.04))
    assert upright > 30  # to the end
    assert fallen < 5
    upright, fallen = balanced(module.cartpole, module.push, (0.04, 0.1))
    assert upright > 9.9
    assert fallen < 5


def test_vector_environment(capsys):
    load("vector_environment").main(num_envs=8, steps=420)
    found = re.findall(r"(\d+) episodes, mean return (\d+)", capsys.readouterr().out)
    assert len(found) == 2
    for episodes, mean in found:
        assert int(episodes) >= 8
        assert 0 < int(mean) < 200  # random actions neither swing up nor balance


def test_train_with_stable_baselines3(capsys):
    pytest.importorskip("stable_baselines3")
    load("train_with_stable_baselines3").main(steps=300)
    lines = re.findall(r"knows (.+): return (\d+) of 1000", capsys.readouterr().out)
    assert [name for name, _ in lines] == ["nothing", "vector_to_go"]


@pytest.mark.slow
def test_stable_baselines3_on_a_robot(tmp_path, capfd):
    """A policy that is worth something is worth something on the robot's process too."""
    pytest.importorskip("stable_baselines3")
    frozen, on_the_robot = load("stable_baselines3_on_a_robot").main(tmp_path)
    assert frozen > 400  # nothing learned: below 100
    assert on_the_robot > 0.5 * frozen
    assert "on the robot" in capfd.readouterr().out
    for name in ("run.html", "film.mp4", "decisions.csv"):
        assert (tmp_path / "run" / name).stat().st_size > 1000


def test_adapt_stable_baselines3(capsys, monkeypatch):
    """With a policy that has hardly learned anything: what is shown is that it runs."""
    pytest.importorskip("sbx")
    source = (EXAMPLES / "adapt_stable_baselines3.py").read_text()
    statements = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)]
    assert len(statements) < 22  # the description of the file and the last two among them
    module = load("adapt_stable_baselines3")
    brief = functools.partial(midstride.AdaptSettings, rounds=0)
    monkeypatch.setattr(midstride, "AdaptSettings", brief)
    module.main(steps=1500, updates=500, episodes=24)
    out = capsys.readouterr().out
    assert re.search(r"(It took|It did not take|Not needed): ", out)
    assert re.search(r"stood \d+ ms of latency, stands \d+ ms", out)


def test_readme_example_runs():
    """The Python in README is the Python that works."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_python_of_the_page_about_policies_runs(tmp_path, monkeypatch, capsys):
    """One block after another, in a folder with somebody's ppo.zip."""
    root = EXAMPLES.parent
    page = (root / "docs" / "policies.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    shutil.copy(root / "results/margins/policies/ppo-inverted-pendulum.zip", tmp_path / "ppo.zip")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"model": lambda observation: [0.0]}
    for block in blocks:
        if "stable_baselines3" in block and not importlib.util.find_spec("stable_baselines3"):
            continue
        exec(compile(block, "docs/policies.md", "exec"), names)
    out = capsys.readouterr().out
    assert "[4, 64, 64, 1]" in out
    assert re.search(r"half of the decisions in \d", out)


def test_own_environment_is_a_gymnasium_environment():
    module = load("own_environment")
    env = gymnasium.make("PlanarDrone-v0")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    drone = env.unwrapped
    drone._position[:], drone._speed[:] = 0, 0
    hover = np.full(2, module.MASS_KG * module.GRAVITY_M_S2 / module.LARGEST_THRUST_N - 1)
    for _ in range(100):  # with the thrust of its weight it stays where it is
        observation, reward, terminated, _, _ = env.step(hover)
        assert not terminated
        assert reward == pytest.approx(1)
    np.testing.assert_allclose(observation, [0] * 6 + [0.5] * 2, atol=1e-6)
    drone._speed[:] = 0
    observation, *_ = env.step(np.array([-1, -1]))
    assert observation[4] < 0  # without thrust it falls
    drone._position[2] = 0.1
    before = float(drone._speed[0])
    env.step(hover)
    assert drone._speed[0] < before  # and goes to where it leans


@pytest.mark.slow
def test_train_policies_of_others(tmp_path, capsys, monkeypatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    module = load("train_policies_of_others")
    short = {name: dataclasses.replace(r, steps=120) for name, r in module.RECIPES.items()}
    monkeypatch.setattr(module, "RECIPES", short)
    for _ in range(2):
        module.main(["ppo-planar-drone", "--folder", str(tmp_path)])
    assert capsys.readouterr().out.count("is there already") == 1
    (line,) = (tmp_path / module.RECORD).read_text().splitlines()
    assert json.loads(line)["steps"] == 120
    path = tmp_path / "ppo-planar-drone.zip"
    policy, model = midstride.load(path), module.PPO.load(path, device="cpu")
    seen = np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_allclose(policy(seen), model.predict(seen, deterministic=True)[0], atol=1e-6)


def test_snippets_of_the_page_on_environments_run():
    page = (EXAMPLES.parent / "docs" / "environments.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/environments.md", "exec"), names)


def test_pages_show_the_tables_of_results_as_they_are():
    """A number is written once; `make pictures` renews the pages."""
    spec = importlib.util.spec_from_file_location(
        "include_tables", EXAMPLES.parent / "docs" / "include_tables.py"
    )
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    texts = {page: page.read_text() for page in tables.PAGES}
    assert sum(text.count("<!-- table: ") for text in texts.values()) >= 3
    for page, text in texts.items():
        assert tables.with_tables(text) == text, page


@pytest.fixture
def own_agent(monkeypatch):
    """The example's module, its agent known by its name as long as a test lasts."""
    from midstride.learn import agents

    monkeypatch.setattr(agents, "AGENTS", dict(agents.AGENTS))
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module("own_agent")
    agents.add_agent("smooth", module.Smooth)
    return module


def test_own_agent(own_agent):
    """It is checked as ours are, and takes nobody's name."""
    from midstride.learn.agents import Training, add_agent

    known = {"actions": "continuous", "knowledge": ("previous_action",)}
    Training.of("pointmass", "smooth", smoothness=2.0, **known).check()
    with pytest.raises(ValueError, match="--knowledge previous_action"):
        Training.of("pointmass", "smooth", actions="continuous").check()
    with pytest.raises(ValueError, match="smoothness must be"):
        Training.of("pointmass", "smooth", smoothness=-1.0, **known)
    with pytest.raises(ValueError, match="are of an agent 'smooth', not 'sac'"):
        add_agent("sac", own_agent.Smooth)


@pytest.mark.slow
def test_own_agent_trains(own_agent, tmp_path):
    """What it is charged for, it does less of; a run of it loads."""
    from midstride.learn.agents import Training
    from midstride.learn.train import train

    values = {
        "actions": "continuous", "latency": "50ms", "knowledge": ("previous_action",),
        "num_envs": 4, "learning_starts": 40, "hidden": (8,), "replay_size": 400, "steps": 800,
        "evaluate_every": 400, "evaluation_episodes": 1, "learning_rate": 1e-2,
    }  # fmt: skip
    moved = {}
    for smoothness in (0.0, 300.0):
        folder = tmp_path / str(smoothness)
        train(Training.of("pointmass", "smooth", smoothness=smoothness, **values), folder)
        policy = midstride.load(folder)
        seen = np.random.default_rng(0).normal(size=(200, policy.observation_size)) * 0.3
        moved[smoothness] = np.abs(policy(seen) - seen[:, -2:]).mean()
    assert moved[300.0] < 0.8 * moved[0.0]
