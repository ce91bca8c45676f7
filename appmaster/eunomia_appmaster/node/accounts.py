"""Accounts of this machine under which jobs may run, and the rules for which ones the operator may assign to users."""

import os
import pwd
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value

_LOGIN_DEFS: Final = Path("/etc/login.defs")
_LEAST_UID: Final = 1000
_NOBODY: Final = 65534
"""User id that the kernel shows for accounts without a mapping."""
_SETUID, _SETGID, _KILL, _CHOWN, _DAC_OVERRIDE = 7, 6, 5, 0, 1
NEEDED: Final = frozenset({_SETUID, _SETGID, _KILL, _CHOWN, _DAC_OVERRIDE})
"""Capabilities that a service needs to run processes under other accounts."""


@value
class Account:
    """An account of this machine."""

    login: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """Ids of all groups of the account, including its primary one."""
    home: str

    @classmethod
    def of(cls, login: str) -> "Account":
        """Look up an account by its login name.

        Raises:
            InputError: there is none with this name, or jobs may not run under it, since it is root's or a system
                account.
        """
        try:
            known = pwd.getpwnam(login)
        except (KeyError, ValueError):
            rule = "a login must be an account of this machine"
            raise InputError(rule, value=f'"{login[:100]}"', place="--login") from None
        least = least_uid()
        if known.pw_uid < least or known.pw_uid == _NOBODY or known.pw_gid == 0:
            rule = f"a login must be an account of a person: its number at least {least}, its group not 0"
            raise InputError(rule, value=f"{login}, {known.pw_uid}:{known.pw_gid}", place="--login")
        groups = tuple(sorted({known.pw_gid, *os.getgrouplist(login, known.pw_gid)}))
        if 0 in groups:
            raise InputError("a login must not be in the group of root", value=login, place="--login")
        return cls(login=login, uid=known.pw_uid, gid=known.pw_gid, groups=groups, home=known.pw_dir)

    def change(self) -> dict[str, Any]:
        """Return the data with which a shepherd changes to this account, as in ``start.json``."""
        return {"login": self.login, "uid": self.uid, "gid": self.gid, "groups": list(self.groups)}

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables HOME, USER and LOGNAME of the account."""
        return {"HOME": self.home, "USER": self.login, "LOGNAME": self.login}


def uid_of(login: str) -> str:
    """Return the user id of an account of this machine as text; empty: there is no such account."""
    try:
        return str(pwd.getpwnam(login).pw_uid)
    except (KeyError, ValueError):
        return ""


def least_uid() -> int:
    """Return the lowest user id of a person's account, from ``/etc/login.defs``; at least 1."""
    try:
        lines = _LOGIN_DEFS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _LEAST_UID
    words = (line.split() for line in lines)
    found = next((each[1] for each in words if len(each) > 1 and each[0] == "UID_MIN"), "")
    return max(1, int(found)) if found.isdecimal() else _LEAST_UID


def may_change_user() -> bool:
    """Return whether this process may run processes under other accounts: as root with the ``NEEDED`` capabilities."""
    return os.geteuid() == 0 and _capabilities() >= NEEDED


def _capabilities() -> set[int]:
    """Return the numbers of this process's effective capabilities."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    bits = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return {number for number in range(64) if bits >> number & 1}
