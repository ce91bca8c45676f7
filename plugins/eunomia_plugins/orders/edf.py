"""The plugin ``edf``: earliest deadline first."""

from typing import Annotated, ClassVar

from pydantic import Field

from eunomia import (
    Contract,
    Duration,
    Facts,
    Feature,
    Linear,
    Menus,
    Offer,
    PluginOptions,
    Seconds,
    Snapshot,
    Stage,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts


class EdfOptions(PluginOptions):
    """Options of ``edf``."""

    slack: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = 2.0
    """The deadline of a job is its arrival plus this multiple of its declared run time."""
    otherwise: Duration = Seconds(86400.0)
    """Time from arrival to deadline of a job without declared work or rate."""


class Edf:
    """Earliest deadline first; deadlines follow from declared values and never change."""

    name = "edf"
    api = 1
    options_type = EdfOptions
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    def __init__(self, options: EdfOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Order jobs by their deadlines, in seconds since the start."""
        return Valuations.by_job(snapshot, menus, offer, self._deadline)

    def _deadline(self, facts: Facts, job: int) -> Linear:
        """Return a job's deadline: its arrival plus ``slack`` times its run time at its largest size."""
        table = facts.jobs
        declared = table.iterations[job] * table.seconds_per_iteration[job] / table.most[job]
        known = declared == declared  # NaN: the job declares no work or no rate
        return Linear(table.arrived[job] + (self.options.slack * declared if known else self.options.otherwise))
