"""The examples run, and show what they say they show."""

import importlib.util
import re
from pathlib import Path

import pytest

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


def test_readme_example_runs():
    """The Python in README is the Python that works."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


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
