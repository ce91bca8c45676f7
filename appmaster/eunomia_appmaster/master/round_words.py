"""The causes of the arbiter's rounds as text, for the events of a job whose lease a round has changed."""

from collections.abc import Collection
from typing import Final

from eunomia.units import Cause

WORDS: Final = {
    Cause.ARRIVED: "an app or a job arrived, or became able to run",
    Cause.LEFT: "an app or a job ended",
    Cause.FREED: "a slot became free",
    Cause.LEASE_ENDED: "a lease, or its protected time, ended",
    Cause.CLUSTER_CHANGED: "the cluster changed",
    Cause.ADAPTED: "a job changed its batch size",
    Cause.REPORTED: "a forecast or a rate was reported",
    Cause.BOUNDARY: "a period ended",
    Cause.WAKE: "the policy had asked to decide again",
}
_BY_NAME: Final = {cause.value: words for cause, words in WORDS.items()}


def decided(causes: Collection[str]) -> str:
    """Return when a round was held, as the end of a sentence: ``, decided when a slot became free``.

    Args:
        causes: values of ``Cause``; those of a later version are left out. Without any, the text is empty.
    """
    known = [_BY_NAME[cause] for cause in causes if cause in _BY_NAME]
    return f", decided when {'; '.join(known)}" if known else ""
