"""Synergy-Opt's programme and placement: CPU time, certified gap, divided jobs; and Tune's sum of rates beside Opt's.

Run with ``python tests/benchmarks/bench_synergy_opt.py [--servers 16,64,256] [--seeds 1,2,3] [--rounds 100]``. Servers
have 8 GPUs, 24 CPUs and 500 GiB; jobs fill them, of one GPU or of 1 to 8, with the authors' matrices of ten models,
each as it is (*alike*) or changed by up to 20 % for each job (*distinct*). The placement counts jobs that find machines
with their chosen amounts; next to it stands the paper's second programme (A.1.3) on the same amounts, by the dual
simplex method, with the jobs that its vertex divides, those of one GPU among them, and Theorem A.2's bound of three a
server; ``-``: not solved within 60 s. Last, contended rounds on 128 GPUs are drawn, in which jobs demand at least 1.5
times the CPUs: the sums of rates under Tune, for two saturations, under Tune with exchanges and under Opt over the
bound of the programme. Prints CPU milliseconds on one thread; asserts no timing. The profiles lie in ``../shared/data``
or where ``--profiles`` says.
"""

import argparse
import csv
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from eunomia import Menus, curve_points
from eunomia.contract.allocations import AmountRange, Grants
from eunomia.testing.builders import World
from eunomia.testing.inputs import grants_to
from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.synergy.arrange import arranged
from eunomia_plugins.synergy.arranged import ArrangedOptions, SynergyArranged
from eunomia_plugins.synergy.matrices import Matrix, demand
from eunomia_plugins.synergy.points import Points, instance_of, points_of
from eunomia_plugins.synergy.tune import SynergyTune, TuneOptions
from eunomia_plugins.synergy.whole_jobs import ChosenPoints, solve

PROFILES: Final = Path(__file__).parents[3] / "shared" / "data" / "synergy" / "profiles.csv"
SIZES: Final = np.array([1, 2, 4, 8])
CHANCES: Final = (0.70, 0.10, 0.15, 0.05)
SHARE: Final = np.array([3.0, 62.5])
SERVER: Final = np.array([8.0, 24.0, 500.0])
LIMIT_SECONDS: Final = 60.0
EXCHANGES: Final = 400


def matrices(profiles: Path) -> list[Matrix]:
    """Of a job of one GPU, by model."""
    rates: dict[str, dict[tuple[float, float], float]] = {}
    with profiles.open() as file:
        for row in csv.DictReader(file):
            if row["variant"] == "cpu_per_gpu=3" and row["gpus"] == "1":
                place = float(row["cpus_per_gpu"]), float(row["mem_gb_per_gpu"])
                rates.setdefault(row["model"], {})[place] = float(row["rel_tput"])
    made = []
    for _, points in sorted(rates.items()):
        cpus, memory = (np.array(sorted({place[at] for place in points})) for at in (0, 1))
        made.append(
            Matrix(
                cpus=cpus, memory_gib=memory, rate=rising([[points[one, other] for other in memory] for one in cpus])
            )
        )
    return made


def rising(rate: object) -> Reals:
    """Rates that fall in neither direction."""
    return np.maximum.accumulate(np.maximum.accumulate(np.array(rate, float), axis=0), axis=1)


class Jobs(NamedTuple):
    """Groups of equal jobs."""

    gpus: Ints
    """[group] of a job."""
    count: Ints
    matrices: list[Matrix]
    points: list[Points]


def drawn(models: list[Matrix], servers: int, luck: np.random.Generator, *, several: bool, distinct: bool) -> Jobs:
    """Jobs that fill the servers."""
    left, count = 8 * servers, dict[tuple[int, ...], int]()
    while left:
        size = min(left, int(luck.choice(SIZES, p=CHANCES))) if several else 1
        key = (size, int(luck.integers(len(models))), *((len(count),) if distinct else ()))
        count[key] = count.get(key, 0) + 1
        left -= size
    made = [scaled(models[model], size, luck if distinct else None) for size, model, *_ in count]
    gpus = np.array([key[0] for key in count])
    points = [
        points_of(one, (3.0 * size, 62.5 * size), (24.0, 500.0)) for one, size in zip(made, gpus.tolist(), strict=True)
    ]
    return Jobs(gpus, np.array(list(count.values())), made, points)


def scaled(model: Matrix, gpus: int, luck: np.random.Generator | None) -> Matrix:
    """The matrix of a job of several GPUs; its points are changed by chance where luck is given."""
    change = 1.0 if luck is None else 1.0 + 0.2 * luck.random(model.rate.shape)
    return Matrix(cpus=model.cpus * gpus, memory_gib=model.memory_gib * gpus, rate=rising(model.rate * change * gpus))


