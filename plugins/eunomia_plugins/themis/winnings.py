"""Convert winning rows to GPUs on machines, and compute the part of each bundle that its winner keeps."""

from bisect import bisect_left

import numpy as np

from eunomia import ByBundle
from eunomia.units import Ints, Reals
from eunomia_plugins.themis.packing import patterns
from eunomia_solvers import LinearProgram, SparseRows, solve_linear

Won = dict[int, dict[int, int]]
"""Number of GPUs by claim and machine, without zero entries."""


def joined(one: Won, other: Won) -> Won:
    """Return the sum of both by claim and machine."""
    return {
        claim: {machine: mine.get(machine, 0) + more.get(machine, 0) for machine in mine | more}
        for claim in one | other
        for mine, more in [(one.get(claim, {}), other.get(claim, {}))]
    }


def pack(bids: ByBundle, row: Ints, *, prefers: dict[int, set[int]] | None = None) -> Won:
    """Place the bundles won on machines.

    Args:
        bids: the bid table.
        row: [claim] winning row; -1: none.
        prefers: preferred machines of each claim, such as those on which it runs.
    """
    preferred = prefers or {}
    taken: Won = {}
    by_class: dict[int, list[tuple[int, int]]] = {}
    for claim in (row >= 0).nonzero()[0].tolist():
        for part in bids.parts(int(row[claim])):
            by_class.setdefault(part.machine_class, []).extend([(part.gpus, claim)] * part.machines)
    for kind, items in sorted(by_class.items()):
        members, free = bids.classes.members(kind), int(bids.classes.free[kind])
        parts, machines = _first_fit(items, members, free, preferred) or _by_patterns(items, members, free)
        for (gpus, claim), machine in zip(parts, machines, strict=True):
            own = taken.setdefault(claim, {})
            own[machine] = own.get(machine, 0) + gpus
    return taken


Placed = tuple[list[tuple[int, int]], list[int]]


def _first_fit(items: list[tuple[int, int]], members: Ints, free: int, prefers: dict[int, set[int]]) -> Placed | None:
    """Place parts largest first, on a preferred machine, else on the fullest that fits; None if a part does not fit.

    If counts decide what fits, this never fails, whichever machines are preferred (see ``counting``).
    """
    room = np.full(members.size, free)
    order = sorted(items, key=lambda item: (-item[0], item[1]))
    places: list[int] = []
    for gpus, claim in order:
        fitting = (room >= gpus).nonzero()[0]
        if fitting.size == 0:
            return None
        own = prefers.get(claim, set())
        wanted = [at for at in fitting.tolist() if int(members[at]) in own] if own else []
        at = wanted[0] if wanted else fitting.item(room[fitting].argmin())
        room[at] -= gpus
        places.append(int(members[at]))
    return order, places


def _by_patterns(items: list[tuple[int, int]], members: Ints, free: int) -> Placed:
    """Choose a pattern for each machine so that all parts fit, then assign the parts."""
    sizes = np.unique([gpus for gpus, _ in items])
    fills = patterns(sizes, free)
    wanted = np.array([sum(gpus == size for gpus, _ in items) for size in sizes.tolist()], dtype=float)
    columns = np.arange(len(fills))
    rows = [(columns, fills[:, size].astype(float)) for size in range(sizes.size)]
    program = LinearProgram.of(
        np.ones(len(fills)),
        rows=SparseRows.of([*rows, (columns, np.ones(len(fills)))]),
        row_lower=[*wanted, 0.0],
        row_upper=[*np.full(sizes.size, np.inf), float(members.size)],
        integral=True,
    )
    filled = np.repeat(fills, solve_linear(program, place="themis packing").x.astype(int), axis=0)
    order: list[tuple[int, int]] = []
    places: list[int] = []
    for column, size in enumerate(sizes.tolist()):
        machines = np.repeat(members[: len(filled)], filled[:, column])
        parts = [item for item in items if item[0] == size]
        order += parts
        places += [int(machine) for machine in machines[: len(parts)]]
    return order, places


def kept_sizes(bids: ByBundle, row: Ints, kept: Reals, rng: np.random.Generator) -> Ints:
    """Return the number of GPUs that winners keep, [claim]: c_i of the bundle on average (docs/decisions/0021).

    The fraction lies between two sizes for which the claim bid, or 0; one of the two is drawn such that the mean is c_i
    of the bundle. For a single rigid gang, c_i is the probability of keeping it.

    Args:
        bids: the bid table.
        row: [claim] winning row; -1: none.
        kept: [claim] c_i.
        rng: generator that draws one number per winner, in the order of the claims.
    """
    sizes = bids.sizes
    result = np.zeros(len(bids), dtype=np.int64)
    for claim in (row >= 0).nonzero()[0].tolist():
        won = sizes.item(row[claim])
        own = sizes[bids.start[claim] : bids.start[claim + 1]].tolist()
        steps = sorted({0, *(size for size in own if size <= won)})
        target = min(float(won), float(kept[claim]) * won)
        above = min(bisect_left(steps, target - 1e-9), len(steps) - 1)
        low, high = steps[max(above - 1, 0)], steps[above]
        chance = 1.0 if high == low else (target - low) / (high - low)
        result[claim] = high if rng.random() < chance else low
    return result


def shrunk(won: Won, keep: Ints) -> Won:
    """Return the wins reduced to ``keep`` GPUs per claim; smallest pieces go first, so that gangs stay together."""
    kept: Won = {}
    for claim, machines in won.items():
        surplus = sum(machines.values()) - int(keep[claim])
        for machine, gpus in sorted(machines.items(), key=lambda piece: (piece[1], piece[0])):
            removed = min(surplus, gpus)
            surplus -= removed
            if gpus > removed:
                kept.setdefault(claim, {})[machine] = gpus - removed
    return kept
