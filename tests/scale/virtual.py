"""A cluster in one process on a virtual clock: calls take as long as they are said to.

Actors live on machines. Killing an actor loses its call; killing a machine loses its actors and all
data that was made there. Everything happens in a fixed order: a seed repeats exactly.
"""

import heapq
import itertools
from typing import NamedTuple

import numpy as np

from midstride.scale.cluster import DataLost, Lost
from midstride.scale.roles import Streams


class Ref(NamedTuple):
    number: int


class Actor:
    def __init__(self, role, inner, machine):
        self.role, self.inner, self.machine, self.is_alive = role, inner, machine, True
        self.free_at = 0.0


class VirtualCluster:
    """roles: by name, made with the desk's arguments; seconds: (role, method) -> how long it takes.

    before_call: called with (cluster, actor, method) when a call is made, and may kill
    """

    def __init__(self, roles, seconds=lambda role, method: 1.0, machines=1, before_call=None):
        self.roles, self.seconds, self.machines = roles, seconds, machines
        self.before_call = before_call or (lambda cluster, actor, method: None)
        self.now, self.actors, self.numbers = 0.0, [], itertools.count()
        self.values, self.where, self.events = {}, {}, []  # of references; ends of calls
        self.ended, self.busy_s = {}, {}

    def clock(self):
        return self.now

    def start(self, role, arguments):
        actor = Actor(role, self.roles[role](*arguments), next(self.numbers) % self.machines)
        self.actors.append(actor)
        return actor

    def call(self, actor, method, arguments, returns):
        self.before_call(self, actor, method)
        references = [Ref(next(self.numbers)) for _ in range(returns)]
        seconds = self.seconds(actor.role, method)
        self.busy_s[actor.role] = self.busy_s.get(actor.role, 0.0) + seconds
        event = (self.now + seconds, next(self.numbers), actor, method, arguments, references)
        heapq.heappush(self.events, event)
        return references

    def wait(self, references, seconds):
        assert references, "nothing is under way, and nothing will ever happen"
        if not any(r in self.ended for r in references):
            assert self.events, "calls that nobody is doing"
            self._end_next()
        return [r for r in references if r in self.ended]

    def _end_next(self):
        self.now, _, actor, method, arguments, references = heapq.heappop(self.events)
        try:
            if not actor.is_alive:
                raise Lost(f"{actor.role} is gone")
            given = [self._value(argument) for argument in arguments]
            found = getattr(actor.inner, method)(*given)
        except Exception as error:  # raised where it is asked for
            self.ended[references[0]] = error
            return
        values = [found] if len(references) == 1 else found
        for reference, value in zip(references, values, strict=True):
            self.values[reference], self.where[reference] = value, actor.machine
        self.ended[references[0]] = None

    def _value(self, argument):
        if not isinstance(argument, Ref):
            return argument
        if argument not in self.values:
            raise DataLost(str(argument))
        return self.values[argument]

    def get(self, reference):
        error = self.ended.pop(reference)
        if error is not None:
            raise error
        return self.values[reference]

    def stop(self, actor):
        actor.is_alive = False

    def kill_machine(self, machine):
        for actor in self.actors:
            actor.is_alive = actor.is_alive and actor.machine != machine
        for reference in [r for r, m in self.where.items() if m == machine]:
            if reference not in self.ended:  # small records are with the coordinator
                del self.values[reference], self.where[reference]


# --- Roles that only count ------------------------------------------------------------------------


class Stream:
    """What a memory keeps of a collector: the rounds themselves."""

    def __init__(self):
        self.rounds, self.cuts = [], 0

    def __len__(self):
        return len(self.rounds)

    def add(self, step):
        self.rounds.append(step)

    def cut(self):
        self.cuts += 1

    def arrays(self):
        return list(self.rounds)


class CountingCollector:
    def __init__(self, name):
        self.name, self.number = name, 0

    def setup(self):
        return {}

    def collect(self, weights, seen, rounds, steps, random):
        taken = [(self.name, self.number + i) for i in range(rounds)]
        self.number += rounds
        return {"first": taken[0][1], "returns": [1.0], "random": random}, taken


