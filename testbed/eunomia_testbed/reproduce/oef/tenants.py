"""The tenants of OEF's reproduction: the speeds of their models on each GPU type, and their jobs."""

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds, value
from eunomia.units import Ints, Locality, Reals
from eunomia_testbed.audit.instances import AuditInstance
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.generators.oef import BANDWIDTH, MODELS, oef_speeds
from eunomia_testbed.performance import DeclaredModel, DeclaredSpeeds, GavelThroughputs, PerformanceModel, Setting
from eunomia_testbed.performance.declared import NETWORK_INTENSIVE
from eunomia_testbed.reproduce.files import NeededFile, Reading, check_files
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.workload import AppColumns, JobColumns, UserColumns

PRINTED, GAVEL = "printed", "gavel"
TYPES: Final[dict[str, tuple[str, ...]]] = {PRINTED: tuple(BANDWIDTH), GAVEL: ("K80", "P100", "V100")}
"""GPU types for each set of speeds, the slowest first."""
FOUR: Final[dict[str, tuple[str, ...]]] = {
    PRINTED: ("LSTM", "Transformer", "ResNet", "VGG"),
    GAVEL: (
        "LM (batch size 80)",
        "Transformer (batch size 64)",
        "ResNet-50 (batch size 64)",
        "ResNet-18 (batch size 64)",
    ),
}
"""The models of the four tenants of §6.2: tenant 1 trains a language model, tenant 4 a small vision model."""
SECOND: Final[dict[str, str]] = {PRINTED: "DenseNet", GAVEL: "Recommendation (batch size 2048)"}
"""The second model of tenant 1 in Figure 5(b)."""
OF_A_TYPE: Final = 8
"""Number of GPUs of each type, with four GPUs per host."""
JOBS: Final = 16
"""Number of jobs of each tenant in simulations whose jobs do not end."""
GANGS: Final = ((1, 2, 4), (0.7, 0.1, 0.2))
"""Numbers of GPUs of a job with their probabilities (assumed, as in the generator ``oef``); all tenants draw the
same."""
ENDLESS: Final = 1e12
CHANGE: Final = 2400.0
"""Seconds after which a tenant leaves or adds a model: the paper's 40th minute."""


@value
class Tenants:
    """The tenants that share the cluster.

    Attributes:
        speeds: the set of speeds, ``printed`` or ``gavel``.
        throughputs: the file of Gavel's rates, for ``gavel``.
        count: number of tenants.
        seed: seed of models and gangs.
    """

    speeds: str
    throughputs: str
    count: int
    seed: int

    @property
    def models(self) -> tuple[str, ...]:
        """Return each tenant's model, [tenant]; more than four tenants cycle through all models in a random order."""
        if self.count == len(FOUR[self.speeds]):
            return FOUR[self.speeds]
        known = speeds_of(self.speeds, self.throughputs).models
        order = np.random.default_rng([self.seed, self.count]).permutation(len(known))
        return tuple(known[order[row % len(known)]] for row in range(self.count))

    def speedups(self, models: Sequence[str]) -> Reals:
        """Return the speed of each model on one GPU relative to its slowest type, [row, type]."""
        truth = speeds_of(self.speeds, self.throughputs)
        return np.array([[truth.rate(model, _one(kind)) for kind in TYPES[self.speeds]] for model in models])

    def cluster(self) -> Cluster:
        """Return a cluster with eight GPUs of each type, four per host."""
        return Cluster.parse(", ".join(f"{OF_A_TYPE // 4}x4 {kind}" for kind in TYPES[self.speeds]))


def instance(speedup: Reals, weight: Sequence[float]) -> AuditInstance:
    """Return the tenants as an instance of the auditor; each tenant has enough jobs for the whole cluster.

    Args:
        speedup: [tenant, type] speed relative to the slowest type.
        weight: [tenant] weight in the shares.
    """
    types = speedup.shape[1]
    return AuditInstance(
        speedup=tuple(map(tuple, speedup.tolist())),
        weight=tuple(weight),
        gpus=(OF_A_TYPE,) * types,
        jobs=(OF_A_TYPE * types,) * len(weight),
        source="oef",
    )


def files_of(throughputs: str) -> tuple[NeededFile, ...]:
    """Return the third-party files that a simulation reads; printed speeds need none."""
    rule = "throughputs must be the file of Gavel's measured rates (--set throughputs=FILE)"
    return (NeededFile(path=throughputs, rule=rule),) if throughputs else ()


