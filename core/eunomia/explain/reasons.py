"""The closed set of reasons: the meaning of each, a sentence about a job, and what can free the job."""

from collections.abc import Mapping
from typing import Final

from eunomia.contract.verdicts import Reason
from eunomia.model.shapes import value


@value
class Words:
    """The texts for one reason."""

    meaning: str
    """Meaning of the reason, for tables and manuals."""
    sentence: str
    """Sentence about one job; its fields are those of ``Facts`` and those that ``Facts.sentence`` adds."""
    frees: str
    """What lets a job with this reason start."""
    said_by: str
    """The stages that give the reason, or the arbiter."""


SENTENCES: Final[Mapping[Reason, Words]] = {
    Reason.NO_SIZE_FITS: Words(
        meaning="No size that the job can run at fits the cluster, even an empty one.",
        sentence="It needs at least {wanted}; the cluster has {in_service}, at most {widest} on one machine.",
        frees="Nothing that happens to other jobs; machines that are down and come back, if that is enough.",
        said_by="an allocation",
    ),
    Reason.NO_GPU_OF_TYPE: Words(
        meaning="There are GPUs, but too few of the type that the job asks for.",
        sentence="It needs {wanted}; {free} of {capacity} of that type are free.",
        frees="A GPU of its type: a lease that ends, or a job that is done. Nothing, where the cluster has none.",
        said_by="an allocation or a placement",
    ),
    Reason.FRAGMENTED: Words(
        meaning="Enough GPUs are free, but not where the job could use them together.",
        sentence="It needs {wanted} together; {free} are free, at most {largest} of them on one machine.",
        frees="Further GPUs on one machine.",
        said_by="a placement",
    ),
    Reason.CPUS_SHORT: Words(
        meaning="The GPUs are free, but too few CPUs on their machine.",
        sentence="It needs {cpus_asked:g} CPUs with {wanted}; machines with free slots have at most {cpus_left:g}.",
        frees="CPUs on a machine with free GPUs.",
        said_by="a placement",
    ),
    Reason.MEMORY_SHORT: Words(
        meaning="The GPUs are free, but too little memory on their machine.",
        sentence=(
            "It needs {memory_asked:g} GiB of memory with {wanted}; "
            "machines with free slots have at most {memory_left:g} GiB."
        ),
        frees="Memory on a machine with free GPUs.",
        said_by="a placement",
    ),
    Reason.OUTRANKED: Words(
        meaning="Others came first in the order of service.",
        sentence="It wants {wanted}; {free} free now, and {queue}.",
        frees="Further GPUs; jobs ahead of it that leave the queue.",
        said_by="an allocation, a placement, or the arbiter where no stage gave a reason",
    ),
    Reason.NOT_OFFERED: Words(
        meaning="Outside the filter of an auction: other apps are treated worse, and the GPUs were shown to them.",
        sentence="The free slots were offered to apps that are treated worse than {app}.",
        frees="Further GPUs; time, which makes the app's own ρ worse.",
        said_by="an allocation with auctions, or the arbiter for apps that were not shown the offer",
    ),
    Reason.OUTBID: Words(
        meaning="Its app bid, and others gain more from the GPUs.",
        sentence="The free slots went to apps that gain more from them than {app}.",
        frees="Further GPUs; the next end of a lease.",
        said_by="an allocation with auctions",
    ),
    Reason.HELD_BACK: Words(
        meaning="Its app won GPUs, and they were taken as its payment.",
        sentence="{app} won slots, and they were kept back as its payment for what other apps lost by that.",
        frees="The next auction.",
        said_by="an allocation with auctions",
    ),
    Reason.SHARE_USED_UP: Words(
        meaning="Its user or app has had its share for now.",
        sentence="{app} has had its share for now: {received:.0f} slot-seconds so far.",
        frees="Time, or apps that leave.",
        said_by="an allocation or refiner of shares",
    ),
    Reason.PLANNED_LATER: Words(
        meaning="A plan lets it start later.",
        sentence="The plan lets it start {planned}.",
        frees="The time of the plan.",
        said_by="an allocation that plans",
    ),
    Reason.AWAITING_RELEASE: Words(
        meaning="It was granted GPUs that their last holders have not given back yet.",
        sentence="It was granted {granted}; the last holders still have {pending} of them.",
        frees="The last holders leaving, at the latest when their grace is over.",
        said_by="the arbiter",
    ),
    Reason.PAUSED_BY_APP: Words(
        meaning="Its app does not want it to run now, such as a trial whose rung is not complete.",
        sentence="Its app {app} does not want it to run now.",
        frees="Its app, by resuming it.",
        said_by="the arbiter",
    ),
    Reason.NOT_PROFILED: Words(
        meaning="Its rate is not known, and the policy runs no job without one.",
        sentence="No rate of it is known at {wanted}.",
        frees="A measured rate.",
        said_by="an elasticity or allocation that needs rates",
    ),
    Reason.BACKING_OFF: Words(
        meaning="It failed a moment ago and is tried again after a pause.",
        sentence="It failed, and is tried again in {again_in}.",
        frees="The end of the pause, or its app, by resuming it.",
        said_by="the arbiter",
    ),
    Reason.AWAITING_ROUND: Words(
        meaning="It arrived, or became able to run, after the last round; or an offer is open.",
        sentence="{round_state}",
        frees="The next round.",
        said_by="the arbiter",
    ),
    Reason.PLUGIN_FAULT: Words(
        meaning="A plugin failed, so the round changed nothing.",
        sentence=(
            "The last round changed nothing: {fault}. "
            "Failures in a row: {faults}; at {faults_allowed} the fallback serves."
        ),
        frees="Another profile; the fallback, which serves after too many failures.",
        said_by="the arbiter",
    ),
    Reason.GPU_HOURS: Words(
        meaning="Its user has used up its GPU hours of the day; it was suspended, and nothing of it is lost.",
        sentence="The slot-hours that the operator gave its user for this day are used up; it goes on in {again_in}.",
        frees="Midnight UTC; the operator, by another limit.",
        said_by="the arbiter",
    ),
    Reason.SUSPENDED: Words(
        meaning="Its app is suspended: its folder is beyond a limit of disk, or its app master ended too often.",
        sentence="Its app {app} is suspended.",
        frees="Its app, by going on: once the cause is gone, or by `eunomia resume`.",
        said_by="the arbiter",
    ),
}
"""A sentence for each reason; the text of a plugin follows it."""
