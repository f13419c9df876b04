"""A period of an environment that can be stopped inside its own steps: MuJoCo physics.

The environment's step calls us to move (`_step_mujoco_simulation`); we split that at the switch and
touch nothing else. Reward, observation, termination and resets are the environment's own code.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

from midstride.envs.actions import check_finite
from midstride.envs.physics import Physics
from midstride.envs.steps import Lived
from midstride.flight_of_one import FlightOfOne

Array = NDArray[np.float64]


@runtime_checkable
class Observes(Protocol):
    """An environment that can be asked at any instant what it observes."""

    def _get_obs(self) -> Any: ...


class InsideSteps:
    """Periods of whole steps of a MuJoCo environment, which switches inside of them."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], plant: Physics, flight: FlightOfOne, own_ticks: int
    ) -> None:
        """own_ticks: of one step of the environment"""
        self._env: Any = env
        self._inner: Any = env.unwrapped  # its own method is replaced during a step
        self.plant, self._flight, self._own_ticks = plant, flight, own_ticks
        self._stand_in = self._move
        self._decision: tuple[Any, int, bool] = (None, 0, False)  # columns, latency, lost
        self._decided = False  # the environment has said what to do
        self._looks = self._measures_length = False
        # What is observed at the switch of this step; where the actuators are.
        self.at_switch: tuple[Any, Array | None] | None = None
        self.switches: list[tuple[int, Any]] = []  # of this step: decision, what is observed
        self._within: tuple[int, ...] = ()  # ticks of a period to look at
        self.within: dict[int, Any] = {}  # what was observed there
        self._began = 0  # when this period did

    def look_at_switches(self, measure_length: bool) -> None:
        """Observe at the switch; where actuators are too, if asked."""
        self._looks, self._measures_length = True, measure_length
        self.plant.tell_switches(self._observe_switch)

    def look_within(self, ticks: tuple[int, ...]) -> None:
        """Observe so many ticks after each capture, too; without latency only."""
        self._within = ticks
        self.plant.tell_switches(self._observe_within)

    def begin(self, observation: Any) -> None:
        """An episode has begun: nothing is in flight."""
        self.plant.hold()

    def rest(self) -> None:
        """A robot that holds: what is done before any decision pre-empts what was in force."""
        self.plant.rest()

    def live(self, action: Any, code: Any, latency: int, interval: int, lost: bool) -> Lived:
        """From this capture to the next, `interval` ticks later, or to the end of the episode."""
        self._decision, self._decided = (code, latency, lost), False
        self.at_switch, self.switches, self.within = None, [], {}
        flight, inner = self._flight, self._inner
        self._began = began = flight.now
        # Only while it steps does the environment move through us; otherwise it is untouched.
        inner._step_mujoco_simulation = self._stand_in
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
            if not self._decided:
                raise RuntimeError(self._unmoved())
            ticks = flight.now - began
            # An environment pays once per step, so within it the split is in proportion to time.
            before = reward if lost or latency >= ticks else reward * (latency / ticks)
            lived = observation, reward, before, terminated, truncated, info, ticks
            if interval > self._own_ticks:
                lived = self._go_on(lived, action, began, interval // self._own_ticks - 1)
        finally:
            del inner._step_mujoco_simulation
        if self.plant.warnings.are_new():
            self.plant.report()
        if self._looks and self.at_switch is None and (lived[3] or lived[4]):
            self.at_switch = lived[0], self._length()  # the end stands for a late switch
        return lived

    def _go_on(self, lived: Lived, action: Any, began: int, steps: int) -> Lived:
        """The other steps of a period of several: the action is the same."""
        observation, total, before, terminated, truncated, info, ticks = lived
        _, latency, lost = self._decision
        for _ in range(steps):
            if terminated or truncated:
                break
            late = latency - ticks  # of the switch, in ticks of this step
            observation, reward, terminated, truncated, info = self._env.step(action)
            passed = self._flight.now - began - ticks
            total, ticks = total + reward, ticks + passed
            if lost or late >= passed:
                before += reward
            elif late > 0:
                before += reward * (late / passed)
        return observation, total, before, terminated, truncated, info, ticks

    def _unmoved(self) -> str:
        return (
            f"{self._inner} did not move by do_simulation in this step, so its latency could "
            "not be applied: its step must call self.do_simulation(control, self.frame_skip) "
            "instead of mujoco.mj_step, and a wrapper that resets within a step belongs "
            "outside Concurrent; or give step_s, and whole steps of it are the ticks"
        )

    def _move(self, control: Any, ticks: int) -> None:
        """What the environment calls to move, once or several times in a step.

        Its first call is the capture; in a later one the decision is what it says then.
        """
        control = control.astype(float) if type(control) is np.ndarray else np.array(control, float)
        if not isfinite(control.dot(control)):  # one number to look at; it may overflow
            check_finite(control)
        plant, flight = self.plant, self._flight
        plant.left = ticks = int(ticks) * plant.substeps
        code, latency, lost = self._decision
        if self._decided:
            flight.amend((control, code))
            flight.period(plant, ticks)
        elif self._within:
            # The same action again and again: the plant stops, and nothing changes.
            self._decided, starts = True, (0, *self._within)
            flight.capture_chunk([(control, code)] * len(starts), starts, latency)
            flight.period(plant, ticks)
        else:
            self._decided = True
            flight.decide(plant, (control, code), latency, ticks, lost)

    def _observe_switch(self) -> None:
        """Take the environment's observation at the switch."""
        flight = self._flight
        if self.switches and self.switches[-1][0] == flight.in_force:
            return
        observation = self._observe()
        self.switches.append((flight.in_force, observation))
        if self.at_switch is None and flight.newest_in_force:
            self.at_switch = observation, self._length()

    def _observe_within(self) -> None:
        ticks = self._flight.now - self._began
        if ticks:  # at 0 is the capture
            self.within[ticks] = self._observe()

    def _observe(self) -> Any:
        """What the environment observes now, without a trace.

        Looking must not draw from the environment's generator: observations may be noisy.
        """
        inner = self._inner
        random = inner.np_random.bit_generator.state
        observation = inner._get_obs()
        inner.np_random.bit_generator.state = random
        return observation

    def _length(self) -> Array | None:
        return self.plant.measure_length() if self._measures_length else None