def readings_of(tenants: Tenants) -> tuple[Reading, ...]:
    """Return the inputs that are read once, before the first simulation; printed speeds need none."""
    if not tenants.throughputs:
        return ()
    return (
        Reading(read=speeds_of, arguments=(tenants.speeds, tenants.throughputs)),
        Reading(read=speedups_of_all, arguments=(tenants,)),
    )


def speedups_of_all(tenants: Tenants) -> Reals:
    """Return the speedups of the tenants' models and of tenant 1's second model, [row, type].

    Raises:
        InputError: the throughputs lack a model or a GPU type.
    """
    return tenants.speedups([*tenants.models, SECOND[tenants.speeds]])


@lru_cache(maxsize=4)
def speeds_of(speeds: str, throughputs: str) -> DeclaredSpeeds:
    """Return speeds relative to the slowest type, linear in GPUs, with Themis's slowdown S (footnote 3) across hosts.

    Raises:
        InputErrors: the throughputs are not at the grid's path.
    """
    measured: PerformanceModel = oef_speeds() if speeds == PRINTED else _gavel(throughputs)
    models = MODELS if speeds == PRINTED else measured.models
    found = {}
    for model in models:
        rates = {kind: measured.rate(model, _one(kind)) for kind in TYPES[speeds]}
        if min(rates.values()) > 0.0:
            slowest = min(rates.values())
            relative = {kind: rate / slowest for kind, rate in rates.items()}
            found[model] = DeclaredModel(speed=relative, slowdown=NETWORK_INTENSIVE)
    return DeclaredSpeeds(found, place="the models of OEF's tenants")


def _one(kind: str) -> Setting:
    return Setting(gpus=1, gpu_type=kind, locality=Locality.ISLAND)


def _gavel(throughputs: str) -> GavelThroughputs:
    check_files(files_of(throughputs), "reproduce oef")
    return GavelThroughputs.read(throughputs)


@builds
class Group:
    """The jobs of a tenant that train one model; they form an app."""

    tenant: int
    model: str
    arrives: float = 0.0
    work: float = ENDLESS
    """Total iterations of the group's jobs; one iteration takes a second on one GPU of the slowest type."""


def endless(tenants: Tenants, groups: Sequence[Group]) -> Workload:
    """Return jobs that do not end for some groups, which arrive together; all groups have the same gang sizes."""
    luck = np.random.default_rng([tenants.seed, JOBS])
    gangs = luck.choice(GANGS[0], size=JOBS, p=GANGS[1]).astype(np.int64)
    names = [f"tenant{group.tenant + 1}" for group in groups]
    users = list(dict.fromkeys(names))
    models = tuple(dict.fromkeys(group.model for group in groups))
    apps = [
        f"{name}-{group.model}" if names.count(name) > 1 else name for name, group in zip(names, groups, strict=True)
    ]
    owner = np.repeat(np.arange(len(groups)), JOBS)
    size = np.tile(gangs, len(groups))
    arrives = np.array([group.arrives for group in groups])
    work = np.array([group.work for group in groups]) / gangs.sum()
    return Workload(
        name=f"oef-{tenants.count}",
        users=UserColumns(id=users, weight=np.ones(len(users))),
        apps=AppColumns(
            id=apps,
            user=np.array([users.index(name) for name in names]),
            weight=np.ones(len(apps)),
            arrival_seconds=arrives,
        ),
        jobs=JobColumns(
            id=[f"{apps[row]}/{number}" for row in range(len(apps)) for number in range(JOBS)],
            app=owner,
            arrival_seconds=arrives[owner],
            least=size,
            most=size,
            iterations=work[owner] * size,
            seconds_per_iteration=np.full(owner.size, np.nan),
            model=np.array([models.index(group.model) for group in groups])[owner],
        ),
        models=models,
        source="OEF's tenants with jobs that do not end",
    )


def ending(tenants: Tenants, load: float = 1.0) -> Workload:
    """Return jobs that end: three days of tenants with 20 jobs each on average (§6.3.2), from the generator ``oef``.

    Args:
        tenants: the tenants.
        load: the total work, over what the cluster does in three days if all GPUs are of the slowest type.
    """
    drawn = generate_workload("oef", {"tenants": tenants.count, "load": load}, tenants.seed)
    models, names = tenants.models, tuple(dict.fromkeys(tenants.models))
    by_tenant: Ints = np.array([names.index(model) for model in models])
    jobs = drawn.jobs
    return dataclasses.replace(
        drawn,
        models=names,
        jobs=dataclasses.replace(
            jobs,
            model=by_tenant[drawn.apps.user[jobs.app]],
            iterations=np.maximum(1.0, jobs.iterations * jobs.most),
            seconds_per_iteration=np.full(jobs.app.size, math.nan),
        ),
    )
