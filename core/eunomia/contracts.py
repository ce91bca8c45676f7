"""What a stage of a plugin needs, gives and promises; what is not declared is neither needed nor claimed."""

from collections.abc import Mapping
from enum import Enum

from eunomia.shapes import value
from eunomia.units import ZERO, Cause, Seconds, Stage


class Feature(Enum):
    """What a stage can need of those before it, or give to those after it."""

    MANY_SIZES = "rates or sizes at many numbers of GPUs"
    RATES = "rates by size"
    SCORES = "an order of claims"
    BY_TYPE = "speedups by GPU type"
    BY_SIZE = "values by size"
    BY_BUNDLE = "values of bundles"
    OVER_TIME = "utility over a window"
    TIME_SHARES = "shares of time by GPU type"
    DEVICE_SHARES = "shares of devices by GPU type"
    GRANTS = "whole GPUs"
    PINNED = "GPUs on particular machines"
    JOB_CLAIMS = "claims of jobs"
    """A refiner that gives these and takes no shares divides grants of apps, users or groups: after claims of jobs it
    is refused."""
    APP_CLAIMS = "claims of apps"
    ONE_GPU_TYPE = "a cluster of one GPU type"
    EQUAL_MACHINES = "machines of one size"
    CPUS_AND_MEMORY = "CPUs and memory of every machine"


CLUSTER_FEATURES = frozenset({Feature.ONE_GPU_TYPE, Feature.EQUAL_MACHINES, Feature.CPUS_AND_MEMORY})
"""Features that the cluster gives, not a stage."""


class Promise(Enum):
    """What a stage claims of itself; audited, and nothing else is claimed."""

    WORK_CONSERVING = "no claim with a feasible placement in what is left was left out"
    SEPARABLE = "the value of two apps' rows is the two apps' values"
    HONOURS_PINS = "pinned GPUs are placed on the machines named"
    SHARING_INCENTIVE = "nobody is worse off than with an equal share of the cluster"


@value
class Contract:
    """Of one stage of a plugin."""

    needs: frozenset[Feature] = frozenset()
    gives: frozenset[Feature] = frozenset()
    promises: frozenset[Promise] = frozenset()


Contracts = Mapping[Stage, Contract]
NO_CONTRACT = Contract()


@value
class Triggers:
    """When an allocation wants rounds; a profile's ``[rounds]`` overrides them."""

    on: frozenset[Cause]
    every: Seconds | None = None
    """A period in seconds: a round at each of its boundaries."""
    settle: Seconds = ZERO
    """Events within this many seconds are one round."""
    all_on: frozenset[Cause] = frozenset()
    """Causes whose rounds may touch every unprotected GPU."""
    when_served: bool = True
    """Whether such a round asks the stages even if nobody waits, and everybody who runs has all that they could use;
    a round that may only give out what is free never does."""
    when_full: bool = True
    """Whether a round that may only give out what is free asks the stages even if nothing is."""
