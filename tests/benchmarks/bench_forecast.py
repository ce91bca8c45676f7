"""How far off ``shockwave_forecast`` is on trajectories that it was not made from (Shockwave, NSDI'23, Figure 5).

Run with ``python tests/benchmarks/bench_forecast.py``. Jobs are those that change their batch size, in the canonical
trace and in generated ones (seeds 11 to 15, fixed before the first run); their trajectories come from the published
tables of epochs. Each job is asked about at 19 points, 5 % to 95 % of its epochs, with what it has shown until then:

- *duration error*: mean over regimes of the difference between expected and true epochs, over the job's epochs;
- *run time*: 1 less the error of the whole run time (time run, and expected time left) over the true one;
- *inside*: how often the true time left is within the interval, of the points where it has a width;
- *width*: mean over the same points of the interval's width, over the true time left.

Rates at other batch sizes are either known, as where kinds of jobs have profiles, or only those that the job has shown.
The data lie in ``../shared/data``; without them nothing is run.
"""

import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from eunomia.model.adaptations import adapts_named
from eunomia.testing.builders import World
from eunomia_plugins.shockwave.forecasts.jobs import forecast_rows, progress_of, steps_of
from eunomia_plugins.shockwave.forecasts.memo import Beliefs
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.plugin import ShockwaveForecast
from eunomia_plugins.shockwave.forecasts.words import times_left
from eunomia_testbed import read_trace
from eunomia_testbed.generators.shockwave import ShockwaveOptions, generate
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.adaptation import LARGEST_BATCH, split_model

DATA: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "shockwave"
RATES: Final = DATA / "tacc_throughputs.json.gz"
SEEDS: Final = (11, 12, 13, 14, 15)
POINTS: Final = tuple(part / 20.0 for part in range(1, 20))
SETTINGS: Final[Sequence[tuple[str, dict[str, object]]]] = (
    ("restatement", {"rule": "restatement"}),
    ("restatement, K = 4 under Accordion", {"rule": "restatement", "accordion_regimes": 4}),
    ("bayesian", {"rule": "bayesian"}),
    ("last throughput", {"rule": "last"}),
)


class Trajectory(NamedTuple):
    """A job's true regimes."""

    kind: str
    mode: str
    gpus: int
    samples: float
    batches: tuple[float, ...]
    epochs: tuple[float, ...]
    rates: tuple[float, ...]
    """Iterations a second."""

    @property
    def paces(self) -> list[float]:
        """Seconds an epoch, by regime."""
        return [steps_of(self.samples, batch) / rate for batch, rate in zip(self.batches, self.rates, strict=True)]


class Score(NamedTuple):
    """The result of one forecast."""

    duration_error: float
    accuracy: float
    inside: float
    """1 or 0; NaN: the interval has no width."""
    width: float
    """Of the interval, over the true time left."""


def trajectories(workload: Workload) -> Iterator[Trajectory]:
    """The jobs that change their batch size."""
    jobs = workload.jobs
    for job, regimes in workload.regimes.items():
        if len(regimes) < 2 or jobs.samples_per_epoch is None or jobs.adaptation is None:
            continue
        samples = float(jobs.samples_per_epoch[job])
        batches = tuple(one.batch_size for one in regimes)
        yield Trajectory(
            kind=workload.models[int(jobs.model[job])],
            mode=jobs.adaptation[job],
            gpus=int(jobs.most[job]),
            samples=samples,
            batches=batches,
            epochs=tuple(round(one.iterations * one.batch_size / samples) + 0.0 for one in regimes),
            rates=tuple(1.0 / one.seconds_per_iteration for one in regimes),
        )


def shown(job: Trajectory, done: float, *, profiled: bool) -> World:
    """The job after so many epochs, with all rates or those of the batch sizes that it had."""
    ends = [0.0, *itertools.accumulate(job.epochs)]
    present = next(turn for turn, end in enumerate(ends[1:]) if done < end or turn == len(job.epochs) - 1)
    steps = [steps_of(job.samples, batch) for batch in job.batches]
    starts = [0.0, *itertools.accumulate(each * step for each, step in zip(job.epochs, steps, strict=True))]
    iterations = starts[present] + (done - ends[present]) * steps[present]
    left = (sum(job.epochs) - done) * steps[present]  # counted in present steps, as where the future is not known
    world = World(f"1x{job.gpus} V100").job(
        "a/1",
        gpus=job.gpus,
        kind=job.kind,
        iterations=iterations + left,
        done=iterations,
        batch_size=job.batches[0],
        epochs=sum(job.epochs),
        samples_per_epoch=job.samples,
        adapts=int(adapts_named(job.mode)),
    )
    for turn in range(1, present + 1):
        world.adapts("a/1", job.batches[turn], iterations_done=starts[turn], at=float(turn))
    known = len(job.batches) if profiled else present + 1
    for batch, rate in dict(zip(job.batches[:known], job.rates[:known], strict=True)).items():
        world.measures("a/1", job.gpus, rate, batch_size=batch)
    return world


