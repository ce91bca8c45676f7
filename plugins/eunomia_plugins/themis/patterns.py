"""The auction as an integer programme over bids and machine patterns, where counts do not decide which bids fit.

A pattern is a way to fill a machine of a class; a class of machines of 8 GPUs with bids for parts of 1 to 8 has 22
patterns that leave no room. The size of the programme therefore does not depend on the number of machines.
"""

import numpy as np

from eunomia import ByBundle
from eunomia.units import Ints, Reals
from eunomia_plugins.themis.counting import Counts
from eunomia_plugins.themis.packing import patterns
from eunomia_solvers import Limits, LinearProgram, SparseRows, solve_linear


def auction_program(bids: ByBundle, gain: Reals, rows: Ints, counts: Counts, *, integral: bool = True) -> LinearProgram:
    """Return the programme that maximises the sum of the gains of the chosen rows.

    Args:
        bids: the bid table.
        gain: [row of the table] gain of each row.
        rows: the rows that may be chosen, which are the first columns of the programme; patterns follow.
        counts: the counts used by the rows.
        integral: False relaxes rows and patterns to fractions.
    """
    claims = bids.claim_of_row[rows]
    rowwise: list[tuple[Ints, Reals]] = []
    for claim in np.unique(claims):
        own = np.flatnonzero(claims == claim)
        rowwise.append((own, np.ones(own.size)))
    upper = [1.0] * len(rowwise)
    for column, limit in zip(counts.use.T, counts.capacity, strict=True):
        rowwise.append((np.flatnonzero(column), column[column != 0].astype(float)))
        upper.append(float(limit))
    columns = rows.size
    tops: list[float] = []
    for kind in np.flatnonzero(counts.uncounted).tolist():
        added, bounds, many = _class_rows(bids, rows, kind, columns)
        rowwise += added
        upper += bounds
        columns += many
        tops += [float(bids.classes.machines[kind])] * many
    return LinearProgram.of(
        np.concatenate([gain[rows], np.zeros(columns - rows.size)]),
        rows=SparseRows.of(rowwise),
        row_upper=upper,
        upper=np.concatenate([np.ones(rows.size), tops]),
        integral=integral,
        maximise=True,
    )


def _class_rows(bids: ByBundle, rows: Ints, kind: int, first: int) -> tuple[list[tuple[Ints, Reals]], list[float], int]:
    """Return rows that link the parts in a class to its patterns, their upper bounds, and the number of patterns."""
    line = {int(row): position for position, row in enumerate(rows)}
    owner = np.repeat(np.arange(bids.rho.size), np.diff(bids.part_start))
    in_class = [int(part) for part in np.flatnonzero(bids.part_class == kind) if int(owner[part]) in line]
    sizes = np.unique(bids.part_gpus[in_class])
    fills = patterns(sizes, int(bids.classes.free[kind]))
    columns = first + np.arange(len(fills))
    added = [(columns, np.ones(len(fills)))]
    bounds = [float(bids.classes.machines[kind])]
    for position, size in enumerate(sizes.tolist()):
        parts = [part for part in in_class if bids.part_gpus[part] == size]
        index = np.array([line[int(owner[part])] for part in parts], dtype=np.int64)
        wanted = bids.part_machines[parts].astype(float)
        added.append((np.concatenate([index, columns]), np.concatenate([wanted, -fills[:, position].astype(float)])))
        bounds.append(0.0)
    return added, bounds, len(fills)


def solve_auction(
    program: LinearProgram, rows: Ints, limits: Limits, *, allowed: Ints | None = None
) -> tuple[Ints, float, float]:
    """Return the chosen rows, the sum of their gains, and a bound on its distance from the optimum.

    Args:
        program: the programme returned by ``auction_program``.
        rows: the rows that are its first columns.
        limits: when the solver must stop.
        allowed: the rows that may be chosen; None: all.
    """
    upper = program.upper.copy()
    if allowed is not None:
        upper[: rows.size] = np.isin(rows, allowed)
    if program.variables == 0:
        return rows, 0.0, 0.0
    found = solve_linear(_bounded(program, upper), limits=limits, place="themis auction")
    chosen = rows[found.x[: rows.size] > 0.5]
    objective = float(program.cost[: rows.size][found.x[: rows.size] > 0.5].sum())
    gap = max(0.0, found.bound - found.objective)
    return chosen, objective, gap if gap > 1e-9 * max(1.0, objective) else 0.0


def _bounded(program: LinearProgram, upper: Reals) -> LinearProgram:
    return LinearProgram.of(
        program.cost,
        rows=program.rows,
        row_lower=program.row_lower,
        row_upper=program.row_upper,
        lower=program.lower,
        upper=upper,
        integral=program.integral,
        maximise=program.maximise,
    )
