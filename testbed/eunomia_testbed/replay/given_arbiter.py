"""The arbiter of ``--at``: checks that a replay can be made on it, and makes the runs there.

The arbiter keeps its policy, its slots and its launchers. Its record is read from its state folder, which must be
readable on this machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.platform.profiles import Profile
from eunomia_appmaster.client import Client
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.user_record import MOST_LIVE_APPS, MOST_LIVE_JOBS, check_name
from eunomia_testbed.live_runs.given_run import GivenNames, GivenPlace, GivenRun, cancel_live
from eunomia_testbed.live_runs.interrupts import ignoring_interrupts
from eunomia_testbed.live_runs.live_run import ArbiterRun
from eunomia_testbed.replay.arbiters import ReplayArbiter
from eunomia_testbed.replay.cells import RealRun
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.given_checks import (
    PLACE,
    check_flags,
    check_health,
    check_policy,
    measured_on,
    others_of,
    owner_of,
    policy_and_cluster,
    state_dir_of,
)
from eunomia_testbed.replay.given_files import AtFile, next_prefix, write_users
from eunomia_testbed.replay.measuring.session import MakeRun, SlotKind
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.running import PlannedRun, ReplayRunAt
from eunomia_testbed.replay.slots import GivenSlots

log = structlog.get_logger()


class GivenArbiter(ReplayArbiter):
    """An arbiter that runs already, on which all runs of a replay are made, one after the other.

    Args:
        place: how it is reached, and where its record is.
        profile: its policy.
        slots: its slots.
        owner: the user that owns all apps; empty: the trace's users are added and own them.
        measured_on: the machine of rates and costs, as text.
        notes: sentences for the screen and ``run.json``.
        mine: users that the replay has added before it was interrupted.
    """

    scales_times = False
    slots_flag = PLACE

    def __init__(
        self,
        place: GivenPlace,
        profile: Profile,
        slots: GivenSlots,
        *,
        owner: str = "",
        measured_on: str,
        notes: Sequence[str] = (),
        mine: Sequence[str] = (),
    ) -> None:
        self._place, self._profile, self._slots = place, profile, slots
        self._measured_on, self._mine = measured_on, tuple(mine)
        self.owner, self.notes = owner, tuple(notes)

    @property
    def slots(self) -> GivenSlots:
        """Return the arbiter's slots."""
        return self._slots

    @property
    def measured_on(self) -> str:
        """Return this machine as text, if the arbiter has no node elsewhere; else its machines."""
        return self._measured_on

    def policies(self, folder: Path) -> tuple[str, ...]:
        """Return the path of a file with the arbiter's policy."""
        path = folder / f"{self._profile.name.replace('/', '_')}.toml"
        path.write_text(self._profile.resolved(), encoding="utf-8")
        return (str(path),)

    def check_users(self, users: Sequence[str], weighed_by: Sequence[str]) -> None:
        """Check that users of the trace can be added, or, if the caller owns all apps, that the policy weighs no users.

        Raises:
            InputError: the arbiter has a user of such a name, a name is no user's, or the policy weighs users.
            EunomiaError: the arbiter does not answer.
        """
        if self.owner and weighed_by:
            rule = "a policy that weighs users must have the trace's users, so --as-me must not stand"
            named = ", ".join(weighed_by)
            raise InputError(rule, value=f"{self._profile.name}, in which {named} weighs users", place="--as-me")
        if not self.owner:
            for user in users:
                check_name(user)
            with self._place.connect() as client:
                self._check_new(client, users, self._mine)

    def kinds(self) -> list[SlotKind]:
        """Return the slots as one kind.

        Raises:
            InputError: there are slots of several types, on which an app cannot be placed by type.
        """
        counts = self._slots.counts
        if len(counts) > 1:
            rule = "measured slots must be of one type, since no app can ask for a type, or --profiles must stand"
            raise InputError(rule, value=", ".join(counts), place=PLACE)
        return [SlotKind(name=name, count=count) for name, count in counts.items()]

    def measuring_run(self, out: Path) -> MakeRun:
        """Return a function that returns runs under the arbiter's own policy, whatever the measurement asks for."""

        def made(folder: Path, kind: SlotKind, policy: str, settings: Sequence[str]) -> ArbiterRun:
            folder.mkdir(parents=True)
            return GivenRun(folder, self._place, GivenNames(next_prefix(out)))

        return made

    @contextlib.contextmanager
    def serving(self, out: Path, users: Sequence[str]) -> Iterator[None]:
        """Cancel what an interrupted replay left, add the users, and remove them at the end.

        Raises:
            InputError: the arbiter has a user of a trace's user's name.
            EunomiaError: the arbiter does not answer.
        """
        prefix = AtFile.read(out).prefix
        try:
            with self._place.connect() as client:
                cancel_live(client, [app.app for app in client.list(ended=False).apps if app.app.startswith(prefix)])
                if not self.owner:
                    self._add_users(client, out, users)
            yield
        finally:
            with ignoring_interrupts():
                self._remove_users(out)

    def run_of(self, out: Path, plan: ReplayPlan, run: RealRun, folder: Path) -> PlannedRun:
        """Return a run on the arbiter."""
        return ReplayRunAt.of_plan(plan, folder, self._place, GivenNames(next_prefix(out)))

    def _add_users(self, client: Client, out: Path, users: Sequence[str]) -> None:
        there = self._check_new(client, users, AtFile.read(out).users)
        write_users(out, users)  # before they are added, so that a replay that is killed finds them again
        limits = pb.UserLimits(apps=MOST_LIVE_APPS, jobs=MOST_LIVE_JOBS)
        for user in users:
            if user not in there:
                client.add_user(user, limits=limits)

    def _check_new(self, client: Client, users: Sequence[str], mine: Sequence[str]) -> set[str]:
        """Check that the arbiter has none of these users but those that the replay has added; return all that it has.

        Raises:
            InputError: it has one.
        """
        there = {user.user for user in client.users()}
        taken = sorted(there.intersection(users) - {*mine})
        if taken:
            rule = "users of the trace must be new at the arbiter, or --as-me must stand"
            raise InputError(rule, value=f"{', '.join(taken)}, which it has", place=PLACE)
        return there

    def _remove_users(self, out: Path) -> None:
        """Remove the users that the replay has added; what cannot be removed is logged."""
        left = list(AtFile.read(out).users)
        if not left:
            return
        try:
            with self._place.connect() as client:
                there = {user.user for user in client.users()}
                for user in AtFile.read(out).users:
                    if user in there:
                        client.remove_user(user)
                    left.remove(user)
        except EunomiaError as error:  # the results must be kept even if the arbiter is away
            log.warning("replay.users_left", users=left, why=str(error), cure="eunomia users remove USER")
        write_users(out, left)


