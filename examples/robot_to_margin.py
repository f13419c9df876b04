"""From a robot's latencies to a margin: does this policy stand what this robot takes?

    midstride train cartpole dqn --knowledge vector_to_go --name aware
    python examples/robot_to_margin.py runs/aware

The robot is a simulated Cartpole on the wall clock, in this process. Whatever the policy decides,
the robot is told to rest: only its latencies are measured, from capture to command.
"""

import sys
from pathlib import Path

import midstride
from midstride.measure.margin import MarginSettings
from midstride.realtime.bodies import TaskBody
from midstride.realtime.clock import WallClock
from midstride.realtime.clocked import ClockedRobot
from midstride.realtime.drive import Resting, drive, plan_of
from midstride.report.realtime import quantile_table, write_trace
from midstride.tasks.registry import environment_of


def main(folder: Path, trace: Path, decisions: int = 200, episodes: int = 40) -> midstride.Margin:
    policy, environment = midstride.load(folder), environment_of(folder)
    envs = environment.make(1)
    trained = envs.layout, envs.timing
    envs.close()

    clock = WallClock()
    body = TaskBody(
        "cartpole", None if environment.actions == "continuous" else environment.actions
    )
    robot = ClockedRobot(body, clock, watchdog_s=1.0, limited=True, seed=0)
    robot.connect()
    plan = plan_of(robot.declared, trained, "concurrent")
    run = drive(Resting(robot), policy, plan, clock, lambda run: len(run.decisions) < decisions)
    for row in quantile_table(run.decisions):
        print("  ".join(row))
    print(f"{write_trace(trace, run.decisions)} latencies in {trace}")

    asked = MarginSettings(latency=(f"trace:{trace},up",), episodes=episodes, margins=("delay",))
    found = midstride.margin(policy, environment, asked)
    print(f"stands {1e3 * found.delay_s:.0f} ms")
    for name, point in found.under.items():
        print(f"at {name}: return {point.mean:.0f}, {100 * point.kept:.0f} % of that at latency 0")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path("latencies.csv"))
