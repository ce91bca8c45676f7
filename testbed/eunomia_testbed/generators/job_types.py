"""The job types of Gavel's and Shockwave's generators: model, batch sizes, and whether they run on several GPUs.

Source: the public repositories ``stanford-futuredata/gavel`` and ``uw-mad-dash/shockwave``. Job types are in the order
of their tables, since they are drawn by index.
"""

from collections.abc import Sequence
from typing import Final

from eunomia.model.shapes import value
from eunomia_testbed.workload.adaptation import named_model


@value
class JobType:
    """A model at a batch size."""

    family: str
    batch_size: int | None
    distributed: bool = True
    """Whether the model can run on more than one GPU."""

    @property
    def model(self) -> str:
        """Return the job type's name in throughput files."""
        return named_model(self.family, self.batch_size)


def _family(name: str, batches: Sequence[int], *, distributed: bool = True) -> list[JobType]:
    return [JobType(family=name, batch_size=batch, distributed=distributed) for batch in batches]


GAVEL: Final = (
    *_family("ResNet-18", (16, 32, 64, 128, 256)),
    *_family("ResNet-50", (16, 32, 64, 128)),
    *_family("Transformer", (16, 32, 64, 128, 256)),
    *_family("LM", (5, 10, 20, 40, 80)),
    *_family("Recommendation", (512, 1024, 2048, 4096, 8192), distributed=False),
    JobType(family="A3C", batch_size=None, distributed=False),
    JobType(family="CycleGAN", batch_size=None, distributed=False),
)
SHOCKWAVE: Final = (
    *_family("ResNet-18", (32, 64, 128, 256)),
    *_family("ResNet-50", (16, 32, 64)),
    *_family("Transformer", (16, 32, 64, 128)),
    *_family("LM", (5, 10, 20, 40, 80)),
    *_family("Recommendation", (512, 1024, 2048, 4096, 8192), distributed=False),
)
