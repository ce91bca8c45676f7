"""``eunomia users``: manages the users of an arbiter, their tokens and limits."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.errors import InputError
from eunomia.units import parse_duration, parse_memory
from eunomia_appmaster.app.sizes import size_text
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import NOT_KNOWN, Address, AsJson, StateDir, duration, given, table
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.user_record import MOST_LIVE_APPS, MOST_LIVE_JOBS

SCHEMA: Final = "eunomia/users@1"
NONE: Final = "none"
"""Value of an option that removes a limit."""
GIB: Final = float(1 << 30)

users = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="People who share the arbiter: add, set, list, remove, token.",
)
Name = Annotated[str, typer.Argument(metavar="USER")]
Ends = Annotated[str | None, typer.Option("--ends", metavar="TIME", help="The token ends after this: 30d.")]


class LimitFlags(BaseModel):
    """Flags of ``eunomia users add`` and ``set``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: Name
    weight: Annotated[
        float | None, typer.Option("--weight", metavar="W", help="Highest weight of an app; at first 1.")
    ] = None
    apps: Annotated[int | None, typer.Option("--apps", metavar="N", help="Most live apps; at first 20.")] = None
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="Most jobs of live apps; at first 1,000.")] = (
        None
    )
    gpu_hours: Annotated[
        str | None,
        typer.Option("--gpu-hours", metavar="N/day", help="Slot-hours a day (UTC); none: no limit, at first."),
    ] = None
    disk: Annotated[
        str | None,
        typer.Option(
            "--disk", metavar="SIZE", help="Of the folders of all its apps: 100GiB; none: no limit, at first."
        ),
    ] = None
    login: Annotated[
        str | None,
        typer.Option("--login", metavar="NAME", help="Account of its processes; empty: the service's own, at first."),
    ] = None
    as_json: AsJson = False
    address: Address = None
    state_dir: StateDir = None

    @property
    def limits(self) -> pb.UserLimits:
        """The limits that the flags set.

        Raises:
            InputError: a number is out of range, GPU hours are not of the form N/day, or a size has no unit.
        """
        apps = _count(self.apps, "--apps", MOST_LIVE_APPS)
        jobs = _count(self.jobs, "--jobs", MOST_LIVE_JOBS)
        made = pb.UserLimits(weight=self.weight, apps=apps, jobs=jobs)
        if self.gpu_hours is not None:
            made.gpu_hours = _hours(self.gpu_hours)
        if self.disk is not None:
            made.disk_bytes = math.inf if self.disk == NONE else _disk(self.disk)
        return made


class SetFlags(LimitFlags):
    """Flags of ``eunomia users set``; an option for the token's life is rejected with a hint to the right command."""

    ends: Annotated[str | None, typer.Option("--ends", hidden=True)] = None


class AddFlags(LimitFlags):
    """Flags of ``eunomia users add``."""

    ends: Ends = None


@users.callback()
def _users() -> None:
    """People who share the arbiter: add, set, list, remove, token."""


@users.command("add")
@with_flags(AddFlags)
def add(flags: AddFlags) -> int:
    """Add a user, and print its token, which is shown once."""
    limits, seconds = flags.limits, _seconds(flags.ends)
    with Client(flags.address, state_dir=flags.state_dir) as client:
        made = client.add_user(flags.user, limits=limits, ends_in_seconds=seconds, login=flags.login or "")
    _show_token(made, as_json=flags.as_json)
    return 0


@users.command("set")
@with_flags(SetFlags)
def set_limits(flags: SetFlags) -> int:
    """Change limits of a user; those that are not given stay."""
    if flags.ends is not None:
        rule = "the life of a token must be chosen when it is made"
        value = f"--ends for one that exists (eunomia users token {flags.user} --ends {flags.ends} makes another)"
        raise InputError(rule, value=value)
    limits = flags.limits
    with Client(flags.address, state_dir=flags.state_dir) as client:
        _show([client.set_user(flags.user, limits, login=flags.login)], as_json=flags.as_json)
    return 0


@users.command("list")
def list_users(as_json: AsJson = False, address: Address = None, state_dir: StateDir = None) -> None:
    """List the users with their limits and what they use."""
    with Client(address, state_dir=state_dir) as client:
        _show(list(client.users()), as_json=as_json)


@users.command("remove")
def remove(user: Name, as_json: AsJson = False, address: Address = None, state_dir: StateDir = None) -> None:
    """Remove a user: its token ends at once, its apps go on."""
    with Client(address, state_dir=state_dir) as client:
        made = client.remove_user(user)
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "removed": user, "live_apps": made.live_apps}))
        return
    left = f"; {made.live_apps} of its apps go on (eunomia cancel APP ends one)" if made.live_apps else ""
    typer.echo(f"{user}: removed, its token is no longer valid{left}")


