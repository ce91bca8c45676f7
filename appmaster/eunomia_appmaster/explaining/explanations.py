"""Explanations as messages: a job's state and history, the reason for its wait, and the forecast for it."""

import math
from collections.abc import Sequence

from eunomia.arbiter import ClusterView
from eunomia.contract.explanations import Explanation
from eunomia.explain.explaining import Explainer, Why
from eunomia.explain.measuring import measuring
from eunomia.explain.remedies import Remedy
from eunomia.model.leases import LeaseState
from eunomia.model.workload import JobState
from eunomia.units import JobId, Seconds
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.layout import Layout

WAITING = ("waiting", "paused", "starting")
"""States of jobs that have a reason for not running."""
EXPLAINED = (*WAITING, "running")
"""States of jobs that a plugin can explain."""


def describe(view: ClusterView, row: int, now: float, *, until: float | None = None) -> pb.Explanation:
    """Return a job's state and history; ``add_why`` adds the reason for a wait.

    Args:
        view: the arbiter's view of the cluster.
        row: the job's row.
        now: time in seconds on the arbiter's clock.
        until: time in seconds up to which the job is known to make progress; None: until now.
    """
    jobs, ledger = view.jobs, view.job_ledger
    app = int(jobs.app[row])
    done, most = iterations_done(view, row, now if until is None else until), float(jobs.iterations[row])
    return pb.Explanation(
        job=view.job_id(row),
        app=view.app_id(app),
        user=str(view.users.id[view.apps.user[app]]),
        state=JobState(int(jobs.state[row])).name.lower(),
        seconds=max(0.0, now - float(view.verdict(row).at)),
        least=int(jobs.least[row]),
        most=int(jobs.most[row]),
        iterations_done=done,
        iterations=most if math.isfinite(most) else None,
        ran_seconds=float(ledger.attained[row]),
        waited_seconds=float(ledger.waited[row]),
        starts=int(jobs.starts[row]),
        slots=int((view.gpus.job == row).sum()),
        text=measuring(view, row, Seconds(now)) or _ordered_change(view, row),
    )


def _ordered_change(view: ClusterView, row: int) -> str:
    """Return a sentence about the change of size that a running job has not confirmed; empty: no change is ordered."""
    lease = view.lease_of(row)
    if lease is None or int(view.jobs.state[row]) != JobState.RUNNING:
        return ""
    if lease.state not in (LeaseState.PENDING, LeaseState.ORDERED):
        return ""
    size = lease.gpus.size
    return (
        f"A change to {size} slot{'' if size == 1 else 's'} is ordered; until it is made, the job keeps its old size."
    )


def iterations_done(view: ClusterView, row: int, now: float) -> float:
    """Return the iterations that a job has done by ``now``, extrapolated with its last rate."""
    jobs = view.jobs
    since, done, most = float(jobs.since[row]), float(jobs.done[row]), float(jobs.iterations[row])
    if not math.isnan(since):
        done += float(jobs.rate[row]) * max(0.0, now - since)
    return done if math.isnan(most) else min(done, most)


def add_reasons(explainer: Explainer, messages: Sequence[pb.Explanation], layout: Layout | None) -> None:
    """Add the reason and remedies to each waiting job, and the elasticity's forecast to each running job.

    This may take a while and needs no lock.
    """
    for message in messages:
        if message.state in WAITING:
            add_why(message, explainer.explain(JobId(message.job)), layout)
        elif message.state == "running":
            add_forecast(message, explainer.forecast(JobId(message.job)))


def add_forecast(message: pb.Explanation, said: Explanation | None) -> None:
    """Add the elasticity stage's explanation to a running job's message."""
    if said is not None:
        message.text = " ".join(filter(None, (message.text, said.text)))
        message.numbers.update({name: float(number) for name, number in said.numbers.items()})


def add_why(message: pb.Explanation, why: Why, layout: Layout | None) -> None:
    """Add the reason for a wait to a message."""
    message.seconds = why.seconds
    if why.reason is None:
        return
    message.reason, message.plugin = why.reason.word, why.plugin
    message.stage = "" if why.stage is None else why.stage.value
    message.round, message.said_seconds_ago = why.round, why.said_seconds_ago
    message.text = why.text
    message.numbers.update(why.numbers)
    message.frees.extend(_frees(remedy, layout) for remedy in why.frees)
    if why.starts_in is not None:
        message.starts_in_seconds.extend(why.starts_in)


def _frees(remedy: Remedy, layout: Layout | None) -> pb.Frees:
    names = [_slot(gpu, layout) for gpu in remedy.slots]
    alone = len(names) == 1 and names[0].isdigit()
    place = f"slot{'s' if len(names) > 1 else ''} {', '.join(names)}: " if names and not alone else ""
    return pb.Frees(
        what=remedy.what,
        slot=int(names[0]) if alone else None,
        in_seconds=remedy.in_seconds,
        text=place + remedy.text,
    )


def _slot(gpu: int, layout: Layout | None) -> str:
    """Return the name of a slot: its number, and its node if the cluster has several."""
    if layout is None:
        return str(gpu)
    place = layout.places[gpu]
    return str(place.slot) if len(layout.nodes) == 1 else f"{place.node}/{place.slot}"
