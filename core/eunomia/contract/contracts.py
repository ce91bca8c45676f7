"""Contracts: the features that a plugin's stage needs and gives, and its promises; nothing undeclared is assumed."""

from collections.abc import Mapping

from eunomia.model.shapes import value
from eunomia.units import ZERO, Cause, Named, Seconds, SizeUnit, Stage


class Feature(Named):
    """A feature that a stage can need from earlier stages, or give to later stages."""

    MANY_SIZES = "rates or sizes at many numbers of GPUs"
    RATES_BY_KIND = "rates of jobs from those known of their kinds"
    RATES = "rates by size"
    SCORES = "an order of claims"
    BY_TYPE = "speedups by GPU type"
    BY_SIZE = "values by size"
    BY_BUNDLE = "values of bundles"
    OVER_TIME = "utility over a window"
    CPU_POINTS = "rates by CPUs and memory"
    REGIMES = "coming regimes of jobs"
    PROBES = "sizes to be measured"
    RETUNES = "retunes of running jobs"
    TIME_SHARES = "shares of time by GPU type"
    DEVICE_SHARES = "shares of devices by GPU type"
    GRANTS = "whole GPUs"
    PINNED = "GPUs on particular machines"
    JOB_CLAIMS = "claims of jobs"
    """A refiner that gives job claims and needs no shares divides grants to apps, users or groups; a profile in which
    it follows a stage with job claims is rejected."""
    APP_CLAIMS = "claims of apps"
    ONE_GPU_TYPE = "a cluster of one GPU type"
    EQUAL_MACHINES = "machines of one size"
    CPUS_AND_MEMORY = "CPUs and memory of every machine"


CLUSTER_FEATURES = frozenset({Feature.ONE_GPU_TYPE, Feature.EQUAL_MACHINES, Feature.CPUS_AND_MEMORY})
"""Features that the cluster gives, not a stage."""


class Promise(Named):
    """A property that a stage guarantees; the conformance suite tests it."""

    WORK_CONSERVING = "no claim with a feasible placement in what is left was left out"
    SEPARABLE = "the value of two apps' rows is the two apps' values"
    HONOURS_PINS = "pinned GPUs are placed on the machines named"
    READS_NO_VALUATION = "the values of claims are not read"
    SHARING_INCENTIVE = "no app is worse off than with an equal share of the cluster"
    ENVY_FREE = "no claim would have more with the GPUs of another, each by unit of weight"
    PARETO_EFFICIENT = "no allocation gives some claims more and none less"
    STRATEGY_PROOF_OVER = "no claim gains by reporting greater speedups than it has"
    STRATEGY_PROOF_UNDER = "no claim gains by reporting smaller speedups than it has"


@value
class Contract:
    """The contract of one stage of a plugin."""

    needs: frozenset[Feature] = frozenset()
    gives: frozenset[Feature] = frozenset()
    promises: frozenset[Promise] = frozenset()
    units: frozenset[SizeUnit] = frozenset()
    """With ``BY_SIZE``: the units of the values that a valuation gives, or that an allocation accepts. Empty: a
    valuation gives utilities; an allocation accepts any unit, since it only compares values of the same answer."""
    weighs_users: bool = False
    """Whether the stage's answer depends on which user owns an app, or on users' weights."""


Contracts = Mapping[Stage, Contract]
NO_CONTRACT = Contract()


@value
class Triggers:
    """The events and times that start a round; a profile's ``[rounds]`` overrides them."""

    on: frozenset[Cause]
    every: Seconds | None = None
    """A period in seconds; a round starts at each multiple of it. None: no period."""
    settle: Seconds = ZERO
    """Seconds from the first event to its round, so that events in this time share one round."""
    all_on: frozenset[Cause] = frozenset()
    """Causes whose rounds may reassign every unprotected GPU, and not only free ones."""
    when_served: bool = True
    """Whether a round of ``all_on`` calls the stages even if no job waits and every running job has its largest size. A
    round that may only assign free GPUs never does."""
    when_full: bool = True
    """Whether a round that may only assign free GPUs calls the stages even if no GPU is free."""
    when_unprotected: bool = True
    """Whether the end of a lease's protected time starts a round if jobs wait. False: the GPUs are reassigned in the
    next round that has another cause; for policies with frequent rounds."""
