"""Synergy for ``eunomia reproduce``: the settings, and the numbers that its rows name."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.claims import RowPaper, paper_of
from eunomia_testbed.reproduce.rows import Fields, read_rows
from eunomia_testbed.reproduce.synergy.cells import ORDERS, SynergyCell, SynergyFigures, recipe_of, run_cell
from eunomia_testbed.reproduce.synergy.jobs import STATIC
from eunomia_testbed.reproduce.synergy.tables import orders_as_table_2, orders_as_table_3


@value
class SynergyGrid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    data: str = "synergy"
    """Folder with the authors' ``profiles.csv``, ``models.csv`` and static trace: they are no part of Eunomia."""
    jobs: int = 1000
    """Measured jobs of a drawn trace."""
    warmup_jobs: int = 1000
    gpus: int = 128
    jobs_per_hour: float = 9.0
    """Load of the single-GPU traces of Figure 12."""
    loads: str = "5,7,9"
    """Jobs an hour of the single-GPU traces of Figure 9: 0.7 to 1.3 times what 128 GPUs can serve."""
    multi_loads: str = "3,4,5.5"
    """Jobs an hour of the multi-GPU traces of Figures 7 and 8: 0.8 to 1.5 times."""
    dynamic_jobs: int = 300
    """Measured jobs of Table 5's dynamic trace; as many before them are not measured."""
    trace: str = "philly_full_reconstructed.csv.gz"
    """Philly's trace, for Figure 6: not part of Eunomia."""
    philly_first: int = 92_000
    philly_jobs: int = 8000
    """Figure 6: a range of the trace by submission, whose demand is 1.24 times 512 GPUs; its jobs are all measured."""

    def loads_of(self, *, multi: bool) -> tuple[float, ...]:
        """Return the jobs an hour of Figures 7 to 9, ascending.

        Raises:
            InputError: a load is not a positive number.
        """
        text = self.multi_loads if multi else self.loads
        try:
            found = tuple(sorted({float(part) for part in text.split(",")}))
        except ValueError:
            found = ()
        if not found or not 0.0 < found[0] <= found[-1] < math.inf:
            name = "multi_loads" if multi else "loads"
            rule = f'{name} must be jobs an hour above 0, such as "5,7,9" (--set {name}=5,7,9)'
            raise InputError(rule, value=f'"{text}"', place="reproduce synergy")
        return found

    @property
    def each_load(self) -> list[Fields]:
        """Return the loads of jobs of one GPU."""
        return [{"jobs_per_hour": load, "label": f"{load:g} an hour"} for load in self.loads_of(multi=False)]

    @property
    def highest_load(self) -> list[Fields]:
        """Return the highest load of jobs of one GPU."""
        return self.each_load[-1:]

    @property
    def each_multi_load(self) -> list[Fields]:
        """Return the loads of jobs of several GPUs."""
        return [{"jobs_per_hour": load, "label": f"{load:g} an hour"} for load in self.loads_of(multi=True)]

    @property
    def las_and_srtf(self) -> list[Fields]:
        """Return the loads of jobs of several GPUs, under both orders that the paper shows."""
        return [
            {**load, "order": order, "label": f"{order.upper()} {load['label']}"}
            for order in ("las", "srtf")
            for load in self.each_multi_load
        ]


def make_cell(grid: SynergyGrid, fields: Fields, seed: int) -> SynergyCell:
    """Return a cell; lists of a file become tuples."""
    plain: Fields = {name: tuple(item) if isinstance(item, list) else item for name, item in fields.items()}
    return SynergyCell(seed=seed, data=grid.data, **plain)


NUMBERS: Final[Mapping[str, Callable[[SynergyFigures], float]]] = {
    "mean JCT": lambda one: one.hours,
    "p99 of JCT": lambda one: one.p99_jct_seconds / 3600.0,
    "makespan": lambda one: one.makespan_hours,
}
"""By the names that rows give."""


def facts(grid: SynergyGrid) -> dict[str, str]:
    """Return what the fixed decisions name beside the settings."""
    single, multi = (", ".join(f"{load:g}" for load in grid.loads_of(multi=many)) for many in (False, True))
    orders = ", ".join(f"{name} (valuation {valuation})" for name, valuation in ORDERS.items())
    last = grid.philly_first + grid.philly_jobs - 1
    return {"single": single, "multi": multi, "orders": orders, "static": STATIC, "philly_last": str(last)}


ROWS: Final[RowPaper[Any, Any, Any]] = RowPaper(
    file=read_rows(Path(__file__).with_name("claims.toml")),
    cell=make_cell,
    numbers=NUMBERS,
    recipe=recipe_of,
    axis="scheme",
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
)
