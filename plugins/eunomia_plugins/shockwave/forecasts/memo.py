"""The memo of ``shockwave_forecast``: the posterior of each job by id, with the batch sizes of its regimes."""

import dataclasses
import json
from typing import ClassVar, Self

from eunomia.model.shapes import value
from eunomia_plugins.shockwave.forecasts.posterior import Posterior


@value
class Belief:
    """The posterior of one job."""

    posterior: Posterior
    batch_sizes: tuple[float, ...]
    """Batch size of each regime, including finished ones."""
    seconds_per_epoch: tuple[float, ...]
    """Seconds per epoch in the present and each future regime, at the job's largest size."""
    known: tuple[bool, ...]
    """Whether the rate in each of these regimes is known for the job or its kind; the present one always is."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """The posteriors of jobs, by job id."""

    version: ClassVar[int] = 2
    by_job: dict[str, Belief]

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        plain = {
            job: [
                one.posterior.epochs,
                one.posterior.parameters,
                one.posterior.present,
                one.batch_sizes,
                one.seconds_per_epoch,
                one.known,
            ]
            for job, one in self.by_job.items()
        }
        return json.dumps(plain, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; version 1 does not state which rates are known."""
        return cls(
            by_job={
                job: Belief(
                    posterior=Posterior(epochs=epochs, parameters=tuple(parameters), present=present),
                    batch_sizes=tuple(batches),
                    seconds_per_epoch=tuple(paces),
                    known=tuple(known[0]) if known else (True,) * len(paces),
                )
                for job, (epochs, parameters, present, batches, paces, *known) in json.loads(data).items()
            }
        )