def programmes(models: list[Matrix], servers: Sequence[int], seeds: Sequence[int]) -> None:
    """Time and gap of the programme, and what its placement comes to."""
    print(f"{'servers':>8}{'jobs':>6} {'GPUs':<9}{'matrices':<9}{'seed':>5}{'ms':>8}{'gap %':>9}", end="")
    print(f"{'placed %':>10}{'divided':>8}{'ms':>8}{'2nd: divided':>14}{'of 1 GPU':>9}{'A.2':>6}{'ms':>8}")
    for count in servers:
        for several in (False, True):
            for distinct in (False, True):
                for seed in seeds:
                    jobs = drawn(models, count, np.random.default_rng(seed), several=several, distinct=distinct)
                    head = f"{count:>8}{int(jobs.count.sum()):>6} {'1 to 8' if several else '1':<9}"
                    print(f"{head}{'distinct' if distinct else 'alike':<9}{seed:>5}{measured(jobs, count)}", flush=True)


def measured(jobs: Jobs, servers: int) -> str:
    """Figures of one instance; the second time is that of its placement."""
    spent, found = solution(jobs, servers)
    need = needs(jobs, found)
    began = time.process_time()
    places = arranged(need, np.tile(SERVER, (servers, 1)), SERVER, [[] for _ in need])
    placing = 1000.0 * (time.process_time() - began)
    placed = sum(count for counts in places for _, count in counts) / (8 * servers)
    divided = sum(len(counts) > 1 for counts in places)
    mine = f"{spent:>8.1f}{100.0 * found.gap:>9.4f}{100.0 * placed:>10.2f}{divided:>8}{placing:>8.0f}"
    return mine + second_programme(need, servers)


def second_programme(need: Reals, servers: int) -> str:
    """Jobs that a vertex of programme (15) to (19) divides, those of one GPU among them, the bound of A.2, and time."""
    jobs, began = len(need), time.process_time()
    column = np.arange(servers * jobs)
    server, job = column // jobs, column % jobs
    rows = np.concatenate([resource * servers + server for resource in range(3)] + [3 * servers + job])
    parts = np.concatenate([need[job, resource] / SERVER[resource] for resource in range(3)] + [-np.ones(column.size)])
    matrix = csr_array((parts, (rows, np.tile(column, 4))), shape=(3 * servers + jobs, column.size))
    most = np.concatenate([np.full(3 * servers, 1.0 + 1e-9), -np.ones(jobs)])
    limit = {"time_limit": LIMIT_SECONDS}
    solved = linprog(np.ones(column.size), A_ub=matrix, b_ub=most, method="highs-ds", options=limit)
    spent = 1000.0 * (time.process_time() - began)
    if solved.x is None or solved.status != 0:
        return f"{'-':>14}{'-':>9}{3 * servers:>6}{spent:>8.0f}"
    several: Bools = np.asarray((solved.x.reshape(servers, jobs) > 1e-7).sum(axis=0) > 1)
    return f"{int(several.sum()):>14}{int((several & (need[:, 0] == 1)).sum()):>9}{3 * servers:>6}{spent:>8.0f}"


def solution(jobs: Jobs, servers: int) -> tuple[float, ChosenPoints]:
    """CPU milliseconds of building and solving, the best of three runs, and the answer."""
    times = []
    for _ in range(3):
        began = time.process_time()
        found = solve(instance_of(jobs.points, jobs.count, (24.0 * servers, 500.0 * servers)))
        times.append(1000.0 * (time.process_time() - began))
    if found is None:
        raise SystemExit("the shares of all jobs do not fit")
    return min(times), found


def needs(jobs: Jobs, found: ChosenPoints) -> Reals:
    """[job, 3] GPUs, CPUs and GiB of each job."""
    parts = [
        np.column_stack([np.full(int(row.sum()), float(size)), points.of(row)])
        for size, points, row in zip(jobs.gpus.tolist(), jobs.points, found.jobs, strict=True)
    ]
    return np.concatenate(parts)


