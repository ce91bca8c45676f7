"""Creates a container's folders: in the app's folder, or outside of it if the container runs under a user's account."""

import os
from pathlib import Path

from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.orders import NAME as ORDERS
from eunomia_appmaster.node.file_rights import as_owner


def make_folders(container: Container, node: Node) -> None:
    """Create the container's folder; if it has an account, also its worker's folder and its run folder.

    Raises:
        OSError: it exists, or cannot be created.
    """
    account = container.account
    if account is None:
        container.folder.mkdir(parents=True, mode=0o700)
        return
    node.make_records_folder(container.folder)
    own = container.worker_folder
    own.mkdir(mode=0o700)
    (own / ORDERS).symlink_to(Path("..") / ORDERS)  # where the training helper looks for it
    os.chown(own, account.uid, account.gid, follow_symlinks=False)
    with as_owner(node.app_folder(container.status.app)):
        container.run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
