"""A linear programme whose rows are added and removed between solves; HiGHS warm-starts from its last basis."""

import dataclasses

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_solvers import highs
from eunomia_solvers.linear import answer_fault, scaled, solve_linear
from eunomia_solvers.outcome import Status
from eunomia_solvers.program import LinearProgram, SparseRows
from eunomia_solvers.raw import UnavailableError


class GrowingProgram:
    """A continuous linear programme that is solved repeatedly while rows are added and removed.

    Each answer is checked. If HiGHS is missing, or its answer violates a row, ``solve_linear`` solves the
    programme from scratch.

    Args:
        program: the initial programme.
        place: the caller's name, for error messages.
    """

    def __init__(self, program: LinearProgram, *, place: str | None = None) -> None:
        self.program = program
        self._place = place
        self._session: highs.Session | None = None
        try:
            self._session = highs.Session(scaled(program))
        except UnavailableError:
            self._session = None

    def add(self, rows: SparseRows, row_lower: Reals, row_upper: Reals) -> None:
        """Append constraint rows.

        Args:
            rows: coefficients of the new rows.
            row_lower: [new row] lower bound of each.
            row_upper: [new row] upper bound of each.
        """
        old = self.program.rows
        both = SparseRows(
            start=np.concatenate([old.start, old.start[-1] + rows.start[1:]]),
            index=np.concatenate([old.index, rows.index]),
            value=np.concatenate([old.value, rows.value]),
        )
        self.program = dataclasses.replace(
            self.program,
            rows=both,
            row_lower=np.concatenate([self.program.row_lower, row_lower]),
            row_upper=np.concatenate([self.program.row_upper, row_upper]),
        )
        if self._session is not None:
            self._session.add(rows, row_lower, row_upper)

    def leave_out(self, which: Ints) -> None:
        """Remove constraint rows; later rows are renumbered.

        Args:
            which: indices of the rows to remove.
        """
        if not which.size:
            return
        old, kept = self.program.rows, np.ones(len(self.program.rows), bool)
        kept[which] = False
        stored = kept[old.row]
        rows = SparseRows(
            start=np.concatenate([[0], np.cumsum(np.diff(old.start)[kept])]).astype(np.int64),
            index=old.index[stored],
            value=old.value[stored],
        )
        self.program = dataclasses.replace(
            self.program, rows=rows, row_lower=self.program.row_lower[kept], row_upper=self.program.row_upper[kept]
        )
        if self._session is not None:
            self._session.leave_out(np.unique(which))

    def solve(self) -> Reals:
        """Solve the current programme and return the values of its variables, [variables].

        Raises:
            SolveError: the programme is infeasible or unbounded, or no solver found a feasible answer.
        """
        if self._session is not None:
            answer = self._session.solve()
            if answer.status is Status.OPTIMAL and answer_fault(self.program, answer) is None:
                return self.program.rounded(np.asarray(answer.x))
            self._session = None
        return solve_linear(self.program, place=self._place).x
