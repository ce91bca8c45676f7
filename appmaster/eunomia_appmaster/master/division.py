"""Divides an app's GPUs among its jobs with pure functions, without clocks or processes.

Running jobs keep their GPUs. Free GPUs go to waiting jobs in the tuner's order, as whole gangs, to as many jobs as
possible; remaining GPUs widen the jobs that start now, if that speeds them up. Widening a running job costs a restart
and is decided separately (``widening``).

A gang of n GPUs runs at n / S times the speed of one GPU. S is the slowdown of its locality, the number with which
the app's bid values the GPUs (Themis §4.3.1): more GPUs on another machine or in another rack may make a gang slower.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia.model.shapes import value
from eunomia.units import Locality

Slowdown = tuple[float, float, float, float]
"""Slowdown S of a gang by its locality: island, machine, rack, cluster."""
Nodes = Mapping[int, str]
"""Node by GPU, since a node with several GPU types counts as several machines; a GPU without an entry: its machine."""
NO_NODES: Final[Nodes] = MappingProxyType({})


@value
class Wish:
    """A job that the tuner wants to run now; wishes come in the tuner's order."""

    job: int
    least: int
    most: int
    runs_on: tuple[int, ...] = ()
    """GPUs on which the job's whole gang runs now; empty: it waits."""
    across_nodes: bool = False
    """Whether the job may use GPUs of further nodes to grow beyond its smallest size."""
    slowdown: Slowdown = ASSUMED_SLOWDOWN


class Spot(NamedTuple):
    """The location of a GPU: the numbers of its island, machine and rack, and its node."""

    island: int
    machine: int
    rack: int
    node: Hashable

    def group(self, locality: Locality) -> int:
        """Return the number of the GPU's group at a locality; at the locality of the cluster all GPUs are one group."""
        return 0 if locality is Locality.CLUSTER else (self.island, self.machine, self.rack)[locality]


class _Gang(NamedTuple):
    """A candidate gang for a job; a greater tuple is better.

    Better means faster, then nearer together, then in a group with fewer remaining free GPUs, then on machines where no
    other gang can grow.
    """

    speed: float
    nearness: int
    room_left: int
    apart: bool
    lowest: int
    gpus: tuple[int, ...]


def divide(
    wishes: Sequence[Wish], free: Iterable[int], cluster: Cluster, nodes: Nodes = NO_NODES
) -> dict[int, tuple[int, ...]]:
    """Assign GPUs to jobs.

    A gang starts on one node if one has enough free GPUs for its smallest size, else with that size on several nodes.
    With ``across_nodes``, a job starts where it runs fastest.

    Args:
        wishes: jobs that the tuner wants to run, in its order.
        free: the app's idle GPUs.
        cluster: the cluster, with the locations of the GPUs.
        nodes: see ``Nodes``.

    Returns:
        GPUs by job, ascending; jobs that get none are left out, and no GPU occurs twice.
    """
    waiting = {wish.job: wish for wish in wishes if not wish.runs_on}
    left = spots(free, cluster, nodes)
    counts = _counts(list(waiting.values()), len(left))
    divided = {wish.job: tuple(sorted(wish.runs_on)) for wish in wishes if wish.runs_on}
    for job, count in sorted(counts.items(), key=lambda item: -item[1]):
        wish = waiting[job]
        others = {spot.machine for spot in spots((gpu for gpus in divided.values() for gpu in gpus), cluster).values()}
        # The gangs of jobs that are placed later must still fit: a job takes no more than its count.
        gang = _start(left, wish, count, others)
        divided[job] = gang
        left = {gpu: spot for gpu, spot in left.items() if gpu not in gang}
    for job in counts if left else ():
        divided[job] = _widened(divided[job], left, waiting[job], cluster, nodes)
        left = {gpu: spot for gpu, spot in left.items() if gpu not in divided[job]}
    return divided


