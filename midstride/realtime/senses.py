"""What a policy sees on a robot: the columns that it was trained with, from what was measured.

The layout and the writer of rows are those of the simulations (`knowledge.py`, `envs/knower.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode
from midstride.envs.knower import Knower, base_columns, check_fits, widened_space
from midstride.flight_of_one import FlightOfOne
from midstride.knowledge import Layout, check_features, vector_to_go
from midstride.realtime.robot import Declared, Observation


class RawCode(ActionCode):
    """Actions that are known as they are."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.low, self.high = space.low.astype(float).ravel(), space.high.astype(float).ravel()

    def of(self, action: Any) -> NDArray[np.float64]:
        return np.clip(np.asarray(action, float).reshape(-1), self.low, self.high)


class Senses:
    """Rows of observation columns of one robot; what flies are pairs of an action and its columns.

    knowledge, stack_observations, stack_actions: as the policy was trained with
    pending_slots: decisions that could be pending in training (`Timing.pending_slots`)
    selection_scale_s: the latency that selection time shows as 1
    raw_actions: whether actions are known as they are, as in grasping, not scaled by their bounds
    """

    def __init__(
        self,
        declared: Declared,
        knowledge: Iterable[str] = (),
        stack_observations: int = 0,
        stack_actions: int = 0,
        pending_slots: int = 0,
        selection_scale_s: float = 0.0,
        raw_actions: bool = False,
    ) -> None:
        space = declared.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        state = space["state"] if isinstance(space, spaces.Dict) else space
        self.code = ActionCode(declared.action_space)
        if raw_actions and isinstance(declared.action_space, spaces.Box):
            self.code = RawCode(declared.action_space)
        self._controlled = declared.controlled
        self.layout = Layout(
            base=declared.columns or base_columns(state),
            action=self.code.columns,
            controlled=None if declared.controlled is None else declared.controlled.names,
            features=check_features(knowledge),
            stack_observations=stack_observations,
            stack_actions=stack_actions,
            pending_slots=pending_slots,
        )
        check_fits(self.layout, state, declared.action_space)
        self.observation_space = space
        if not self.layout.is_plain:
            widened = widened_space(state, self.layout, self.code)
            self.observation_space = (
                spaces.Dict({**space.spaces, "state": widened})
                if isinstance(space, spaces.Dict)
                else widened
            )
        self._scale_s = selection_scale_s
        self._knower: Knower | None = None
        self._is_first = True

    def begin(self, flight: FlightOfOne, tick_s: float) -> None:
        """A run begins, of decisions in this flight; nothing is in flight."""
        self._is_first = True
        if not self.layout.is_plain:
            high = round(self._scale_s / tick_s)
            self._knower = Knower(self.layout, self.code, flight, high)

    def of(self, action: Any) -> tuple[Any, Any]:
        """An action as it flies."""
        return action, None if self._knower is None else self.code.of(action)

    def row(self, seen: Observation, decided: tuple[Any, Any] | None) -> Any:
        """What the policy sees.

        decided: what was decided on the observation before, as it flies; None if that is not known
        """
        if self._knower is None:
            return seen.values
        state = seen.values["state"] if self._is_dict else seen.values
        to_go = self._to_go(seen)
        if self._is_first:
            row = self._knower.first(state, to_go)
        else:
            columns = np.zeros(len(self.layout.action)) if decided is None else decided[1]
            row = self._knower.next(state, columns, to_go)
        self._is_first = False
        return {**seen.values, "state": row} if self._is_dict else row

    def _to_go(self, seen: Observation) -> NDArray[np.floating] | None:
        """From where the robot was at the capture to the place that it was told last."""
        if "vector_to_go" not in self.layout.features:
            return None
        controlled = self._controlled
        assert controlled is not None
        if seen.position is None or seen.target is None:
            raise ValueError(
                "vector_to_go needs position and target in every observation of the robot: this "
                "one does not say them"
            )
        return vector_to_go(seen.target, seen.position, controlled.scale, controlled.wraps)
