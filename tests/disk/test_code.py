"""The name of the code that made a training: changed by the program, by nothing else."""

import subprocess
import sys

from midstride.disk import code


def test_words_around_a_program_do_not_count():
    source = '''"""A module."""
class A:
    """Of something."""
    x: int = 1
    """what it is"""

    def f(self):  # a comment
        """Do it."""
        return self.x
'''
    bare = "class A:\n    x: int = 1\n    def f(self):\n        return (self.x)\n"
    assert code.program_of(source) == code.program_of(bare)
    assert code.program_of(source) != code.program_of(bare.replace("= 1", "= 2"))
    assert code.program_of('def f():\n    """Nothing."""\n') == code.program_of("def f(): pass")


def test_a_changed_program_has_another_name(tmp_path, monkeypatch):
    for name, text in {
        "learn/dqn.py": "x = 1\n", "measure/evaluate.py": "y = 1\n", "report/page.py": "z = 1\n",
        "tasks/model.xml": "<a/>",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(code, "_PACKAGE", tmp_path)

    def name():
        return code.code_version.__wrapped__()

    first = name()
    (tmp_path / "report/page.py").write_text("z = 2\n")
    (tmp_path / "learn/dqn.py").write_text("x = 1  # one\n")
    assert name() == first
    for path in ("learn/dqn.py", "measure/evaluate.py", "tasks/model.xml"):
        before = name()
        (tmp_path / path).write_text("x = 3\n")
        assert name() != before


def test_whatever_a_training_imports_counts_or_is_known_not_to():
    """Every module that is loaded by training Cartpole and grasping."""
    script = (
        "import sys, midstride.learn.train, midstride.learn.qtopt, midstride.tasks.grasp.env,"
        "midstride.tasks.env\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('midstride.')), "
        "sep='\\n')"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    counted = {str(path) for path in code.code_files()}
    package = f"{code._PACKAGE}/"
    others = {path.removeprefix(package) for path in found if path not in counted}
    # These write and read files, and tell intervals: no number that is learned or judged by.
    assert {name.partition("/")[0] for name in others} <= {
        "disk", "measure", "extras.py", "registration.py", "__init__.py",
    }  # fmt: skip
    assert {name for name in others if name.startswith("measure/")} <= {
        "measure/__init__.py", "measure/statistics.py",
    }  # fmt: skip
