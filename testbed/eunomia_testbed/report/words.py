"""Formats numbers and reasons as text, consistently across the page."""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, str]] = {
    "no_size_fits": "no size on its menu fits the cluster",
    "no_gpu_of_type": "there is no GPU of a type that it can use",
    "fragmented": "enough was free, but not where it could be used together",
    "cpus_short": "too few CPUs were free on the slots' machine",
    "memory_short": "too little memory was free on the slots' machine",
    "outranked": "others came first",
    "not_offered": "the slots were offered to other apps, which were worse off",
    "outbid": "it was outbid: others gained more from the slots",
    "held_back": "what it won was held back as payment",
    "share_used_up": "its share was used up",
    "planned_later": "it was planned for later",
    "awaiting_release": "the last holder had not let go yet",
    "paused_by_app": "its own tuner paused it",
    "not_profiled": "it was not profiled yet",
    "backing_off": "it had failed a moment before",
    "awaiting_round": "the next round had not come yet",
    "plugin_fault": "a plugin failed",
    "gpu_hours": "its user had used up the GPU hours of the day",
    "suspended": "its app was suspended",
}
"""Why a job waits, by the name of ``eunomia.contract.verdicts.Reason``: clauses that follow "because"."""


OWN_TRIALS: Final[dict[str, str]] = {
    "outranked": "its own trials came first",
    "not_offered": "its own trials had the slots",
    "outbid": "its own trials gained more from the slots",
    "awaiting_release": "its own trial had not let go yet",
}
"""Clauses that replace those of ``REASONS`` that mention other apps, for an app that was alone in the cluster."""


RHO_NAMES: Final = {"themis": "ρ", "static": "static ρ", "contention": "ρ by contention", "exclusive": "exclusive ρ"}
"""Names of the kinds of finish-time fairness."""


def reason_in_words(reason: str, *, alone: bool = False) -> str:
    """Return the meaning of a reason as text; an unknown reason is returned unchanged.

    Args:
        reason: name of the reason.
        alone: whether no other app was in the cluster.
    """
    if alone and reason in OWN_TRIALS:
        return OWN_TRIALS[reason]
    return REASONS.get(reason, reason.replace("_", " "))


def duration(seconds: float | None) -> str:
    """Return a duration such as ``4.2 s``, ``2 min 27 s`` or ``3 h 7 min``."""
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h" if days < 100 else f"{days:,} d"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def percent(share: float | None) -> str:
    """Return a fraction as a percentage such as ``93.7 %``."""
    if share is None:
        return "unknown"
    return f"{100 * share:.{2 if 0 < abs(share) < 0.01 else 1}f} %"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 app``, ``4 apps`` or ``no apps``."""
    return f"{f'{number:,}' if number else 'no'} {noun}{'' if number == 1 else 's'}"
