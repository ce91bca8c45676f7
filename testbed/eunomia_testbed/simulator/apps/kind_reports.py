"""Reports rates that are known without a run, once for all jobs of a kind that have the same rates."""

from collections.abc import Sequence

from eunomia.contract.events import KindProfiled, RateMeasured
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import MOST_POINTS, KnownRate
from eunomia.units import Basis


class KindReports:
    """The job kinds whose rates have been reported, each with the settings that determine these rates.

    Args:
        cluster: the cluster; rates for more GPUs of a type than it has are left out.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._most = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
        self._reported: dict[str, tuple[object, ...]] = {}

    def is_reported(self, kind: str, settings: tuple[object, ...]) -> bool:
        """Return whether a job with these settings has the rates that were reported for its kind."""
        return self._reported.get(kind) == settings

    def report(
        self, kind: str, settings: tuple[object, ...], rates: Sequence[RateMeasured]
    ) -> Sequence[RateMeasured | KindProfiled]:
        """Return the report of a job's rates: for the kind if it is the kind's first, or else for the job only."""
        if kind in self._reported:
            return rates
        known = tuple(
            KnownRate(
                gpus=rate.gpus,
                gpu_type=rate.gpu_type,
                locality=rate.locality,
                rate=rate.rate,
                known=Basis.DECLARED,
                batch_size=rate.batch_size,
            )
            for rate in rates
            if rate.gpus <= self._most[rate.gpu_type]
        )
        if not 0 < len(known) <= MOST_POINTS:
            return rates
        self._reported[kind] = settings
        return [KindProfiled(kind=kind, rates=known)]
