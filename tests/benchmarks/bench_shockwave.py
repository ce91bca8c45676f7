"""CPU time of Shockwave's planner, and of whole simulations under the preset.

Run with ``python tests/benchmarks/bench_shockwave.py [--sizes 2000x256,10000x256] [--rounds 20] [--seeds 1,2,3]``, or
with ``--simulate``. Jobs are those of Shockwave's generator (0.2 to 5 hours, half Accordion, half GNS), each at a
random point of its life, so that many change their batch size within the window; weights are lognormal, in place of
ρ^k. Where the mean of the work sets H, for which some rows count GPU-seconds, the gap is the planner's own; where the
longest job sets it, the gap is stated. Prints CPU milliseconds on one thread, gap, starts and GPU-rounds.

``--simulate`` simulates the published trace and 900 generated jobs on 256 GPUs under the rules of Gavel's simulator,
with the presets as shipped, and prints CPU seconds without imports, steps, plans and calls of stages. No timing is
asserted. Rates of real jobs lie in ``../shared/data``; without them nothing is run.
"""

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from eunomia_plugins.shockwave.instance import Instance, logarithmic
from eunomia_plugins.shockwave.outlook import Outlook
from eunomia_plugins.shockwave.planner import plan_window
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.workload import Workload

DATA: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "shockwave"
ROUND: Final = 120.0
SMOOTH: Final = tuple(np.linspace(0.0, 1.0, 51).tolist())


SETTINGS: Final = ((0.001, False), (1.0, False), (100.0, False), (1.0, True))
"""λ, and whether H counts GPU-seconds."""


def drawn(size: str, rounds: int, seed: int, setting: tuple[float, bool], points: tuple[float, ...]) -> Instance:
    """Jobs of the generator, each somewhere in its life; the size is jobs x GPUs."""
    jobs, gpus = map(int, size.split("x"))
    rates = str(DATA / "tacc_throughputs.json.gz")
    workload = generate_workload("shockwave", {"jobs": jobs, "throughputs": rates}, seed)
    luck = np.random.default_rng(seed)
    seen = outlook_of(workload, luck.uniform(0.0, 1.0, jobs))
    utility = seen.progress_after(rounds, ROUND)
    return Instance(
        gpus=workload.jobs.most.astype(np.int64),
        value=logarithmic(utility, luck.lognormal(0.0, 0.5, jobs), points, 1e-6),
        left=seen.left,
        total=seen.total,
        capacity=gpus,
        seconds=ROUND,
        regularizer=setting[0],
        by_gpus=setting[1],
    )


def outlook_of(workload: Workload, done: np.ndarray) -> Outlook:
    """The regimes that are left of jobs that have done this part of their iterations."""
    jobs = workload.jobs
    width = max((len(life) for life in workload.regimes.values()), default=1)
    work, seconds = np.zeros((workload.size, width)), np.zeros((workload.size, width))
    for job in range(workload.size):
        life = workload.regimes.get(job, ())
        whole = [(one.iterations, one.seconds_per_iteration) for one in life]
        for place, (iterations, pace) in enumerate(
            whole or [(float(jobs.iterations[job]), float(jobs.seconds_per_iteration[job]))]
        ):
            work[job, place], seconds[job, place] = iterations, iterations * pace
    begins = work.cumsum(axis=1) - work
    left = np.clip(begins + work - (done * work.sum(axis=1))[:, None], 0.0, work)
    part = np.divide(left, work, out=np.zeros_like(work), where=work > 0.0)
    attained = (seconds * (1.0 - part)).sum(axis=1)
    return Outlook(progress=done, iterations=left, seconds=seconds * part, attained=attained)


def plans(sizes: str, rounds: int, seeds: list[int]) -> None:
    """Measure the planner, the best of five runs each."""
    head = f"{'jobs x GPUs':>14}{'λ':>8}{'H counts':>10}{'log':>8}{'seed':>5}"
    print(f"{head}{'ms':>8}{'gap %':>10}{'H by':>9}{'starts':>7}{'jobs run':>9}{'used %':>8}")
    for size in sizes.split(","):
        for setting in SETTINGS:
            for name, points in (("linear", (0.0, 1.0)), ("smooth", SMOOTH)):
                for seed in seeds:
                    instance = drawn(size, rounds, seed, setting, points)
                    counts = "GPU-s" if setting[1] else "s"
                    row = f"{size:>14}{setting[0]:8g}{counts:>10}{name:>8}{seed:5}"
                    print(f"{row}{measured(instance)}", flush=True)


