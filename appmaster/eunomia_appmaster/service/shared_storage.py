"""The storage that all nodes share: the arbiter writes a file into the folder of apps' folders, nodes read it back.

It has another name at each start of the arbiter, so that no copy and no cache of a network file system answers for it.
"""

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_appmaster.node.kept_apart import OPEN_FILE, PASSED
from eunomia_appmaster.protocol import launcher_pb2 as pb

FOLDER: Final = ".storage"
"""In the folder of apps' folders; no app's name begins with a dot."""


class SharedStorage:
    """The file by which nodes show that they see the apps' folders.

    Args:
        apps: the folder of all apps' folders.
    """

    def __init__(self, apps: Path) -> None:
        self._apps = apps
        self._name = secrets.token_hex(16)
        self._content = secrets.token_hex(32).encode()

    @property
    def file(self) -> str:
        """Its path below the folder of apps' folders."""
        return f"{FOLDER}/{self._name}"

    @property
    def hash(self) -> str:
        """SHA-256 of its content, as hexadecimal digits."""
        return hashlib.sha256(self._content).hexdigest()

    def show(self) -> str:
        """Write the file if it is not there, delete those of earlier arbiters, and return its path below the folder.

        Raises:
            OSError: the disk refuses it.
        """
        path = self._apps / self.file
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(PASSED)
            path.write_bytes(self._content)
            path.chmod(OPEN_FILE)  # over a network file system root is often another account
            for former in path.parent.iterdir():
                if former.name != self._name:
                    former.unlink(missing_ok=True)
        return self.file

    def hide(self) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):
            (self._apps / self.file).unlink(missing_ok=True)

    def check(self, request: pb.RegisterNodeRequest) -> None:
        """Refuse a node that has not read the file; the head stands in the arbiter's state folder.

        Raises:
            InputError: it does not see the arbiter's storage; with the cure.
        """
        if request.head or request.storage_hash == self.hash:
            return
        rule = (
            f"a node must see the folder of apps' folders of the arbiter ({self._apps.resolve()}); "
            "mount it on the node, and say where with --apps"
        )
        why = request.storage_fault or "another folder: the arbiter's file there has another content"
        raise InputError(rule, value=f"{request.apps_folder or 'none'}: {why}", place=request.node)
