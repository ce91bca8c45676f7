"""OEF for ``eunomia reproduce``: the settings, and the numbers to which its rows refer."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from eunomia.model.shapes import value
from eunomia_testbed.reproduce.claims import RowPaper, Variant, paper_of
from eunomia_testbed.reproduce.oef.cells import COMPLETION, OVERHEAD, RESTART, OefCell, OefFigures, recipe_of, run_cell
from eunomia_testbed.reproduce.oef.tenants import FOUR, GAVEL, JOBS, PRINTED, files_of, readings_of
from eunomia_testbed.reproduce.paper import setting
from eunomia_testbed.reproduce.rows import Fields, read_rows


@value
class OefGrid:
    """The settings of the reproduction, which are fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    throughputs: str = setting(
        "", "The file of Gavel's measured rates, not part of Eunomia; without one the verdicts on them are left out."
    )
    four_tenants: int = setting(4, "Tenants of §6.2.", least=4)
    twenty_tenants: int = setting(20, "Tenants of §6.3.1.", least=2)
    fifty_tenants: int = setting(50, "Tenants of §6.3.2.", least=2)
    hours: float = setting(8.0, "Simulated hours of jobs that do not end; tenants change after 40 minutes.", least=2)


def make_cell(grid: OefGrid, fields: Fields, seed: int) -> OefCell:
    """Return a cell; the overhead does not depend on the speeds, so its cells always use the printed ones."""
    given = {**fields, **({"speeds": PRINTED} if fields["what"] == OVERHEAD else {})}
    rates = grid.throughputs if given["speeds"] == GAVEL else ""
    return OefCell(seed=seed, throughputs=rates, hours=grid.hours, **given)


def variants(grid: OefGrid) -> list[Variant]:
    """Return the sets of speeds as variants; the one with the paper's two printed numbers determines the verdicts."""
    printed = [Variant(name="printed speeds", fields={"speeds": PRINTED})]
    return [*printed, Variant(name="Gavel's speeds", fields={"speeds": GAVEL})] if grid.throughputs else printed


def over(one: OefFigures, tenant: int) -> float:
    """Return a tenant's throughput relative to the mean of tenants 2 to 4; the last one is tenant 1's second model."""
    return one.throughput[tenant] / fmean(one.throughput[1:4])


def tenant(number: int) -> Callable[[OefFigures], float]:
    """Return a function that returns the throughput of a tenant, counted from 1."""
    return lambda one: one.throughput[number - 1]


NUMBERS: Final[Mapping[str, Callable[[OefFigures], float]]] = {
    "throughput": lambda one: one.total or math.nan,
    **{f"tenant {number}": tenant(number) for number in range(1, 5)},
    "greatest over least tenant, before": lambda one: max(one.before) / min(one.before),
    "greatest over least tenant, after": lambda one: max(one.throughput[:3]) / min(one.throughput[:3]),
    "first model": lambda one: over(one, 0),
    "second model": lambda one: over(one, -1),
    "least over another's GPUs": lambda one: min(a / b for a, b in zip(one.throughput, one.with_others, strict=True)),
    "most over tenant 1's GPUs": lambda one: max(
        a / b for a, b in list(zip(one.throughput, one.with_first, strict=True))[1:]
    ),
    "mean JCT": lambda one: one.mean_jct_seconds / 3600.0 or math.nan,
    "CPU ms": lambda one: 1000.0 * one.cpu_seconds,
    "deviation": lambda one: abs(1.0 - one.total / one.promised),
}
"""Functions from a cell's results to a number, by the name that rows of claims use; NaN: not measured.

Throughputs are in GPUs of the slowest type.
"""


def group(cell: OefCell) -> str:
    """Return the group of a cell for time estimates: its task, the number of tenants, and the load if jobs end."""
    done = f"{cell.what}, {cell.tenants} tenants"
    if cell.what != COMPLETION:
        return done
    return f"{done}, {cell.speeds} speeds, load {cell.load:g}" + (", one refiner" if cell.one_refiner else "")


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    variants=variants,
    group=group,
    depends_on="speeds",
)
PAPER: Final = paper_of(
    ROWS,
    grid=OefGrid,
    figures=OefFigures,
    run=run_cell,
    facts=lambda grid: {
        "restart": f"{RESTART:g}",
        "gavel": "Gavel's measured K80, P100, V100 rates of one GPU" if grid.throughputs else "none, --set throughputs",
        "four": "; ".join(f"{name}: {', '.join(models)}" for name, models in FOUR.items()),
        "jobs_each": str(JOBS),
    },
    shows={"throughput": "GPUs of the slowest type", "mean JCT": "h"},
    hidden=("throughputs",),
    files=lambda cell: (*files_of(cell.throughputs), *readings_of(cell.drawn)),
)