@users.command("token")
def token(
    user: Name, ends: Ends = None, as_json: AsJson = False, address: Address = None, state_dir: StateDir = None
) -> None:
    """Print another token of a user, which is shown once; the one before it ends."""
    seconds = _seconds(ends)
    with Client(address, state_dir=state_dir) as client:
        made = client.new_token(user, ends_in_seconds=seconds)
    _show_token(made, as_json=as_json)


def _count(number: int | None, flag: str, most: int) -> int | None:
    if number is not None and not 1 <= number <= most:
        raise InputError(f"{flag} must be from 1 to {most:,}", value=str(number))
    return number


def _disk(text: str) -> float:
    """Return an amount of disk space in bytes."""
    try:
        return parse_memory(text, name="--disk") * GIB
    except InputError as error:
        rule = 'an amount of disk must be above 0 with a unit, such as "100GiB", or none'
        raise InputError(rule, value=f'"{text}"', place="--disk") from error


def _hours(text: str) -> float:
    if text == NONE:
        return math.inf
    amount, _, unit = text.partition("/")
    try:
        hours = float(amount)
    except ValueError:
        hours = math.nan
    if unit != "day" or not 0.0 < hours < math.inf:
        rule = 'GPU hours must be a number above 0 a day, such as "200/day", or none'
        raise InputError(rule, value=f'"{text}"', place="--gpu-hours")
    return hours


def _seconds(ends: str | None) -> float | None:
    return None if ends is None else float(parse_duration(ends, name="--ends"))


def _show_token(made: pb.UserToken, *, as_json: bool) -> None:
    user = made.user
    ends = given(user, "token_ends_in_seconds")
    at = None if ends is None else datetime.now(UTC) + timedelta(seconds=ends)
    until = "" if at is None else at.strftime("%Y-%m-%d %H:%M UTC")
    if as_json:
        iso = None if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
        facts = {"user": user.user, "number": user.tokens, "token": made.token, "ends": iso}
        typer.echo(json.dumps({"schema": SCHEMA} | facts))
        return
    ending = f"; it ends {until}" if until else ""
    typer.echo(f"token of {user.user} (shown once): {made.token}")
    typer.echo(f"kept as a hash; eunomia users token {user.user} makes another{ending}")


def _show(known: list[pb.User], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "users": [_facts(user) for user in known]}))
        return
    if not known:
        typer.echo("no user has been added: the operator's token submits all apps")
        return
    headers = ("USER", "LOGIN", "WEIGHT", "APPS", "JOBS", "GPU HOURS TODAY", "DISK", "TOKEN", "WAITS")
    typer.echo("\n".join(table(headers, [_row(user) for user in known], right=("WEIGHT",))))


def _row(user: pb.User) -> tuple[str, ...]:
    limits, ends, waits = user.limits, given(user, "token_ends_in_seconds"), given(user, "waits_seconds")
    hours = f" of {limits.gpu_hours:g}" if math.isfinite(limits.gpu_hours) else ""
    life = "" if ends is None else ", ended" if ends == 0.0 else f", ends in {duration(ends)}"
    return (
        user.user,
        user.login or NONE,
        f"{limits.weight:g}",
        f"{user.live_apps} of {limits.apps}",
        f"{user.live_jobs} of {limits.jobs}",
        f"{user.gpu_hours_used:.1f}{hours}",
        size_text(limits.disk_bytes) if math.isfinite(limits.disk_bytes) else NONE,
        f"{user.tokens}{life}",
        NOT_KNOWN if waits is None else duration(waits),
    )


def _facts(user: pb.User) -> dict[str, Any]:
    limits = user.limits
    return {
        "user": user.user,
        "login": user.login or None,
        "weight": limits.weight,
        "apps": limits.apps,
        "jobs": limits.jobs,
        "gpu_hours_a_day": limits.gpu_hours if math.isfinite(limits.gpu_hours) else None,
        "disk_bytes": limits.disk_bytes if math.isfinite(limits.disk_bytes) else None,
        "token_number": user.tokens,
        "token_ends_in_seconds": given(user, "token_ends_in_seconds"),
        "live_apps": user.live_apps,
        "live_jobs": user.live_jobs,
        "gpu_hours_used": user.gpu_hours_used,
        "waits_seconds": given(user, "waits_seconds"),
    }
