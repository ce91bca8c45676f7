"""The peer's round rules in plain Python, without an arbiter: the witness that the simulator's are held against.

It follows the rules as ``data/shockwave/FORMAT.md`` §1.8 has them, job by job and round by round, and shares no code
with the simulator or the plugins but the published tables of batch sizes.
"""

import gzip
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eunomia_testbed.workload.adaptation import LARGEST_BATCH, SAMPLES, growth_of

TYPES = ("V100", "P100", "K80")
Table = Mapping[str, Mapping[tuple[str, int], float]]
"""Steps a second by GPU type and (job type, GPUs)."""


@dataclass
class Job:
    """One line of a trace, and where it stands."""

    number: int
    family: str
    batch: int | None
    gpus: int
    mode: str
    total: int
    arrival: float
    first_batch: int | None = None
    run: int = 0
    """Steps done, at the present batch."""
    admitted: float = 0.0
    """The boundary at which it came in."""
    failed: int = 0
    """Rounds in which it had nothing to do and was not taken as done."""
    flag: bool = False
    """A change of the batch waits for the end of the job's next round."""
    time: dict[str, float] = field(default_factory=dict)
    """Seconds run since the last solution, half a round credited."""
    deficit: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What the throughputs know it by."""
        return (self.family if self.batch is None else f"{self.family} (batch size {self.batch})"), self.gpus


@dataclass(frozen=True)
class Rules:
    """The options of the peer's simulator."""

    round: float = 120.0
    restart: float = 20.0
    least_between: float = 1000.0
    failures: int = 5
    """Rounds without a step after which a job is given up, and so is over."""
    shuffled: bool = False
    """Whether GPU types are walked in a random order in each round."""
    seed: int = 0


@dataclass
class Outcome:
    """What came of it."""

    makespan: float
    jct: list[float]
    rounds: int
    solutions: int

    @property
    def mean_jct(self) -> float:
        """Mean over all jobs."""
        return sum(self.jct) / len(self.jct)


Allocate = Callable[[float, Sequence[Job], Mapping[str, int], Table], list[dict[str, float]]]
"""(now, jobs, GPUs by type, throughputs) -> part of the time of each job by type."""


def simulate(
    jobs: Sequence[Job], cluster: Mapping[str, int], table: Table, allocate: Allocate, rules: Rules
) -> Outcome:
    """Run all jobs to their end."""
    shuffler = random.Random(rules.seed)
    types = [one for one in TYPES if cluster.get(one, 0)]
    queue: list[Job] = list(jobs)
    active: list[Job] = []
    jct: dict[int, float] = {}
    share: dict[int, dict[str, float]] = {}
    now, last, due, rounds, solutions = 0.0, 0.0, True, 0, 0
    before: set[int] = set()
    while queue or active:
        arrived = [job for job in queue if job.arrival <= now]
        queue = queue[len(arrived) :]
        for job in sorted(arrived, key=lambda job: f"{job.number}/0"):  # events of one instant go by id, as text
            job.first_batch, job.admitted = job.batch, now
            job.time = dict.fromkeys(types, rules.round / 2)
            job.deficit = dict.fromkeys(types, 0.0)
            active.append(job)
            due = True
        stale = not any(job.number in share for job in active)
        if due and active and (last == 0.0 or now - last >= rules.least_between or stale):
            for job in active:
                for one in types:
                    owed = share.get(job.number, {}).get(one, 0.0) * (now - last)
                    job.deficit[one] += owed - (job.time[one] - rules.round / 2)
                    job.time[one] = rules.round / 2
            shares = allocate(now, active, cluster, table)
            share = {job.number: row for job, row in zip(active, shares, strict=True)}
            last, due, solutions = now, False, solutions + 1
        walked = types[:]
        if rules.shuffled:
            shuffler.shuffle(walked)
        chosen = _serve(active, walked, cluster, share, table)
        if not chosen:
            now = queue[0].arrival
            continue
        rounds += 1
        end = now
        ends: list[tuple[Job, str, int, float]] = []
        for job, one in chosen:
            rate = table[one][job.key]
            steps = max(0, min(int(rate * rules.round), job.total - job.run))
            finish = now + steps / rate
            end = max(end, finish)
            ends.append((job, one, steps, finish))
        end = end if end > now else now + rules.round
        for job, one, steps, finish in ends:
            job.failed = job.failed + 1 if steps == 0 else 0
            if 0 < job.failed < rules.failures:
                continue
            seconds = finish - now
            done = steps
            if rounds > 1 and job.number not in before and seconds > rules.round - 5.0 and rules.restart:
                done = int(steps * ((seconds - rules.restart) / seconds))
                seconds -= rules.restart
            job.run += done
            job.time[one] += seconds
            if job.total - job.run <= 0:
                jct[job.number] = finish - job.arrival
                active.remove(job)
                due = True
            elif job.flag:
                _scale(job, table)
            job.flag = False
        for job in active:
            job.flag = job.flag or _wants(job)
        before = {job.number for job, _ in chosen}
        now = end
    return Outcome(makespan=now, jct=[jct[job.number] for job in jobs], rounds=rounds, solutions=solutions)


