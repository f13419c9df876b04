"""Concurrent control for environments that others wrote.

A MuJoCo environment is stopped inside its own steps, at the physics tick where a decision comes
into force (`inside.py`); of any other its own steps are the ticks (`steps.py`). Reward,
observation, termination and resets are the environment's own code. When a switch comes is decided
in `flight_of_one.py`, what is known of it is written in `knower.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode, at_rest, check_hold
from midstride.envs.inside import InsideSteps, Observes
from midstride.envs.knower import Knower, base_columns, check_fits, widened_space
from midstride.envs.own_time import mujoco_time, steps_time
from midstride.envs.physics import MovesByTicks, Physics
from midstride.envs.steps import WholeSteps
from midstride.flight_of_one import FlightOfOne
from midstride.knowledge import Layout, check_features, vector_to_go
from midstride.latency import LatencyModel, loses
from midstride.timing import Mode, Thinker, Timing, check_mode

Array = NDArray[np.float64]
Info = dict[str, Any]

AHEAD = 64  # latencies drawn at a time


class Concurrent(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Any Gymnasium environment, moving while the agent thinks.

    env: a MuJoCo environment that moves by `MujocoEnv.do_simulation`, as Gymnasium's own do: its
        ticks are those of the physics. Or any other: its ticks are its own steps
    latency: seconds from an observation to the switch to the action chosen on it, shorter or longer
        than the period; or a latency model
    knowledge: any of previous_action, pending_actions, selection_time, vector_to_go (MuJoCo with
        position actuators only)
    stack_observations, stack_actions: how many previous ones (0 to 4) are observed too
    tick: MuJoCo: seconds of a finer physics timestep, for latencies that the environment's own is
        too coarse for; it must divide that one. The period stays; the integration becomes finer, so
        trajectories are not those of the bare environment, at latency 0 neither
    observe_switch: whether info holds what would be observed at the switch (it costs time)
    period: seconds from one observation to the next, a whole number of the environment's own steps
        (default: one)
    step_s: seconds that a step of the environment lasts, where it does not say so itself (`dt`).
        Given for a MuJoCo environment, its whole steps are the ticks too
    thinker: pipelined (observes every period) or serial (observes when the last thought is over)
    mode: concurrent, or hold: `hold`, which must be given, is done from each observation to the
        switch, and then the action for the period. Every latency is a whole number of the
        environment's own steps
    hold: the action before the first decision arrives (default: zeros, within bounds; of discrete
        actions the first). Of a MuJoCo environment the control of its actuators (default: motors
        get zero, position actuators stay where they are)

    Without knowledge or stacking the observation is the environment's own, unchanged; with them
    it is a flat Box that starts with it. Vector-to-go is the control as the actuator takes it (kept
    within its range) minus actuator length, not wrapped: these actuators are told a place, not a
    displacement.

    `info` of a step is the environment's own (of the last of its steps in the period) and
        latency_s: of the decision of this step; lost: whether it never arrives
        period_s: how long this step was
        reward_before_switch, reward_after_switch: what came before that decision was in force. A
            MuJoCo environment pays once per step of its own, which is split in proportion to time
        pending: decisions that are under way now; stale: those that were dropped in this step
        observation_switch: only with observe_switch; what would be observed at the switch, with
            the new action in force; left out where a switch may come after the next observation
        switches: only with observe_switch; the decisions that came into force in this step, as
            (its number in the episode, what the environment itself observed then)
        within: only after look_within; what it observed so many ticks after the capture
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        latency: float | LatencyModel = 0.0,
        knowledge: Iterable[str] = (),
        stack_observations: int = 0,
        stack_actions: int = 0,
        tick: float | None = None,
        observe_switch: bool = False,
        *,
        period: float | None = None,
        step_s: float | None = None,
        thinker: Thinker = "pipelined",
        mode: Mode = "concurrent",
        hold: Any = None,
    ) -> None:
        knowledge = check_features(knowledge)
        self._arguments: dict[str, Any] = {
            "latency": latency,
            "knowledge": knowledge,
            "stack_observations": stack_observations,
            "stack_actions": stack_actions,
            "tick": tick,
            "observe_switch": observe_switch,
            "period": period,
            "step_s": step_s,
            "thinker": thinker,
            "mode": mode,
            "hold": hold,
        }
        gymnasium.utils.RecordConstructorArgs.__init__(self, **self._arguments)
        _check_environment(env)
        gymnasium.Wrapper.__init__(self, env)
        inside = isinstance(env.unwrapped, MovesByTicks) and step_s is None
        own = mujoco_time(env, tick) if inside else steps_time(env, step_s, tick)
        self._holds = check_mode(mode) == "hold"
        if self._holds and hold is None:
            raise ValueError(
                "what rest is for this environment is not known: mode hold needs it as hold="
            )
        self.timing = own.timing(latency, period, thinker, mode)
        longest = self.timing.latency_bounds_ticks[1]
        # An environment may move by less than its period in a step: then more are pending.
        self._flight = FlightOfOne(most_pending=longest + 2)
        self._plant = Physics(env.unwrapped, self.timing.tick_s, hold) if inside else None
        code = ActionCode(env.action_space)
        self.layout = Layout(
            base=base_columns(env.observation_space),
            action=code.columns,
            controlled=_controlled(self._plant),
            features=knowledge,
            stack_observations=stack_observations,
            stack_actions=stack_actions,
            pending_slots=self.timing.pending_slots,
            units=_units(code, self._plant),
        )
        check_fits(self.layout, env.observation_space, env.action_space)
        self._knower: Knower | None = None
        if not self.layout.is_plain:
            self.observation_space = widened_space(env.observation_space, self.layout, code)
            self._knower = Knower(
                self.layout, code, self._flight, self.timing.selection_scale_ticks
            )
        self._own_ticks = own.ticks
        self._looks = observe_switch
        self._way = self._way_of(hold, observe_switch)
        self._tick_s, self._most_waiting = self.timing.tick_s, self.timing.most_pending - 1
        self._goes = "vector_to_go" in self.layout.features
        self._rng = np.random.default_rng()
        self._coming: Iterator[tuple[int, int, bool]] | None = None  # None before the first reset

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled environment starts afresh, as Gymnasium's own do."""
        return _again, (self.env, self._arguments)

    def _way_of(self, hold: Any, observe_switch: bool) -> InsideSteps | WholeSteps:
        """How a period is lived: by physics ticks, or by whole steps of the environment."""
        if self._plant is None:
            held = check_hold(hold, self.env.action_space)
            return WholeSteps(self.env, self._flight, held, observe_switch)
        way = InsideSteps(self.env, self._plant, self._flight, self._own_ticks)
        if observe_switch:
            _check_observes(self.env)
            way.look_at_switches("vector_to_go" in self.layout.features)
        return way

    @property
    def longest_episode(self) -> int | None:
        """In steps, if it is known."""
        steps = self.env.spec.max_episode_steps if self.env.spec else None
        own = self.timing.shortest_period_ticks // self._own_ticks  # steps of the environment's own
        return None if steps is None else -(-steps // own)

    @property
    def hold_action(self) -> Any:
        """The action that does what is done before the first decision arrives; None: none does.

        Position actuators stay where they are, which is another control in each episode.
        """
        if self._plant is None:
            return check_hold(self._arguments["hold"], self.env.action_space)
        rest = at_rest(self.env.action_space)
        moves = self._arguments["hold"] is not None or self._plant.servos.any() or np.any(rest)
        return None if moves else rest

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of the observation."""
        return self.layout.columns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = np.random.default_rng([seed, 1])
        self._coming = steps_of(self.timing, self._rng)
        self._flight.reset()
        self._way.begin(observation)
        if self._knower is None:
            return observation, info
        return self._knower.first(observation, self._to_go()), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        if self._coming is None:
            raise RuntimeError("call reset before the first step")
        latency, interval, lost = next(self._coming)
        flight, knower, tick_s = self._flight, self._knower, self._tick_s
        stale = flight.stale
        code = None if knower is None else knower.code.of(action)
        way = self._way
        if self._holds:
            flight.rest()
            way.rest()
        observation, reward, before, terminated, truncated, own_info, ticks = way.live(
            action, code, latency, interval, lost
        )
        before = float(before)
        info = {
            **own_info,
            "reward_before_switch": before,
            "reward_after_switch": float(reward) - before,
            "latency_s": latency * tick_s,
            "period_s": ticks * tick_s,
            "pending": self._most_waiting and self._pending(),
            "stale": flight.stale - stale,
            "lost": lost,
        }
        if knower is not None:
            assert code is not None
            observation = knower.next(observation, code, self._to_go())
        if self._looks:
            info["switches"] = tuple(way.switches)
            if way.at_switch is not None and self.timing.arrives_in_time:
                info["observation_switch"] = self._at_switch(observation, *way.at_switch)
        if way.within:
            info["within"] = way.within
        return observation, reward, terminated, truncated, info

    def look_within(self, ticks: Iterable[int]) -> None:
        """Observe inside of every period too: so many ticks after each capture.

        `info` then has `within`, what the environment observed by ticks. For worlds that freeze for
        thought: latency 0, and a period of one step of the environment's own if it is MuJoCo.
        """
        wanted = tuple(sorted(set(ticks)))
        period = self.timing.shortest_period_ticks
        if not all(0 < tick < period for tick in wanted):
            raise ValueError(f"within a period of {period} ticks there is no {wanted}")
        if self.timing.latency_bounds_ticks[1]:
            raise ValueError("look_within is for latency 0: with one, observe_switch looks inside")
        if self._looks:
            raise ValueError("look_within and observe_switch look at the same steps: take one")
        if self._plant is not None:
            if period != self._own_ticks:
                raise ValueError("look_within needs a period of one step of the environment's own")
            _check_observes(self.env)
        self._way.look_within(wanted)

    def _pending(self) -> int:
        """Decisions that may still come into force."""
        return min(self._flight.captures - 1 - self._flight.in_force, self._most_waiting)

    def _at_switch(self, row: Any, observed: Any, length: Array | None) -> Any:
        """What would have been observed at the switch: all but its own columns is as at the end."""
        if self._knower is None:
            return observed
        return self._knower.at(row, observed, None if length is None else self._to_go(length))

    def _to_go(self, length: Array | None = None) -> NDArray[np.floating] | None:
        """From where the actuators are (or were) to the control that they follow."""
        if not self._goes:
            return None
        assert self._plant is not None
        length = self._plant.measure_length() if length is None else length
        # Not wrapped: these servos are told a place, and unwind to it the long way if need be.
        scale = self._plant.scale
        return vector_to_go(self._plant.target(), length, scale, np.zeros(len(scale), bool))


def steps_of(timing: Timing, rng: np.random.Generator) -> Iterator[tuple[int, int, bool]]:
    """The steps of an episode: latency, ticks to the next capture, whether it is lost."""
    low, high = timing.latency_bounds_ticks
    if low == high and not loses(timing.latency):
        return repeat((high, timing.shortest_period_ticks, False))
    draw = timing.episode(rng)  # now, not when the first is asked for

    def following() -> Iterator[tuple[int, int, bool]]:
        while True:
            latency, interval, lost = draw(AHEAD)
            yield from zip(latency.tolist(), interval.tolist(), lost.tolist(), strict=True)

    return following()


def _again(env: gymnasium.Env[Any, Any], arguments: dict[str, Any]) -> Concurrent:
    return Concurrent(env, **arguments)


def _check_environment(env: Any) -> None:
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise ValueError("these are many environments: wrap them in ConcurrentVector")
    if not isinstance(env, gymnasium.Env):
        raise ValueError(f"Concurrent wraps a Gymnasium environment, got {env!r}")
    if _is_concurrent(env):
        raise ValueError("this environment is Concurrent already: wrap it once")


def _check_observes(env: gymnasium.Env[Any, Any]) -> None:
    if not (_observes_unchanged(env) and isinstance(env.unwrapped, Observes)):
        raise ValueError(
            f"what {env} would observe at the switch is not known: observe_switch needs an "
            "environment with a _get_obs method, and no wrapper inside Concurrent that changes "
            "observations"
        )


def _observes_unchanged(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether what `env` observes is what its innermost environment observes, as far as we know."""
    keeps = (
        gymnasium.wrappers.TimeLimit,
        gymnasium.wrappers.OrderEnforcing,
        gymnasium.wrappers.PassiveEnvChecker,
        gymnasium.wrappers.RecordEpisodeStatistics,
        gymnasium.ActionWrapper,
        gymnasium.RewardWrapper,
    )
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, keeps):
            return False
        env = env.env
    return True


def _is_concurrent(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether a Concurrent is among the wrappers of `env`."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, Concurrent):
            return True
        env = env.env
    return False


def _controlled(plant: Physics | None) -> tuple[str, ...] | None:
    """Names of the position actuators, where all are."""
    if plant is None or not plant.servos.all():
        return None
    return plant.names


def _units(code: ActionCode, plant: Physics | None) -> dict[str, Any]:
    """What previous actions and vector-to-go are in units of."""
    units = {"previous_action": code.units}
    if plant is not None:
        units["vector_to_go"] = plant.scale.tolist()
    return units
