"""What must hold so that jobs run under accounts of their users: rights of this process, and ways through the folders.

An account passes through the state folder to the app folders that are its own, and reads no name and no file of it.
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
"""Mode of a folder that other accounts pass through."""
CLOSED_FILE, OPEN_FILE, CLOSED_FOLDER = 0o600, 0o644, 0o700
APPS, LAUNCHER, CA_FILE = "apps", "launcher", "ca.pem"


def keeps_apart() -> bool:
    """Return whether this process can run users' jobs under accounts of theirs."""
    return may_change_user() and can_act_as_owner()


def check_login(login: str, state: Path) -> Account:
    """Return the account of a login, if jobs can run under it here.

    Args:
        login: name of the account.
        state: the state folder.

    Raises:
        InputError: the service may not change user, the account is none of a person, or it cannot run this interpreter
            or reach the state folder; nothing was changed.
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
    """Return the account of a login under which jobs can run here, and let it pass through the state folder.

    Raises:
        InputError: as ``check_login``; nothing was changed.
    """
    account = check_login(login, state.resolve())
    let_pass(state.resolve())
    return account


def open_copy(ca_file: Path, state: Path) -> Path:
    """Copy a CA file, which is no secret, to where accounts of users can read it; returns the copy."""
    copy, text = state.resolve() / CA_FILE, ca_file.read_bytes()
    if not copy.exists() or copy.read_bytes() != text:
        copy.write_bytes(text)
        copy.chmod(OPEN_FILE)
    return copy


def _ways(state: Path) -> tuple[tuple[Path, str], ...]:
    """Return what an account must reach, with what it does there."""
    return (Path(sys.executable).resolve(), "run the service's Python"), (state, "reach the state folder")


def let_pass(state: Path) -> None:
    """Let other accounts pass through a state folder to apps and to the launcher's files, and read nothing there."""
    (state / APPS).mkdir(exist_ok=True)
    close(state, passed=(APPS, LAUNCHER), read=(CA_FILE,))


def close(folder: Path, *, passed: Collection[str], read: Collection[str] = ()) -> None:
    """Let other accounts pass through a folder, and close what is in it.

    Args:
        folder: this process' own.
        passed: folders in it through which they pass, too.
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
