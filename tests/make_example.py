"""Writes the files of ``eunomia example``, own invention: ``python tests/make_example.py``; a test compares.

``example.csv`` has 72 jobs of 60 apps in Eunomia's format: four apps are searches of four jobs. Lengths are lognormal,
arrivals come in the day's rhythm over a day and a half, gangs are 1, 2, 4 or 8 GPUs. ``accounting.csv`` has the same
jobs as another system would export them: other columns, calendar times, minutes, and models spelt otherwise.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

FOLDER: Final = Path(__file__).parents[1] / "testbed" / "eunomia_testbed" / "example"
SEED: Final = 11
APPS: Final = 60
SEARCHES: Final = (9, 21, 36, 50)
"""Apps that search for hyperparameters, with four jobs each."""
USERS: Final = {"ana": 0.4, "ben": 0.3, "chloe": 0.2, "dan": 0.1}
"""By user, the share of the apps."""
MODELS: Final = {
    "ResNet-50": "resnet50",
    "VGG16": "vgg16",
    "GNMT": "gnmt-en-de",
    "LSTM": "lstm",
    "Transformer": "transformer-base",
    "Deep Speech 2": "own-net",
}
"""Models as ``--speeds analytic`` names them, and as ``accounting.csv`` does."""
GANGS: Final = {1: 0.5, 2: 0.25, 4: 0.15, 8: 0.1}
BEGIN: Final = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
CLUSTER: Final = """# Two machines of V100 in one rack, four of K80 in another.
bandwidth = { island = "20GB/s", machine = "12GB/s", rack = "0.85GB/s", cluster = "0.43GB/s" }

[[machines]]
names = "v[1-2]"
gpus = "8xV100"
rack = "r1"
cpus = 48
memory = "384GiB"

[[machines]]
names = "k[1-4]"
gpus = "4xK80"
rack = "r2"
cpus = 16
memory = "128GiB"
"""


class Job(NamedTuple):
    """A job of the example; its time is the one on V100."""

    name: str
    user: str
    arrival_seconds: int
    gpus: int
    iterations: int
    seconds_per_iteration: float
    model: str


def jobs() -> list[Job]:
    """The jobs in their order of arrival."""
    draw = np.random.default_rng(SEED)
    arrivals = _arrivals(draw)
    made: list[Job] = []
    for app in range(APPS):
        user = str(draw.choice(list(USERS), p=list(USERS.values())))
        model = str(draw.choice(list(MODELS)))
        gang = int(draw.choice(list(GANGS), p=list(GANGS.values())))
        step = round(float(draw.uniform(0.2, 1.5)), 2)
        trials = 4 if app in SEARCHES else 1
        gang, typical = (1, 4500.0) if trials > 1 else (gang, float(draw.lognormal(np.log(4200.0), 1.1)))
        for trial in range(trials):
            seconds = typical * float(draw.uniform(0.6, 1.4)) if trials > 1 else typical
            name = f"{user}-{app + 1:02d}" + (f"/{trial}" if trials > 1 else "")
            made.append(Job(name, user, arrivals[app], gang, max(100, round(seconds / step)), step, model))
    return made


def _arrivals(draw: np.random.Generator) -> list[int]:
    """Seconds from the first arrival: thrice as many by day (8 to 20 o'clock) as by night."""
    now, found = 0.0, [0]
    while len(found) < APPS:
        now += float(draw.exponential(1150.0))
        by_day = now % 86_400.0 < 43_200.0
        if by_day or draw.random() < 1 / 3:
            found.append(round(now))
    return found


def trace() -> str:
    """The text of ``example.csv``."""
    head = "job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model,reference_type"
    rows = [
        f"{job.name},{job.user},{job.arrival_seconds},{job.gpus},{job.iterations},{job.seconds_per_iteration},{job.model},V100"
        for job in jobs()
    ]
    return "\n".join([head, *rows, ""])


def accounting() -> str:
    """The text of ``accounting.csv``."""
    rows = [
        f"{number},{job.user},{BEGIN + timedelta(seconds=job.arrival_seconds):%Y-%m-%d %H:%M:%S},"
        f"{job.iterations * job.seconds_per_iteration / 60:.1f},{job.gpus},{MODELS[job.model]}"
        for number, job in enumerate(jobs(), start=1041)
    ]
    return "\n".join(["job_id,owner,queued_at,runtime_min,num_gpus,network", *rows, ""])


FILES: Final = {"example.csv": trace, "accounting.csv": accounting, "lab.toml": lambda: CLUSTER}
"""By file, what makes its text."""


def main() -> None:
    for name, make in FILES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
