"""The account that an app's containers run under, and the check that it owns the app's folder."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.accounts import Account, may_change_user
from eunomia_appmaster.node.file_rights import as_account


def account_of(login: str) -> Account | None:
    """Return the account for a login name in an arbiter's order; None for an empty name.

    Raises:
        InputError: this machine has no such account, or jobs may not run under it.
        EunomiaError: this launcher may not change user.
    """
    if not login:
        return None
    if not may_change_user():
        rule = "a launcher that runs jobs under accounts of users must be root"
        raise EunomiaError(rule, value=f"{login} under account {os.geteuid()}")
    return Account.of(login)


def check_owner(folder: Path, account: Account | None) -> None:
    """Check that an app's folder belongs to the account that its processes run under.

    Root starts nothing in a user's folder, and a user gets no folder of another user, for instance after a backup was
    restored without the owners.

    Raises:
        EunomiaError: the folder belongs to another account.
    """
    if os.geteuid() != 0:
        return
    try:
        owner = os.lstat(folder).st_uid
    except FileNotFoundError:
        if account is None:
            return
        raise EunomiaError("an app's folder must be there", value="none", place=str(folder)) from None
    wanted = os.geteuid() if account is None else account.uid
    if owner != wanted:
        rule = "an app's folder must belong to the account that its processes run under"
        raise EunomiaError(rule, value=f"account {owner}, not {wanted}", place=str(folder))


@contextlib.contextmanager
def rights_of(account: Account | None) -> Iterator[None]:
    """Use the rights of an account for this thread's file accesses within the block; None: the process's own."""
    if account is None:
        yield
        return
    with as_account(account.uid, account.gid):
        yield
