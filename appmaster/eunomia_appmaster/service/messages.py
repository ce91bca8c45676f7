"""The arbiter's conversions: reports to events, and the arbiter's state to messages."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from eunomia.arbiter import ClusterView
from eunomia.contract.bundles import ByBundle, MachineClasses
from eunomia.contract.codec import decode
from eunomia.contract.events import (
    NOW,
    Adapted,
    BidReceived,
    Event,
    ForecastReported,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    JobsDivided,
    RateMeasured,
)
from eunomia.contract.offers import Offer
from eunomia.contract.valuations import Form
from eunomia.errors import EunomiaError, InputError
from eunomia.model.adaptations import adapts_named
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import AppId, JobId, Locality, OfferId, Scope, Seconds
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.bounds import MOST_JOBS

MOST_NUMBERS = 100_000
"""Maximum length of one column of a bid."""
KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NUMBER = re.compile(r"[0-9]{1,9}")


# --- reports into events ---------------------------------------------------------------------------------------------


def events_of(
    request: pb.AllocateRequest,
    *,
    now: Seconds = NOW,
    date: str = "",
    adapted_at: Callable[[JobId], Seconds] = lambda _: NOW,
) -> Iterator[Event]:
    """Yield the events of an app master's request, except its bid and its released slots.

    Args:
        request: an app master's request.
        now: seconds on the arbiter's clock; NaN for the time of the step.
        date: date in UTC for measured rates.
        adapted_at: returns the time of a job's last adaptation (or NaN). Later adaptations never get an earlier time.

    Raises:
        InputError: a job is not the app's own, or a value is invalid.
    """
    app = request.app

    def job(name: str) -> JobId:
        return own_job(app, name)

    for added in request.jobs_added:
        yield _added(app, added)
    for name in request.jobs_finished:
        yield JobFinished(job=job(name))
    for failed in request.jobs_failed:
        again = Seconds(failed.again_in_seconds) if failed.HasField("again_in_seconds") else None
        yield JobFailed(job=job(failed.job), again_in=again, why=failed.why[:1000])
    for name in request.jobs_paused:
        yield JobPaused(job=job(name))
    for resumed in request.jobs_resumed:
        iterations = resumed.iterations if resumed.HasField("iterations") else math.nan
        yield JobResumed(job=job(resumed.job), iterations=iterations)
    for progress in request.jobs_progress:
        yield JobReported(job=job(progress.job), iterations_done=progress.iterations_done, rate=progress.rate)
    for rate in request.rates:
        yield RateMeasured(
            job=job(rate.job),
            gpus=rate.gpus,
            locality=Locality(rate.locality),
            rate=rate.rate,
            gpu_type=rate.gpu_type,
            batch_size=rate.batch_size if rate.HasField("batch_size") else math.nan,
            cpus=rate.cpus if rate.HasField("cpus") else math.nan,
            memory_gib=rate.memory_gib if rate.HasField("memory_gib") else math.nan,
            date=date,
        )
    for adaptation in request.adaptations:
        name = job(adaptation.job)
        yield _adapted(name, adaptation, now=now, last_at=adapted_at(name))
    if request.HasField("division"):
        rows = request.division.jobs
        gpus = tuple(tuple(int(gpu) for gpu in row.gpus) for row in rows)
        yield JobsDivided(app=AppId(app), jobs=tuple(job(row.job) for row in rows), gpus=gpus)
    if request.HasField("forecast"):
        yield ForecastReported(app=AppId(app), forecast=forecast_of(request.forecast, place=app))


def _adapted(job: JobId, message: pb.Adaptation, *, now: Seconds, last_at: Seconds) -> Adapted:
    at = Seconds(now - message.seconds_ago)
    return Adapted(
        job=job,
        batch_size=message.batch_size,
        iterations_done=message.iterations_done if message.HasField("iterations_done") else math.nan,
        at=last_at if at < last_at else at,
    )


def own_job(app: str, name: str) -> JobId:
    """Return the id of one of the app's jobs.

    Raises:
        InputError: the name is another app's job, or not a valid id.
    """
    owner, _, number = name.rpartition("/")
    if owner != app or not _NUMBER.fullmatch(number):
        raise InputError("a job must be the app's own, as app/number", value=f'"{name[:100]}"', place=app)
    return JobId(name)


def _added(app: str, added: pb.JobAdded) -> JobAdded:
    def number(field: str) -> float:
        return float(getattr(added, field)) if added.HasField(field) else math.nan  # type: ignore[arg-type]

    if added.least > added.most:
        value = f"{added.least} to {added.most}"
        raise InputError("a gang must be at least 1, least at most most", value=value, place=added.job[:100])
    if added.HasField("kind") and not KIND.fullmatch(added.kind):
        rule = "a kind must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit"
        raise InputError(rule, value=f'"{added.kind[:100]}"', place=added.job[:100])
    return JobAdded(
        job=own_job(app, added.job),
        app=AppId(app),
        least=added.least,
        most=added.most,
        iterations=number("iterations"),
        seconds_per_iteration=number("seconds_per_iteration"),
        kind=added.kind if added.HasField("kind") else app,
        gpu_type=added.gpu_type if added.HasField("gpu_type") else None,
        cpus_per_gpu=number("cpus_per_gpu"),
        memory_gib_per_gpu=number("memory_gib_per_gpu"),
        batch_size=number("batch_size"),
        epochs=number("epochs"),
        samples_per_epoch=number("samples_per_epoch"),
        adapts=adapts_named(added.adapts, place=added.job[:100]),
    )


def forecast_of(message: pb.Forecast, *, place: str) -> Forecast:
    """Convert a message to a forecast.

    Raises:
        InputError: a number is negative or not finite, or a slowdown does not have four values of at least 1.
    """
    phases = tuple(_phase(phase, place) for phase in message.phases)
    if not 0.0 <= message.total_gpu_seconds < math.inf:
        rule = "total_gpu_seconds of a forecast must be a number of 0 or more"
        raise InputError(rule, value=str(message.total_gpu_seconds), place=place)
    return Forecast(phases=phases, total_gpu_seconds=message.total_gpu_seconds, most=max(1, message.most))


def _phase(phase: pb.Phase, place: str) -> Phase:
    count = sum(max(1, job.count) for job in phase.jobs)
    if count > MOST_JOBS:
        rule = f"a phase of a forecast must have at most {MOST_JOBS} jobs"
        raise InputError(rule, value=str(count), place=place)
    jobs = ([_job_forecast(job, place)] * max(1, job.count) for job in phase.jobs)
    return Phase(jobs=tuple(itertools.chain.from_iterable(jobs)))


def _job_forecast(job: pb.JobForecast, place: str) -> JobForecast:
    slowdown = tuple(job.slowdown)
    good = 0.0 <= job.iterations_left < math.inf and 0.0 < job.seconds_per_iteration < math.inf
    if not good or not 1 <= job.least <= job.most:
        raise InputError(
            "a job's forecast must be of finite work on at least one GPU", value=str(job)[:200], place=place
        )
    if slowdown and (len(slowdown) != 4 or not all(1.0 <= factor < math.inf for factor in slowdown)):
        raise InputError("slowdown must be four numbers of at least 1", value=str(slowdown), place=place)
    return JobForecast(
        iterations_left=job.iterations_left,
        seconds_per_iteration=job.seconds_per_iteration,
        least=job.least,
        most=job.most,
        slowdown=(slowdown[0], slowdown[1], slowdown[2], slowdown[3]) if slowdown else None,
    )


def bid_of(app: str, bid: pb.Bid) -> BidReceived:
    """Convert a message to a bid; the arbiter checks it against its offer.

    Raises:
        InputError: the bid's form is unknown.
    """
    form: Form = _table(bid.bundles) if bid.WhichOneof("form") == "bundles" else _decoded(bid.encoded, app)
    return BidReceived(app=AppId(app), offer=OfferId(bid.offer), form=form)


_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError)
"""Exceptions that malformed text may raise in JSON and the codec."""


def _decoded(encoded: str, app: str) -> Form:
    try:
        form = decode(json.loads(encoded))
    except (*_UNREADABLE, EunomiaError) as error:
        raise InputError("a bid must be JSON of eunomia.contract.codec", value=str(error)[:200], place=app) from error
    if isinstance(form, type) or not isinstance(form, Form) or not dataclasses.is_dataclass(form):
        raise InputError("a bid must be a form of eunomia.contract.valuations", value=type(form).__name__, place=app)
    _check_columns(form, app)
    return form


def _check_columns(form: object, app: str) -> None:
    """Check that a bid contains only numbers and columns of numbers."""
    for field in dataclasses.fields(form):  # type: ignore[arg-type]
        column = getattr(form, field.name)
        if isinstance(column, MachineClasses):
            _check_columns(column, app)
        elif isinstance(column, np.ndarray) and column.dtype.kind in "if" and column.size <= MOST_NUMBERS:
            continue
        elif column is not None and not isinstance(column, int | float):
            rule = f"{field.name} of a bid must be a column of at most {MOST_NUMBERS} numbers"
            raise InputError(rule, value=str(column)[:80], place=app)


def _table(table: pb.BundleTable) -> ByBundle:
    def ints(items: Iterable[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array(list(items), dtype=np.int64)

    classes = table.classes
    return ByBundle(
        classes=MachineClasses(
            start=ints(classes.start),
            machine=ints(classes.machine),
            free=ints(classes.free),
            gpu_type=ints(classes.gpu_type),
            rack=ints(classes.rack),
        ),
        now=np.array([table.now], dtype=np.float64),
        start=np.array([0, len(table.rho)], dtype=np.int64),
        rho=np.array(table.rho, dtype=np.float64),
        part_start=ints(table.part_start),
        part_class=ints(table.part_class),
        part_gpus=ints(table.part_gpus),
        part_machines=ints(table.part_machines),
    )


# --- the arbiter's state into messages ----------------------------------------------------------------------------


def cluster_message(cluster: Cluster) -> pb.ClusterDescription:
    """Convert a cluster to a message from which the receiver can build an equal one."""
    return pb.ClusterDescription(
        machines=map(_machine, cluster.machines),
        gpu_types=cluster.gpu_types,
        racks=cluster.racks,
        left=sorted(cluster.left),
    )


def _machine(machine: Machine) -> pb.Machine:
    return pb.Machine(
        name=machine.name,
        gpu_type=machine.gpu_type,
        gpus=machine.gpus,
        rack=machine.rack,
        island=machine.island,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
    )


def finite(number: float) -> float | None:
    """Return a number for an optional field of a message: None if it is not finite."""
    return float(number) if math.isfinite(number) else None


def shared_offer(offer: Offer) -> pb.Offer:
    """Create the part that an offer's messages to all apps have in common."""
    return pb.Offer(
        id=offer.id,
        scope=pb.ALL if offer.scope is Scope.ALL else pb.FREE,
        made_at=offer.made_at,
        gpus=offer.gpus.tolist(),
        free_gpus=offer.free_gpus,
        contended=offer.contended,
        retune=offer.retune,
        lease_seconds=offer.lease,
        capacity=offer.capacity.tolist(),
        named_machines=offer.named.tolist(),
        now=offer.made_at,
    )


