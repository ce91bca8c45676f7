"""Gavel's traces (10 columns) and Shockwave's (12): work in steps of measured models; tab-separated, no header.

Source: the public repositories ``stanford-futuredata/gavel`` (OSDI'20) and ``uw-mad-dash/shockwave`` (NSDI'23).
"""

from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.units import Reals
from eunomia.words import did_you_mean, shown
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_ITERATIONS, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.adaptation import MODES, SAMPLES, named_model, passes_of, regimes_of, split_model

GAVEL: Final = (
    *("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps"),
    *("scale_factor", "priority_weight", "SLO", "arrival_time"),
)
SHOCKWAVE: Final = (*GAVEL[:7], "mode", *GAVEL[7:9], "duration", "arrival_time")
MOST_WEIGHT: Final = 1e6
STEP_TYPE: Final = "v100"
"""The default GPU type for times per step, as in the authors' simulator."""


class GavelReader:
    """A reader of Gavel's traces: jobs are named by line number from 0; throughputs determine the time of a step."""

    format: ClassVar[str] = "gavel"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the first line has the 10 fields of a Gavel trace."""
        return _fields(head) == len(GAVEL)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Gavel trace; errors and options are those of ``TraceReader.read``."""
        rows = _rows(source, GAVEL, "gavel")
        steps, gpus = rows.numbers("total_steps", above=0.0, most=MOST_ITERATIONS), rows.gpus("scale_factor")
        weight, arrivals = _weights(rows), rows.arrivals("arrival_time")
        types = rows.text("job_type")
        passes = _passes(types, steps)
        jobs = Jobs(
            ids=[str(line - 1) for line in rows.lines.tolist()],
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=steps,
            seconds_per_iteration=_seconds(rows, types, gpus.tolist(), options),
            models=types,
            batch_size=np.array([split_model(model)[1] or np.nan for model in types]),
            epochs=passes[:, 0],
            samples_per_epoch=passes[:, 1],
            weight=weight,
        )
        return build(rows, jobs, options, source="Gavel", ordered="arrival_time", reference_type=_reference(options))


class ShockwaveReader:
    """A reader of Shockwave's traces: Gavel's columns, and epochs, batch sizes and times of jobs that adapt.

    ``exclusive_seconds`` is the sum of a job's ``duration_every_epoch``, with whole epochs even if the last one is not
    finished. The work of a job that keeps its batch size is the trace's number of steps. Without throughputs, the
    column ``duration`` determines the time per step at the first batch size.
    """

    format: ClassVar[str] = "shockwave"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the first line has the 12 fields of a Shockwave trace."""
        return _fields(head) == len(SHOCKWAVE)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Shockwave trace; errors and options are those of ``TraceReader.read``."""
        rows = _rows(source, SHOCKWAVE, "shockwave")
        steps, gpus = rows.numbers("total_steps", above=0.0, most=MOST_ITERATIONS), rows.gpus("scale_factor")
        modes, types = rows.text("mode"), rows.text("job_type")
        unknown = np.array([mode not in MODES for mode in modes])
        rows.refuse(unknown, f"mode must be one of {', '.join(MODES)}", modes.__getitem__)
        durations, weight = rows.durations("duration"), _weights(rows)
        arrivals = rows.arrivals("arrival_time")
        if options.throughputs is None:
            seconds = np.where(rows.good, durations, np.nan) / np.where(rows.good, steps, 1.0)
        else:
            seconds = _seconds(rows, types, gpus.tolist(), options)
        lives = _Lives(rows, types, gpus.tolist(), modes, steps, seconds, options)
        passes = _passes(types, steps)
        jobs = Jobs(
            ids=[str(line - 1) for line in rows.lines.tolist()],
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=lives.iterations,
            seconds_per_iteration=seconds,
            models=types,
            batch_size=np.array([split_model(model)[1] or np.nan for model in types]),
            epochs=passes[:, 0],
            samples_per_epoch=passes[:, 1],
            weight=weight,
            adaptation=modes,
            first_batch_iterations=steps,
            exclusive_seconds=None if options.throughputs is None else lives.exclusive_seconds,
            regimes=lives.regimes,
        )
        return build(
            rows, jobs, options, source="Shockwave", ordered="arrival_time", reference_type=_reference(options)
        )


