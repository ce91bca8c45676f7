"""Earliest deadline first."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from eunomia import (
    Contract,
    Duration,
    Feature,
    LinearKey,
    Offer,
    PluginOptions,
    Seconds,
    Snapshot,
    Stage,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals, Rows


class EdfOptions(PluginOptions):
    """Options of ``edf``."""

    slack: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = 2.0
    """A job's deadline is this many times its declared run time after its arrival."""
    otherwise: Duration = Seconds(86400.0)
    """Time from arrival to deadline of a job that declares no work or no rate."""


class Edf:
    """Jobs with the nearest deadline come first; deadlines follow from declared values and never change."""

    name = "edf"
    api = 1
    options_type = EdfOptions
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    def __init__(self, options: EdfOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Order jobs by their deadlines, in seconds since the start."""

        def key(jobs: Rows) -> LinearKey:
            return LinearKey(intercept=snapshot.jobs.arrived[jobs] + self._allowed(snapshot, jobs))

        return Valuations.by_key(snapshot, offer, key)

    def _allowed(self, snapshot: Snapshot, jobs: Rows) -> Reals:
        """Seconds from arrival to deadline: slack times the run time on all the GPUs that the job asks for."""
        table = snapshot.jobs
        declared = table.iterations[jobs] * table.seconds_per_iteration[jobs] / table.most[jobs]
        return np.where(np.isnan(declared), float(self.options.otherwise), self.options.slack * declared)
