"""An order as the guide on valuations teaches it, with public names alone; its tables equal those of ``srtf``."""

from typing import ClassVar

import numpy as np

from eunomia import Contract, Feature, LinearKey, Menus, Offer, Snapshot, Stage, Valuations, hookimpl


class ShortestFirst:
    """Jobs with the fewest seconds left on all their GPUs come first."""

    name = "shortest_first"
    api = 1
    contracts: ClassVar = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})
        )
    }

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Orders jobs by the seconds that they have left."""
        table = snapshot.jobs

        def seconds_left(jobs: np.ndarray) -> LinearKey:
            speed, since = menus.full_rate(jobs), table.since[jobs]  # iterations a second; NaN: it does not run
            rate = np.where(np.isnan(since), 0.0, table.rate[jobs])
            left = table.iterations[jobs] - table.done[jobs] + np.nan_to_num(since) * rate
            return LinearKey(intercept=left / speed, slope=-rate / speed)

        return Valuations.by_key(snapshot, offer, seconds_left)
