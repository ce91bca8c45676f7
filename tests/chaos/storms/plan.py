"""What is done to the processes of a run, drawn from a seed: which, how, how many at once, and how long."""

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from eunomia.model.shapes import value

ARBITER, LAUNCHER, ZYGOTE, APP_MASTER, SHEPHERD, WORKER = (
    "arbiter",
    "launcher",
    "zygote",
    "app master",
    "shepherd",
    "worker",
)
KINDS: Final = (ARBITER, LAUNCHER, ZYGOTE, APP_MASTER, SHEPHERD, WORKER)


class Way(StrEnum):
    """What a process gets."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    STOP = "SIGSTOP, 2 to 45 s"
    LONG_STOP = "SIGSTOP, 90 s"


class Scope(StrEnum):
    """How many processes an action hits, and when."""

    ONE = "one"
    PAIR = "pair"
    GROUP = "group"
    START = "during a start"
    THRICE = "everything three times"


@value
class Action:
    """One action; ``kinds`` and ``ways`` are of equal length, one for each process that is hit.

    Attributes:
        number: in the whole plan, from 1.
        seconds: from a stop to its continuation.
        pause: seconds before the next action.
    """

    number: int
    scope: Scope
    kinds: tuple[str, ...]
    ways: tuple[Way, ...]
    seconds: float
    pause: float


STOP_SECONDS: Final = (2.0, 45.0)
LONG_STOP_SECONDS: Final = 90.0
PAUSE_SECONDS: Final = (0.5, 4.0)
GROUP_SIZES: Final = (3, 5)
DECK: Final[Sequence[tuple[Scope, int]]] = (
    (Scope.ONE, 18),
    (Scope.PAIR, 11),
    (Scope.GROUP, 8),
    (Scope.START, 9),
    (Scope.THRICE, 1),
)
"""How often each scope stands in a deck; beside them stand two stops of 90 s. Fifty decks would be 2,450 actions."""
LONG_STOPS: Final = 2
LONG_STOPPED: Final = (WORKER, SHEPHERD, APP_MASTER, LAUNCHER, ARBITER, ZYGOTE)
"""Kinds in the order in which they are stopped for 90 s, those first of which a short plan must have one."""
BRIEF: Final = (Way.KILL, Way.TERM, Way.STOP)


def plan(actions: int, seed: int) -> Iterator[Action]:
    """Yield actions: decks of all shapes, shuffled, in which single actions go through all kinds and ways in turn."""
    chance = random.Random(seed)
    singles = [(kind, way) for kind in KINDS for way in BRIEF]
    number = long_stops = 0
    while True:
        chance.shuffle(singles)
        left = list(singles)
        deck = [scope for scope, count in DECK for _ in range(count)] + [None] * LONG_STOPS
        chance.shuffle(deck)
        for scope in deck:
            number += 1
            if number > actions:
                return
            seconds, pause = chance.uniform(*STOP_SECONDS), chance.uniform(*PAUSE_SECONDS)
            if scope is None:
                hit = [(LONG_STOPPED[long_stops % len(LONG_STOPPED)], Way.LONG_STOP)]
                long_stops += 1
                scope, seconds = Scope.ONE, LONG_STOP_SECONDS
            elif scope is Scope.ONE:
                hit = [left.pop()]
            else:
                hit = _several(scope, chance)
            kinds, ways = tuple(kind for kind, _ in hit), tuple(way for _, way in hit)
            yield Action(number=number, scope=scope, kinds=kinds, ways=ways, seconds=seconds, pause=pause)


def _several(scope: Scope, chance: random.Random) -> list[tuple[str, Way]]:
    if scope is Scope.PAIR:
        return [(kind, chance.choice(BRIEF)) for kind in chance.sample(KINDS, 2)]
    if scope is Scope.GROUP:
        way = chance.choice((Way.KILL, Way.TERM))
        return [(chance.choice(KINDS), way) for _ in range(chance.randint(*GROUP_SIZES))]
    if scope is Scope.START:
        return [(chance.choice(KINDS), Way.KILL)]
    return [(kind, Way.KILL) for kind in KINDS]


def shares(actions: int, runs: int) -> list[int]:
    """Return how many actions each run has."""
    return [actions * (run + 1) // runs - actions * run // runs for run in range(runs)]
