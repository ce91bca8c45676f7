"""The app master's conversions: reports to messages, and messages to leases and clusters."""

import itertools
import math
from collections.abc import Iterable

from eunomia.contract.bundles import ByBundle
from eunomia.contract.events import JobAdded
from eunomia.model.adaptations import Adapts
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.forecasts import Forecast, Phase
from eunomia_appmaster.master.outbox import BidReport, Life, Reports, StandingReport
from eunomia_appmaster.master.slots import HeldLease, Slot
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.runtimes.nodes import NodeAccess

MOST_LETTERS = 400
"""Most characters of a reason; the arbiter refuses longer texts."""

# -- out of messages


def cluster_of(description: pb.ClusterDescription) -> Cluster:
    """Build the cluster from the arbiter's message."""
    return Cluster.build(
        [
            Machine(
                name=machine.name,
                gpu_type=machine.gpu_type,
                gpus=machine.gpus,
                rack=machine.rack,
                island=machine.island if machine.HasField("island") else None,
                cpus=machine.cpus if machine.HasField("cpus") else None,
                memory_gib=machine.memory_gib if machine.HasField("memory_gib") else None,
            )
            for machine in description.machines
        ],
        types=tuple(description.gpu_types),
        racks=tuple(description.racks),
        left=description.left,
    )


def lease_of(lease: pb.Lease) -> HeldLease:
    """Convert a message to a lease with its slots."""
    job = int(lease.job.rpartition("/")[2]) if lease.HasField("job") else None
    slots = {
        container.gpu: Slot(
            gpu=container.gpu,
            node=container.node_id,
            slot=container.slot,
            gpu_type=container.gpu_type,
            lease=lease.id,
            epoch=container.version or lease.epoch,
            token=container.container_token,
            job=job,
            cpus=container.resource.cpus,
            memory_gib=container.resource.memory_gib,
        )
        for container in lease.containers
    }
    ends_at = lease.ends_at if lease.HasField("ends_at") else None
    probe = lease.probe_iterations if lease.HasField("probe_iterations") else None
    return HeldLease(
        id=lease.id,
        epoch=lease.epoch,
        job=job,
        slots=slots,
        ends_at=ends_at,
        probe_iterations=probe,
        causes=tuple(lease.causes),
    )


def node_access_of(token: pb.NodeToken) -> NodeAccess:
    """Convert the arbiter's message about a node to the node's address, token and state."""
    return NodeAccess(
        node=token.node,
        address=token.container_manager_address,
        token=token.token,
        certificate_name=token.certificate_name,
        lost=token.lost,
        clock_ahead=token.clock_ahead_seconds,
    )


# -- into messages


def request_of(app: str, attempt: int, response_id: int, reports: Reports, *, now: float = 0.0) -> pb.AllocateRequest:
    """Convert reports to a heartbeat's message; ``now``: Unix seconds by the arbiter's clock."""
    request = pb.AllocateRequest(app=app, attempt=attempt, response_id=response_id)
    request.jobs_added.extend(map(_added, reports.added.values()))
    for job, life in reports.lives.items():
        _put_life(request, job, life)
    for job, progress in reports.progress.items():
        request.jobs_progress.add(job=job, iterations_done=progress.iterations_done, rate=progress.rate)
    for change in reports.adapted:
        request.adaptations.add(
            job=change.job,
            batch_size=change.batch_size,
            iterations_done=change.iterations_done,
            seconds_ago=max(0.0, now - change.at),
        )
    for rate in reports.rates:
        request.rates.add(
            job=rate.job,
            gpus=rate.gpus,
            locality=_LOCALITIES[int(rate.locality)],
            rate=rate.rate,
            gpu_type=rate.gpu_type,
            batch_size=rate.batch_size,
            cpus=rate.cpus,
            memory_gib=rate.memory_gib,
        )
    for release in reports.releases:
        request.release.add(lease=release.lease, epoch=release.epoch, gpus=release.gpus)
    for resize in reports.resized:
        request.resized.add(
            lease=resize.lease,
            epoch=resize.epoch,
            restarted=resize.restarted,
            seconds_ago=max(0.0, now - resize.at),
            join_seconds=resize.join_seconds,
            pause_seconds=resize.pause_seconds,
        )
    _put_rest(request, reports, now)
    return request


