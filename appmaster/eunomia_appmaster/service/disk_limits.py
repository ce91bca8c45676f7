"""Disk limits of users for the launchers, which measure the folders of all apps of a user."""

from math import isfinite

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.apps import SubmittedApps
from eunomia_appmaster.service.users import Users


def disk_limits(users: Users, apps: SubmittedApps) -> list[pb.DiskLimit]:
    """Return the limit of each user that has one, including removed users, with the apps that count against it."""
    limits = {user.name: user.limits.disk_bytes for user in users.all if isfinite(user.limits.disk_bytes)}
    mine: dict[str, list[str]] = {name: [] for name in limits}
    for app in apps if limits else ():
        if app.user in limits:
            mine[app.user].append(app.name)
    return [pb.DiskLimit(user=name, bytes=most, apps=mine[name]) for name, most in limits.items()]
