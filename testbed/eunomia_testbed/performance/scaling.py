"""Measured scaling: seconds per step by GPUs (AFS), iterations per second by batch size and GPUs (ElasticFlow)."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from eunomia.errors import InputError
from eunomia_testbed.performance.curves import Curve
from eunomia_testbed.performance.reading import number, read_text, rows_of, unknown, whole
from eunomia_testbed.performance.speeds import Setting, part_of_gpu
from eunomia_testbed.workload.adaptation import named_model, split_model

AFS_COLUMNS: Final = ("model", "global_batch", "num_gpus", "step_time_s")
ELASTICFLOW_CORNER: Final = "global_batch_size"
_FOLDER: Final = "throughputs_"


class AfsScaling:
    """Seconds per step of the models of AFS (NSDI'21, Table 4) by GPUs, at the global batch that ends their names.

    The authors do not give the GPU type: any type has these speeds, at any locality. More GPUs than measured do
    not make a job faster.
    """

    def __init__(self, curves: Mapping[str, Curve], *, place: str) -> None:
        self._curves = dict(curves)
        self.place = place

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a CSV file with the columns ``model, global_batch, num_gpus, step_time_s``.

        Raises:
            InputError: a missing column, a value that is not a number above 0, or the same model and GPUs twice.
        """
        points: dict[str, dict[int, float]] = {}
        for place, row in rows_of(Path(path), AFS_COLUMNS):
            gpus = whole(row["num_gpus"], name="num_gpus", place=place)
            seconds = number(row["step_time_s"], name="step_time_s", place=place, strictly=True)
            rates = points.setdefault(row["model"], {})
            if gpus in rates:
                raise InputError("a model and num_gpus must stand once", value=f"{row['model']}, {gpus}", place=place)
            rates[gpus] = 1.0 / seconds
        if not points:
            raise InputError("the file must have at least one row", value="none", place=str(path))
        return cls({model: Curve.of(rates, of_times=True) for model, rates in points.items()}, place=str(path))

    @property
    def models(self) -> tuple[str, ...]:
        """Return names such as ``VggnetModel256``."""
        return tuple(self._curves)

    def most(self, model: str) -> int:
        """Return the largest number of GPUs that a model can use.

        Raises:
            InputError: a model that is not in the file.
        """
        curve = self._curve(model)
        return int(curve.gpus[int(curve.rates.argmax())])

    def speedup(self, model: str, gpus: int) -> float:
        """Return the speed relative to one GPU.

        Raises:
            InputError: a model that is not in the file.
        """
        curve = self._curve(model)
        return curve.at(gpus) / curve.at(1)

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second.

        Raises:
            InputError: a model that is not in the file.
        """
        return self.at(model, setting.gpus) * part_of_gpu(setting)

    def at(self, model: str, gpus: int) -> float:
        """Return iterations per second on a number of GPUs.

        Raises:
            InputError: a model that is not in the file.
        """
        return self._curve(model).at(gpus)

    def _curve(self, model: str) -> Curve:
        if model not in self._curves:
            raise unknown("model", model, self.models, self.place)
        return self._curves[model]


class ElasticFlowTables:
    """Iterations per second by global batch and GPUs on one or several GPU types (ElasticFlow, ASPLOS'23).

    Models are named as in Gavel: ``vgg16 (batch size 64)``. Numbers of GPUs that are not measured are interpolated
    linearly; more GPUs than measured do not make a job faster; a rate of 0 means that the job cannot run there.
    """

    def __init__(self, curves: Mapping[tuple[str, str], Curve], *, place: str) -> None:
        self._curves = dict(curves)
        """By GPU type in lower case and model."""
        self.place = place
        self._types = {kind for kind, _ in curves}

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a folder of ``throughputs_<GPU type>`` folders, one such folder, or one table in it.

        Raises:
            InputError: no table, a table of another form, or a rate that is negative or not a number.
        """
        root = Path(path)
        curves: dict[tuple[str, str], Curve] = {}
        for table in _tables(root):
            kind = table.parent.name.removeprefix(_FOLDER).lower()
            for batch, curve in _lines(table):
                curves[kind, named_model(table.stem, batch)] = curve
        if not curves:
            raise InputError("there must be tables of throughputs", value="none", place=str(root))
        return cls(curves, place=str(root))

    @property
    def models(self) -> tuple[str, ...]:
        """Return names with batch sizes, in order."""
        return tuple(dict.fromkeys(model for _, model in self._curves))

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second; ``batch_size`` selects the line of that global batch.

        Raises:
            InputError: no table has the GPU type, or the model at that batch size on it.
        """
        kind = setting.gpu_type.lower()
        if kind not in self._types:
            raise unknown("GPU type", setting.gpu_type, sorted(self._types), self.place)
        family, own = split_model(model)
        name = named_model(family, own if setting.batch_size is None else int(setting.batch_size))
        curve = self._curves.get((kind, name))
        if curve is None:
            known = [model for there, model in self._curves if there == kind]
            raise unknown(f"model on {setting.gpu_type}", name, known, self.place)
        return curve.at(setting.gpus) * part_of_gpu(setting)


def _tables(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    return sorted([*root.glob("*.csv"), *root.glob(f"{_FOLDER}*/*.csv")])


def _lines(table: Path) -> Iterator[tuple[int, Curve]]:
    lines = [line.split(",") for line in read_text(table).splitlines() if line.strip()]
    if not lines or lines[0][0] != ELASTICFLOW_CORNER:
        first = lines[0][0] if lines else ""
        rule = f"the first column must be {ELASTICFLOW_CORNER}"
        raise InputError(rule, value=f'"{first}"', place=f"{table}, line 1")
    counts = [whole(text, name="a column's GPUs", place=f"{table}, line 1") for text in lines[0][1:]]
    for row, fields in enumerate(lines[1:], start=2):
        place = f"{table}, line {row}"
        if len(fields) != len(counts) + 1:
            raise InputError("a row must have as many fields as the header", value=str(len(fields)), place=place)
        yield whole(fields[0], name=ELASTICFLOW_CORNER, place=place), Curve.of(dict(_points(counts, fields[1:], place)))


def _points(counts: list[int], fields: list[str], place: str) -> Iterator[tuple[int, float]]:
    """Yield the measured points; empty fields and ``nan`` are skipped."""
    for gpus, text in zip(counts, fields, strict=True):
        if text.strip() and not (text.strip().lower() == "nan" and math.isnan(float(text))):
            yield gpus, number(text, name=f"the rate with {gpus} GPUs", place=place)
