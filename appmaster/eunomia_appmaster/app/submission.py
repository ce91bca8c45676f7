"""The data of a submission that an app master needs in addition to the app file: ``submission.json`` of its folder."""

import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value

APP_FILE = "app.toml"
SUBMISSION = "submission.json"
MORE_TRIALS = "EUNOMIA_MORE_TRIALS"
"""Environment variable of an app master: sizes of the groups of trials that were added, such as ``8,4``."""


@value
class Submission:
    """One submission."""

    file_name: str
    """Name of the file in errors, such as ``digits-sha.toml``."""
    folder: Path
    """Absolute path of the workers' working folder."""
    user: str
    env: Mapping[str, str]
    """PATH, HOME, LANG and VIRTUAL_ENV of the submitter, those that were set."""

    def to_json(self) -> str:
        """Return the submission as JSON."""
        plain = {
            "file_name": self.file_name,
            "folder": str(self.folder),
            "user": self.user,
            "env": dict(self.env),
        }
        return json.dumps(plain, indent=2) + "\n"

    @classmethod
    def read(cls, app_dir: Path) -> Self:
        """Read the submission from an app's folder.

        Raises:
            EunomiaError: there is none, or it cannot be read.
        """
        path = app_dir / SUBMISSION
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                file_name=str(plain.get("file_name") or APP_FILE),
                folder=Path(plain["folder"]),
                user=str(plain.get("user", "")),
                env={str(name): str(setting) for name, setting in plain.get("env", {}).items()},
            )
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise EunomiaError("a submission must be readable", value=repr(error), place=str(path)) from error


def login_name() -> str:
    """Return the user of this process; its number if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
