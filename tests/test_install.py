"""What an installation promises: light imports, complete names, and a sentence where it lacks."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
import warnings
from importlib import resources
from pathlib import Path

import gymnasium
import pytest

import midstride
from midstride import extras
from midstride.registration import register
from midstride.tasks.settings import TASKS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LEARNING = ("jax", "equinox", "optax", "chex")
NOT_CORE = (*LEARNING, "matplotlib", "scipy", "dm_control", "threadpoolctl", "ray", "tensorboardX")


def python(code, *options, without=()):
    """What a fresh interpreter says to `code`, where some packages are not installed."""
    hide = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    return subprocess.run(
        [sys.executable, *options, "-c", f"import sys; {hide}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def output(code, *options, without=()):
    result = python(code, *options, without=without)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# --- import midstride ----------------------------------------------------------------------------


def test_import_is_light():
    loaded = output("import midstride; print(*sys.modules)").split()
    heavy = {*NOT_CORE, "mujoco", "imageio", "PIL", "rich", "tyro", "safetensors", "torch"}
    assert not heavy & set(loaded)
    ours = {name for name in loaded if name.startswith("midstride.")}
    assert ours == {"midstride.extras", "midstride.registration"}


def test_import_warns_of_nothing():
    """Nor when the names are used: MuJoCo, Gymnasium and safetensors come in here."""
    assert output("from midstride import *", "-W", "error") == ""


@pytest.mark.parametrize("name", midstride.__all__)
def test_every_public_name_is_there(name):
    assert name in dir(midstride)
    assert getattr(midstride, name).__name__ == name


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Sequential'"):
        _ = midstride.Sequential
    assert not hasattr(midstride, "tensorflow")


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "midstride" / "__init__.py").read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == midstride._HOMES
    assert sorted([*seen, "MissingExtra"]) == sorted(midstride.__all__)
    assert resources.files("midstride").joinpath("py.typed").is_file()


def test_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r'^__version__ = "(.+)"$', source, re.M) == [midstride.__version__]


# --- Gymnasium -----------------------------------------------------------------------------------


def test_gymnasium_imports_midstride_by_the_id():
    code = """
import gymnasium
env = gymnasium.make("midstride:midstride/PointMass-v0", latency=0.05)
envs = gymnasium.make_vec("midstride/PointMass-v0", num_envs=2)
print(env.reset(seed=0)[0].shape, envs.reset(seed=0)[0].shape)
"""
    assert output(code, "-W", "error") == "(4,) (2, 4)"


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    ours = {env_id: spec for env_id, spec in before.items() if env_id.startswith("midstride/")}
    tasks = [spec.kwargs.get("task", "grasp") for spec in ours.values()]
    assert sorted(tasks) == sorted([*TASKS, "grasp", "conveyor"])  # each once
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Gymnasium warns of an id that it overrides
        register()
    assert gymnasium.registry == before


# --- What only an extra installs -----------------------------------------------------------------

IMPORT_ALL = """
import importlib, pkgutil
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize("room", ["sim", "envs", "policies"])
def test_the_core_is_enough_for(room):
    output(IMPORT_ALL.format(package=f"midstride.{room}"), without=NOT_CORE)


@pytest.mark.parametrize("room", ["tasks", "measure", "report"])
def test_no_jax_for(room):
    output(IMPORT_ALL.format(package=f"midstride.{room}"), without=LEARNING)


def test_an_older_mujoco_is_enough_to_wrap():
    code = """
import gymnasium, midstride
env = midstride.Concurrent(gymnasium.make("InvertedPendulum-v5"), latency=0.02)
env.reset(seed=0)
print(env.step(env.action_space.sample())[-1]["latency_s"])
gymnasium.make("midstride/PointMass-v0")
"""
    result = python(code, without=(*NOT_CORE, "mujoco.batch"))
    assert result.stdout.strip() == "0.02"
    assert result.stderr.splitlines()[-1] == (
        "midstride.extras.MissingExtra: midstride.TaskEnv needs mujoco 3.17 or newer: "
        "pip install 'midstride[train]'"
    )


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "midstride.from_dm_control('walker', 'walk')",
            "a DeepMind Control task needs dm_control: pip install 'midstride[dmc]'",
        ),
        (
            "midstride.TaskEnv('cartpole')",
            "the model of cartpole needs dm_control: pip install 'midstride[dmc]'",
        ),
    ],
)
def test_a_missing_package_is_a_sentence(code, sentence):
    result = python(f"import midstride; {code}", without=("dm_control",))
    assert result.stderr.splitlines()[-1] == f"midstride.extras.MissingExtra: {sentence}"


@pytest.mark.parametrize(
    ("arguments", "without", "sentence"),
    [
        ("report .", ("matplotlib",), r"this command needs matplotlib: .*\[measure\]'"),
        ("describe cartpole", NOT_CORE, r"the model of cartpole needs dm_control: .*\[dmc\]'"),
        ("train cartpole --steps 1", LEARNING, r"this command needs \w+: .*\[train\]'"),
    ],
)
def test_on_the_command_line_too(arguments, without, sentence):
    code = f"from midstride.cli import main; main({arguments.split()!r})"
    result = python(code, without=without)
    assert result.returncode == 2
    assert re.fullmatch(f"midstride: {sentence}\n", result.stderr)
    assert result.stdout == ""


def test_help_needs_the_core_only():
    code = "from midstride.cli import main; main(['--help'])"
    assert "usage: midstride" in output(code, without=NOT_CORE)


def test_a_missing_module_of_ours_is_not_explained_away():
    with pytest.raises(ModuleNotFoundError, match="juggling"), extras.needed_by("this"):
        importlib.import_module("midstride.juggling")


@pytest.mark.parametrize(("package", "extra"), extras._EXTRA_OF.items())
def test_the_extra_that_is_named_installs_the_package(package, extra):
    offered = PROJECT["project"]["optional-dependencies"]

    def installs(name):
        found = set()
        for requirement in offered[name]:
            distribution, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
            nested = inner.split(",") if distribution == "midstride" else []
            found |= {distribution}.union(*map(installs, nested))
        return found

    assert package.partition(".")[0] in installs(extra)
