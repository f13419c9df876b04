"""What a client and a robot say to each other: typed, versioned messages.

Anything else is refused: another version, unknown names or fields, other types, more than fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from gymnasium import spaces

from midstride.realtime.recording import Moment
from midstride.realtime.robot import (
    Array,
    Controlled,
    Declared,
    Limits,
    Observation,
    Sent,
    State,
)

if TYPE_CHECKING:
    from midstride.sim.camera import Image

VERSION = 3
LARGEST_REQUEST = 2**14  # bytes
LARGEST_REPLY = 2**20
Numbers = Annotated[list[float], msgspec.Meta(max_length=256)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


# --- Requests ------------------------------------------------------------------------------------


class Hello(_Message, frozen=True):
    """The first message of a client."""

    version: int


class Observe(_Message, frozen=True):
    pass


class Act(_Message, frozen=True):
    """A command; number: of its decision."""

    number: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    captured_s: float
    action: int | Numbers


class Stay(_Message, frozen=True):
    """A command to stay at the reference; number: of the decision that it is, -1: of none."""

    number: Annotated[int, msgspec.Meta(ge=-1, lt=2**53)] = -1
    captured_s: float = 0.0


class Order(_Message, frozen=True):
    """One of the words below."""

    word: Annotated[str, msgspec.Meta(pattern="^(arm|stop|pause|resume)$")]


class Reset(_Message, frozen=True):
    """A new episode of a simulated robot that is not armed."""

    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None = None


class Resting(_Message, frozen=True):
    """Has it arrived?"""


class Recall(_Message, frozen=True):
    """What it did since it was armed last, from moment `first` on; not while it is armed."""

    first: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0


class Draw(_Message, frozen=True):
    """What it looked like at a moment; not while it is armed."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


Request = Hello | Observe | Act | Stay | Order | Reset | Resting | Recall | Draw


# --- Replies -------------------------------------------------------------------------------------


class Welcome(_Message, frozen=True):
    """What the robot declares; its fields are those of `Declared`, as numbers."""

    version: int
    now_s: float  # by the robot's clock
    name: str
    columns: list[str]
    observed: list[list[float]]  # lowest and highest of each column
    image: list[int]  # its shape, or nothing
    choices: int  # of discrete actions; 0: they are numbers
    acted: list[list[float]]  # lowest and highest of each number
    controlled: list[str]
    scale: list[float]
    wraps: list[bool]
    limits: list[list[float]]  # low, high, velocity, acceleration, jerk; or nothing
    watchdog_s: float | None
    pauses: bool
    arrives_s: float | None
    recalls: bool


class Observed(_Message, frozen=True):
    values: list[float]
    image: bytes
    captured_s: float
    position: list[float] | None
    target: list[float] | None
    state: State
    fault: str | None
    over: bool
    score: float | None
    late_ticks: int


class Taken(_Message, frozen=True):
    action: int | list[float] | None
    taken_s: float
    refused: str | None


class Rested(_Message, frozen=True):
    rests: bool


class Then(msgspec.Struct, frozen=True, array_like=True):
    """A `Moment`, as numbers."""

    at_s: float
    number: int
    is_switch: bool
    state: State
    position: list[float] | None
    target: list[float] | None
    score: float


class Recalled(_Message, frozen=True):
    """Some moments, and how many there are in all."""

    count: int
    moments: list[Then]


class Drawn(_Message, frozen=True):
    height: int
    width: int
    image: bytes


class Done(_Message, frozen=True):
    pass


class Refused(_Message, frozen=True):
    """What was asked for is not done; the connection stays."""

    why: str


Reply = Welcome | Observed | Taken | Rested | Recalled | Drawn | Done | Refused

encode = msgspec.msgpack.Encoder().encode
_REQUESTS = msgspec.msgpack.Decoder(Request)
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Garbage(ValueError):
    """A message that is none."""


def read_request(data: bytes | str) -> Request:
    return _read(_REQUESTS, data)


def read_reply(data: bytes | str) -> Reply:
    return _read(_REPLIES, data)


def _read(decoder: Any, data: bytes | str) -> Any:
    if isinstance(data, str):
        raise Garbage("it is text")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, ValueError) as error:
        raise Garbage(str(error)[:200]) from None


# --- Robots as messages --------------------------------------------------------------------------