def offer_message(
    view: ClusterView, offer: Offer, app: int, now: Seconds, *, shared: pb.Offer | None = None
) -> pb.Offer:
    """Create the message of an offer to one app, with the data for its agent's snapshot.

    Args:
        view: the arbiter's state.
        offer: the open offer.
        app: the app's row.
        now: time at which the message is sent, in seconds.
        shared: the result of ``shared_offer``; None: it is computed.
    """
    mine = offer.candidates[view.jobs.app[offer.candidates] == app]
    contention = float(offer.contention[app]) if app < offer.contention.size else math.nan
    held = view.gpus
    closes_at = float(offer.closes_at if offer.closes_at is not None else now)
    made = pb.Offer(
        candidates=[view.job_id(int(job)) for job in mine],
        closes_in_seconds=max(0.0, closes_at - now),
        closes_at=closes_at,
        contention=contention,
        round=view.round,
        seed=view.seed,
        app_gpu_seconds=float(view.app_ledger.gpu_seconds[app]),
        held=[_held(view, int(gpu)) for gpu in np.flatnonzero(held.app == app)],
        jobs=job_views(view, app),
        causes=sorted(cause.value for cause in view.causes),
    )
    made.MergeFrom(shared_offer(offer) if shared is None else shared)
    return made


def _held(view: ClusterView, gpu: int) -> pb.HeldSlot:
    held = view.gpus
    job = int(held.job[gpu])
    return pb.HeldSlot(
        gpu=gpu,
        job="" if job < 0 else view.job_id(job),
        lease=int(held.lease[gpu]),
        ends_at=finite(held.ends_at[gpu]),
        protected_until=float(held.protected_until[gpu]),
        state=int(held.state[gpu]),
    )


def job_views(view: ClusterView, app: int) -> list[pb.JobView]:
    """Return the arbiter's view of an app's jobs, by arrival."""
    return [_job_view(view, row) for row in view.jobs_of(app).tolist()]


def _job_view(view: ClusterView, row: int) -> pb.JobView:
    jobs, ledger = view.jobs, view.job_ledger
    return pb.JobView(
        job=view.job_id(row),
        state=int(jobs.state[row]),
        done=float(jobs.done[row]),
        since=finite(jobs.since[row]),
        rate=float(jobs.rate[row]),
        attained_seconds=float(ledger.attained[row]),
        received_gpu_seconds=ledger.received[row].tolist(),
        waited_seconds=float(ledger.waited[row]),
        last_ran_at=finite(ledger.last_ran[row]),
        arrived_at=float(jobs.arrived[row]),
        iterations=finite(jobs.iterations[row]),
        least=int(jobs.least[row]),
        most=int(jobs.most[row]),
        starts=int(jobs.starts[row]),
    )
