"""An analytic model of speed: a step takes the longer of computing and loading, plus the exposed all-reduce.

A step of a data-parallel job with n GPUs and global batch B takes

    C = f + B / n / r                                     computing
    L = B / n * c / CPUs                                  loading
    A = 2 (n-1) / n * bytes / bandwidth + 2 (n-1) * latency     all-reduce around a ring
    max(C, L) + max(0, A - o * C)

where r is the items per second of a GPU of that type, f the part of a step in seconds that does not depend on the
batch, c the CPU time of an item, bytes four per parameter, and o the fraction of computing that overlaps with the
all-reduce, since gradients of the last layers are sent while those of the first are computed. Bandwidth and latency are
those of the gang's locality.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Locality
from eunomia_testbed.performance.facts import ALIASES, GPU_SPEED, MODELS, ModelFacts
from eunomia_testbed.performance.reading import plain, unknown
from eunomia_testbed.performance.speeds import Setting, part_of_gpu
from eunomia_testbed.workload.adaptation import split_model

BYTES_PER_PARAMETER: Final = 4.0
_PLACE: Final = "analytic model"


@value
class Links:
    """The network between GPUs, by locality: within an island, a machine, a rack, and the cluster."""

    gb_per_second: tuple[float, float, float, float] = (20.0, 12.0, 0.852, 0.426)
    """Bandwidth in 10^9 bytes per second: NVLink 1.0, one link per direction; 75 % of PCIe 3.0 x16; 10 Gbit Ethernet
    at 68 %, which Themis's Table 1 implies for VGG16 over two servers; half of that across racks (assumed)."""
    latency_seconds: tuple[float, float, float, float] = (1e-5, 2e-5, 5e-5, 1e-4)
    """Latency of one step around the ring, in seconds (assumed)."""
    overlap: float = 0.5
    """Fraction of computing that overlaps with the all-reduce, 0 to 1: about the second half of the backward pass
    (assumed)."""

    @classmethod
    def ethernet(cls, gbit_per_second: float, *, oversubscription: float = 2.0) -> "Links":
        """Return links of the same machines on another network, with the utilization that Themis's Table 1 implies.

        Args:
            gbit_per_second: bandwidth of a machine's port, in Gbit/s.
            oversubscription: divisor of a machine's bandwidth for traffic between racks.
        """
        rack = 0.852 * gbit_per_second / 10.0
        default = cls()
        return cls(gb_per_second=(*default.gb_per_second[:2], rack, rack / oversubscription))


