"""Random contended auctions for the tests: odd gangs, partly taken machines, several classes, racks and GPU types."""

import itertools

import numpy as np

from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
from eunomia.units import Ints


def random_bids(rng: np.random.Generator, *, odd: bool = True) -> ByBundle:
    """A small auction in which bidders ask for at least two and a half times the GPUs on offer."""
    classes = _classes(rng)
    sizes = [1, 2, 3, 4, 5, 6, 8] if odd else [1, 2, 4, 8]
    bids: list[list[Bundle]] = []
    wanted = 0
    while wanted < 2.5 * classes.gpus and len(bids) < 9:
        bid = _bid(rng, classes, rng.choice(sizes, size=int(rng.integers(1, 4)), replace=False))
        bids.append(bid)
        wanted += max((row.size for row in bid), default=0)
    table = ByBundle.of(classes, rng.uniform(1.0, 4.0, len(bids)), bids)
    table.check()
    return table


def _classes(rng: np.random.Generator) -> MachineClasses:
    machines = int(rng.integers(2, 6))
    return MachineClasses.of(
        machine=np.arange(machines),
        free=rng.choice([1, 2, 3, 4, 4, 5, 7, 8, 8], size=machines),
        gpu_type=np.zeros(machines),
        rack=rng.integers(0, 2, machines),
        named=np.flatnonzero(rng.random(machines) < 0.2),
    )


def _bid(rng: np.random.Generator, classes: MachineClasses, sizes: Ints) -> list[Bundle]:
    """Every way of this generator to hold each size; the value rises with GPUs and falls with machines."""
    half = rng.uniform(0.5, 8.0)
    far = rng.uniform(1.0, 1.5)
    rows = []
    for size in sizes.tolist():
        for parts in _ways(classes, size):
            machines = sum(part.machines for part in parts)
            rows.append(Bundle(float((0.2 + half / size) * (far if machines > 1 else 1.0)), parts))
    return rows


def _ways(classes: MachineClasses, size: int) -> list[tuple[Part, ...]]:
    ways: list[tuple[Part, ...]] = []
    for kind in range(len(classes)):
        free, machines = int(classes.free[kind]), int(classes.machines[kind])
        whole, rest = divmod(size, free)
        if whole + (rest > 0) <= machines:
            ways.append(tuple(p for p in (Part(kind, free, whole), Part(kind, rest, 1)) if p.gpus and p.machines))
    for one, other in itertools.combinations(range(len(classes)), 2):
        first = min(int(classes.free[one]), size - 1)
        if first > 0 and size - first <= classes.free[other]:
            ways.append((Part(one, first), Part(other, size - first)))
    return ways


def brute_force(bids: ByBundle, excluded: int = -1) -> float:
    """Greatest sum of gains by exhaustive search over choices of rows and packings."""
    gain = np.log(bids.now[bids.claim_of_row] / bids.rho)
    free = np.repeat(bids.classes.free, bids.classes.machines)
    best = 0.0

    def place(parts: list[Part], room: Ints) -> bool:
        if not parts:
            return True
        part, rest = parts[0], parts[1:]
        span = range(int(bids.classes.start[part.machine_class]), int(bids.classes.start[part.machine_class + 1]))
        for chosen in itertools.combinations(span, part.machines):
            if all(room[machine] >= part.gpus for machine in chosen):
                left = room.copy()
                left[list(chosen)] -= part.gpus
                if place(rest, left):
                    return True
        return False

    def choose(claim: int, parts: list[Part], total: float) -> None:
        nonlocal best
        if claim == len(bids):
            best = max(best, total)
            return
        choose(claim + 1, parts, total)
        if claim != excluded:
            for row in bids.rows(claim):
                more = [*parts, *bids.parts(row)]
                if gain[row] > 0 and place(more, free.copy()):
                    choose(claim + 1, more, total + float(gain[row]))

    choose(0, [], 0.0)
    return best
