"""The values that app masters declare when apps and jobs arrive, with the errors and misreports set in the options."""

import math

import numpy as np

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.model.adaptations import Adapts, adapts_named
from eunomia.model.shapes import maker
from eunomia.units import AppId, JobId, UserId
from eunomia_testbed.simulator.apps.misreports import Misreports
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.simulator.progress.work import Work
from eunomia_testbed.workload import Workload

_new_app, _new_job = maker(AppArrived), maker(JobAdded)


class AppDeclarations:
    """The declarations of apps, by row.

    Args:
        workload: the workload with the apps.
        divides: whether app masters answer offers.
    """

    def __init__(self, workload: Workload, *, divides: bool) -> None:
        self._searches, self._divides = workload.searches, divides
        self._ids: list[AppId] = list(map(AppId, workload.apps.id))
        self._user_ids: list[UserId] = list(map(UserId, workload.users.id))
        self._user: list[int] = workload.apps.user.tolist()
        self._weight: list[float] = workload.apps.weight.tolist()
        self._user_weight: list[float] = workload.users.weight.tolist()

    def arrived(self, app: int) -> AppArrived:
        """Return the event that registers an app."""
        user = self._user[app]
        return _new_app(
            app=self._ids[app],
            user=self._user_ids[user],
            weight=self._weight[app],
            user_weight=self._user_weight[user],
            tuner_kind=self._searches[app].tuner if app in self._searches else "none",
            divides=self._divides,
        )


class JobDeclarations:
    """The declarations of jobs, by row.

    Args:
        workload: the workload with the jobs.
        speeds: the true speeds, for jobs that do not declare a time.
        work: the true progress.
        off: factors of errors and misreports.
    """

    def __init__(self, workload: Workload, speeds: Speeds, work: Work, off: Misreports) -> None:
        jobs = workload.jobs
        self._speeds, self._work, self._off = speeds, work, off
        self.ids: list[JobId] = list(map(JobId, jobs.id))
        self._app_ids: list[AppId] = list(map(AppId, workload.apps.id))
        self.app: list[int] = jobs.app.tolist()
        self.least: list[int] = jobs.least.tolist()
        self.most: list[int] = jobs.most.tolist()
        self.kind: list[str | None] = [workload.models[model] if model >= 0 else None for model in jobs.model.tolist()]
        self.batch: dict[int, float] = {}
        """The current batch size of each job whose batch size differs from the workload's."""
        self._first_batch = None if jobs.batch_size is None else jobs.batch_size.tolist()
        self._gpu_type = jobs.gpu_type
        self._cpus = None if jobs.cpus_per_gpu is None else jobs.cpus_per_gpu.tolist()
        self._memory = None if jobs.memory_gib_per_gpu is None else jobs.memory_gib_per_gpu.tolist()
        declared = jobs.seconds_per_iteration * jobs.most * off.times[jobs.app]
        self._serial: list[float] = declared.tolist()
        factors = np.array([off.work[app] for app in self.app])
        self._epochs = None if jobs.epochs is None else (jobs.epochs * factors).tolist()
        self._samples = None if jobs.samples_per_epoch is None else jobs.samples_per_epoch.tolist()
        self._adapts = None if jobs.adaptation is None else list(map(adapts_named, jobs.adaptation))

    def added(self, job: int) -> JobAdded:
        """Return the event that adds a job, with its reported values."""
        named, app, serial = self._gpu_type, self.app[job], self._serial[job]
        return _new_job(
            job=self.ids[job],
            app=self._app_ids[app],
            least=self.least[job],
            most=self.most[job],
            iterations=self._work.total[job] * self._off.work[app],
            seconds_per_iteration=serial if serial == serial else self.serial(job),
            kind=self.kind[job],
            gpu_type=None if named is None else named[job],
            cpus_per_gpu=math.nan if self._cpus is None else self._cpus[job],
            memory_gib_per_gpu=math.nan if self._memory is None else self._memory[job],
            batch_size=self.present_batch(job),
            epochs=math.nan if self._epochs is None else self._epochs[job],
            samples_per_epoch=math.nan if self._samples is None else self._samples[job],
            adapts=Adapts.UNKNOWN if self._adapts is None else self._adapts[job],
        )

    def present_batch(self, job: int) -> float:
        """Return a job's current batch size; NaN: it is unknown."""
        if job in self.batch:
            return self.batch[job]
        return math.nan if self._first_batch is None else self._first_batch[job]

    def gang(self, job: int) -> tuple[int, int]:
        """Return the least and most GPUs of a job."""
        return self.least[job], self.most[job]

    def whole(self, job: int) -> float:
        """Return a job's total work in iterations, as reported."""
        return self._work.total[job] * self._off.work[self.app[job]]

    def serial(self, job: int) -> float:
        """Return the reported GPU-seconds of an iteration: as declared, or else from the model's profile."""
        declared = self._serial[job]
        if declared == declared:
            return declared
        pace = self._speeds.at(job, GangShape(self.most[job], self._speeds.own_type(job)))
        pace = pace if math.isfinite(pace) else math.nan
        return pace * self.most[job] * self._off.time(self.app[job])
