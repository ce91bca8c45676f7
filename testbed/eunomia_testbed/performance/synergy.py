"""Synergy's profiles: a model's speed by CPUs and memory per GPU (OSDI'22, §3.1).

A table has the throughput relative to the GPU-proportional share of their servers (3 CPUs, 62.5 GB per GPU) at 9
numbers of CPUs and 5 amounts of memory per GPU; values between these points are interpolated linearly. Source of the
format and of the columns: ``msr-fiddle/synergy``. Their simulator, too, uses the tables of one GPU for all gangs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import builds, value
from eunomia.units import Reals
from eunomia_testbed.performance.reading import number, rows_of, unknown
from eunomia_testbed.performance.speeds import Setting, part_of_gpu

PROFILE_COLUMNS: Final = ("variant", "model", "gpus", "cpus_per_gpu", "mem_gb_per_gpu", "rel_tput")
MODEL_COLUMNS: Final = ("variant", "model", "gpus", "demand_cpu", "demand_mem_gb", "batch", "iter_time_base_s")
GB_PER_GIB: Final = 1024.0**3 / 1e9
SHARE_CPUS: Final = 3.0
SHARE_MEMORY_GB: Final = 62.5
_VARIANT: Final = "cpu_per_gpu=3"


@builds
class Grid:
    """Relative throughput of one GPU by CPUs and memory, [CPUs, memory]."""

    cpus: Reals
    memory_gb: Reals
    relative: Reals

    def at(self, cpus: float, memory_gb: float) -> float:
        """Return relative throughput, interpolated; proportional to CPUs below the first point, then constant."""
        by_cpus = [float(np.interp(memory_gb, self.memory_gb, row)) for row in self.relative]
        return float(np.interp(cpus, self.cpus, by_cpus)) * min(1.0, cpus / float(self.cpus[0]))


@value
class Demand:
    """The fewest CPUs and the least memory per GPU with which a model reaches full speed."""

    cpus: float
    memory_gib: float
    batch_size: float
    seconds_per_iteration: float
    """Iteration time in seconds at the GPU-proportional share."""


class SynergyProfiles:
    """Speeds of 12 models on V100 by CPUs and memory per GPU.

    An iteration takes the same time on any gang: each GPU has its own batch, as in the authors' simulator.
    """

    gpu_types = ("V100",)

    def __init__(self, grids: Mapping[str, Grid], demands: Mapping[str, Demand], *, place: str) -> None:
        self._grids = dict(grids)
        self._demands = dict(demands)
        self.place = place

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a folder with ``profiles.csv`` and ``models.csv``, or either of the two files in it.

        Raises:
            InputError: a file or column is missing, a value is not a number, a model is in one file only, or its grid
                has a gap.
        """
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        points, demands = _points(folder / "profiles.csv"), _demands(folder / "models.csv")
        if not points or points.keys() != demands.keys():
            one = ", ".join(sorted(points.keys() ^ demands.keys())) or "none"
            raise InputError("every model must stand in profiles.csv and models.csv", value=one, place=str(folder))
        grids = {model: _grid(model, cells, str(folder / "profiles.csv")) for model, cells in points.items()}
        return cls(grids, demands, place=str(folder))

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models' names, such as ``res18``."""
        return tuple(self._grids)

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a model is profiled at this batch size; None: at its own."""
        return model in self._grids and batch_size in (None, self._demands[model].batch_size)

    def demand(self, model: str) -> Demand:
        """Return the fewest CPUs and the least memory for full speed, as the authors' profiler computes them.

        Raises:
            InputError: the model is not profiled.
        """
        if model not in self._demands:
            raise unknown("model", model, self.models, self.place)
        return self._demands[model]

    def amounts(self, model: str) -> tuple[Reals, Reals]:
        """Return the CPUs per GPU and the GiB per GPU at which a model is measured, each ascending.

        Raises:
            InputError: the model is not profiled.
        """
        if model not in self._grids:
            raise unknown("model", model, self.models, self.place)
        return self._grids[model].cpus, self._grids[model].memory_gb / GB_PER_GIB

    def relative(self, model: str, cpus_per_gpu: float | None, memory_gib_per_gpu: float | None) -> float:
        """Return throughput relative to that at the GPU-proportional share; an amount of None means that share.

        Raises:
            InputError: the model is not profiled.
        """
        if model not in self._grids:
            raise unknown("model", model, self.models, self.place)
        memory_gb = SHARE_MEMORY_GB if memory_gib_per_gpu is None else memory_gib_per_gpu * GB_PER_GIB
        return self._grids[model].at(SHARE_CPUS if cpus_per_gpu is None else cpus_per_gpu, memory_gb)

    def rate(self, model: str, setting: Setting) -> float:
        """Return a model's iterations per second in a setting.

        Raises:
            InputError: the model is not profiled, or the GPU type is not V100.
        """
        if setting.gpu_type.lower() != "v100":
            raise unknown("GPU type", setting.gpu_type, self.gpu_types, self.place)
        relative = self.relative(model, setting.cpus_per_gpu, setting.memory_gib_per_gpu)
        return relative * part_of_gpu(setting) / self.demand(model).seconds_per_iteration


def _points(path: Path) -> dict[str, dict[tuple[float, float], float]]:
    found: dict[str, dict[tuple[float, float], float]] = {}
    for place, row in rows_of(path, PROFILE_COLUMNS):
        if row["variant"] != _VARIANT or row["gpus"] != "1":
            continue
        cpus = number(row["cpus_per_gpu"], name="cpus_per_gpu", place=place, strictly=True)
        memory = number(row["mem_gb_per_gpu"], name="mem_gb_per_gpu", place=place, strictly=True)
        cells = found.setdefault(row["model"], {})
        if (cpus, memory) in cells:
            raise InputError("a point of a grid must stand once", value=f"{cpus:g}, {memory:g}", place=place)
        cells[cpus, memory] = number(row["rel_tput"], name="rel_tput", place=place)
    return found


def _grid(model: str, cells: Mapping[tuple[float, float], float], place: str) -> Grid:
    cpus, memory = sorted({cpus for cpus, _ in cells}), sorted({memory for _, memory in cells})
    missing = [(one, other) for one in cpus for other in memory if (one, other) not in cells]
    if missing:
        rule = f"the grid of {model} must have every memory at every number of CPUs"
        raise InputError(rule, value=f"no {missing[0][0]:g} CPUs with {missing[0][1]:g} GB", place=place)
    relative = np.array([[cells[one, other] for other in memory] for one in cpus])
    _check_order(model, cpus, memory, relative, place)
    return Grid(cpus=np.array(cpus), memory_gb=np.array(memory), relative=relative)


def _check_order(model: str, cpus: list[float], memory: list[float], relative: Reals, place: str) -> None:
    """Check that rates are positive, and do not fall as CPUs or memory grow."""
    for at, other in np.argwhere(relative <= 0.0).tolist():
        rule = f"a rate in the grid of {model} must be above 0"
        raise InputError(rule, value=f"0 at {cpus[at]:g} CPUs and {memory[other]:g} GB", place=place)
    for axis, word in ((0, "CPUs"), (1, "memory")):
        for at, other in np.argwhere(np.diff(relative, axis=axis) < 0.0).tolist():
            before, after = relative[at, other], relative[at + (axis == 0), other + (axis == 1)]
            rule = f"more {word} must not make {model} slower"
            where = f"beyond {cpus[at]:g} CPUs and {memory[other]:g} GB"
            raise InputError(rule, value=f"{after:g} after {before:g} {where}", place=place)


def _demands(path: Path) -> dict[str, Demand]:
    found: dict[str, Demand] = {}
    for place, row in rows_of(path, MODEL_COLUMNS):
        if row["variant"] != _VARIANT or row["gpus"] != "1":
            continue
        if row["model"] in found:
            raise InputError("a model must stand once for one GPU", value=f'"{row["model"]}" twice', place=place)
        found[row["model"]] = Demand(
            cpus=number(row["demand_cpu"], name="demand_cpu", place=place),
            memory_gib=number(row["demand_mem_gb"], name="demand_mem_gb", place=place) / GB_PER_GIB,
            batch_size=number(row["batch"], name="batch", place=place, strictly=True),
            seconds_per_iteration=number(row["iter_time_base_s"], name="iter_time_base_s", place=place, strictly=True),
        )
    return found
