"""Rates by kind of job, from measurements or the operator, which are kept after the measured job has ended."""

from eunomia.contract.events import KindProfiled, RateMeasured
from eunomia.fold.folding import Folding
from eunomia.model.kind_profiles import MOST_KINDS, KnownRate, with_rate
from eunomia.store.state import State
from eunomia.store.writers import cause
from eunomia.units import Cause


def keep_by_kind(state: State, job: int, event: RateMeasured) -> None:
    """Store a measured rate for later jobs of the same kind.

    Rates of a job without a declared kind are not stored, so that they end with the job.
    """
    kind = state.jobs.cells.job_kind[job]
    if kind == state.names.kinds.get(state.app_id(state.jobs.cells.app[job])):
        return
    rate = KnownRate(
        gpus=event.gpus,
        gpu_type=event.gpu_type,
        locality=event.locality,
        rate=event.rate,
        batch_size=event.batch_size,
        cpus=event.cpus,
        memory_gib=event.memory_gib,
        machine=_machine(state, job),
        date=event.date,
    )
    put_profile(state, kind, with_rate(state.reports.profiles.get(kind, ()), rate))


def kind_profiled(fold: Folding, event: KindProfiled) -> None:
    """Replace the rates of a kind by those that the operator gave; without rates, drop the kind."""
    event.check(fold.state.cluster)
    kinds = fold.state.names.kinds
    put_profile(fold.state, kinds.setdefault(event.kind, len(kinds)), event.rates)
    cause(fold.state, Cause.REPORTED)


def put_profile(state: State, kind: int, rates: tuple[KnownRate, ...]) -> None:
    """Set the rates of a kind, or drop the kind if there are none."""
    state.reports.profiles.pop(kind, None)
    if rates:
        state.reports.profiles[kind] = rates
        if len(state.reports.profiles) > MOST_KINDS:
            del state.reports.profiles[next(iter(state.reports.profiles))]


def _machine(state: State, job: int) -> str:
    """Return the name of the machine with all of the job's GPUs, including leaving ones.

    It is empty if there are several machines or none.
    """
    lease = state.leases.get(state.jobs.cells.lease[job])
    if lease is None:
        return ""
    gpus = {*lease.gpus, *state.owners.leaving.get(lease.id, ())}
    machines = {int(state.cluster.machine[gpu]) for gpu in gpus}
    return state.cluster.machines[machines.pop()].name if len(machines) == 1 else ""
