"""Creates the app masters of a simulation; an app with a single job gets none until one is needed."""

import importlib
from typing import Final

from eunomia_testbed.simulator.apps.app_masters import AppMaster, PlainAppMaster
from eunomia_testbed.simulator.apps.simulated_desk import SimulatedDesk
from eunomia_testbed.simulator.simulation_state import SimulationState

SEARCHES: Final = "eunomia_testbed.simulator.apps.searches"


class Masters:
    """The app masters of a run.

    Args:
        sim: the state of the simulation.
        desk: answers the app masters' queries.

    Attributes:
        desk: answers the app masters' queries.
        several: job rows of apps with several jobs, and of searches.
        jobs: job rows of apps that have or had a master.
    """

    def __init__(self, sim: SimulationState, desk: SimulatedDesk) -> None:
        self._sim, self.desk = sim, desk
        self.jobs: dict[int, list[int]] = {}
        jobs: dict[int, list[int]] = {}
        for job, app in enumerate(sim.rows.app_of):
            jobs.setdefault(app, []).append(job)
        self.several = {app: rows for app, rows in jobs.items() if len(rows) > 1 or app in sim.workload.searches}

    def speaks_for(self, app: int) -> bool:
        """Return whether an app has an app master, or will get one when the app arrives."""
        return app in self.several or app in self._sim.apps.masters

    def of(self, app: int) -> AppMaster:
        """Return an app's master, which is created if there is none."""
        known = self._sim.apps.masters.get(app)
        return self.make(app) if known is None else known

    def make(self, app: int) -> AppMaster:
        """Create and return an app's master."""
        sim = self._sim
        jobs = self.jobs[app] = self.several.get(app) or [
            job for job in range(len(sim.rows.app_of)) if sim.rows.app_of[job] == app
        ]
        search = sim.workload.searches.get(app)
        made: AppMaster
        if search is not None:
            kind = importlib.import_module(SEARCHES).SearchAppMaster
            made = kind(app, jobs, self.desk, search, seed=sim.seed * 1_000_003 + app)
        else:
            alive = [job for job in jobs if not sim.jobs.is_over(job)]
            made = PlainAppMaster(app, alive, self.desk, reports=len(jobs) > 1)
        sim.apps.masters[app] = made
        return made
