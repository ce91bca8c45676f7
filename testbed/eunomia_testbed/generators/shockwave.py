"""Shockwave's traces (NSDI'23), drawn as by its public generator: equal parameters give an equal trace.

The file ``120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace`` of their repository equals, line by
line, the trace that is drawn here with the parameters in its name and their throughputs of the TACC cluster. To
reproduce it, Python's and numpy's legacy generators are used, one per quantity, with seeds S to S + 4.
"""

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from eunomia.errors import InputError
from eunomia_testbed.generators.drawing import check_chances
from eunomia_testbed.generators.job_types import SHOCKWAVE, JobType
from eunomia_testbed.generators.options import Chances4, Count, GeneratorOptions
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.traces.gavel import ShockwaveReader
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.adaptation import MODES

BANDS: Final = ((0.72, 0.2), (0.2, 0.5), (0.05, 0.9), (0.03, 1.0))
"""Probability of each band of candidate durations, and the fraction of the candidates at which it ends (Table 2,
§8.1)."""
SHORTEST_ACCORDION_SECONDS: Final = 1000
"""Accordion jobs shorter than this become static jobs, as in the authors' generator."""
GPU_TYPE: Final = "v100"
_NAME: Final = re.compile(
    r"(?P<jobs>\d+)_(?P<shortest_hours>[\d.]+)_(?P<longest_hours>[\d.]+)_(?P<durations>\d+)_(?P<interarrival_seconds>"
    r"[\d.]+)_(?P<seed>\d+)_(?P<mode_split>[\d.,]+)_(?P<gpu_split>[\d.,]+)_multigpu_dynamic(?:\.trace)?"
)


class ShockwaveOptions(GeneratorOptions):
    """Options of ``shockwave``, in the order of a trace's file name."""

    jobs: Count = 120
    """Number of jobs."""
    shortest_hours: float = Field(default=0.2, gt=0.0, le=1e4)
    """Shortest candidate duration, in hours."""
    longest_hours: float = Field(default=5.0, gt=0.0, le=1e4)
    """Longest candidate duration, in hours."""
    durations: int = Field(default=100, ge=10, le=100_000)
    """Number of candidate durations, equally spaced."""
    interarrival_seconds: float = Field(default=40.0, ge=0.0, le=1e9)
    """Mean seconds between arrivals."""
    mode_split: Annotated[tuple[float, ...], AfterValidator(lambda given: check_chances(given, 3))] = (0.0, 0.5, 0.5)
    """Probabilities of the modes static, accordion and gns."""
    gpu_split: Chances4 = (0.6, 0.3, 0.09, 0.01)
    """Probabilities of 1, 2, 4 and 8 GPUs; recommendation models always have one."""
    throughputs: Path
    """Measured throughputs in Gavel's format."""

    @model_validator(mode="after")
    def _durations_ascend(self) -> Self:
        if self.shortest_hours > self.longest_hours:
            rule = f"shortest_hours must be at most longest_hours ({self.longest_hours:g})"
            raise ValueError(f"{rule}, but got {self.shortest_hours:g}")
        return self

    @classmethod
    def of_name(cls, name: str, throughputs: Path) -> tuple[Self, int]:
        """Read options and seed from the file name of a Shockwave trace.

        Raises:
            InputError: the name does not have the form of a Shockwave trace.
        """
        match = _NAME.fullmatch(Path(name).name)
        if match is None:
            rule = "a trace of Shockwave must be named J_a_b_n_L_S_modes_gpus_multigpu_dynamic"
            raise InputError(rule, value=f'"{name}"')
        given: dict[str, object] = {
            key: tuple(float(part) for part in text.split(",")) if key.endswith("split") else text
            for key, text in match.groupdict().items()
            if key != "seed"
        }
        return cls.model_validate({**given, "throughputs": throughputs}), int(match["seed"])


def generate(options: ShockwaveOptions, seed: int) -> Workload:
    """Draw a trace as text, and parse it with the reader of Shockwave's files.

    Raises:
        InputError: the throughputs cannot be read, or lack a drawn job type.
    """
    rates = GavelThroughputs.read(options.throughputs)
    text = "".join(f"{line}\n" for line in trace_lines(options, seed, rates))
    source = TraceSource(f"shockwave-{options.jobs}-seed{seed}", text.encode())
    return ShockwaveReader().read(source, ReadOptions(throughputs=rates, reference_type=GPU_TYPE, strict=True))


def trace_lines(options: ShockwaveOptions, seed: int, rates: GavelThroughputs) -> Iterator[str]:
    """Yield the lines of a trace, with twelve columns; values that only a real run uses are shortened.

    Raises:
        InputError: a job type has no rate.
    """
    draws = _Draws(options, seed)
    arrival = 0.0
    for job in range(options.jobs):
        kind = draws.kind()
        gpus = draws.gpus() if kind.distributed else 1
        seconds = draws.seconds()
        mode = draws.mode(seconds)
        arrival += draws.gap() if job else 0.0
        steps = int(seconds * rates.measured(kind.model, gpus, GPU_TYPE))
        command = f"python3 main.py --batch_size {kind.batch_size}"
        fields = (kind.model, command, kind.family, "--steps", 1, steps, gpus, mode, 1, "-1.000000", seconds)
        yield "\t".join(map(str, (*fields, int(arrival))))


class _Draws:
    """One random generator per quantity, as in the authors' generator."""

    def __init__(self, options: ShockwaveOptions, seed: int) -> None:
        self._options = options
        self._choice = np.random.RandomState(seed % 2**32)  # their code seeds numpy's global generator
        self._kinds, self._gaps, self._bands, self._gangs, self._modes = (
            random.Random(seed + offset) for offset in range(5)
        )
        self._candidates = np.linspace(options.shortest_hours, options.longest_hours, options.durations)

    def kind(self) -> JobType:
        return self._kinds.choice(SHOCKWAVE)

    def gpus(self) -> int:
        uniform = self._gangs.uniform(0, 1)
        split = self._options.gpu_split
        last = len(split) - 1
        return 1 << next((place for place in range(last) if uniform <= sum(split[: place + 1])), last)

    def seconds(self) -> int:
        uniform = self._bands.uniform(0, 1)
        chances = [chance for chance, _ in BANDS]
        band = next((place for place in range(3) if uniform < sum(chances[: place + 1])), 3)
        ends = [0, *(round(len(self._candidates) * end) for _, end in BANDS)]
        return round(3600 * float(self._choice.choice(self._candidates[ends[band] : ends[band + 1]])))

    def mode(self, seconds: int) -> str:
        uniform = self._modes.uniform(0, 1)
        split = self._options.mode_split
        mode = next((MODES[place] for place in range(2) if uniform < sum(split[: place + 1])), MODES[2])
        return MODES[0] if mode == MODES[1] and seconds < SHORTEST_ACCORDION_SECONDS else mode

    def gap(self) -> float:
        return -math.log(1.0 - self._gaps.random()) * self._options.interarrival_seconds