class _Lives:
    """The regimes of each job, its work, and its run time alone, computed from epochs and batch sizes."""

    def __init__(
        self,
        rows: Rows,
        types: list[str],
        gpus: list[int],
        modes: list[str],
        steps: Reals,
        seconds: Reals,
        options: ReadOptions,
    ) -> None:
        self.types, self.gpus, self.modes, self.steps, self.seconds = types, gpus, modes, steps, seconds
        self.options = options
        self.iterations = steps.copy()
        self.exclusive_seconds = np.full(rows.size, np.nan)
        self.regimes: dict[int, tuple[Regime, ...]] = {}
        for row in np.flatnonzero(rows.good).tolist():
            try:
                self._add(row)
            except InputError as error:
                broken = np.zeros(rows.size, dtype=bool)
                broken[row] = True
                given = error.value or ""
                rows.refuse(broken, error.rule, lambda _, given=given: given.strip('"'))  # type: ignore[misc]

    def _add(self, row: int) -> None:
        family, batch = split_model(self.types[row])
        if batch is None or family not in SAMPLES:
            if self.modes[row] != "static":
                raise InputError("a job that adapts must name a known model and its batch size", value=self.types[row])
            self.exclusive_seconds[row] = self.steps[row] * self.seconds[row]
            return
        runs = regimes_of(family, batch, self.gpus[row], self.modes[row], float(self.steps[row]))
        life = tuple(self._regime(row, family, epochs, size, batch) for epochs, size in runs)
        self.exclusive_seconds[row] = sum(part.iterations * part.seconds_per_iteration for part in life)
        if len(life) > 1:
            self.regimes[row] = life
            self.iterations[row] = sum(part.iterations for part in life)

    def _regime(self, row: int, family: str, epochs: int, size: int, first: int) -> Regime:
        """Return a regime of some epochs with ``samples / batch`` steps each, not rounded up."""
        return Regime(
            iterations=epochs * SAMPLES[family] / size,
            batch_size=float(size),
            seconds_per_iteration=float(self.seconds[row]) if size == first else self._measured(row, family, size),
        )

    def _measured(self, row: int, family: str, size: int) -> float:
        rates = self.options.throughputs
        if rates is None:
            return np.nan
        model = named_model(family, size)
        rate = _alone(rates, _step_type(self.options), model, self.gpus[row])
        if rate <= 0.0:
            raise InputError(_rule(rates), value=f"{model}, which it grows to, with {self.gpus[row]} GPUs")
        return 1.0 / rate


def _passes(types: list[str], steps: Reals) -> Reals:
    """Return [row, (epochs, samples per epoch)]; NaN: the size of the model's data set is unknown."""
    return np.array([passes_of(model, work) for model, work in zip(types, steps.tolist(), strict=True)]).reshape(-1, 2)


def _fields(head: str) -> int:
    """Return the number of fields in the first line if it resembles a Gavel or Shockwave trace; else 0."""
    fields = head.split("\n", 1)[0].rstrip("\r").split("\t")
    return len(fields) if len(fields) >= len(GAVEL) and "python" in fields[1] else 0


def _rows(source: TraceSource, names: tuple[str, ...], format_name: str) -> Rows:
    return Rows.of(read_table(source, required=names, names=names, separator="\t", format_name=format_name))


def _weights(rows: Rows) -> Reals:
    deadlines = rows.numbers("SLO", optional=True)
    wanted = int(np.sum(rows.good & (deadlines >= 0.0)))
    if wanted:
        rows.note(f"deadlines (SLO) of {wanted} jobs are not read")
    return rows.numbers("priority_weight", above=0.0, most=MOST_WEIGHT)


def _rule(rates: GavelThroughputs) -> str:
    return f"job_type must have a throughput in {Path(rates.place).name}"


def _seconds(rows: Rows, types: list[str], gpus: list[int], options: ReadOptions) -> Reals:
    """Return [row] seconds per step on the reference type; NaN: the job cannot run on it, or its time is unknown."""
    rates = options.throughputs
    if rates is None:
        return np.full(rows.size, np.nan)
    wanted, known = _step_type(options), rates.gpu_types
    if wanted.lower() not in {kind.lower() for kind in known}:
        rule = f"a GPU type must be one that throughputs are for: {', '.join(known)}"
        raise InputError(rule, value=f"{shown(wanted)}{did_you_mean(wanted, known)}", place=rates.place)
    jobs = list(zip(types, gpus, strict=True))
    measured = np.array([_alone(rates, wanted, model, count) for model, count in jobs])
    nowhere = np.array([not any(_alone(rates, kind, *job) for kind in known) for job in jobs])
    rows.refuse(nowhere, _rule(rates), lambda row: f"{types[row]} with {gpus[row]} GPUs")
    seconds: Reals = np.divide(1.0, measured, out=np.full(rows.size, np.nan), where=measured > 0.0)
    return seconds


def _reference(options: ReadOptions) -> str | None:
    """Return the GPU type of the times per step; None: the times come from the file, and the user gave no type."""
    return options.reference_type or options.gpu_type if options.throughputs is None else _step_type(options)


def _step_type(options: ReadOptions) -> str:
    """Return the GPU type whose throughputs convert steps to times.

    Since work is given in steps, this type affects only the declared times, not the true speed of any job.
    """
    return options.reference_type or options.gpu_type or STEP_TYPE


def _alone(rates: GavelThroughputs, kind: str, model: str, gpus: int) -> float:
    """Return the steps per second of a job alone; 0: nothing was measured for this type and number of GPUs."""
    try:
        return rates.measured(model, gpus, kind)
    except InputError:
        return 0.0