def beside_opt(models: list[Matrix], rounds: int, saturation: float, seed: int) -> None:
    """Sums of rates as placed on 16 servers, over the programme's bound: Tune's, with exchanges, and Opt's."""
    luck = np.random.default_rng(seed)
    tune, own, opt, spent = list[float](), list[float](), list[float](), list[float]()
    while len(tune) < rounds:
        jobs = drawn(models, 16, luck, several=len(tune) % 2 == 1, distinct=True)
        share = SHARE * jobs.gpus[:, None]
        wanted = np.array(
            [
                demand(one, (3.0 * size, 62.5 * size), (24.0, 500.0), saturation)
                for one, size in zip(jobs.matrices, jobs.gpus.tolist(), strict=True)
            ]
        )
        if wanted[:, 0].sum() < 1.5 * 24 * 16:
            continue
        found = solution(jobs, 16)[1]
        chosen = needs(jobs, found)[:, 1:]
        least = np.where((chosen >= share).all(axis=1)[:, None], share, chosen)
        tune.append(rates(SynergyTune(TuneOptions()), jobs, np.minimum(wanted, share), wanted) / found.bound)
        began = time.process_time()
        exchanged = SynergyTune(TuneOptions(exchanges=EXCHANGES))
        own.append(rates(exchanged, jobs, np.minimum(wanted, share), wanted) / found.bound)
        spent.append(1000.0 * (time.process_time() - began))
        opt.append(rates(SynergyArranged(ArrangedOptions()), jobs, least, chosen) / found.bound)
    print(f"saturation {saturation:g}, seed {seed}, {rounds} contended rounds on 128 GPUs, least and mean:", end="")
    for name, column in (
        ("Tune / bound", tune),
        ("exchanged / bound", own),
        ("Opt / bound", opt),
        ("Tune / Opt", np.divide(tune, opt).tolist()),
        ("exchanged / Opt", np.divide(own, opt).tolist()),
    ):
        print(f" {name} {min(column):.3f} {fmean(column):.3f};", end="")
    print(f" exchanges {fmean(spent):.0f} ms a round, at most {max(spent):.0f}", flush=True)


def menus_of(world: World, jobs: Jobs) -> Menus:
    """A curve for each job, with the points of its matrix."""
    curve = np.full(world.snapshot().jobs.most.size, -1, np.int32)
    parts = []
    for turn, (size, matrix) in enumerate(zip(jobs.gpus.tolist(), jobs.matrices, strict=True)):
        curve[world.row(f"a/{turn}")] = turn
        cpus, memory = np.meshgrid(matrix.cpus, matrix.memory_gib, indexing="ij")
        columns = cpus.ravel(), memory.ravel(), matrix.rate.ravel()
        parts.append(np.column_stack([np.full(cpus.size, turn), np.full(cpus.size, size), *columns]))
    owner, gpus, cpus, memory, rate = np.concatenate(parts).T
    points = curve_points(owner.astype(np.int32), gpus.astype(np.int64), rate=rate, amounts=(cpus, memory))
    return Menus(curve=curve, points=points)


def rates(stage: SynergyTune | SynergyArranged, jobs: Jobs, least: Reals, most: Reals) -> float:
    """The sum of rates, as multiples of those at the share, where a placement divides 16 servers."""
    world = World("16x8 V100 24cpu 500GiB")
    names = {f"a/{turn}": int(size) for turn, size in enumerate(jobs.gpus.tolist())}
    for name, size in names.items():
        world.job(name, gpus=size)
    allocation = grants_to(world, names)
    if not isinstance(allocation.amount, Grants):
        raise TypeError("grants are whole GPUs")
    ranges = [AmountRange(least=least[:, at], most=most[:, at]) for at in (0, 1)]
    amount = dataclasses.replace(allocation.amount, cpus=ranges[0], memory_gib=ranges[1])
    allocation = dataclasses.replace(allocation, amount=amount)
    snapshot, offer = world.snapshot(), world.offer()
    if isinstance(stage, SynergyTune):
        answer = stage.eunomia_placement(snapshot, menus_of(world, jobs), offer, allocation)
    else:
        answer = stage.eunomia_placement(snapshot, offer, allocation)
    total = 0.0
    for turn, claim in enumerate(answer.claim.tolist()):
        part = slice(int(answer.start[turn]), int(answer.start[turn + 1]))
        if answer.cpus is not None and answer.memory_gib is not None and part.stop > part.start:
            one, share = jobs.matrices[claim], SHARE * float(jobs.gpus[claim])
            got = float(answer.cpus[part].sum()), float(answer.memory_gib[part].sum())
            total += one.at(*got) / one.at(*share)
    return total


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="16,64,256")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--profiles", type=Path, default=PROFILES)
    parser.add_argument("--saturations", default="0.9,1")
    parser.add_argument("--only-rounds", action="store_true", help="only the contended rounds")
    given = parser.parse_args()
    if not given.profiles.exists():
        raise SystemExit(f"no profiles at {given.profiles}")
    models, seeds = matrices(given.profiles), [int(one) for one in given.seeds.split(",")]
    if not given.only_rounds:
        programmes(models, [int(one) for one in given.servers.split(",")], seeds)
    for saturation in given.saturations.split(","):
        for seed in seeds:
            beside_opt(models, given.rounds, float(saturation), seed)


if __name__ == "__main__":
    main()
