"""``submission.json`` in an app's folder: the data of a submission that the app master needs, with the app file."""

import contextlib
import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import structlog

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value
from eunomia_appmaster.node.kept_files import OLDER, read_kept, set_aside, write_kept

log = structlog.get_logger()

APP_FILE = "app.toml"
SUBMISSION = "submission.json"
REMEDY = "restore it from a backup, or submit the app's file again"
MORE_TRIALS = "EUNOMIA_MORE_TRIALS"
"""Environment variable of an app master with the sizes of all added groups of trials, such as ``8,4``."""


@value
class Submission:
    """The data of one submission."""

    file_name: str
    """Name of the app file in errors, such as ``digits-sha.toml``."""
    folder: Path
    """Absolute path of the workers' working folder."""
    user: str
    env: Mapping[str, str]
    """The submitter's PATH, HOME, LANG and VIRTUAL_ENV, as far as they were set."""
    app_file: str
    """Text of the app file, of which ``app.toml`` is a copy for people."""

    def write(self, app_dir: Path) -> None:
        """Write ``submission.json``, with a checksum and a backup copy, and ``app.toml``.

        Raises:
            OSError: a file cannot be written.
        """
        (app_dir / APP_FILE).write_text(self.app_file, encoding="utf-8")
        plain = {
            "file_name": self.file_name,
            "folder": str(self.folder),
            "user": self.user,
            "env": dict(self.env),
            "app_file": self.app_file,
        }
        write_kept(app_dir / SUBMISSION, plain, sync=True)

    @classmethod
    def read(cls, app_dir: Path) -> Self:
        """Read the submission from an app's folder; a damaged file is logged and rewritten from its backup copy.

        Raises:
            EunomiaError: there is no submission, or neither the file nor its copy can be read.
        """
        path = app_dir / SUBMISSION
        try:
            kept = read_kept(path, remedy=REMEDY)
            plain = kept.content
            if plain is None:
                raise EunomiaError(
                    f"a submission must be in its app's folder; {REMEDY}", value="no such file", place=str(path)
                )
            _put_back(app_dir, plain, kept.damage)
            return cls(
                file_name=str(plain.get("file_name") or APP_FILE),
                folder=Path(plain["folder"]),
                user=str(plain.get("user", "")),
                env={str(name): str(setting) for name, setting in plain.get("env", {}).items()},
                app_file=str(plain["app_file"] if "app_file" in plain else (app_dir / APP_FILE).read_text("utf-8")),
            )
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise EunomiaError("a submission must be readable", value=repr(error), place=str(path)) from error


def _put_back(app_dir: Path, plain: Mapping[str, Any], damage: str) -> None:
    """Rewrite ``submission.json`` if it is damaged, and ``app.toml`` if it differs from the submitted text."""
    path, text = app_dir / SUBMISSION, app_dir / APP_FILE
    if damage:
        log.error("submission.older_copy", why=damage, taken=f"{path.name}{OLDER}", place=str(path))
        with contextlib.suppress(OSError):
            set_aside(path)
            write_kept(path, plain)
    if "app_file" not in plain or _bytes(text) == str(plain["app_file"]).encode():
        return
    log.error("app_file.put_back", why=f"{text.name} is not what was submitted", place=str(text))
    with contextlib.suppress(OSError):
        set_aside(text)
        text.write_text(str(plain["app_file"]), encoding="utf-8")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def login_name() -> str:
    """Return the login name of this process's user; the numeric user id if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
