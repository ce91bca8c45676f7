"""The partial-allocation auction (Themis §3.3.1, Pseudocode 1): the bundle that each app wins, and its hidden payment.

The product of 1/ρ over the bidders is maximised exactly, in logarithms; a bidder without a bundle keeps its present ρ.
Winner i keeps the fraction c_i = (value of the others with i) / (value of the others without i) <= 1; line 8 of the
paper prints the inverse. Both follow from two passes of one dynamic programme over counts of free GPUs, forward with
all tables stored and backward with one, since the best allocation without i is the best split of the machines between
the bidders before and after i. If counts do not decide what fits, or are too many, HiGHS solves the auction.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from eunomia import ByBundle
from eunomia.units import Ints, Reals
from eunomia_plugins.themis.counting import Counts, count
from eunomia_plugins.themis.patterns import auction_program, solve_auction
from eunomia_solvers import Limits

Table = npt.NDArray[np.float64]

MOST_CELLS: Final = 1 << 20
"""Maximum number of entries of one table of the dynamic programme."""
MOST_KEPT: Final = 1 << 23
"""Total number of entries (64 MiB) beyond which some tables are recomputed instead of stored."""
MOST_WORK: Final = 1 << 31
"""Limit on the product of the entries of one table and the number of rows of bids."""


class Method(Enum):
    """The algorithm that solved an auction."""

    COUNTS = "counts"
    """Dynamic programme over counts, which is exact."""
    INTEGER = "integer"
    """Integer programme, which is exact if the gap is 0."""
    REFERENCE = "reference"
    """The specification in cvxpy, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuctionResult:
    """The result of an auction.

    Attributes:
        row: [claim] the row of the bids that it wins; -1: none.
        kept: [claim] c_i, the fraction of its bundle that a winner keeps; 1 for a claim that wins nothing.
        objective: sum over claims of ln(ρ now / ρ won): the logarithm of the product, relative to now.
        gap: bound on the distance of the objective from the optimum, in the same logarithm; 0: exact.
        method: the algorithm that solved the auction.
    """

    row: Ints
    kept: Reals
    objective: float
    gap: float
    method: Method

    @property
    def mean_kept(self) -> float:
        """Return the mean c_i of the winners; 1 if no app won."""
        won = self.row >= 0
        return float(self.kept[won].mean()) if won.any() else 1.0


def gains(bids: ByBundle) -> Reals:
    """Return the gain of each row, [row]: ln(ρ now / ρ of the row), its term in the logarithm of the product."""
    return np.log(bids.now[bids.claim_of_row] / bids.rho)


def fraction(others: float, without: float) -> float:
    """Return c_i from the logarithms of the others' product with and without i; rounding errors cause no payment."""
    return 1.0 if others > without - 1e-12 else math.exp(others - without)


def useful_rows(bids: ByBundle, gain: Reals) -> Ints:
    """Return the rows with a positive gain; other rows never win."""
    return (gain > 0.0).nonzero()[0]


def run_auction(bids: ByBundle, *, limits: Limits | None = None, integer: bool = False) -> AuctionResult:
    """Choose at most one row for each claim, and compute every winner's hidden payment.

    Args:
        bids: the bid table.
        limits: limits of the integer programme, if it is used.
        integer: whether to use the integer programme in any case.
    """
    gain = gains(bids)
    rows = useful_rows(bids, gain)
    counts = count(bids, rows, by_size=True)
    claim = bids.claim_of_row[rows]
    cells = float(np.prod(counts.capacity + 1.0))
    countable = cells <= MOST_CELLS and cells * claim.size <= MOST_WORK and not counts.uncounted.any()
    if integer or not countable:
        return _by_integers(bids, gain, rows, count(bids, rows), limits or Limits())
    won, kept = _Programme(counts, claim, gain[rows], len(bids)).solve()
    row = np.where(won >= 0, rows[won] if rows.size else -1, -1)
    return AuctionResult(row=row, kept=kept, objective=float(gain[row[row >= 0]].sum()), gap=0.0, method=Method.COUNTS)


