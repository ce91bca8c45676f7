"""Makes the folders of a container: in the app's folder, or apart from it where it runs under an account of a user."""

import os
from pathlib import Path

from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.orders import NAME as ORDERS
from eunomia_appmaster.node.file_rights import as_owner


def make_folders(container: Container, node: Node) -> None:
    """Make the container's folder; for one with an account, that of its worker too, and its run folder.

    Raises:
        OSError: it is there, or cannot be made.
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