class AnalyticModel:
    """Speeds of the models of Themis's Table 4, Synergy, AFS and OEF on the GPU types of ``GPU_SPEED``.

    If the number of CPUs is unknown, CPUs are no bottleneck; memory has no effect; two models that share a GPU run at
    half their speed each.
    """

    def __init__(
        self,
        models: Mapping[str, ModelFacts] = MODELS,
        *,
        links: Links | None = None,
        gpu_speed: Mapping[str, float] | None = None,
    ) -> None:
        """Create the model from facts on models and GPU types.

        Args:
            models: facts of the models by name.
            links: the network; None: ``Links()``.
            gpu_speed: speed of each GPU type, relative to a common one; None: ``GPU_SPEED``.

        Raises:
            InputError: a bandwidth, speed or fact that is not positive, or an overlap outside 0 to 1.
        """
        self.links = links or Links()
        self._facts = dict(models)
        self._speed = gpu_speed or {kind: speed for kind, (speed, _) in GPU_SPEED.items()}
        _check(self.links, self._facts, self._speed)

    @property
    def place(self) -> str:
        """Return the name of the model in errors."""
        return _PLACE

    @property
    def models(self) -> tuple[str, ...]:
        """Return names and aliases of the models with known facts."""
        return (*self._facts, *(other for other, name in ALIASES.items() if name in self._facts))

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Return the GPU types with speeds."""
        return tuple(self._speed)

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether there are facts on a model; they suffice for any batch size."""
        return self._found(model) is not None

    def facts(self, model: str) -> ModelFacts:
        """Return the facts of a model; the name may be an alias, and may end in a batch size.

        Raises:
            InputError: the model is unknown.
        """
        known = self._found(model)
        if known is None:
            raise unknown("model", model, tuple(self._facts), _PLACE)
        return known

    def _found(self, model: str) -> ModelFacts | None:
        names = (model, split_model(model)[0])
        known = (self._facts.get(name) or self._facts.get(ALIASES.get(name, "")) for name in names)
        return next((each for each in known if each is not None), None)

    def rate(self, model: str, setting: Setting) -> float:
        """Return a model's iterations per second in a setting.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        return part_of_gpu(setting) / self.step_seconds(model, setting)

    def step_seconds(self, model: str, setting: Setting) -> float:
        """Return the seconds of one iteration of a job that shares its GPUs with no other job.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        facts = self.facts(model)
        items = self._batch(model, facts, setting) / setting.gpus
        relative = self._of_type(setting.gpu_type) / self._of_type(facts.gpu_type)
        compute = (facts.fixed_seconds + items / facts.items_per_second) / relative
        load = items * facts.cpu_seconds_per_item / setting.cpus_per_gpu if setting.cpus_per_gpu else 0.0
        hidden = self.links.overlap * compute
        return max(compute, load) + max(0.0, self.all_reduce_seconds(model, setting) - hidden)

    def all_reduce_seconds(self, model: str, setting: Setting) -> float:
        """Return the seconds that a ring all-reduce of the gradients takes.

        Raises:
            InputError: the model is unknown.
        """
        others = setting.gpus - 1
        size = self.facts(model).parameters_millions * 1e6 * BYTES_PER_PARAMETER
        bandwidth = self.links.gb_per_second[setting.locality] * 1e9
        travel = 2.0 * others / setting.gpus * size / bandwidth
        return travel + 2.0 * others * self.links.latency_seconds[setting.locality]

    def is_network_intensive(self, model: str, *, gpus: int = 4, gpu_type: str = "P100", loss: float = 0.05) -> bool:
        """Return whether a model loses more than ``loss`` of its speed if its GPUs are on several machines of a rack.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        near, far = (
            self.rate(model, Setting(gpus=gpus, gpu_type=gpu_type, locality=locality))
            for locality in (Locality.ISLAND, Locality.RACK)
        )
        return far < (1.0 - loss) * near

    def _batch(self, model: str, facts: ModelFacts, setting: Setting) -> float:
        if setting.batch_size is not None:
            return setting.batch_size
        named = None if model in self._facts else split_model(model)[1]
        return facts.batch_size if named is None else float(named)

    def _of_type(self, gpu_type: str) -> float:
        found = _known_type(gpu_type, tuple(self._speed))
        if found is None:
            raise unknown("GPU type", gpu_type, self.gpu_types, _PLACE)
        return self._speed[found]


@lru_cache(maxsize=1024)
def _known_type(gpu_type: str, known: tuple[str, ...]) -> str | None:
    """Return the longest known GPU type that a name contains as whole words; None: it contains none.

    ``Tesla V100-SXM2`` and ``V100M32`` (with its memory in GiB at the end) contain V100; ``A10G`` and ``GTX 1080Ti``
    are types of their own and match no shorter name.
    """
    words = [re.sub(r"(?<=\d)m\d+$", "", word) for word in re.findall(r"[a-z0-9]+", gpu_type.lower())]
    runs = {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
    return max((kind for kind in known if plain(kind) in runs), key=len, default=None)


def _check(links: Links, models: Mapping[str, ModelFacts], speed: Mapping[str, float]) -> None:
    above, least = dict(_above_zero(links, models, speed)), dict(_at_least_zero(links, models))
    for what, amount in {**above, **least}.items():
        if not (amount > 0.0 if what in above else amount >= 0.0) or amount == float("inf"):
            rule = "positive" if what in above else "at least 0"
            raise InputError(f"{what} must be {rule}", value=f"{amount}", place=_PLACE)
    if not 0.0 <= links.overlap <= 1.0:
        raise InputError("overlap must be between 0 and 1", value=f"{links.overlap}", place=_PLACE)


def _above_zero(
    links: Links, models: Mapping[str, ModelFacts], speed: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    yield from ((f"gb_per_second of {place.name}", links.gb_per_second[place]) for place in Locality)
    yield from ((f"speed of {kind}", amount) for kind, amount in speed.items())
    for name, facts in models.items():
        yield f"parameters_millions of {name}", facts.parameters_millions
        yield f"batch_size of {name}", facts.batch_size
        yield f"items_per_second of {name}", facts.items_per_second


def _at_least_zero(links: Links, models: Mapping[str, ModelFacts]) -> Iterator[tuple[str, float]]:
    yield from ((f"latency_seconds of {place.name}", links.latency_seconds[place]) for place in Locality)
    for name, facts in models.items():
        yield f"cpu_seconds_per_item of {name}", facts.cpu_seconds_per_item
        yield f"fixed_seconds of {name}", facts.fixed_seconds
