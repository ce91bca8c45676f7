"""An order as the guide on valuations teaches it, with public names alone; its tables equal those of ``srtf``."""

from typing import ClassVar

from eunomia import Contract, Facts, Feature, Linear, Menus, Offer, Snapshot, Stage, Valuations, hookimpl


def seconds_left(facts: Facts, job: int) -> Linear:
    """The seconds that a job has left on all its GPUs; while it runs, they fall."""
    table, (_, speed) = facts.jobs, facts.largest(job)  # iterations a second
    left, since, rate = table.iterations[job] - table.done[job], table.since[job], table.rate[job]
    if since != since:  # NaN: it does not run
        return Linear(left / speed)
    return Linear((left + since * rate) / speed, slope=-rate / speed)


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
        return Valuations.by_job(snapshot, menus, offer, seconds_left)
