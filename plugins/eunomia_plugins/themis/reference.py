"""The auction as the paper states it, in cvxpy, machine by machine: the specification of the fast solver.

It is slow and selected by ``solver = "reference"``; read it together with Pseudocode 1. It models single machines
instead of counts of a class.
"""

import importlib
from typing import Any, NamedTuple

import numpy as np

from eunomia import ByBundle
from eunomia.units import Ints, Reals
from eunomia_plugins.themis.auction import AuctionResult, Method, fraction, gains
from eunomia_solvers import Limits, solve_cvxpy


def run_reference(bids: ByBundle, *, payments: bool = True) -> AuctionResult:
    """Solve the auction and, for every winner, the auction without it, with a gap of 0.

    Args:
        bids: the bid table.
        payments: whether to compute payments; if not, every fraction kept is 1.
    """
    specification = Specification(bids)
    row, objective = specification.best()
    kept = specification.fractions(row, objective) if payments else np.ones(len(bids))
    return AuctionResult(row=row, kept=kept, objective=objective, gap=0.0, method=Method.REFERENCE)


class Specification:
    """The integer programme of an auction: the rows that win, and the machines used by each part of a row."""

    def __init__(self, bids: ByBundle) -> None:
        self.bids = bids
        self.gain = gains(bids)
        if bids.rho.size:
            self._state()

    def _state(self) -> None:
        """Build the programme; the parameter ``allowed`` is 0 for a claim that must win nothing."""
        cp: Any = importlib.import_module("cvxpy")
        bids, places = self.bids, _places(self.bids)
        rows, on = np.arange(bids.rho.size), np.arange(places.part.size)
        self.allowed = cp.Parameter(len(bids), nonneg=True)
        self.chosen = cp.Variable(bids.rho.size, boolean=True)
        taken = cp.Variable(places.part.size, boolean=True)
        one_row_a_claim = _incidence(bids.claim_of_row, rows, np.ones(rows.size))
        machines_of_part = _incidence(places.part, on, np.ones(on.size))
        load_of_machine = _incidence(places.machine, on, bids.part_gpus[places.part])
        parts_of_row_there = _incidence(places.row * bids.classes.machine.size + places.machine, on, np.ones(on.size))
        bidding = np.flatnonzero(np.diff(bids.start))
        constraints = [
            one_row_a_claim[bidding] @ self.chosen <= self.allowed[bidding],
            machines_of_part @ taken == cp.multiply(bids.part_machines, self.chosen[_row_of_part(bids)]),
            load_of_machine @ taken <= np.repeat(bids.classes.free, bids.classes.machines)[: load_of_machine.shape[0]],
            parts_of_row_there @ taken <= 1,
        ]
        self.problem = cp.Problem(cp.Maximize(self.gain @ self.chosen), constraints)

    def best(self, *, excluded: int = -1) -> tuple[Ints, float]:
        """Return winning rows, [claim] (-1: none), with the largest product, and ln of the product relative to now.

        Args:
            excluded: a claim that must win nothing.
        """
        row = np.full(len(self.bids), -1, dtype=np.int64)
        if self.bids.rho.size == 0:
            return row, 0.0
        self.allowed.value = (np.arange(len(self.bids)) != excluded).astype(float)
        solve_cvxpy(self.problem, limits=Limits(gap=0.0), place="themis reference")
        won = np.flatnonzero(np.asarray(self.chosen.value) > 0.5)
        row[self.bids.claim_of_row[won]] = won
        return row, float(self.gain[won].sum())

    def fractions(self, row: Ints, objective: float) -> Reals:
        """Return c_i of an optimal allocation, [claim]: the others' product with i over their best one without i."""
        kept = np.ones(len(self.bids))
        for claim in np.flatnonzero(row >= 0).tolist():
            _, without = self.best(excluded=claim)
            kept[claim] = fraction(objective - float(self.gain[row[claim]]), without)
        return kept


class _Places(NamedTuple):
    """All pairs of part and possible machine, as columns: the part, its row, and the machine's position."""

    part: Ints
    row: Ints
    machine: Ints


def _places(bids: ByBundle) -> _Places:
    classes = bids.classes
    part = np.repeat(np.arange(bids.part_class.size), classes.machines[bids.part_class])
    spans = [np.arange(classes.start[kind], classes.start[kind + 1]) for kind in bids.part_class]
    return _Places(part, _row_of_part(bids)[part], np.concatenate(spans))


def _row_of_part(bids: ByBundle) -> Ints:
    return np.repeat(np.arange(bids.rho.size), np.diff(bids.part_start))


def _incidence(line: Ints, column: Ints, values: Ints | Reals) -> Any:
    """Return a sparse matrix with these entries."""
    sparse: Any = importlib.import_module("scipy.sparse")
    return sparse.csr_array((np.asarray(values, dtype=float), (line, column)), shape=(int(line.max()) + 1, column.size))