def measured(instance: Instance) -> str:
    """CPU time and figures of a plan."""
    spent = []
    for _ in range(5):
        began = time.process_time()
        made = plan_window(instance, np.zeros(instance.jobs, dtype=bool))
        spent.append(1000.0 * (time.process_time() - began))
    counts, record = made.rounds.sum(axis=1), made.record
    mean, longest = instance.terms(counts)
    used = 100.0 * record.granted / min(instance.capacity * instance.rounds, int(instance.gpus @ instance.useful))
    by = "mean" if mean >= longest else "longest"
    ran = int((counts > 0).sum())
    return f"{min(spent):8.1f}{100.0 * record.gap:10.5f}{by:>9}{record.starts:7}{ran:9}{used:8.2f}"


def simulations() -> None:
    """Simulate under both presets, in this process; the first simulation warms imports up and is not printed."""
    rates = ["--throughputs", str(DATA / "tacc_throughputs.json.gz")]
    published = [str(DATA / "canonical_120jobs_32gpus.trace"), *rates, "--cluster", "32x1 V100"]
    drawn = ["--workload", "shockwave", "--set", f"shockwave.throughputs={rates[1]}", "--set", "shockwave.jobs=900"]
    drawn += ["--set", "shockwave.interarrival_seconds=5", "--cluster", "256x1 V100", "--seed", "11"]
    print(f"{'workload':<22}{'policy':<18}{'CPU s':>7}{'steps':>7}{'events':>8}{'plans':>7}{'calls of stages':>17}")
    for name, given in (("", published), ("120 jobs, 32 GPUs", published), ("900 jobs, 256 GPUs", drawn)):
        for policy in ("shockwave", "shockwave_linear"):
            row = simulated([*given, "--policy", policy])
            if name:
                print(f"{name:<22}{policy:<18}{row}", flush=True)


def simulated(given: Sequence[str]) -> str:
    """CPU seconds of one simulation, its steps, events and plans, and how often its stages were asked."""
    from eunomia.cli import run as command
    from eunomia.round.round import Round
    from eunomia_plugins.shockwave import planning
    from eunomia_testbed.running import cell_files

    found, asked, planned = [""], [0], [0]
    simulate, ask, window = cell_files.simulate_one, Round.ask, planning.plan_window

    def timed(*rest: object, **named: object) -> object:
        began = time.process_time()
        run = simulate(*rest, **named)
        spent = time.process_time() - began
        found[0] = f"{spent:7.2f}{run.steps:7}{run.events:8}{planned[0]:7}{asked[0]:17}"
        return run

    def counted(*rest: object, **named: object) -> object:
        asked[0] += 1
        return ask(*rest, **named)

    def counted_plan(*rest: object) -> object:
        planned[0] += 1
        return window(*rest)

    with tempfile.TemporaryDirectory() as folder:
        vars(cell_files)["simulate_one"], vars(planning)["plan_window"] = timed, counted_plan
        Round.ask = counted
        try:
            rules = ["--rules", "gavel", "--rho", "static", "--know", "measured", "-q", "--no-report", "-j", "1"]
            with contextlib.redirect_stdout(io.StringIO()):
                code = command(["simulate", *given, *rules, "--out", str(Path(folder) / "out")])
            if code:
                raise SystemExit(f"simulate: exit code {code}")
        finally:
            vars(cell_files)["simulate_one"], vars(planning)["plan_window"], Round.ask = simulate, window, ask
    return found[0]


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="120x32,2000x256,10000x256")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--simulate", action="store_true")
    given = parser.parse_args()
    if not DATA.is_dir():
        print(f"nothing is measured, for the rates are not here: {DATA}")
        return
    if given.simulate:
        simulations()
        return
    plans(given.sizes, given.rounds, [int(seed) for seed in given.seeds.split(",")])


if __name__ == "__main__":
    main()
