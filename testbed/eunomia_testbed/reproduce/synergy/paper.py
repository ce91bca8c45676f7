"""Synergy for ``eunomia reproduce``: the settings, and the numbers to which its rows refer."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.claims import RowPaper, paper_of
from eunomia_testbed.reproduce.paper import setting
from eunomia_testbed.reproduce.rows import Fields, read_rows
from eunomia_testbed.reproduce.synergy.cells import (
    ORDERS,
    SynergyCell,
    SynergyFigures,
    files_of,
    readings_of,
    recipe_of,
    run_cell,
)
from eunomia_testbed.reproduce.synergy.jobs import STATIC
from eunomia_testbed.reproduce.synergy.tables import orders_as_table_2, orders_as_table_3

MEAN_HOURS: Final = 16.77
"""Mean hours of a drawn job: 10^x minutes at proportional shares, with x in 1.5 to 3 for four in five jobs, else 3 to
4."""
NEAR_GPUS: Final = 32
NEAR_HOURS: Final = 0.177 * MEAN_HOURS
"""Mean hours of the jobs in the traces near capacity; ``NEAR_GPUS`` is the cluster's number of GPUs."""


@value
class SynergyGrid:
    """The settings of the reproduction, which are fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    data: str = setting(
        "synergy",
        "The folder with the authors' profiles.csv, models.csv and static trace: they are no part of Eunomia.",
    )
    jobs: int = setting(1000, "Measured jobs of a drawn trace of Figures 7 to 13.", least=1)
    warmup_jobs: int = setting(1000, "Jobs before them, which are not measured.", least=0)
    gpus: int = setting(128, "GPUs of the cluster of Figures 7 to 13, eight a server.", least=8)
    jobs_per_hour: float = setting(9.0, "Jobs an hour of the single-GPU traces of Figure 12.", least=0.01)
    loads: str = setting(
        "5,7,9", "Jobs an hour of the single-GPU traces of Figure 9: 0.7 to 1.2 times what 128 GPUs serve."
    )
    multi_loads: str = setting(
        "3,4,5.5", "Jobs an hour of the multi-GPU traces of Figures 7 and 8: 0.75 to 1.4 times what 128 GPUs serve."
    )
    near_loads: str = setting(
        "0.8,0.9,1,1.1", "Loads of the rows named Near capacity, as parts of what 32 GPUs serve at proportional shares."
    )
    dynamic_jobs: int = setting(
        300,
        "Measured jobs of Table 5's trace under SRTF and of Near capacity; as many before them are not measured.",
        least=1,
    )
    small_jobs: int = setting(
        60, "Measured jobs of the rows named Small, on 16 GPUs; as many before them are not measured.", least=1
    )
    trace: str = setting(
        "philly_full_reconstructed.csv.gz", "The file of Philly's trace, for Figure 6: not part of Eunomia."
    )
    philly_first: int = setting(92_000, "Figure 6: the first of the range of the trace's jobs, by submission.", least=0)
    philly_jobs: int = setting(8000, "Figure 6: jobs of the range; its demand is 1.24 times 512 GPUs.", least=1)

    def loads_of(self, *, multi: bool) -> tuple[float, ...]:
        """Return the loads of Figures 7 to 9 in jobs per hour, ascending.

        Raises:
            InputError: a load is not a positive number.
        """
        name, text = ("multi_loads", self.multi_loads) if multi else ("loads", self.loads)
        return _positive(text, f'{name} must be jobs an hour above 0, such as "5,7,9" (--set {name}=5,7,9)')

    @property
    def near_capacity(self) -> list[Fields]:
        """Return the loads near capacity of single-GPU jobs, at which the gain is decided, as settings of a row.

        Raises:
            InputError: a load is not a positive number.
        """
        rule = 'near_loads must be parts of the capacity above 0, such as "0.8,1" (--set near_loads=0.8,1)'
        return [
            {"jobs_per_hour": round(part * NEAR_GPUS / NEAR_HOURS, 3), "label": f"load {part:g}"}
            for part in _positive(self.near_loads, rule)
        ]

    @property
    def each_load(self) -> list[Fields]:
        """Return the loads of single-GPU jobs as settings of a row."""
        return [{"jobs_per_hour": load, "label": f"{load:g} an hour"} for load in self.loads_of(multi=False)]

    @property
    def highest_load(self) -> list[Fields]:
        """Return the highest load of single-GPU jobs as settings of a row."""
        return self.each_load[-1:]

    @property
    def each_multi_load(self) -> list[Fields]:
        """Return the loads of multi-GPU jobs as settings of a row."""
        return [{"jobs_per_hour": load, "label": f"{load:g} an hour"} for load in self.loads_of(multi=True)]

    @property
    def low_multi_load(self) -> float:
        """Return the lowest load of multi-GPU jobs, in jobs per hour."""
        return self.loads_of(multi=True)[0]

    @property
    def las_and_srtf(self) -> list[Fields]:
        """Return the loads of multi-GPU jobs under both orders that the paper shows, as settings of a row."""
        return [
            {**load, "order": order, "label": f"{order.upper()} {load['label']}"}
            for order in ("las", "srtf")
            for load in self.each_multi_load
        ]


def _positive(text: str, rule: str) -> tuple[float, ...]:
    """Parse a comma-separated list of positive numbers; return them in ascending order.

    Raises:
        InputError: one of them is not a positive number.
    """
    try:
        found = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or not 0.0 < found[0] <= found[-1] < math.inf:
        raise InputError(rule, value=f'"{text}"', place="reproduce synergy")
    return found


def make_cell(grid: SynergyGrid, fields: Fields, seed: int) -> SynergyCell:
    """Return a cell; lists in the fields become tuples."""
    plain: Fields = {name: tuple(item) if isinstance(item, list) else item for name, item in fields.items()}
    return SynergyCell(seed=seed, data=grid.data, **plain)


def _hours(seconds: Sequence[float], percentile: float | None = None) -> float:
    """Return the mean of times in hours, or a percentile of them; NaN: there are no times."""
    if not seconds:
        return math.nan
    return float(np.mean(seconds) if percentile is None else np.percentile(seconds, percentile)) / 3600.0


NUMBERS: Final[Mapping[str, Callable[[SynergyFigures], float]]] = {
    "mean JCT": lambda one: one.hours,
    "p95 of JCT": lambda one: one.p95_jct_seconds / 3600.0,
    "p99 of JCT": lambda one: one.p99_jct_seconds / 3600.0,
    "makespan": lambda one: one.makespan_hours,
    "short jobs, mean": lambda one: _hours(one.short_jct_seconds),
    "short jobs, p99": lambda one: _hours(one.short_jct_seconds, 99.0),
    "long jobs, mean": lambda one: _hours(one.long_jct_seconds),
    "long jobs, p95": lambda one: _hours(one.long_jct_seconds, 95.0),
    "long jobs, p99": lambda one: _hours(one.long_jct_seconds, 99.0),
    "CPUs in use": lambda one: one.cpu_use,
    "GPUs in use": lambda one: one.gpu_use,
    "CPU seconds a round": lambda one: one.cpu_seconds / max(1, one.rounds),
}
"""Functions from a cell's results to a number, by the name that rows of claims use."""


