"""One clock, handed to whatever reads time or waits: nothing else in the package does."""

import ast
import gc
import threading
import weakref
from pathlib import Path

import midstride
from midstride.realtime.clock import steady
from midstride.realtime.log import Log
from tests.realtime.test_server import wait_for

PACKAGE = Path(midstride.__file__).parent
CLOCKS = ("sleep", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "now", "utcnow")


def readings(path):
    """What a file reads time by, or waits with: `time.monotonic`, `datetime.now` and the like."""
    modules = {"time", "datetime"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in CLOCKS
            and ast.unparse(node.value) in modules
        ):
            yield ast.unparse(node)


def test_nothing_that_runs_a_robot_reads_time_but_by_its_clock():
    found = {path.name: set(readings(path)) for path in (PACKAGE / "realtime").glob("*.py")}
    assert found.pop("clock.py") == {"time.monotonic", "time.sleep"}
    assert {name: read for name, read in found.items() if read} == {}


def test_nothing_in_the_package_sleeps_but_on_its_clock():
    """Elsewhere time is read to say how long something took, and nobody waits."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "clock.py"]
    assert len(files) > 100
    sleeps = {"time.sleep"}
    assert [path.name for path in files if sleeps & set(readings(path))] == []


def test_while_a_robot_runs_garbage_is_collected():
    class Knot:
        def __init__(self):
            self.itself = self

    with steady():
        assert gc.isenabled()
        alive = weakref.WeakSet()
        for _ in range(20_000):
            alive.add(Knot())
        assert len(alive) < 20_000
    assert gc.get_freeze_count() == 0


class Still:
    now = 7.25

    def now_s(self):
        return self.now


def test_a_log_has_the_time_and_not_more_lines_than_a_person_reads():
    lines, clock = [], Still()
    log = Log(lines.append, clock)
    for k in range(50):
        log(f"line {k}")
    log("fault", matters=True)
    clock.now = 8.5
    log("later")
    log.close()
    assert lines[:2] == ["7.250 s: line 0", "7.250 s: line 1"]
    assert lines[20:] == ["7.250 s: fault", "8.500 s: and 30 lines more", "8.500 s: later"]


def test_a_terminal_that_takes_nothing_stops_nobody():
    takes = threading.Event()
    log = Log(lambda line: takes.wait(), Still())
    for k in range(5000):
        log(f"line {k}", matters=True)  # or this test would never end
    takes.set()
    wait_for(lambda: log._waiting.empty())