def _serve(
    active: Sequence[Job],
    walked: Sequence[str],
    cluster: Mapping[str, int],
    share: Mapping[int, Mapping[str, float]],
    table: Table,
) -> list[tuple[Job, str]]:
    """Type by type, by priority, deficit and share; gangs that do not fit are passed over.

    Times are rounded to microseconds, so that jobs alike are not ranked by the noise of sums.
    """
    left = dict(cluster)
    taken: set[int] = set()
    chosen: list[tuple[Job, str]] = []
    for one in walked:
        keys = {}
        for job in active:
            part = round(share[job.number][one], 9) if job.number in share else 0.0
            keys[job.number] = (part / round(job.time[one], 6), round(job.deficit[one], 6), part)
        for job in sorted(active, key=lambda job: keys[job.number], reverse=True):
            if job.number not in share or job.number in taken or table[one][job.key] <= 0.0 or job.gpus > left[one]:
                continue  # who came after the solution does not run before the next one
            left[one] -= job.gpus
            taken.add(job.number)
            chosen.append((job, one))
    return chosen


def _epoch(job: Job, batch: int) -> int:
    return math.ceil(SAMPLES[job.family] / batch)


def _wants(job: Job) -> bool:
    """Whether the job asks for another batch at the end of this round."""
    if job.mode == "static" or job.batch is None or job.first_batch is None or job.family not in LARGEST_BATCH:
        return False
    epoch = math.ceil(job.run / _epoch(job, job.batch))
    if job.mode == "gns":
        size, pattern = job.first_batch, {}
        growth = growth_of(job.family, job.first_batch, job.gpus)
        for index in range(epoch + 2):
            size = growth.get(index, size)
            pattern[index] = size
        return max(pattern[epoch], pattern[epoch + 1]) > job.batch and job.batch != LARGEST_BATCH[job.family]
    critical = _critical(job.family, job.first_batch, epoch)
    if job.batch == job.first_batch:
        return not critical and job.batch != LARGEST_BATCH[job.family]
    return critical


def _critical(family: str, batch: int, epoch: int) -> bool:
    if family == "LM":
        return epoch < 10
    if family == "Recommendation":
        return epoch < {512: 30, 1024: 30, 2048: 40}.get(batch, 10)
    if family == "ResNet-50":
        return epoch % 30 < 10
    return epoch < (20 if batch == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260


def _scale(job: Job, table: Table) -> None:
    """Take the new batch; whole epochs, done and to do, are kept, those begun count as done."""
    old = job.batch
    if old is None or job.first_batch is None or job.first_batch == LARGEST_BATCH[job.family]:
        return
    new = 2 * old if job.mode == "gns" else (LARGEST_BATCH[job.family] if old == job.first_batch else job.first_batch)
    job.batch = new
    if any(job.key not in rates for rates in table.values()):
        job.batch = old
        return
    epochs = math.ceil(job.total / _epoch(job, old))
    total = math.ceil(job.total * (1 / (new / old)))
    job.total = total if math.ceil(total / _epoch(job, new)) == epochs else epochs * _epoch(job, new)
    job.run = math.ceil(job.run / _epoch(job, old)) * _epoch(job, new)


# --- what the files hold ------------------------------------------------------------------------------------------


def read_trace(path: Path) -> list[Job]:
    """Ten or twelve columns a line."""
    jobs = []
    for number, line in enumerate(path.read_text().splitlines()):
        cells = line.split("\t")
        family, _, rest = cells[0].partition(" (batch size ")
        mode = cells[7] if len(cells) == 12 else "static"
        jobs.append(
            Job(
                number=number,
                family=family,
                batch=int(rest[:-1]) if rest else None,
                gpus=int(cells[6]),
                mode=mode,
                total=int(cells[5]),
                arrival=float(cells[-1]),
            )
        )
    return jobs


def read_table(path: Path) -> Table:
    """Rates alone, by type and (job type, GPUs)."""
    given = json.loads(gzip.decompress(path.read_bytes()))
    table: dict[str, dict[tuple[str, int], float]] = {}
    for one in TYPES:
        table[one] = {}
        for key, rates in given[one.lower()].items():
            name, _, gpus = key[2:-1].rpartition("', ")
            table[one][name, int(gpus)] = rates["null"]
    return table