def widening(
    wish: Wish,
    free: Iterable[int],
    cluster: Cluster,
    nodes: Nodes = NO_NODES,
    *,
    seconds_left: float,
    restart_seconds: float,
) -> tuple[int, ...]:
    """Return the free GPUs by which a running job should be widened, ascending; empty if that does not pay.

    It pays if the time saved is more than twice the cost of the restart.

    Args:
        wish: the running job's wish, with its GPUs.
        free: GPUs that no other job can use.
        cluster: the cluster, with the locations of the GPUs.
        nodes: see ``Nodes``.
        seconds_left: seconds until the job pauses or ends, at its present speed.
        restart_seconds: seconds for saving, stopping and restarting the job.
    """
    wider = _widened(wish.runs_on, spots(free, cluster, nodes), wish, cluster, nodes)
    if len(wider) == len(wish.runs_on):
        return ()
    now, then = (_speed(spots(gpus, cluster), wish.slowdown) for gpus in (wish.runs_on, wider))
    saved = seconds_left * (1.0 - now / then)
    return tuple(gpu for gpu in wider if gpu not in wish.runs_on) if saved > 2.0 * restart_seconds else ()


def extra_slots(*, size: int, most: int, seconds_left: float, restart_seconds: float) -> int:
    """Return how many more GPUs would be useful to a running job, if they were as near as its present ones.

    The locations of GPUs that the app may win are unknown; its bid values each bundle by the bundle's locality.

    Args:
        size: number of GPUs that the job runs on.
        most: largest number of GPUs that the job can use.
        seconds_left: seconds until the job pauses or ends, at its present speed.
        restart_seconds: seconds for saving, stopping and restarting the job.
    """
    extra = max(0, most - size)
    saved = seconds_left * extra / (size + extra)
    return extra if saved > 2.0 * restart_seconds else 0


