"""`midstride margin`: what it leaves, its exit codes, and wrong input as one sentence."""

import json
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from midstride.cli import main
from midstride.measure.margin import MarginSettings, margin
from midstride.measure.play import Single
from midstride.report.margin import read_margin, spoken, verdict
from midstride.report.margins import margins

FIXTURES = Path(__file__).parents[1] / "policies" / "fixtures"
POLICIES = Path(__file__).parents[2] / "results" / "margins" / "policies"


class Follow(gymnasium.Env):
    """The state turns at a steady rate; an action is paid for being near where it is now."""

    dt = 0.1

    def __init__(self, reward_at_best=1.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = spaces.Box(-10, 10, (1,), np.float64)
        self.best = reward_at_best

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.speed = self.np_random.uniform(0.4, 0.6)  # per step
        self.x, self.steps = 0.0, 0
        return np.array([self.x]), {}

    def step(self, action):
        reward = self.best - abs(float(action[0]) - self.x)
        self.x += self.speed * (1 if self.steps % 20 < 10 else -1)
        self.steps += 1
        info = {"is_success": bool(self.steps >= 40)}
        return np.array([self.x]), reward, False, self.steps >= 40, info


def follow(observation):
    return observation


if "Follow-v0" not in gymnasium.registry:
    gymnasium.register("Follow-v0", entry_point="test_margin:Follow")
QUICK = MarginSettings(episodes=8, margins=("delay",))


def run(capsys, *args):
    code: object = 0
    try:
        main(args)
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


BAD = {
    "margin": "margin needs POLICY: folder of a finished run",
    "margin a b": "margin does not take 'b'",
    "margin nowhere": "is not the folder of a run",
    "margin sac.zip": "does not say what its environment is: give it, --env ID",
    "margin sac.zip --env NoSuch-v5": "unknown Gymnasium environment 'NoSuch-v5'",
    "margin sac.zip --env InvertedPendulum-v5": "the policy observes 3 columns, the environment",
    "margin sac.zip --env CartPole-v1": "does not say how long a step lasts",
    "margin sac.zip --env CartPole-v1 --step soon": "'soon' is not a time",
    "--period 70ms": "is not a whole number of the environment's",
    "--longest 70ms": "nearest valid times are 50 ms and 100 ms",
    "--longest 0": "must be at least a tick of 50 ms",
    "--longest 100s": "as long as an episode",
    "--share 90": "share must be a number from 0.01 to 0.999",
    "--share most": "share must be a number, got 'most'",
    "--floor low": "floor must be a number or nothing, got 'low'",
    "--floor 0 --threshold 1": "a threshold or a floor, not both",
    "--threshold 1000": "below the threshold of 1000",
    "--measure joy": "measure must be one of return, success",
    "--measure success": "does not tell whether an episode",
    "--margins delay love": "margins must be one of delay, jitter",
    "--episodes 1": "episodes must be a whole number from 2 to",
    "--seed -1": "seed must be a whole number of at least 0",
    "--jobs 0": "jobs must be a whole number from 1 to 256, got 0",
    "--thinker lazy": "thinker must be one of pipelined, serial",
    "--latency trace:no.csv": "cannot read the latency trace",
    "--require -5ms": "at least 0 s, got -0.005 s",
    "--output pendulum.zip": "pendulum.zip is a file: give a folder",
    "--requires 5ms": "did you mean --require?",
    "margin this:fly --env Pendulum-v1": "importing a module runs its code",
}  # fmt: skip


PENDULUM = "margin pendulum.zip --env Pendulum-v1"  # what begins with an option is of it


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys, command):
    pytest.importorskip("torch")
    shutil.copy(FIXTURES / "sac.zip", tmp_path)
    shutil.copy(POLICIES / "sac-pendulum.zip", tmp_path / "pendulum.zip")
    monkeypatch.chdir(tmp_path)
    words = (f"{PENDULUM} {command}" if command.startswith("--") else command).split()
    if "--jobs" not in words and len(words) > 3:
        words += ["--jobs", "1"]
    if "--episodes" not in words and len(words) > 3:
        words += ["--episodes", "2"]
    code, _, err = run(capsys, *words)
    assert code == 2, err
    assert BAD[command] in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_margin_on_disk_and_for_ci(tmp_path, monkeypatch, capsys):
    """One process, then two: the same numbers. What is required decides the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    source = (
        "import sys\nsys.path.insert(0, {here!r})\nfrom test_margin import follow\n"
        "def policy(observation):\n    return follow(observation)\n"
    )
    Path("following.py").write_text(source.format(here=str(Path(__file__).parent)))
    args = ("margin", "following:policy", "--trust", "--env", "test_margin:Follow-v0", "--episodes",
            "8", "--share", "0.3", "--margins", "delay", "jitter", "--latency", "step:0,100ms",
            "--output", "out")  # fmt: skip
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    code, out, err = run(capsys, *args, "--jobs", "1", "--require", "0ms")
    assert code == 0, err
    name, found = read_margin(Path("out"))
    assert name == "following:policy"
    assert found.delay_s > 0
    assert "surely stands" in out
    page = Path("out/margin.html").read_text()
    assert "data:image/png;base64," in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    code, out, _ = run(capsys, *args, "--jobs", "2", "--require", "900ms")
    assert code == 1
    assert "surely stands only" in out
    again = read_margin(Path("out"))[1]
    for line in ("delay", "jitter", "under", "bar"):
        assert getattr(again, line) == getattr(found, line)
    figure, rows = margins([Path("out")])
    assert rows[0]["policy"] == "following:policy"
    assert len(figure.axes) == 2
    Path("out/margin.json").write_text("{}")
    with pytest.raises(ValueError, match=r"margin\.json is damaged: it has no name"):
        read_margin(Path("out"))


def test_the_record_of_a_margin():
    found = margin(follow, Follow, QUICK)
    assert found.curve[0].at == 0
    assert found.curve[0].mean == pytest.approx(40)  # exact at latency 0
    assert found.curve[0].kept == pytest.approx(1)
    assert found.bar == pytest.approx(36)
    # One step late costs about 0.5 of 1 in each step: it stands nothing.
    assert found.delay_s == 0
    assert found.delay_interval_s == (0, 0)
    assert found.jitter is None
    assert found.loss_share is None
    assert "stands 0 ms [0 ms, 0 ms]" in verdict(found)
    assert json.loads(json.dumps(found.delay.points[0].__dict__))["at"] == 0
    assert margin(follow, Follow, QUICK).delay == found.delay


def test_a_lenient_share_stands_more():
    settings = MarginSettings(episodes=8, share=0.3)
    found = margin(follow, Follow, settings)
    assert found.delay_s > 0
    assert found.jitter_s is not None
    assert found.loss is not None
    assert found.smoothness[0][2] >= 0


def test_returns_below_zero_need_a_floor():
    """Against what doing nothing gets, a policy that loses little keeps what it has."""

    def costly():
        return Follow(reward_at_best=0.0)

    found = margin(follow, costly, QUICK)
    assert found.floor is not None
    assert found.floor < -10  # doing nothing
    assert found.bar == pytest.approx(0.1 * found.floor, rel=1e-6)
    with pytest.raises(ValueError, match="not clearly above its floor"):
        margin(follow, costly, MarginSettings(episodes=8, floor=10.0))
    with_threshold = margin(follow, costly, MarginSettings(episodes=8, threshold=-30.0))
    assert with_threshold.floor is None
    assert with_threshold.bar == -30
    assert with_threshold.delay_s > 0


def test_success_is_a_share():
    found = margin(follow, Follow, MarginSettings(episodes=8, measure="success", longest="1s"))
    assert found.measure == "success"
    assert found.delay.beyond
    assert spoken(found.delay, str).startswith("at least 1.0")


def test_what_cannot_be_sent_to_other_processes():
    with pytest.raises(ValueError, match="take jobs=1"):
        margin(lambda x: x, Follow, QUICK, jobs=2)
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        margin(follow, Follow, QUICK, jobs=0)
    with pytest.raises(ValueError, match="must be a function that makes"):
        margin(follow, Follow(), QUICK)
    with pytest.raises(ValueError, match="must make a Gymnasium environment"):
        margin(follow, lambda: 3, QUICK)


def test_episodes_depend_on_their_seed_alone():
    from midstride.latency import Fixed, Jittered, Lossy

    place = Single(Follow)
    for latency in (Fixed(0.1), Jittered(0.2, 0.1), Lossy(Fixed(0.1), 0.3)):
        together = place.play(follow, latency, [5, 6, 7])
        apart = [place.play(follow, latency, [seed])[0] for seed in (7, 6, 5)]
        assert together == apart[::-1]


def test_a_margin_of_delay_alone_is_written_and_names_are_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = r"a$\frac$[/x]"
    code, out, _ = run(
        capsys, "margin", str(POLICIES / "ppo-cartpole.zip"), "--env", "CartPole-v1", "--step",
        "20ms", "--episodes", "8", "--margins", "delay", "--longest", "40ms", "--jobs", "1",
        "--name", name, "--require", "500ms",
    )  # fmt: skip
    assert code == 1
    assert f"{name} thinks" in out.replace("\n", "")
    assert "[bold]" not in out
    assert "[red]" not in out
    assert {path.name for path in Path("margin").iterdir()} == {
        "margin.json", "margin.png", "margin.html",
    }  # fmt: skip


def test_what_is_required_is_tried(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(
        capsys, "margin", str(POLICIES / "ppo-cartpole.zip"), "--env", "CartPole-v1", "--step",
        "20ms", "--episodes", "4", "--margins", "delay", "--jobs", "1", "--require", "290ms",
        "--threshold", "1",
    )  # fmt: skip
    assert code in (0, 1)
    assert "300 ms" in out


@pytest.mark.parametrize(
    ("option", "said"),
    [("--latency=7ms", "7 ms is not a whole number"), ("--at=7ms", "7 ms is not a whole number")],
)
def test_times_that_do_not_fit_are_told_before_the_search(
    tmp_path, monkeypatch, capsys, option, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("midstride.measure.finding.Finding._line", None)  # nothing is searched
    code, _, err = run(
        capsys, "margin", str(POLICIES / "ppo-cartpole.zip"), "--env", "CartPole-v1", "--step",
        "20ms", "--episodes", "4", "--jobs", "1", *option.split("="),
    )  # fmt: skip
    assert code == 2
    assert said in err


def test_rewards_that_are_none_and_short_episodes():
    class Strange(gymnasium.Wrapper):
        def step(self, action):
            observation, _, *rest = self.env.step(action)
            return observation, float("nan"), *rest

    def short(wrap):
        return lambda: wrap(gymnasium.make("CartPole-v1", max_episode_steps=8))

    settings = MarginSettings(episodes=4, margins=("delay",), step="20ms", threshold=1)
    with pytest.raises(ValueError, match="gave the reward nan in step 1"):
        margin(lambda observation: 0, short(Strange), settings)
    found = margin(lambda observation: 0, short(lambda env: env), settings)
    assert found.curve[-1].at < 8 * 0.02
    assert found.curve[-1].kept is None
