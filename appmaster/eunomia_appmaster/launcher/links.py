"""Links to the folders of this node's containers; repairs a damaged link while the container's processes run.

A starting launcher finds its containers only by these links. Without its link, a container's slot would be given out
while its processes still run.
"""

import contextlib
import os
from pathlib import Path

import structlog

from eunomia_appmaster.launcher.container import RECORD, mark_of
from eunomia_appmaster.launcher.processes import marks
from eunomia_appmaster.node.kept_files import OLDER

log = structlog.get_logger()


def link_again(live: Path, apps: Path, records: Path, node: str) -> None:
    """Link the folder of each running container of these apps that has no link.

    Args:
        live: the folder of links.
        apps: the folder of all apps' folders, absolute.
        records: the folder of the containers that run under accounts of users, absolute, see ``Node.records_folder``.
        node: name of this launcher's node; launchers of several nodes may share a machine and the apps' folders.
    """
    for mark in sorted(marks(node)):
        container_id = mark.rpartition("@")[0]
        link = live / container_id
        if not container_id or "/" in container_id:
            continue
        folder = next(
            (one for one in _folders(container_id, apps, records) if mark_of(container_id, one) == mark), None
        )
        if folder is None or (link.is_symlink() and link.resolve() == folder):  # None: of another launcher
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        log.error("launcher.linked_again", container=container_id, folder=str(folder))


def _folders(container_id: str, apps: Path, records: Path) -> list[Path]:
    """Return the possible folders of a container; records in a folder that a user can write to are not trusted."""
    if container_id.startswith("appmaster:"):
        _, app, attempt = [*container_id.split(":", 2), ""][:3]
        if {app, attempt} & {"", ".", ".."}:
            return []
        in_app = [apps / app / "appmaster" / attempt] if _is_own(apps / app) else []
        return [*in_app, records / app / "appmaster" / attempt]
    own = [app for app in apps.glob("*") if _is_own(app)]
    folders = [containers / container_id for app in own for containers in app.glob("*/containers")]
    folders += [app / container_id for app in records.glob("*")]
    return [folder for folder in folders if (folder / RECORD).exists() or (folder / f"{RECORD}{OLDER}").exists()]


def _is_own(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.lstat(folder).st_uid == os.geteuid()
    return False