def score(job: Trajectory, part: float, settings: dict[str, object], *, profiled: bool) -> Score:
    """Ask for one forecast, and compare it with what comes."""
    largest = {job.kind: float(LARGEST_BATCH[split_model(job.kind)[0]])} if profiled else {}
    options = ShockwaveForecastOptions.model_validate({**settings, "largest_batch": largest})
    done = part * sum(job.epochs)
    snapshot = shown(job, done, profiled=profiled).snapshot()
    memo = ShockwaveForecast(options).eunomia_elasticity(snapshot).memo
    if not isinstance(memo, Beliefs):
        raise TypeError(f"a forecast must have posteriors, but {job} has none")
    belief = memo.by_job["a/1"]
    row = int(forecast_rows(snapshot)[0])
    past = progress_of(snapshot, row, float(snapshot.jobs.done[row])).past
    times = times_left(belief, past, options)
    left = max(0.0, sum(job.epochs) - past.done)
    expected = [*past.finished, *belief.posterior.left(past)]
    expected[belief.posterior.present] += past.present
    pairs = itertools.zip_longest(expected, job.epochs, fillvalue=0.0)
    errors = [abs(one - other) / sum(job.epochs) for one, other in pairs]
    true_total = math.fsum(each * pace for each, pace in zip(job.epochs, job.paces, strict=True))
    ran = _seconds_of(job, sum(job.epochs) - left)
    truth = true_total - ran
    wide = times.high - times.low > 1e-9 * true_total
    slack = 1e-9 * true_total
    inside = float(times.low - slack <= truth <= times.high + slack) if wide else math.nan
    accuracy = 1.0 - abs(ran + times.left - true_total) / true_total
    return Score(statistics.fmean(errors), accuracy, inside, (times.high - times.low) / max(truth, slack))


def _seconds_of(job: Trajectory, epochs: float) -> float:
    """The time of the first epochs."""
    total, start = 0.0, 0.0
    for each, pace in zip(job.epochs, job.paces, strict=True):
        total += min(max(epochs - start, 0.0), each) * pace
        start += each
    return total


def table(name: str, jobs: Sequence[Trajectory]) -> None:
    """Print one line a setting."""
    modes = ", ".join(f"{sum(job.mode == mode for job in jobs)} {mode}" for mode in ("accordion", "gns"))
    print(f"\n{name}: {len(jobs)} jobs that change their batch size ({modes}), {len(POINTS)} points each")
    head = f"{'rule':38} {'rates':9} {'duration error %':>17} {'run time %':>11} {'at 25, 50, 75 %':>17}"
    print(f"{head} {'inside %':>9} {'width %':>8}")
    for profiled in (True, False):
        for words, settings in SETTINGS:
            scores = [[score(job, part, settings, profiled=profiled) for job in jobs] for part in POINTS]
            each = [one for row in scores for one in row]
            wide = [one for one in each if not math.isnan(one.inside)]
            inside, width = ([getattr(one, name) for one in wide] or [math.nan] for name in ("inside", "width"))
            at = " ".join(f"{100 * statistics.fmean(one.accuracy for one in scores[turn]):5.1f}" for turn in (4, 9, 14))
            print(
                f"{words:38} {'known' if profiled else 'as shown':9} "
                f"{100 * statistics.fmean(one.duration_error for one in each):17.1f} "
                f"{100 * statistics.fmean(one.accuracy for one in each):11.1f} {at:>17} "
                f"{100 * statistics.fmean(inside):9.1f} {100 * statistics.fmean(width):8.0f}"
            )


def main(seeds: Sequence[int]) -> None:
    """The canonical trace, then generated ones."""
    if not RATES.exists():
        print(f"{DATA} is not there: nothing was run")
        return
    if tuple(seeds) == SEEDS:
        trace = read_trace(DATA / "canonical_120jobs_32gpus.trace", throughputs=RATES)
        table("canonical trace", list(trajectories(trace)))
    drawn = [generate(ShockwaveOptions(throughputs=RATES), seed) for seed in seeds]
    table(f"generated, seeds {', '.join(map(str, seeds))}", [job for one in drawn for job in trajectories(one)])


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SEEDS)
