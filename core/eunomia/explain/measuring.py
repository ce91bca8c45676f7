"""Describes the measurement of a job's rate: the GPUs on which it runs, and when it ends."""

from eunomia.explain.facts import slots
from eunomia.round.view import ClusterView
from eunomia.units import Seconds, format_duration


def measuring(view: ClusterView, row: int, now: Seconds) -> str:
    """Return a sentence about the measurement of the job's rate; empty: none is under way."""
    lease = view.lease_of(row)
    if lease is None or lease.probe is None:
        return ""
    probe, cluster = lease.probe, view.cluster
    kind = cluster.gpu_types[int(cluster.gpu_type[probe.gpus[0]])]
    many, home = int(probe.gpus.size), int(probe.home.size)
    left = format_duration(max(0.0, float(probe.until - now)))
    return (
        f"It measures its rate over {probe.iterations} iterations on {many} {slots(many)} of {kind}, "
        f"and goes back to its {home} {slots(home)} then, in {left} at the latest."
    )
