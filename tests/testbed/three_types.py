"""A trace of 100 jobs on three GPU types, spelt by hand or as its table of speeds spells the models.

``python tests/testbed/three_types.py FOLDER`` writes ``by-hand.csv``, ``as-spelt.csv`` and ``speeds.json``. Lengths are
lognormal with a median of 24 minutes, gangs 1, 2, 4 or 8 GPUs, times those of V100. The table is in Gavel's format.
"""

import json
import sys
from pathlib import Path
from typing import Final

import numpy as np

CLUSTER: Final = "2x8 V100, 2x8 P100, 4x4 K80"
SPELT: Final = {"resnet50": "ResNet-50", "bert-base": "bert base", "vgg16": "VGG-16"}
"""The models by hand, and as the table of speeds spells them."""
AS_SPELT: Final = ",".join(f"{name}={known}" for name, known in SPELT.items())
"""The value of ``--unknown-models`` that maps them all."""
GANGS: Final = (1, 2, 4, 8)
_SPEEDS: Final = {"v100": 1.0, "p100": 0.7, "k80": 0.25}
_GAIN: Final = {"ResNet-50": 1.0, "bert base": 1.5, "VGG-16": 0.6}
"""By model, the power of the speed of a GPU type: how much it gains from faster GPUs."""


def trace(*, spelt: bool = False, jobs: int = 100, seed: int = 7) -> str:
    """The text of the trace in Eunomia's own format."""
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(240.0, jobs))
    seconds = draw.lognormal(np.log(1440.0), 1.1, jobs)
    gangs = draw.choice(GANGS, jobs, p=(0.55, 0.2, 0.15, 0.1))
    models = draw.choice(list(SPELT), jobs)
    named = [SPELT[model] if spelt else model for model in models]
    rows = [f"job{row:03d},{arrivals[row]:.0f},{gangs[row]},{seconds[row]:.0f},1,{named[row]}" for row in range(jobs)]
    return "\n".join(["job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model", *rows, ""])


def speeds() -> str:
    """The text of the table: steps per second by GPU type, model and gang."""
    return json.dumps(
        {
            kind: {
                f"('{model}', {gang})": {"null": 10.0 * speed**gain * gang**0.9}
                for model, gain in _GAIN.items()
                for gang in GANGS
            }
            for kind, speed in _SPEEDS.items()
        }
    )


def write(folder: Path) -> None:
    """Write the three files."""
    (folder / "by-hand.csv").write_text(trace(), encoding="utf-8")
    (folder / "as-spelt.csv").write_text(trace(spelt=True), encoding="utf-8")
    (folder / "speeds.json").write_text(speeds(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