def _put_rest(request: pb.AllocateRequest, reports: Reports, now: float) -> None:
    if reports.forecast is not None:
        request.forecast.CopyFrom(forecast_message(reports.forecast))
    if reports.division is not None:
        request.division.SetInParent()
        for job, gpus in sorted(reports.division.items()):
            request.division.jobs.add(job=job, gpus=gpus)
    if reports.bid is not None:
        request.bid.CopyFrom(_bid(reports.bid))
    if reports.standing is not None:
        request.standing.CopyFrom(standing_message(reports.standing))
    if reports.left_out is not None:
        request.left_out.SetInParent()
        for one in reports.left_out:
            request.left_out.nodes.add(
                node=one.node,
                other=one.other,
                by_master=one.by_master,
                why=one.why[:MOST_LETTERS],
                since_seconds_ago=max(0.0, now - one.since),
                again_seconds=one.again_seconds,
            )
    if reports.done is not None:
        request.progress = reports.done


_LOCALITIES = (pb.ISLAND, pb.MACHINE, pb.RACK, pb.CLUSTER)


def _added(event: JobAdded) -> pb.JobAdded:
    message = pb.JobAdded(job=event.job, least=event.least, most=event.most)
    numbers = {
        "iterations": event.iterations,
        "seconds_per_iteration": event.seconds_per_iteration,
        "cpus_per_gpu": event.cpus_per_gpu,
        "memory_gib_per_gpu": event.memory_gib_per_gpu,
        "batch_size": event.batch_size,
        "epochs": event.epochs,
        "samples_per_epoch": event.samples_per_epoch,
    }
    for name, number in numbers.items():
        if not math.isnan(number):
            setattr(message, name, number)
    if event.adapts is not Adapts.UNKNOWN:
        message.adapts = event.adapts.name.lower()
    if event.kind is not None:
        message.kind = event.kind
    if event.gpu_type is not None:
        message.gpu_type = event.gpu_type
    return message


def _put_life(request: pb.AllocateRequest, job: str, life: Life) -> None:
    if life.what == "finished":
        request.jobs_finished.append(job)
    elif life.what == "paused":
        request.jobs_paused.append(job)
    elif life.what == "resumed":
        request.jobs_resumed.add(job=job, iterations=life.iterations)
    else:
        request.jobs_failed.add(job=job, again_in_seconds=life.again_in, why=life.why)


def forecast_message(forecast: Forecast) -> pb.Forecast:
    """Convert a forecast to a message."""
    return pb.Forecast(
        phases=map(_phase, forecast.phases), total_gpu_seconds=forecast.total_gpu_seconds, most=forecast.most
    )


def _phase(phase: Phase) -> pb.Phase:
    return pb.Phase(
        jobs=[
            pb.JobForecast(
                iterations_left=job.iterations_left,
                seconds_per_iteration=job.seconds_per_iteration,
                least=job.least,
                most=job.most,
                slowdown=job.slowdown or (),
                count=sum(1 for _ in equal),
            )
            for job, equal in itertools.groupby(phase.jobs)
        ]
    )


def _bid(bid: BidReport) -> pb.Bid:
    return pb.Bid(offer=bid.offer, bundles=table_message(bid.table))


def table_message(table: ByBundle) -> pb.BundleTable:
    """Convert the bid table of one claim to a message."""
    classes = table.classes
    return pb.BundleTable(
        now=float(table.now[0]),
        rho=table.rho.tolist(),
        part_start=table.part_start.tolist(),
        part_class=table.part_class.tolist(),
        part_gpus=table.part_gpus.tolist(),
        part_machines=table.part_machines.tolist(),
        classes=pb.MachineClasses(
            start=classes.start.tolist(),
            machine=classes.machine.tolist(),
            free=classes.free.tolist(),
            gpu_type=classes.gpu_type.tolist(),
            rack=classes.rack.tolist(),
        ),
    )


def standing_message(standing: StandingReport) -> pb.Standing:
    """Convert the state of a search, as shown to users, to a message."""
    return pb.Standing(
        metric=standing.metric,
        best=standing.best,
        best_job=standing.best_job,
        best_params_json=standing.best_params_json,
        best_checkpoint=standing.best_checkpoint,
        last=standing.last,
        trials=standing.trials,
        best_step=standing.best_step,
        checkpoint_step=standing.checkpoint_step,
        checkpoint_metric=standing.checkpoint_metric,
        stalls=standing.stalls,
        last_stall=standing.last_stall,
        stall_warning=standing.stall_warning,
        notices=standing.notices,
        by_logs=standing.by_logs,
    )


def plugins_message(plugins: Iterable[tuple[str, str]]) -> list[pb.PluginVersion]:
    """Convert plugins' names and versions to messages."""
    return [pb.PluginVersion(name=name, version=version) for name, version in plugins]
