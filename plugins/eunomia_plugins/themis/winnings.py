"""Converts winning rows to GPUs on machines, and computes the part of each bundle that its winner keeps."""

from dataclasses import dataclass

import numpy as np

from eunomia import ByBundle
from eunomia.solve import LinearProgram, SparseRows, solve_linear
from eunomia.units import Ints, Reals
from eunomia_plugins.themis.packing import patterns


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """``gpus[i]`` GPUs on machine ``machine[i]`` for claim ``claim[i]``; at most one piece per claim and machine."""

    claim: Ints
    machine: Ints
    gpus: Ints

    def by_claim(self, claims: int) -> Ints:
        """[claims] GPUs of each."""
        return np.bincount(self.claim, weights=self.gpus, minlength=claims).astype(np.int64)

    def on_machine(self, machines: int) -> Ints:
        """[machines] GPUs taken."""
        return np.bincount(self.machine, weights=self.gpus, minlength=machines).astype(np.int64)

    @classmethod
    def of(cls, taken: dict[tuple[int, int], int]) -> "Pieces":
        """Columns of GPUs by claim and machine, sorted."""
        kept = [(claim, machine, gpus) for (claim, machine), gpus in sorted(taken.items()) if gpus]
        columns = np.array(kept, dtype=np.int64).reshape(-1, 3)
        return cls(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


def pack(bids: ByBundle, row: Ints, *, prefers: dict[int, set[int]] | None = None) -> Pieces:
    """Place the bundles won on machines.

    Args:
        bids: the bid table.
        row: [claims] winning row, -1: none.
        prefers: by claim, preferred machines, such as those on which it runs.
    """
    preferred = prefers or {}
    taken: dict[tuple[int, int], int] = {}
    by_class: dict[int, list[tuple[int, int]]] = {}
    for claim in np.flatnonzero(row >= 0).tolist():
        for part in bids.parts(int(row[claim])):
            by_class.setdefault(part.machine_class, []).extend([(part.gpus, claim)] * part.machines)
    for kind, items in sorted(by_class.items()):
        members, free = bids.classes.members(kind), int(bids.classes.free[kind])
        places = _first_fit(items, members, free, preferred) or _by_patterns(items, members, free)
        for (_, claim), machine, gpus in zip(places[0], places[1], (item[0] for item in places[0]), strict=True):
            taken[claim, machine] = taken.get((claim, machine), 0) + gpus
    return Pieces.of(taken)


Placed = tuple[list[tuple[int, int]], list[int]]


def _first_fit(items: list[tuple[int, int]], members: Ints, free: int, prefers: dict[int, set[int]]) -> Placed | None:
    """Place parts largest first, on a preferred machine, else on the fullest that fits; None: a part fits nowhere.

    Where counts decide what fits, this never fails, whichever machines are preferred (see ``counting``).
    """
    room = np.full(members.size, free)
    order = sorted(items, key=lambda item: (-item[0], item[1]))
    places: list[int] = []
    for gpus, claim in order:
        fitting = np.flatnonzero(room >= gpus)
        if fitting.size == 0:
            return None
        own = prefers.get(claim, set())
        wanted = [at for at in fitting.tolist() if int(members[at]) in own] if own else []
        at = wanted[0] if wanted else int(fitting[np.argmin(room[fitting])])
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
    """[claims] GPUs that winners keep: c_i of the bundle on average (docs/decisions/0021).

    The fraction falls between two sizes that the claim bid for, or 0; one of the two is drawn so that the mean is c_i
    of the bundle. For one fixed gang, c_i is the probability of keeping it.

    Args:
        bids: the bid table.
        row: [claims] winning rows, -1: none.
        kept: [claims] c_i.
        rng: draws one number per winner, in the order of the claims.
    """
    sizes = bids.sizes
    result = np.zeros(len(bids), dtype=np.int64)
    for claim in np.flatnonzero(row >= 0).tolist():
        won = int(sizes[row[claim]])
        own = sizes[bids.start[claim] : bids.start[claim + 1]]
        steps = np.unique(np.append(own[own <= won], 0))
        target = min(float(won), float(kept[claim]) * won)
        above = min(int(np.searchsorted(steps, target - 1e-9)), steps.size - 1)
        low, high = int(steps[max(above - 1, 0)]), int(steps[above])
        chance = 1.0 if high == low else (target - low) / (high - low)
        result[claim] = high if rng.random() < chance else low
    return result


def shrunk(pieces: Pieces, keep: Ints) -> Pieces:
    """Reduce claims to ``keep`` GPUs each; the smallest pieces are dropped first, so that gangs stay together."""
    taken = {(int(c), int(m)): int(g) for c, m, g in zip(pieces.claim, pieces.machine, pieces.gpus, strict=True)}
    surplus = pieces.by_claim(keep.size) - keep
    for claim, machine in sorted(taken, key=lambda key: (key[0], taken[key], key[1])):
        removed = min(int(surplus[claim]), taken[claim, machine])
        taken[claim, machine] -= removed
        surplus[claim] -= removed
    return Pieces.of(taken)
