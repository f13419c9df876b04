"""`python -m attacks.robot`: faults and malformed messages at a robot's server; results/realtime.

The robot is `midstride robot cartpole` in a process of its own, on the wall clock. Its clients are
processes that move it and then do something wrong, or have something done to them. What happened is
judged by the robot's own record of every tick. Everything but the tries must be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from attacks.robot_judge import judge
from attacks.robot_messages import from_a_client, from_a_stranger, garbage
from midstride.disk.files import commit, machine, versions, write_whole
from midstride.realtime import addresses
from midstride.realtime.remote import RemoteRobot
from midstride.realtime.robot import RobotFault, Stamp

WATCHDOG_S = 0.1
FAULTS = (
    "killed", "stopped (SIGSTOP)", "silent", "cut off", "garbage", "NaN", "jumps", "another shape",
    "clock ahead", "clock behind", "repeats itself",
)  # fmt: skip


_TOO_BUSY = 3  # how a client ends whose robot stopped before: the machine could not keep it moving


def main(args: list[str]) -> int:
    options = _parser().parse_args(args)
    with tempfile.TemporaryDirectory(prefix="midstride-robot-") as name:
        place = Path(name)
        robot = _serve(place)
        began_s = time.monotonic()
        try:
            end_s = began_s + 60 * options.minutes
            tried, spans = _break_clients(place, options.faults, options.seed, end_s)
            sent = _send_garbage(place, options.messages, options.seed, end_s)
            is_alive = robot.poll() is None and _answers(place)
        finally:
            with suppress(ProcessLookupError):
                robot.terminate()  # a shell may have it ignore Ctrl-C
            robot.wait(timeout=60)
            said = (place / "said.txt").read_text()
            if "Traceback" in said:
                print(said[-3000:], file=sys.stderr)
        found = judge(place / "ticks.csv", WATCHDOG_S, spans)
    crashes = int(not is_alive) + said.count("Traceback")
    wrong = sent["messages"] - sent["closed"]
    record = {
        "command": _command(args),
        "seconds": round(time.monotonic() - began_s, 1),
        "watchdog_s": WATCHDOG_S,
        "faults": dict(tried),
        "messages": dict(sent),
        "crashes of the robot": crashes,
        "messages accepted": wrong,
        **found,
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
    }
    write_whole(options.output / "safety.json", json.dumps(record, indent=2) + "\n")
    write_whole(options.output / "table.md", _table(record))
    print(_table(record))
    bad = ("outside limits", "moved too late", "faults without a stop")
    return int(bool(crashes or wrong or any(found[name] for name in bad)))


def _command(args: list[str]) -> str:
    """What was typed, but for where the results were put."""
    if "--output" in args:
        at = args.index("--output")
        args = args[:at] + args[at + 2 :]
    return " ".join(["python -m attacks.robot", *args])


def _serve(place: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "midstride", "robot", "cartpole", "--address", f"unix:{place}/robot",
        "--token", f"{place}/token", "--watchdog", str(WATCHDOG_S), "--log", f"{place}/ticks.csv",
    ]  # fmt: skip
    with (place / "said.txt").open("wb") as said:
        robot = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    while not (place / "token").exists():
        if robot.poll() is not None:
            raise RuntimeError(f"the robot did not start: {(place / 'said.txt').read_text()}")
        time.sleep(0.05)
    return robot


def _token(place: Path) -> str:
    return addresses.read_token(place / "token")


# --- Clients that go wrong -----------------------------------------------------------------------


def _break_clients(
    place: Path, count: int, seed: int, end_s: float
) -> tuple[Counter[str], list[tuple[float, float]]]:
    """How many faults of each kind there were, and when each began and was over."""
    rng, tried = random.Random(seed), Counter[str]()
    spans: list[tuple[float, float]] = []
    _wait_until_free(place)
    while tried.total() < count and time.monotonic() < end_s:
        fault = FAULTS[tried.total() % len(FAULTS)]
        began_s, moved = time.monotonic(), _one_fault(place, fault, rng)
        _wait_until_free(place)
        if not moved:
            continue  # its client never moved the robot, or stopped it too early: no fault
        spans.append((began_s, time.monotonic()))
        tried[fault] += 1
        if tried.total() % 100 == 0:
            print(f"{tried.total()} faults", file=sys.stderr, flush=True)
    time.sleep(3 * WATCHDOG_S)  # what moves after that would be in the record
    return tried, spans


def _one_fault(place: Path, fault: str, rng: random.Random) -> bool:
    """A client that goes wrong while the robot moves; whether it came to that."""
    heard, tells = os.pipe()
    child = os.fork()
    if child == 0:
        _client(place, fault, rng.randrange(2**30), tells)
    os.close(tells)
    moved = os.read(heard, 1) == b"m"  # nothing, once the client has ended
    os.close(heard)
    status = _after(child, fault if moved else "killed", rng.uniform(0.0, 0.15))
    return moved and status != _TOO_BUSY


def _client(place: Path, fault: str, seed: int, tells: int) -> None:
    """A process that moves the robot, says so, and goes wrong; never returns."""
    with suppress(BaseException):
        rng = random.Random(seed)
        robot = RemoteRobot(f"unix:{place}/robot", _token(place))
        robot.connect()
        robot.arm()
        last = rng.randrange(2, 15)
        for number in range(10_000):
            seen = robot.get_observation()
            if number == last:
                _go_wrong(robot, fault, number, seen.captured_s, rng)
            sent = robot.send_action([rng.uniform(-1, 1)], Stamp(number, seen.captured_s))
            if sent.refused is not None:
                os._exit(_TOO_BUSY)
            if number == 1:
                os.write(tells, b"m")
            time.sleep(0.01)
    os._exit(0)


def _go_wrong(
    robot: RemoteRobot, fault: str, number: int, captured_s: float, rng: random.Random
) -> None:
    match fault:
        case "silent":
            time.sleep(5 * WATCHDOG_S)
        case "cut off":
            assert robot._connection is not None
            robot._connection.socket.close()
        case "garbage":
            assert robot._connection is not None
            robot._connection.send(garbage(rng))
            robot._connection.recv(timeout=5)
        case "NaN":
            robot.send_action([rng.choice([np.nan, np.inf, -np.inf])], Stamp(number, captured_s))
        case "jumps":
            for k in range(30):
                jump = rng.choice([-1, 1]) * 10 ** rng.uniform(0, 300)
                robot.send_action([jump], Stamp(number + k, captured_s))
        case "another shape":
            shape = rng.choice([[], [0.1, 0.2], 3, [0.1] * 200])
            robot.send_action(shape, Stamp(number, captured_s))
        case "clock ahead":
            robot.send_action([1.0], Stamp(number, captured_s + 10 ** rng.uniform(-2, 9)))
        case "clock behind":
            robot.send_action([1.0], Stamp(number, captured_s - 10 ** rng.uniform(-0.9, 9)))
        case "repeats itself":
            for _ in range(100):
                robot.send_action([1.0], Stamp(number - 1, captured_s))
                time.sleep(0.005)
    if fault not in ("killed", "stopped (SIGSTOP)"):
        os._exit(0)


def _after(child: int, fault: str, wait_s: float) -> int:
    """Do to a client what is done to it, and see it end; how it did."""
    if fault == "killed":
        time.sleep(wait_s)
        os.kill(child, signal.SIGKILL)
    elif fault == "stopped (SIGSTOP)":
        time.sleep(wait_s)
        os.kill(child, signal.SIGSTOP)
        time.sleep(4 * WATCHDOG_S)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait_until_free(place: Path) -> None:
    """Until the robot is at rest and has no client."""
    for _ in range(1000):
        with suppress(RobotFault), RemoteRobot(f"unix:{place}/robot", _token(place)) as robot:
            if robot.get_observation().state in ("idle", "stopped"):
                return
        time.sleep(0.01)
    raise RuntimeError("the robot has not come to rest")


def _answers(place: Path) -> bool:
    _wait_until_free(place)
    return True


def _send_garbage(place: Path, count: int, seed: int, end_s: float) -> dict[str, Any]:
    """Malformed messages, one in five from a client with the token."""
    rng, answers = random.Random(seed), Counter[str]()
    path, token, sent = f"{place}/robot", _token(place), 0
    while sent < count and time.monotonic() < end_s:
        try:
            is_client = sent % 5 == 0
            answer = from_a_client(path, token, rng) if is_client else from_a_stranger(path, rng)
        except Exception as error:  # a place that is not free yet, say
            if "409" not in str(error):
                raise
            time.sleep(0.002)
            continue
        sent += 1
        answers[answer if answer == "closed" else "other"] += 1
        if answer != "closed":
            print(answer, file=sys.stderr)
        if sent % 10_000 == 0:
            print(f"{sent} messages", file=sys.stderr, flush=True)
    return {"messages": sent, "closed": answers["closed"]}


def _table(record: dict[str, Any]) -> str:
    faults = sum(record["faults"].values())
    rows = [
        ("injected faults", faults),
        ("seconds of motion", record["seconds of motion"]),
        ("commands outside limits", record["outside limits"]),
        ("motions after the watchdog's time", record["moved too late"]),
        ("stops that were measured", record["stops"]),
        ("faults without a stop", record["faults without a stop"]),
        ("largest error of the computed stop distance (m)", f"{record['stop error m']:.1e}"),
        ("malformed messages", record["messages"]["messages"]),
        ("of them accepted", record["messages accepted"]),
        ("crashes of the robot", record["crashes of the robot"]),
    ]
    lines = ["| | |", "|---|---:|"]
    lines += [
        f"| {name} | {n:,} |" if isinstance(n, int) else f"| {name} | {n} |" for name, n in rows
    ]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attacks.robot", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="how many (1,000)")
    parser.add_argument("--messages", type=int, default=100_000, help="how many (100,000)")
    parser.add_argument("--minutes", type=float, default=90.0, help="stop after so long (90)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--output", type=Path, default=Path("results/realtime"), help="folder")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
