"""Checks that all nodes share the arbiter's storage: they read a file that the arbiter writes to the folder of apps.

The file has a new name at each start of the arbiter, so that neither a copy nor a cache of a network file system can
replace it.
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
"""Name of the file's folder, in the folder of apps' folders; names of apps never begin with a dot."""


class SharedStorage:
    """The file whose content proves that a node sees the apps' folders.

    Args:
        apps: the folder of all apps' folders.
    """

    def __init__(self, apps: Path) -> None:
        self._apps = apps
        self._name = secrets.token_hex(16)
        self._content = secrets.token_hex(32).encode()

    @property
    def file(self) -> str:
        """The file's path below the folder of apps' folders."""
        return f"{FOLDER}/{self._name}"

    @property
    def hash(self) -> str:
        """SHA-256 of the file's content, as hexadecimal digits."""
        return hashlib.sha256(self._content).hexdigest()

    def show(self) -> str:
        """If the file is missing, write it and delete those of earlier arbiters; return its path (see ``file``).

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
        """Check that a node has read the file; a launcher in the arbiter's state folder need not.

        Raises:
            InputError: the node does not see the arbiter's storage; the message has the remedy.
        """
        if request.head or request.storage_hash == self.hash:
            return
        rule = (
            f"a node must see the folder of apps' folders of the arbiter ({self._apps.resolve()}); "
            "mount it on the node, and say where with --apps"
        )
        why = request.storage_fault or "another folder: the arbiter's file there has another content"
        raise InputError(rule, value=f"{request.apps_folder or 'none'}: {why}", place=request.node)
