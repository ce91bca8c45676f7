"""A linear or mixed-integer programme as arrays, and the check of a solver's answer."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from eunomia.errors import InputError
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals


@builds
class SparseRows:
    """A sparse matrix in CSR format: row r has ``value[start[r]:start[r + 1]]`` in columns ``index[...]``."""

    start: Ints
    index: Ints
    value: Reals

    @classmethod
    def of(cls, rows: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]) -> Self:
        """Build a matrix from a pair (columns, coefficients) per row; a scalar coefficient applies to all columns."""
        columns = [np.asarray(index, dtype=np.int64).ravel() for index, _ in rows]
        values = [np.broadcast_to(np.asarray(item, float), c.shape) for c, (_, item) in zip(columns, rows, strict=True)]
        return cls(
            start=np.cumsum([0, *(c.size for c in columns)]).astype(np.int64),
            index=np.concatenate([*columns, np.empty(0, np.int64)]),
            value=np.concatenate([*values, np.empty(0)]),
        )

    @classmethod
    def dense(cls, matrix: npt.ArrayLike) -> Self:
        """Build a sparse matrix from a dense one."""
        full = np.atleast_2d(np.asarray(matrix, dtype=float))
        return cls.of([(np.flatnonzero(row), row[row != 0]) for row in full])

    def __len__(self) -> int:
        return int(self.start.size) - 1

    @property
    def row(self) -> Ints:
        """Return the row index of each stored value."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def times(self, x: Reals) -> Reals:
        """Return the product of the matrix and a vector, [row]."""
        return np.bincount(self.row, weights=self.value * x[self.index], minlength=len(self)).astype(float)


@builds
class LinearProgram:
    """A programme: optimise ``cost @ x`` under ``row_lower <= rows @ x <= row_upper`` and ``lower <= x <= upper``."""

    cost: Reals
    rows: SparseRows
    row_lower: Reals
    row_upper: Reals
    lower: Reals
    upper: Reals
    integral: Bools
    maximise: bool = False

    @classmethod
    def of(
        cls,
        cost: npt.ArrayLike,
        *,
        rows: SparseRows,
        row_lower: npt.ArrayLike = -np.inf,
        row_upper: npt.ArrayLike = np.inf,
        lower: npt.ArrayLike = 0.0,
        upper: npt.ArrayLike = np.inf,
        integral: npt.ArrayLike = False,
        maximise: bool = False,
    ) -> Self:
        """Build a programme; a scalar bound or flag applies to all rows or columns.

        Args:
            cost: [variables] coefficients of the objective.
            rows: constraint matrix.
            row_lower: [constraints] lower bound of each row; equal to ``row_upper`` for an equation.
            row_upper: [constraints] upper bound of each row.
            lower: [variables] lower bounds.
            upper: [variables] upper bounds.
            integral: [variables] whether each variable must be an integer.
            maximise: maximise instead of minimise.

        Raises:
            InputError: a row refers to a column that does not exist, or a coefficient is NaN or infinite.
        """
        costs = np.asarray(cost, dtype=float)
        if rows.index.size and not 0 <= rows.index.min() <= rows.index.max() < costs.size:
            raise InputError("rows of a programme must name its columns", value=f"a column beyond {costs.size - 1}")
        if not (np.isfinite(costs).all() and np.isfinite(rows.value).all()):
            raise InputError("coefficients of a programme must be finite numbers", value="one that is not")
        return cls(
            cost=costs,
            rows=rows,
            row_lower=np.broadcast_to(np.asarray(row_lower, float), len(rows)).copy(),
            row_upper=np.broadcast_to(np.asarray(row_upper, float), len(rows)).copy(),
            lower=np.broadcast_to(np.asarray(lower, float), costs.shape).copy(),
            upper=np.broadcast_to(np.asarray(upper, float), costs.shape).copy(),
            integral=np.broadcast_to(np.asarray(integral, bool), costs.shape).copy(),
            maximise=maximise,
        )

    @property
    def variables(self) -> int:
        """Return the number of variables."""
        return int(self.cost.size)

    @property
    def constraints(self) -> int:
        """Return the number of rows; bounds of variables do not count."""
        return len(self.rows)

    @property
    def scale(self) -> float:
        """Return the largest absolute cost; the objective is divided by it, as solvers assume values of order one."""
        return float(np.abs(self.cost).max(initial=0.0)) or 1.0

    def rounded(self, x: Reals) -> Reals:
        """Return ``x`` with integer variables rounded and all variables clipped to their bounds."""
        return np.clip(np.where(self.integral, np.round(x), x), self.lower, self.upper)

    def violation(self, x: Reals) -> float:
        """Return the largest violation by ``x`` of a row (relative to the size of its terms), bound or integrality."""
        activity = self.rows.times(x)
        size = np.maximum(1.0, self.rows_size(x))
        rows = np.maximum(self.row_lower - activity, activity - self.row_upper) / size
        columns = np.maximum(self.lower - x, x - self.upper)
        whole = np.abs(x - np.round(x))[self.integral]
        return max(0.0, *(float(part.max(initial=0.0)) for part in (rows, columns, whole)))

    def rows_size(self, x: Reals) -> Reals:
        """Return the sum of the absolute values of each row's terms, [constraints]."""
        weights = np.abs(self.rows.value * x[self.rows.index])
        return np.bincount(self.rows.row, weights=weights, minlength=len(self.rows)).astype(float)