class CountingMemory:
    has_demonstrations = True

    def __init__(self, places, arrays):
        self.streams = Streams({place: Stream() for place in places})
        for place, rounds in (arrays or {}).items():
            self.streams.by_name[place].rounds = list(rounds)

    def setup(self):
        return {**self.told(), "values": None}

    def told(self):
        held = len(self.streams)
        return {"held": held, "can_sample": self.has_demonstrations or held > 0, "seen": held}

    def add(self, name, owner, first, steps):
        assert all(step == (owner, first + i) for i, step in enumerate(steps))
        return {"added": self.streams.add(name, owner, first, steps), **self.told()}

    def sample(self, updates, random, fitters):
        assert self.told()["can_sample"]
        parts = [(i, updates) for i in range(fitters)]
        return {"random": random, "seen": len(self.streams)}, ("judged", updates), *parts

    def auxiliary(self, random):
        return {"random": random}, "auxiliary"

    def arrays(self):
        return {name: stream.arrays() for name, stream in self.streams.by_name.items()}


class CountingUpdater:
    def setup(self):
        return {}

    def label(self, judged, weights, key):
        return {"fit_key": key}, ("labels", weights, key)


class ForgettingMemory(CountingMemory):
    """Of an agent without demonstrations: there is nothing to sample before the first steps."""

    has_demonstrations = False


class CountingFitter:
    """Its state is the updates it has applied; a gradient says of which update and whose it is."""

    def __init__(self, place, fitters):
        self.place, self.fitters = place, fitters
        self.updates, self.auxiliary, self.left = 0, 0, 0

    def setup(self):
        return {}

    def restore(self, state):
        (self.updates,) = state
        return {}

    def publish(self):
        return {"updates": self.updates, "key": np.zeros(2, np.uint32)}, "acting", self.updates

    def fit_auxiliary(self, batch):
        assert batch == "auxiliary"
        self.auxiliary += 1
        return {}

    def start_from_online(self):
        return self.publish()

    def fit(self, fitted, labels, key, fit_key):
        assert (fitted[0], self.fitters) == (0, 1)
        self.updates += fitted[1]
        return self.published()

    def published(self):
        record, acting, judging = self.publish()
        return {**record, "measured": {"loss": 1.0 + self.place}}, acting, judging

    def begin(self, part, labels, key, fit_key):
        assert part[0] == self.place
        self.left = part[1]
        return {}, (self.place, self.updates)

    def apply(self, gradients):
        # One of everybody, of this very update: nobody is ahead, nobody behind.
        assert gradients == tuple((place, self.updates) for place in range(self.fitters))
        self.updates += 1
        self.left -= 1

    def step(self, *gradients):
        self.apply(gradients)
        return {}, (self.place, self.updates)

    def end(self, *gradients):
        self.apply(gradients)
        assert self.left == 0
        return self.published()

    def averaged(self):
        return ("weights", self.updates)

    def state(self):
        return self.updates, [self.updates]


class CountingJudge:
    def setup(self):
        return {}

    def evaluate(self, weights, seen, steps):
        return [("episode", steps, weights)]

    def last(self, weights, seen, steps):
        return [("last", steps, weights)]


COUNTING = {
    "collector": CountingCollector,
    "memory": CountingMemory,
    "updater": CountingUpdater,
    "fitter": CountingFitter,
    "judge": CountingJudge,
}


class CountingDesk:
    """Notes what it is told, and gives a lost memory what the last checkpoint held."""

    def __init__(self, scale):
        self.scale, self.evaluations, self.saves, self.met_roles = scale, [], [], []

    def arguments(self, role, place, name):
        if role == "collector":
            return (name,)
        if role == "memory":
            places = range(self.scale.collectors)[place :: self.scale.replays]
            return places, self.saves[-1][1][place] if self.saves else None
        return (place, self.scale.fitters) if role == "fitter" else ()

    def met(self, role, place, record):
        self.met_roles.append(role)

    def evaluated(self, evaluation, episodes, figures):
        self.evaluations.append((evaluation.steps, episodes))

    def save(self, state, memories, about):
        assert about["owed"] < 1
        self.saves.append((state, memories, about))

    def tell(self):
        pass
