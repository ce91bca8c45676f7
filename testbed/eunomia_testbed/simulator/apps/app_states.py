"""The state of every app in a run: its end, and its app master while there is one."""

import math

from eunomia_testbed.simulator.apps.app_masters import AppMaster


class AppStates:
    """The states of apps, by row.

    Args:
        apps: number of apps.
    """

    def __init__(self, apps: int) -> None:
        self.finish = [math.nan] * apps
        """End of each app in seconds; NaN: the app has not ended."""
        self.masters: dict[int, AppMaster] = {}
        """The app masters of apps that have one and have not ended."""

    def has_ended(self, app: int) -> bool:
        """Return whether an app has ended."""
        return not math.isnan(self.finish[app])