def unused(free: Iterable[int], divided: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the free GPUs that no job got."""
    taken = {gpu for gpus in divided.values() for gpu in gpus}
    return tuple(sorted(set(free) - taken))


def spots(gpus: Iterable[int], cluster: Cluster, nodes: Nodes = NO_NODES) -> dict[int, Spot]:
    """Return the location of each GPU, ascending by GPU."""
    rows = np.array(sorted(gpus), dtype=np.int64)
    columns = (cluster.island[rows], cluster.machine[rows], cluster.rack[rows])
    places = zip(rows.tolist(), *(column.tolist() for column in columns), strict=True)
    return {gpu: Spot(island, machine, rack, nodes.get(gpu, machine)) for gpu, island, machine, rack in places}


def _counts(waiting: Sequence[Wish], free: int) -> dict[int, int]:
    """Return the number of GPUs by waiting job: first the smallest size of each job that fits, then more in turn."""
    counts: dict[int, int] = {}
    for wish in waiting:
        if wish.least <= free:
            counts[wish.job] = wish.least
            free -= wish.least
    growing = [wish for wish in waiting if wish.job in counts and counts[wish.job] < wish.most]
    while free and growing:
        for wish in growing[:free]:
            counts[wish.job] += 1
            free -= 1
        growing = [wish for wish in growing if counts[wish.job] < wish.most]
    return counts


def _start(left: Mapping[int, Spot], wish: Wish, count: int, others: Collection[int]) -> tuple[int, ...]:
    """Return the gang of a starting job, from its smallest size to ``count`` GPUs; on one node if one suffices."""
    sizes = range(wish.least, count + 1)
    if wish.across_nodes:
        return _gpus(_fastest({}, left, sizes, wish.slowdown, others))
    by_node: dict[Hashable, dict[int, Spot]] = {}
    for gpu, spot in left.items():
        by_node.setdefault(spot.node, {})[gpu] = spot
    found = [_fastest({}, here, sizes, wish.slowdown, others) for here in by_node.values() if len(here) >= wish.least]
    best = max((gang for gang in found if gang is not None), default=None)
    return _gpus(best or _fastest({}, left, range(wish.least, wish.least + 1), wish.slowdown, others))


def _widened(
    gpus: tuple[int, ...], left: Mapping[int, Spot], wish: Wish, cluster: Cluster, nodes: Nodes
) -> tuple[int, ...]:
    """Return a job's GPUs together with the free GPUs that speed it up most; unchanged if none does."""
    own = spots(gpus, cluster, nodes)
    homes = {spot.node for spot in own.values()}
    near = {gpu: spot for gpu, spot in left.items() if wish.across_nodes or spot.node in homes}
    wider = _gpus(_fastest(own, near, range(len(gpus) + 1, wish.most + 1), wish.slowdown))
    together = {gpu: own.get(gpu) or left[gpu] for gpu in wider}
    return wider if wider and _speed(together, wish.slowdown) > _speed(own, wish.slowdown) else gpus


def _fastest(
    own: Mapping[int, Spot],
    left: Mapping[int, Spot],
    sizes: range,
    slowdown: Slowdown,
    others: Collection[int] = (),
) -> _Gang | None:
    """Return the fastest gang of ``own`` and free GPUs whose size is in ``sizes``; None: none is possible.

    In each group of near GPUs only the largest gang is considered, near groups first.

    ``others``: machines on which other gangs could grow.
    """
    best: _Gang | None = None
    most, least = min(len(own) + len(left), sizes.stop - 1), min(slowdown)
    for locality in Locality:
        if best is not None and (most / least, -locality) < best[:2]:
            break  # no farther group has a gang that runs faster
        homes = {spot.group(locality) for spot in own.values()}
        for group, gpus in _groups(left, locality).items():
            size = min(len(own) + len(gpus), sizes.stop - 1)
            if size not in sizes or not homes <= {group}:
                continue
            unused_here = len(own) + len(gpus) - size
            if best is not None and (size / least, -locality, -unused_here) < best[:3]:
                continue
            gang = tuple(sorted((*own, *_pick({gpu: left[gpu] for gpu in gpus}, size - len(own)))))
            places = {gpu: own.get(gpu) or left[gpu] for gpu in gang}
            apart = all(spot.machine not in others for spot in places.values())
            found = _Gang(_speed(places, slowdown), -locality, -unused_here, apart, -gang[0], gang)
            best = found if best is None else max(best, found)
    return best


def _gpus(gang: _Gang | None) -> tuple[int, ...]:
    return () if gang is None else gang.gpus


def _groups(left: Mapping[int, Spot], locality: Locality) -> dict[int, list[int]]:
    """Return the free GPUs by group at a locality."""
    if locality is Locality.CLUSTER:
        return {0: list(left)} if left else {}
    groups: dict[int, list[int]] = {}
    for gpu, spot in left.items():
        groups.setdefault(spot.group(locality), []).append(gpu)
    return groups


def _pick(free: Mapping[int, Spot], count: int) -> list[int]:
    """Return ``count`` free GPUs: of the machine with the fewest that suffices, else of those with the most first."""
    machines: dict[int, list[int]] = defaultdict(list)
    for gpu, spot in free.items():
        machines[spot.machine].append(gpu)
    whole = [gpus for gpus in machines.values() if len(gpus) >= count]
    if whole:
        return min(whole, key=lambda gpus: (len(gpus), gpus))[:count]
    picked: list[int] = []
    for gpus in sorted(machines.values(), key=lambda gpus: (-len(gpus), gpus)):
        picked += gpus[: count - len(picked)]
    return picked


def _speed(gang: Mapping[int, Spot], slowdown: Slowdown) -> float:
    """Return the speed of a gang as a multiple of one GPU's: n / S."""
    return len(gang) / slowdown[_locality(gang.values())]


def _locality(gang: Iterable[Spot]) -> Locality:
    """Return the nearest locality that all these GPUs share."""
    places = list(gang)
    return next(near for near in Locality if len({spot.group(near) for spot in places}) <= 1)
