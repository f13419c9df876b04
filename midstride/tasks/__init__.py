"""The tasks, by name. Each is made by a function of the physics tick."""

from midstride.sim.task import Controlled, Task, Viewpoint
from midstride.tasks import cartpole, pendulum, pointmass
from midstride.timing import check_tick_s

TASKS = {"pointmass": pointmass.make, "cartpole": cartpole.make, "pendulum": pendulum.make}


def make_task(name: str, tick_s: float = 0.005) -> Task:
    """The task called `name`, stepped by physics ticks of `tick_s` seconds."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[name](check_tick_s(tick_s))


__all__ = ["TASKS", "Controlled", "Task", "Viewpoint", "make_task"]
