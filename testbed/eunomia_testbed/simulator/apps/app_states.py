"""The state of every app of a run: its end, and its app master while it has one."""

import math

from eunomia_testbed.simulator.apps.app_masters import AppMaster


class AppStates:
    """States by app row.

    Args:
        apps: number of apps.
    """

    def __init__(self, apps: int) -> None:
        self.finish = [math.nan] * apps
        """By app, its end in seconds; NaN: the app has not ended."""
        self.masters: dict[int, AppMaster] = {}
        """App masters of the apps that have one and have not ended."""

    def has_ended(self, app: int) -> bool:
        """Return whether an app has ended."""
        return not math.isnan(self.finish[app])