def given_arbiter(flags: ReplayFlags, address: str, out: Path | None = None) -> GivenArbiter:
    """Return the arbiter of ``--at``, after checking that the replay can be made on it.

    Args:
        flags: the command's flags.
        address: the arbiter's address.
        out: folder of a replay that goes on; None: the replay is new.

    Raises:
        InputError: a flag cannot stand with ``--at``, the arbiter serves others, its machines are not all up, or its
            state folder cannot be read here.
        EunomiaError: it does not answer.
    """
    check_flags(flags)

    def connect() -> Client:
        return Client(address, state_dir=flags.state_dir)

    with connect() as client:
        health = client.health()
        check_health(health, address)
        others = others_of(client, health, out)
        if others and not flags.shared:
            rule = "the arbiter must serve no others, whose apps take slots from the replay, or --shared must stand"
            raise InputError(rule, value=others, place=PLACE)
        state_dir = state_dir_of(client, flags.state_dir, health)
        owner = owner_of(client, as_me=flags.as_me)
    profile, cluster = policy_and_cluster(state_dir)
    check_policy(flags, profile)
    notes = [f"{profile.name} is the policy of the arbiter at {address}, which decides with its own seed"]
    if flags.shared:
        notes.append(f"the arbiter may serve others meanwhile, which the simulation lacks: {others or 'none at first'}")
    return GivenArbiter(
        GivenPlace(connect=connect, state_dir=state_dir, shared=flags.shared),
        profile,
        GivenSlots(address=address, cluster=cluster),
        owner=owner,
        measured_on=measured_on(health),
        notes=notes,
        mine=() if out is None else AtFile.read(out).users,
    )
