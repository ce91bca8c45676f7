"""Reports on an app's jobs to the arbiter: only changes, at a limited rate."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from eunomia.contract.events import JobAdded
from eunomia.model import workload
from eunomia.model.adaptations import adapts_named
from eunomia.model.forecasts import Forecast, Phase
from eunomia.units import AppId, Locality
from eunomia_appmaster.app.checkpoints import Checkpoint
from eunomia_appmaster.master.agent import Known
from eunomia_appmaster.master.amounts import AmountsSeen
from eunomia_appmaster.master.conductor import SILENT_SECONDS, Conductor
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.log_clocks import LogClocks
from eunomia_appmaster.master.logs import speed_of
from eunomia_appmaster.master.outbox import Life, Progress, RateReport, StandingReport
from eunomia_appmaster.master.pace import PROGRESS_SECONDS, Pace
from eunomia_appmaster.master.resizes import Resizes
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.profiler.rates import Rate
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.tuner import Speed, demand, forecast

MOST_FAILED_REPORTED = 100
"""Most failed jobs in the final report to the arbiter."""
AGAIN_SECONDS = 1.0
"""Seconds until a refused report is sent again."""
RATES_SECONDS = 2.0
"""Seconds between measurements of a running job's rate."""
FORECAST_CHANGE = 0.005
"""Least change of the remaining work, as a fraction of the whole, for which a forecast is reported again."""
FORECAST_SHARE = 0.01
"""Largest fraction of one processor that an app master spends on forecasts."""
RATE_CHANGE = 0.05
"""Least relative change of a measured rate for which it is reported again."""
UNKNOWN_SPEED = Speed(seconds_per_iteration=0.1)
"""Speed that is assumed until a trial is measured; only ratios between apps matter, and only at first."""


RateKey = tuple[str, int, Locality, str, float | None, float | None, float | None]
"""Key of a reported rate: job, slots, locality, GPU type, batch size, CPUs and memory (GiB)."""


