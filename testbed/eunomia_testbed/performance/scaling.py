"""Measured scaling: seconds per step by GPUs (AFS), and iterations per second by batch size and GPUs (ElasticFlow)."""

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
    """Seconds per step of AFS's models (NSDI'21, Table 4) by GPUs, at the global batch size at the end of their names.

    The authors do not state the GPU type, so the speeds apply to every type, at any locality. More GPUs than measured
    do not make a job faster.

    Args:
        curves: iterations per second by model.
        place: the file, for errors.
        batches: the global batch size of each model; a model without one has its speeds at any batch size.
    """

    def __init__(self, curves: Mapping[str, Curve], *, place: str, batches: Mapping[str, float] | None = None) -> None:
        self._curves = dict(curves)
        self._batches = dict(batches or {})
        self.place = place

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a CSV file with the columns ``model, global_batch, num_gpus, step_time_s``.

        Raises:
            InputError: a column is missing, a value is not a positive number, a model has a number of GPUs twice, or
                has two global batch sizes.
        """
        points: dict[str, dict[int, float]] = {}
        batches: dict[str, float] = {}
        for place, row in rows_of(Path(path), AFS_COLUMNS):
            gpus = whole(row["num_gpus"], name="num_gpus", place=place)
            seconds = number(row["step_time_s"], name="step_time_s", place=place, strictly=True)
            rates = points.setdefault(row["model"], {})
            batch = number(row["global_batch"], name="global_batch", place=place, strictly=True)
            if batches.setdefault(row["model"], batch) != batch:
                rule = "a model must have one global_batch; curves of several need several names"
                raise InputError(
                    rule, value=f"{row['model']} with {batches[row['model']]:g} and {batch:g}", place=place
                )
            if gpus in rates:
                raise InputError("a model and num_gpus must stand once", value=f"{row['model']}, {gpus}", place=place)
            rates[gpus] = 1.0 / seconds
        if not points:
            raise InputError("the file must have at least one row", value="none", place=str(path))
        curves = {model: Curve.of(rates, of_times=True) for model, rates in points.items()}
        return cls(curves, place=str(path), batches=batches)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models' names, such as ``VggnetModel256``."""
        return tuple(self._curves)

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a model is measured at this global batch size; None: at its own."""
        return model in self._curves and batch_size in (None, self._batches.get(model, batch_size))

    def ignores_type(self, model: str) -> bool:
        """Return True, since the file has no GPU types."""
        return True

    def most(self, model: str) -> int:
        """Return the number of GPUs at which a model is fastest.

        Raises:
            InputError: the file does not have the model.
        """
        curve = self._curve(model)
        return int(curve.gpus[int(curve.rates.argmax())])

    def speedup(self, model: str, gpus: int) -> float:
        """Return the speed relative to one GPU.

        Raises:
            InputError: the file does not have the model.
        """
        curve = self._curve(model)
        return curve.at(gpus) / curve.at(1)

    def rate(self, model: str, setting: Setting) -> float:
        """Return a model's iterations per second in a setting.

        Raises:
            InputError: the file does not have the model.
        """
        return self.at(model, setting.gpus) * part_of_gpu(setting)

    def at(self, model: str, gpus: int) -> float:
        """Return iterations per second on a number of GPUs.

        Raises:
            InputError: the file does not have the model.
        """
        return self._curve(model).at(gpus)

    def _curve(self, model: str) -> Curve:
        if model not in self._curves:
            raise unknown("model", model, self.models, self.place)
        return self._curves[model]


class ElasticFlowTables:
    """Iterations per second by global batch size and GPUs, on one or several GPU types (ElasticFlow, ASPLOS'23).

    Models are named as in Gavel: ``vgg16 (batch size 64)``. Rates between measured numbers of GPUs are interpolated
    linearly; more GPUs than measured do not make a job faster; a rate of 0 means that the job cannot run there.
    """

    def __init__(self, curves: Mapping[tuple[str, str], Curve], *, place: str) -> None:
        self._curves = dict(curves)
        """Curves by GPU type (in lower case) and model."""
        self.place = place
        self._types = {kind for kind, _ in curves}
        self._models = frozenset(model for _, model in curves)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a folder of ``throughputs_<GPU type>`` folders, one such folder, or one table in it.

        Raises:
            InputError: there is no table, a table has another form, or a rate is negative or not a number.
        """
        root = Path(path)
        curves: dict[tuple[str, str], Curve] = {}
        for table in _tables(root):
            kind = table.parent.name.removeprefix(_FOLDER).lower()
            for batch, curve in _lines(table):
                name = named_model(table.stem, batch)
                if (kind, name) in curves:
                    raise InputError("a batch size of a model must stand once", value=name, place=str(table))
                curves[kind, name] = curve
        if not curves:
            raise InputError("there must be tables of throughputs", value="none", place=str(root))
        return cls(curves, place=str(root))

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models' names with batch sizes, in the order of the files."""
        return tuple(dict.fromkeys(model for _, model in self._curves))

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a model is measured on some GPU type at a global batch size, or at the one in its name."""
        return _of_batch(model, batch_size) in self._models

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second; 0: the model is measured only on other GPU types.

        ``setting.batch_size`` selects the line of that global batch size.

        Raises:
            InputError: no table has the GPU type, or none has the model at that batch size.
        """
        kind = setting.gpu_type.lower()
        if kind not in self._types:
            raise unknown("GPU type", setting.gpu_type, sorted(self._types), self.place)
        name = _of_batch(model, setting.batch_size)
        if name not in self._models:
            raise unknown("model", name, self.models, self.place)
        curve = self._curves.get((kind, name))
        return 0.0 if curve is None else curve.at(setting.gpus) * part_of_gpu(setting)


def _of_batch(model: str, batch_size: float | None) -> str:
    """Return the name of a model at a batch size; None: at the one in its name."""
    family, own = split_model(model)
    return named_model(family, own if batch_size is None else int(batch_size))


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