class _Programme:
    """The dynamic programme; entry s of a table is the largest sum of gains of the first bidders within counts s."""

    def __init__(self, counts: Counts, claim: Ints, gain: Reals, claims: int) -> None:
        self.claims = claims
        self.gain = gain
        self.shape = tuple(int(limit) + 1 for limit in counts.capacity)
        fits = (counts.use <= counts.capacity).all(axis=1)
        self.bidders = sorted(set(claim[fits].tolist()))
        self.rows = [_undominated(((claim == one) & fits).nonzero()[0], counts.use, gain) for one in self.bidders]
        self.to = [tuple(slice(int(size), None) for size in line) for line in counts.use]
        self.rest = [
            tuple(slice(None, top - int(size)) for size, top in zip(line, self.shape, strict=True))
            for line in counts.use
        ]
        self.use = counts.use
        self.room = _room(counts, self.shape)
        self.scratch = np.empty(self.shape)

    def solve(self) -> tuple[Ints, Reals]:
        """Return the position of the row won (-1: none) and the fraction kept, each [claim].

        The backward pass needs every table of the forward pass. If they are too many to store, only the first of each
        block is stored, and the others are recomputed (checkpointing). In the backward pass, ``left`` are the counts
        available to earlier bidders, and ``behind`` is the table of later bidders.
        """
        many = len(self.bidders)
        cells = self.scratch.size
        block = many if many * cells <= MOST_KEPT else math.isqrt(many - 1) + 1
        first = self._forward(block)
        won, payment = np.full(self.claims, -1, dtype=np.int64), np.ones(self.claims)
        tables = np.empty((min(block, many) + 1, *self.shape))
        behind, other = self.room.copy(), np.empty(self.shape)
        left, total = tuple[int, ...](), math.nan
        for start in reversed(range(0, many, block or 1)):
            stop = min(start + block, many)
            tables[0] = first[start // block]
            for position in range(start, stop):
                self.admit(tables[position - start], position, tables[position - start + 1])
            if stop == many:
                left, total = self.end(tables[stop - start])
            for position in reversed(range(start, stop)):
                before, after = tables[position - start], tables[position - start + 1]
                row = self.row_won(before, after, position, left)
                if row >= 0:
                    left = tuple(np.subtract(left, self.use[row]).tolist())
                    without = float(np.add(before, behind, out=self.scratch).max())
                    won[self.bidders[position]] = row
                    payment[self.bidders[position]] = fraction(total - float(self.gain[row]), without)
                if position:
                    self.admit_behind(behind, position, other)
                    behind, other = other, behind
        return won, payment

    def _forward(self, block: int) -> list[Table]:
        """Return the tables before bidders 0, ``block``, 2 ``block`` and so on."""
        kept = [np.zeros(self.shape)]
        table, other = np.zeros(self.shape), np.empty(self.shape)
        for start in range(0, len(self.bidders) - block, block or 1):
            for position in range(start, start + block):
                self.admit(table, position, other)
                table, other = other, table
            kept.append(table.copy())
        return kept

    def admit(self, table: Table, position: int, new: Table) -> None:
        """Compute into ``new`` the table after one more bidder, which may win one of its rows."""
        new[...] = table
        for row in self.rows[position].tolist():
            to, rest = self.to[row], self.rest[row]
            sums = np.add(table[rest], self.gain[row], out=self.scratch[to])
            np.maximum(new[to], sums, out=new[to])

    def admit_behind(self, table: Table, position: int, new: Table) -> None:
        """Compute into ``new`` the table of the backward pass: the best sum of later bidders if counts s are taken."""
        new[...] = table
        for row in self.rows[position].tolist():
            to, rest = self.to[row], self.rest[row]
            sums = np.add(table[to], self.gain[row], out=self.scratch[rest])
            np.maximum(new[rest], sums, out=new[rest])

    def end(self, table: Table) -> tuple[tuple[int, ...], float]:
        """Return the largest counts that attain the maximum sum, and that sum."""
        sums = np.add(table, self.room, out=self.scratch).reshape(-1)
        at = sums.size - 1 - int(sums[::-1].argmax())
        return tuple(map(int, np.unravel_index(at, self.shape))), float(sums[at])

    def row_won(self, before: Table, after: Table, position: int, left: tuple[int, ...]) -> int:
        """Return the row that a bidder wins within the counts left (-1: none), given the tables before and after it."""
        best = after[left]
        if best == before[left]:
            return -1
        rows: list[int] = self.rows[position].tolist()
        for row in rows:
            at = np.subtract(left, self.use[row])
            if (at >= 0).all() and before[tuple(at)] + self.gain[row] == best:
                return row
        return -1


def _room(counts: Counts, shape: tuple[int, ...]) -> Table:
    """Return a table with 0 where the counts can be packed together, else -inf."""
    room = np.zeros(shape)
    for fits in counts.fits:
        axes = [1] * len(shape)
        axes[fits.first : fits.first + fits.packable.ndim] = fits.packable.shape
        room += np.where(fits.packable, 0.0, -np.inf).reshape(axes)
    return room


def _undominated(rows: Ints, use: Ints, gain: Reals) -> Ints:
    """Return one bidder's rows without those dominated by a row with at most the GPUs and at least the gain."""
    order = rows[np.lexsort((use[rows].sum(axis=1), -gain[rows]))]  # a row can only be dominated by an earlier one
    taken = use[order]
    covered = (taken[:, None] <= taken[None]).all(axis=2)
    return order[~np.triu(covered, 1).any(axis=0)]


def _by_integers(bids: ByBundle, gain: Reals, rows: Ints, counts: Counts, limits: Limits) -> AuctionResult:
    """Solve the whole auction, and the auction without each winner, as integer programmes."""
    program = auction_program(bids, gain, rows, counts)
    chosen, objective, gap = solve_auction(program, rows, limits)
    row = np.full(len(bids), -1, dtype=np.int64)
    row[bids.claim_of_row[chosen]] = chosen
    kept = np.ones(len(bids))
    for claim in np.flatnonzero(row >= 0).tolist():
        others = rows[bids.claim_of_row[rows] != claim]
        _, without, behind = solve_auction(program, rows, limits, allowed=others)
        kept[claim] = fraction(objective - float(gain[row[claim]]), without)
        gap = max(gap, behind)
    return AuctionResult(row=row, kept=kept, objective=objective, gap=gap, method=Method.INTEGER)
