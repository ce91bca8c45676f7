"""Describe the measurement of a job's rate: on which GPUs the job runs, and when the measurement ends."""

from eunomia.explain.facts import slots
from eunomia.round.view import ClusterView
from eunomia.units import Seconds, format_duration


def measuring(view: ClusterView, row: int, now: Seconds) -> str:
    """Return a sentence about the running measurement of the job's rate; empty if there is none."""
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
