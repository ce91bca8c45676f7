"""Checks for running jobs under users' accounts: privileges of this process, and permissions of the folders.

An account can traverse the state folder to its own app folders, but cannot list it, or read files but ``ca.pem``.
"""

import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_appmaster.node.accounts import Account, may_change_user
from eunomia_appmaster.node.file_rights import as_account, can_act_as_owner

PASSED: Final = 0o711
"""Mode of a folder that other accounts may pass through but not read."""
CLOSED_FILE, OPEN_FILE, CLOSED_FOLDER = 0o600, 0o644, 0o700
APPS, LAUNCHER, CA_FILE = "apps", "launcher", "ca.pem"


def keeps_apart() -> bool:
    """Return whether this process can run users' jobs under the users' accounts."""
    return may_change_user() and can_act_as_owner()


def check_login(login: str, state: Path) -> Account:
    """Return the account of a login after checking that jobs can run under it here.

    Args:
        login: name of the account.
        state: the state folder.

    Raises:
        InputError: the service may not change user, the account is not a person's, or it cannot run this interpreter or
            reach the state folder; nothing was changed.
    """
    if not keeps_apart():
        rule = "a login needs a service that may change user: `eunomia serve` as root"
        raise InputError(rule, value=f'"{login[:100]}" under account {os.geteuid()}', place="--login")
    account = Account.of(login)
    with as_account(account.uid, account.gid):
        for path, what in _ways(state):
            try:
                reached = path.stat()
            except OSError as error:
                rule = f"a login must {what}: folders above it must let it pass"
                raise InputError(rule, value=f"{login}: {error.strerror}", place=str(path)) from None
            if stat.S_ISREG(reached.st_mode) and not os.access(path, os.X_OK, effective_ids=True):
                raise InputError(f"a login must {what}", value=f"{login}: Permission denied", place=str(path))
    return account


def admit_login(state: Path, login: str) -> Account:
    """Check that jobs can run under a login's account here, let it pass through the state folder, and return it.

    Raises:
        InputError: as ``check_login``; nothing was changed.
    """
    account = check_login(login, state.resolve())
    let_pass(state.resolve())
    return account


def open_copy(ca_file: Path, state: Path) -> Path:
    """Copy a CA file, which is not secret, to a place that users' accounts can read; returns the copy."""
    copy, text = state.resolve() / CA_FILE, ca_file.read_bytes()
    if not copy.exists() or copy.read_bytes() != text:
        copy.write_bytes(text)
        copy.chmod(OPEN_FILE)
    return copy


def _ways(state: Path) -> tuple[tuple[Path, str], ...]:
    """Return the paths that an account must reach, each with the reason as text."""
    return (Path(sys.executable).resolve(), "run the service's Python"), (state, "reach the state folder")


def let_pass(state: Path) -> None:
    """Let other accounts traverse a state folder to the apps and the launcher's files, without reading the folder."""
    (state / APPS).mkdir(exist_ok=True)
    close(state, passed=(APPS, LAUNCHER), read=(CA_FILE,))


def close(folder: Path, *, passed: Collection[str], read: Collection[str] = ()) -> None:
    """Let other accounts pass through a folder, but make its content inaccessible.

    Args:
        folder: owned by this process's account.
        passed: folders in it that they may pass through as well.
        read: files in it that they may read.
    """
    for entry in os.scandir(folder):
        if entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            wanted = PASSED if entry.name in passed else CLOSED_FOLDER
        else:
            wanted = OPEN_FILE if entry.name in read else CLOSED_FILE
        if stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) != wanted:
            Path(entry.path).chmod(wanted)
    folder.chmod(PASSED)