class Reporter:
    """Fills the outbox with reports about the conductor's changes.

    Args:
        around: the objects that all jobs of the app share.
        conductor: runs the jobs.
        before: iterations done before trials were added to the ended app, by trial; forecasts leave them out.
        clock: monotonic seconds, to bound the share of time that forecasts take.
    """

    def __init__(
        self,
        around: Surroundings,
        conductor: Conductor,
        before: Mapping[int, int] | None = None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._around = around
        self._conductor = conductor
        self._clock = clock
        self._moved = conductor.jobs.follow("state", "gang", "incarnation", "step", "signs")
        self._before = {number: float(step) for number, step in (before or {}).items()}
        fresh = around.file.make_tuner()
        *earlier, _ = around.file.search.groups
        for number in range(1, sum(earlier) + 1):
            fresh.on_failed(number)  # only the demand of the last group counts
        self._demand = demand(fresh.jobs_in_phase(phase, {}) for phase in range(fresh.num_phases()))
        self._division: dict[str, tuple[int, ...]] | None = None
        self._division_again_at = math.inf
        self._rates: dict[int, list[Rate]] = {}
        self._speeds: dict[int, Speed] = {}
        self._rates_sent: dict[RateKey, float] = {}
        self._amounts = AmountsSeen()
        self._resizes = Resizes(around, conductor)
        self._clocks = LogClocks(around)
        self._measured_at: dict[int, float] = {}
        self._progress_at = -math.inf
        self._pace = Pace()
        self._progress_sent: dict[str, tuple[Progress, int]] = {}
        self._forecast: Forecast | None = None
        self._forecast_at = -math.inf
        self._standing: StandingReport | None = None
        self._by_logs = False
        self._checkpoint: tuple[object, Checkpoint | None] = (None, None)

    def known(self) -> Known:
        """Return the reported facts, from which the agent values offers."""
        jobs = self._conductor.jobs.values()
        rates = [
            RateReport(
                job=job,
                gpus=gpus,
                locality=locality,
                gpu_type=gpu_type,
                rate=rate,
                batch_size=batch,
                cpus=cpus,
                memory_gib=memory_gib,
            )
            for (job, gpus, locality, gpu_type, batch, cpus, memory_gib), rate in self._rates_sent.items()
        ]
        return Known(
            jobs={self._conductor.id_of(job.number): self._added(job) for job in jobs if not job.state.over},
            forecast=self._forecast,
            rates=rates,
        )

    # -- at registration

    def everything(self, known: Mapping[str, int], now: float) -> None:
        """Report everything again; ``known``: the arbiter's states, by id, of jobs that it does not know as ended."""
        outbox = self._around.outbox
        outbox.clear()
        for job in self._conductor.jobs.values():
            name = self._conductor.id_of(job.number)
            if job.state.over and name in known:
                outbox.put("lives", _end_of(job), key=name)
            elif job.state is JobState.PAUSED:
                outbox.put("lives", Life(what="paused"), key=name)
            elif known.get(name) == workload.JobState.PAUSED and not (
                job.state is JobState.BACKING_OFF and job.retry_at > now
            ):
                outbox.put("lives", Life(what="resumed"), key=name)
            if not job.state.over:
                outbox.put("added", self._added(job), key=name)
        self._conductor.new_jobs.clear()
        self._conductor.left_out.report_again()
        self._forget_reported()
        self.changes(now)

    def division_was_refused(self, now: float) -> None:
        """Report the division of slots again after a pause, because reports that it depends on have not arrived yet."""
        self._division_again_at = now + AGAIN_SECONDS

    def _forget_reported(self) -> None:
        self._division, self._forecast, self._standing = None, None, None
        self._rates_sent, self._progress_sent = {}, {}
        self._amounts.forget_answers()
        self._resizes.again()
        self._progress_at = self._forecast_at = -math.inf
        self._moved.add_all(self._conductor.jobs.values())

    def _added(self, job: Job) -> JobAdded:
        declared = self._around.file.job
        goal = self._conductor.goal(self._conductor.tuner.runs().get(job.number))
        return JobAdded(
            job=self._conductor.id_of(job.number),
            app=AppId(self._around.app),
            least=declared.slots.min,
            most=declared.slots.max,
            iterations=math.nan if goal is None else float(goal),
            kind=declared.kind,
            batch_size=_or_nan(self._batch_size(job)),
            epochs=_or_nan(declared.epochs),
            samples_per_epoch=_or_nan(declared.samples_per_epoch),
            adapts=adapts_named(declared.adapts),
        )

    # -- as things change

    def changes(self, now: float) -> None:
        """Report the changes since the last call."""
        for number in self._conductor.new_jobs:
            job = self._conductor.jobs[number]
            self._around.outbox.put("added", self._added(job), key=self._conductor.id_of(number))
        self._conductor.new_jobs.clear()
        self._report_division(now)
        self._resizes.look(now)
        self._report_progress(now)
        self._report_forecast()
        self._report_standing(now)

    def _report_division(self, now: float) -> None:
        """Report which job runs on which slots of the leases that the tuner divides among jobs."""
        slots = self._conductor.slots.slots()
        division: dict[str, tuple[int, ...]] = {
            self._conductor.id_of(job.number): tuple(sorted(_on_slots(job.gang, slots)))
            for job in self._conductor.jobs.with_gang()
            if job.gang is not None
            and job.state is JobState.RUNNING
            and (gpus := _on_slots(job.gang, slots))
            and all(gpu in slots and slots[gpu].job is None for gpu in gpus)
        }
        again = now >= self._division_again_at
        if again or division != (self._division or {}) or (self._division is None and division):
            self._around.outbox.put("division", division)
            self._division_again_at = math.inf
        self._division = division

    def _report_progress(self, now: float) -> None:
        if now - self._progress_at < PROGRESS_SECONDS:
            return
        self._progress_at = now
        moved = {job.number: job for job in (*self._moved.take(), *self._conductor.jobs.with_gang())}
        for _, job in sorted(moved.items()):
            if not job.state.over and (job.gang is not None or (job.incarnation and job.number not in self._rates)):
                self._measure(job, now)
            name = self._conductor.id_of(job.number)
            if job.state.over:
                continue
            progress = Progress(iterations_done=float(job.step), rate=self._pace.rate(job, self.rate(job), now))
            sent, signs = self._progress_sent.get(name, (Progress(iterations_done=0.0, rate=0.0), 0))
            if (progress, job.signs) != (sent, signs):  # a sign of life without a step is reported, too
                self._progress_sent[name] = progress, job.signs
                self._around.outbox.put("progress", progress, key=name, urgent=False)

    def rate(self, job: Job) -> float:
        """Return a job's iterations per second from now on; 0 if it does not run."""
        if job.gang is None or job.state is not JobState.RUNNING or not job.gang.running:
            return 0.0
        if job.seconds_per_step:
            return 1.0 / job.seconds_per_step
        size = job.sizes.get(job.incarnation)
        for rate in self._rates.get(job.number, ()):
            if size is not None and (rate.gpus, int(rate.locality)) == tuple(size):
                return rate.iterations_per_second
        return 0.0

    def _measure(self, job: Job, now: float) -> None:
        """Measure a running job's rates from its logs, and report the new ones."""
        if now - self._measured_at.get(job.number, -math.inf) < RATES_SECONDS:
            return
        self._measured_at[job.number] = now
        changed_at = self._amounts.note(job, self._conductor.slots.slots(), now)
        self._clocks.note(job, self._conductor.logs(job.number))
        rates = self._rates[job.number] = self._conductor.logs(job.number).rates(
            job.sizes, since=self._clocks.since(job, changed_at), ahead=job.clocks
        )
        speed = speed_of(rates)
        if speed is None:
            self._speeds.pop(job.number, None)
        else:
            self._speeds[job.number] = _rounded(speed)
        if speed is not None and speed.slowdown is not None:
            self._conductor.slowdowns[job.number] = speed.slowdown
        asked = None if job.gang is None else self._conductor.slots.probe_of(job.number, job.gang.member_gpus)
        begun = 0 if job.gang is None else max(job.gang.from_step, job.gang.changed_step)
        if asked is not None and job.step - begun < asked:
            return  # the job has not yet made the requested steps at this size
        for rate in rates:
            here = asked is not None and (rate.gpus, int(rate.locality)) == job.sizes.get(job.incarnation)
            self._report_rate(job, rate, asked=here)

    def _report_rate(self, job: Job, rate: Rate, *, asked: bool) -> None:
        """Report a rate that is new; a requested rate is reported again, once per incarnation."""
        gpu_type = self._gpu_type(job)
        name = self._conductor.id_of(job.number)
        batch_size = self._batch_size(job)
        cpus, memory_gib = self._amounts.of(job, rate)
        key = (name, rate.gpus, rate.locality, gpu_type, batch_size, cpus, memory_gib)
        reported = self._rates_sent.get(key)
        if asked and self._amounts.answers(job):
            reported = None
        if reported is not None and abs(rate.iterations_per_second - reported) <= RATE_CHANGE * reported:
            return
        self._rates_sent[key] = rate.iterations_per_second
        report = RateReport(
            job=name,
            gpus=rate.gpus,
            locality=rate.locality,
            gpu_type=gpu_type,
            rate=rate.iterations_per_second,
            batch_size=batch_size,
            cpus=cpus,
            memory_gib=memory_gib,
        )
        self._around.outbox.put("rates", report, key=key, urgent=False)

    def _batch_size(self, job: Job) -> float | None:
        """Return the global batch size as last announced, else as declared; None: not known."""
        return self._around.file.job.batch_size if job.batch_size is None else job.batch_size

    def _gpu_type(self, job: Job) -> str:
        slots = self._conductor.slots.slots()
        on = [slots[gpu].gpu_type for gpu in (job.gang.gpus if job.gang else ()) if gpu in slots]
        cluster = self._conductor.cluster
        return on[0] if on else (cluster.gpu_types[0] if cluster is not None else "")

    # -- the forecast

    def speeds(self) -> dict[int, Speed]:
        """Return each trial's known speed: measured from logs, else as reported by its workers."""
        known = dict(self._speeds)
        for job in self._conductor.jobs.with_gang():
            if job.number not in known and job.seconds_per_step and job.gang is not None:
                known[job.number] = _rounded(
                    Speed(seconds_per_iteration=job.seconds_per_step * len(job.gang.member_gpus))
                )
        return known

    def make_forecast(self) -> Forecast | None:
        """Return the present forecast of the app's remaining work; None if the work is not known."""
        conductor = self._conductor
        made = forecast(
            conductor.tuner.inner,
            conductor.done(),
            self.speeds(),
            otherwise=UNKNOWN_SPEED,
            useful=conductor.useful(),
            before=self._before,
        )
        # The demand is that of the whole app, so that an app does not seem better served once most of it is done.
        if made is None:
            return None
        return replace(made, phases=tuple(map(_grouped, made.phases)), most=max(made.most, self._demand))

    def _report_forecast(self) -> None:
        """Report the forecast if it differs; less often with more trials, to use at most 1% of a processor."""
        began = self._clock()
        if began < self._forecast_at:
            return
        now = self.make_forecast()
        if now is not None and differs(now, self._forecast):
            self._forecast = now
            self._around.outbox.put("forecast", now, urgent=False)
        if now is not None and now.total_gpu_seconds > 0:
            self._around.outbox.put("done", 1.0 - min(work_left(now) / now.total_gpu_seconds, 1.0), urgent=False)
        self._forecast_at = began + (self._clock() - began) / FORECAST_SHARE

    # -- for users

    def _report_standing(self, now: float) -> None:
        conductor, search = self._conductor, self._around.file.search
        job = conductor.best()
        kept = None if job is None else self._checkpoint_of(job)
        standing = StandingReport(
            metric=search.metric or "",
            best=None if job is None else job.best,
            best_job="" if job is None else conductor.id_of(job.number),
            best_params_json="" if job is None else json.dumps(dict(job.parameters)),
            best_checkpoint="" if kept is None else str(kept.path),
            last=conductor.last,
            trials=max(search.trials, len(conductor.jobs)),
            best_step=None if job is None or job.best_step < 0 else job.best_step,
            checkpoint_step=None if kept is None else kept.step,
            checkpoint_metric=None if kept is None else kept.metric,
            stalls=conductor.stalls,
            last_stall=conductor.last_stall,
            stall_warning=conductor.stall_warning,
            notices=self._around.notices.kept,
            by_logs=self._counts_by_logs(now),
        )
        if standing != self._standing:
            self._standing = standing
            self._around.outbox.put("standing", standing, urgent=False)

    def _counts_by_logs(self, now: float) -> bool:
        """Return whether steps of running jobs are known only from their logs; if none runs, the last result.

        Logs of a script with the helper may be read shortly before the helper's first report.
        """
        for job in self._conductor.jobs.with_gang():
            if job.has_helper:
                self._by_logs = False
            elif job.step and job.gang is not None and now - job.gang.began_at > SILENT_SECONDS:
                self._by_logs = True
        return self._by_logs

    def _checkpoint_of(self, job: Job) -> Checkpoint | None:
        """Return the checkpoint that a job keeps for its metric, else its newest one; a new one is verified."""
        best = self._around.best_store(job)
        key = (job.number, job.state, job.saved_step, tuple(best.steps()))
        if self._checkpoint[0] != key:
            self._checkpoint = (key, best.latest() or self._around.store(job).latest())
        return self._checkpoint[1]

    @property
    def standing(self) -> StandingReport | None:
        """The state of the search that was reported last; None: none was."""
        return self._standing


def failed_jobs(conductor: Conductor) -> list[pb.JobFailed]:
    """Return the jobs that failed permanently, with the reasons: the last ones, up to a limit."""
    failed = [job for job in conductor.jobs.values() if job.state is JobState.FAILED]
    return [pb.JobFailed(job=conductor.id_of(job.number), why=job.why) for job in failed[-MOST_FAILED_REPORTED:]]


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else float(number)


def _end_of(job: Job) -> Life:
    return Life(what="failed", why=job.why) if job.state is JobState.FAILED else Life(what="finished")


def work_left(known: Forecast) -> float:
    """Return the serial GPU-seconds of a forecast's remaining work."""
    return sum(job.iterations_left * job.seconds_per_iteration for phase in known.phases for job in phase.jobs)


def differs(new: Forecast, old: Forecast | None) -> bool:
    """Return whether a forecast differs from the previous one by more than ordinary progress."""
    if old is None or new.most != old.most or len(new.phases) != len(old.phases):
        return True
    if any(_sizes_differ(one, other) for one, other in zip(new.phases, old.phases, strict=True)):
        return True
    scale = FORECAST_CHANGE * max(new.total_gpu_seconds, old.total_gpu_seconds)
    return abs(work_left(new) - work_left(old)) > scale or abs(new.total_gpu_seconds - old.total_gpu_seconds) > scale


def _grouped(phase: Phase) -> Phase:
    """Return a phase, whose jobs run in parallel, with equal jobs in a row and the ones with most work first."""
    jobs = {id(job): job for job in phase.jobs}
    counts = Counter(map(id, phase.jobs))
    ordered = sorted(jobs.values(), key=lambda job: (-job.iterations_left, job.seconds_per_iteration, job.most))
    return Phase(jobs=tuple(itertools.chain.from_iterable([job] * counts[id(job)] for job in ordered)))


def _sizes_differ(new: Phase, old: Phase) -> bool:
    """Return whether a phase has a different number of jobs of some size, except for a small fraction of its jobs."""
    now, then = _sizes(new), _sizes(old)
    return any(abs(now[size] - then[size]) > FORECAST_CHANGE * max(len(new.jobs), len(old.jobs)) for size in now | then)


def _sizes(phase: Phase) -> Counter[tuple[bool, int, int]]:
    """Return the number of jobs by size: whether they have work left, and their smallest and largest number of GPUs."""
    sizes: Counter[tuple[bool, int, int]] = Counter()
    jobs = {id(job): job for job in phase.jobs}
    for number, count in Counter(map(id, phase.jobs)).items():
        job = jobs[number]
        sizes[job.iterations_left > 0, job.least, job.most] += count
    return sizes


def _rounded(speed: Speed) -> Speed:
    """Return a measured speed rounded to three digits, so that nearly equal trials are equal in forecasts."""
    slowdown = speed.slowdown
    if slowdown is not None:
        island, machine, rack, cluster = (_digits(each) for each in slowdown)
        slowdown = (island, machine, rack, cluster)
    return Speed(seconds_per_iteration=_digits(speed.seconds_per_iteration), slowdown=slowdown)


def _digits(number: float) -> float:
    return float(f"{number:.3g}")


def _on_slots(gang: Gang, slots: Mapping[int, Slot]) -> tuple[int, ...]:
    """Return the GPUs on which a gang trains; a gang that changes live goes on without the slots that it has lost."""
    return gang.gpus if gang.membership is None else tuple(gpu for gpu in gang.member_gpus if gpu in slots)
