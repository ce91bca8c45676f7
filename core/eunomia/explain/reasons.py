"""The sentence that explains each reason for which a job waits.

``docs/reference/reasons.md`` lists what each reason means, which stages give it, and what lets the job start.
"""

from collections.abc import Mapping
from typing import Final

from eunomia.contract.verdicts import Reason

SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.NO_SIZE_FITS: "It needs at least {wanted}; the cluster has {in_service}, at most {widest} on one machine.",
    Reason.NO_GPU_OF_TYPE: "It needs {wanted}; {free} of {capacity} of that type are free.",
    Reason.FRAGMENTED: "It needs {wanted} together; {free} are free, at most {largest} of them on one machine.",
    Reason.CPUS_SHORT: (
        "It needs {cpus_asked:g} CPUs with {wanted}; machines with free slots have at most {cpus_left:g}."
    ),
    Reason.MEMORY_SHORT: (
        "It needs {memory_asked:g} GiB of memory with {wanted}; "
        "machines with free slots have at most {memory_left:g} GiB."
    ),
    Reason.OUTRANKED: "It wants {wanted}; {free} free now, and {queue}.",
    Reason.NOT_OFFERED: "The free slots were offered to apps that are treated worse than {app}.",
    Reason.OUTBID: "The free slots went to apps that gain more from them than {app}.",
    Reason.HELD_BACK: "{app} won slots, and they were kept back as its payment for what other apps lost by that.",
    Reason.SHARE_USED_UP: "{app} has had its share for now: {received:.0f} slot-seconds so far.",
    Reason.PLANNED_LATER: "The plan lets it start {planned}.",
    Reason.AWAITING_RELEASE: "It was granted {granted}; the last holders still have {pending} of them.",
    Reason.PAUSED_BY_APP: "Its app {app} does not want it to run now.",
    Reason.NOT_PROFILED: "No rate of it is known at {wanted}.",
    Reason.BACKING_OFF: "It failed, and is tried again in {again_in}.",
    Reason.AWAITING_ROUND: "{round_state}",
    Reason.PLUGIN_FAULT: (
        "The last round changed nothing: {fault}. Failures in a row: {faults}; at {faults_allowed} the fallback serves."
    ),
    Reason.GPU_HOURS: (
        "The slot-hours that the operator gave its user for this day are used up; it goes on in {again_in}."
    ),
    Reason.SUSPENDED: "Its app {app} is suspended.",
}
"""The sentence for each reason, with fields of ``Facts`` and those that ``Facts.sentence`` adds; the text of the plugin
is appended."""