def facts(grid: SynergyGrid) -> dict[str, str]:
    """Return texts that the fixed decisions refer to, in addition to the settings."""
    single, multi = (", ".join(f"{load:g}" for load in grid.loads_of(multi=many)) for many in (False, True))
    orders = ", ".join(f"{name} (valuation {valuation})" for name, valuation in ORDERS.items())
    last = grid.philly_first + grid.philly_jobs - 1
    return {
        "single": single,
        "multi": multi,
        "near_hours": f"{NEAR_HOURS:.3g}",
        "orders": orders,
        "static": STATIC,
        "philly_last": str(last),
    }


def group(cell: SynergyCell) -> str:
    """Return a cell's group for time estimates: the trace, and the order if it is not FIFO."""
    if cell.static:
        trace = "static"
    elif cell.trace:
        trace = "Philly"
    else:
        trace = f"{cell.gpus} GPUs, jobs of several" if cell.multi else f"{cell.gpus} GPUs"
    return trace if cell.order == "fifo" else f"{trace}, {cell.order}"


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    axis="scheme",
    group=group,
    computed={"orders as Table 2": orders_as_table_2, "orders as Table 3": orders_as_table_3},
)
PAPER: Final = paper_of(
    ROWS,
    grid=SynergyGrid,
    figures=SynergyFigures,
    run=run_cell,
    facts=facts,
    shows={"makespan": "h", "mean JCT": "h"},
    hidden=("data", "trace", "jobs", "warmup_jobs"),
    files=lambda cell: (*files_of(cell), *readings_of(cell)),
)