def welcome(declared: Declared, now_s: float) -> Welcome:
    space, action = declared.observation_space, declared.action_space
    state = space["state"] if isinstance(space, spaces.Dict) else space
    image = space["image"].shape if isinstance(space, spaces.Dict) else ()
    if not isinstance(state, spaces.Box) or not isinstance(action, (spaces.Box, spaces.Discrete)):
        raise ValueError(
            f"a robot is served that observes numbers and takes numbers or a choice, not {space} "
            f"and {action}"
        )
    controlled, limits = declared.controlled, declared.limits
    return Welcome(
        version=VERSION,
        now_s=now_s,
        name=declared.name,
        columns=list(declared.columns),
        observed=[state.low.tolist(), state.high.tolist()],
        image=list(image or ()),
        choices=int(action.n) if isinstance(action, spaces.Discrete) else 0,
        acted=[action.low.tolist(), action.high.tolist()] if isinstance(action, spaces.Box) else [],
        controlled=list(controlled.names) if controlled else [],
        scale=controlled.scale.tolist() if controlled else [],
        wraps=controlled.wraps.tolist() if controlled else [],
        limits=[getattr(limits, name).tolist() for name in _LIMITS] if limits else [],
        watchdog_s=declared.watchdog_s,
        pauses=declared.pauses,
        arrives_s=declared.arrives_s,
        recalls=declared.recalls,
    )


_LIMITS = ("low", "high", "velocity", "acceleration", "jerk")


def declared_by(said: Welcome) -> Declared:
    """The same on the other side."""
    low, high = (np.array(bound, np.float32) for bound in said.observed)
    state = spaces.Box(low, high, dtype=np.float32)
    image = spaces.Box(0, 255, tuple(said.image), np.uint8) if said.image else None
    action: spaces.Space[Any] = spaces.Discrete(max(1, said.choices))
    if not said.choices:
        lowest, highest = (np.array(bound, np.float32) for bound in said.acted)
        action = spaces.Box(lowest, highest, dtype=np.float32)
    return Declared(
        name=said.name,
        observation_space=spaces.Dict({"image": image, "state": state}) if image else state,
        action_space=action,
        columns=tuple(said.columns),
        controlled=(
            Controlled(tuple(said.controlled), np.array(said.scale), np.array(said.wraps))
            if said.controlled
            else None
        ),
        limits=Limits(*(np.array(values) for values in said.limits)) if said.limits else None,
        watchdog_s=said.watchdog_s,
        pauses=said.pauses,
        arrives_s=said.arrives_s,
        recalls=said.recalls,
    )


def observed(seen: Observation) -> Observed:
    values, image = seen.values, b""
    if isinstance(values, dict):
        values, image = values["state"], np.ascontiguousarray(values["image"]).tobytes()
    return Observed(
        values=np.asarray(values, float).tolist(),
        image=image,
        captured_s=seen.captured_s,
        position=None if seen.position is None else seen.position.tolist(),
        target=None if seen.target is None else seen.target.tolist(),
        state=seen.state,
        fault=seen.fault,
        over=seen.over,
        score=seen.score,
        late_ticks=seen.late_ticks,
    )


def observation_of(said: Observed, declared: Declared) -> Observation:
    values: Any = np.array(said.values, np.float32)
    space = declared.observation_space
    if isinstance(space, spaces.Dict):
        image = np.frombuffer(said.image, np.uint8).reshape(space["image"].shape or ())
        values = {"image": image, "state": values}
    position = None if said.position is None else np.array(said.position)
    target = None if said.target is None else np.array(said.target)
    return Observation(
        values, said.captured_s, position, target, said.state, said.fault, said.over, said.score,
        said.late_ticks,
    )  # fmt: skip


def taken(sent: Sent) -> Taken:
    action = None if sent.action is None else np.asarray(sent.action).tolist()
    return Taken(action, sent.taken_s, sent.refused)


_MOMENTS = 2000  # of one message


def recalled(moments: Sequence[Moment], first: int) -> Recalled:
    some = moments[first : first + _MOMENTS]
    said = [
        Then(
            m.at_s, m.number, m.is_switch, m.state, _listed(m.position), _listed(m.target), m.score
        )
        for m in some
    ]
    return Recalled(len(moments), said)


def moments_of(said: Recalled) -> list[Moment]:
    """The same on the other side."""
    return [
        Moment(
            m.at_s, m.number, m.is_switch, m.state,
            None if m.position is None else np.array(m.position),
            None if m.target is None else np.array(m.target), m.score,
        )
        for m in said.moments
    ]  # fmt: skip


def drawn(image: Image) -> Drawn:
    return Drawn(image.shape[0], image.shape[1], np.ascontiguousarray(image).tobytes())


def image_of(said: Drawn) -> Image:
    return np.frombuffer(said.image, np.uint8).reshape(said.height, said.width, 3)


def _listed(numbers: Array | None) -> list[float] | None:
    return None if numbers is None else numbers.tolist()
