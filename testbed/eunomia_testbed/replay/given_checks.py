"""Checks whether a replay can be made on an arbiter that runs, and reads the arbiter's policy and cluster."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from eunomia import __version__
from eunomia.errors import InputError
from eunomia.journal.journal import read_journal
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_appmaster.app.submission import login_name
from eunomia_appmaster.client import Client
from eunomia_appmaster.explaining.replay import JOURNAL
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.given_run import GivenNames, part_from_now
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.given_files import AtFile
from eunomia_testbed.replay.measuring.machine import machine_words

PLACE: Final = "--at"
MOST_NAMED: Final = 3
"""Most apps of others that an error names."""
TRIES, PAUSE_SECONDS = 5, 0.5
"""How often the journal's number of steps is compared with the arbiter's: a shared file system may be late."""
READER_SETTING: Final = "trace."
"""Beginning of the settings that are the trace reader's, not a policy's."""


def check_flags(flags: ReplayFlags) -> None:
    """Check that the flags can stand with ``--at``.

    Raises:
        InputError: one cannot; the error says why.
    """
    if flags.slots or flags.unpaced:
        given = f'--slots "{flags.slots}"' if flags.slots else "--unpaced"
        raise InputError("--at must stand without slots, since the arbiter has its own", value=given, place=PLACE)
    if flags.faults is not None:
        rule = "--faults must hit processes of the replay's own arbiters, so --at must not stand with it"
        raise InputError(rule, value=f"--faults {flags.faults}", place=PLACE)
    policies = [each for each in flags.settings or [] if not each.strip().startswith(READER_SETTING)]
    if policies:
        rule = "--at must leave the values of the arbiter's policy; --set takes those of the reader, trace.KEY"
        raise InputError(rule, value=policies[0], place="--set")
    if len(flags.policies or ()) > 1:
        rule = "--at must have one policy, that of the arbiter"
        raise InputError(rule, value=", ".join(flags.policies or ()), place="--policy")
    if flags.resizes == "live" and flags.profiles is None:
        rule = "--resizes live on a running arbiter must have --profiles, since its policy decides what changes"
        raise InputError(rule, value="none", place="--profiles")


def check_health(health: pb.HealthResponse, address: str) -> None:
    """Check that an arbiter decides under its chosen policy on all its machines, by this version of Eunomia.

    Raises:
        InputError: it does not.
    """
    if not health.ready:
        why = health.question or "one without machines, or that waits for them"
        raise InputError("the arbiter must be ready to decide", value=why, place=address)
    if health.version != __version__:
        rule = "the arbiter must be of the same version of Eunomia, which reads its record"
        raise InputError(rule, value=f"{health.version}, here {__version__}", place=address)
    if health.fallback:
        rule = "the arbiter must decide under its chosen policy (eunomia resume returns to it)"
        raise InputError(rule, value=f"its fallback, {health.serving}", place=address)
    away = [f"{node.node}: {node.state or 'silent'}" for node in health.nodes if not node.alive or node.state != "up"]
    away += [f"slot {slot.slot} of {slot.node} is missing" for slot in health.missing_slots]
    if away:
        raise InputError("all nodes and slots of the arbiter must be there", value="; ".join(away), place=address)


def others_of(client: Client, health: pb.HealthResponse, out: Path | None) -> str:
    """Return the apps of others that have not ended, as text; empty: there are none."""
    prefix = AtFile.read(out).prefix if out is not None else None
    live = [app.app for app in client.list(ended=False).apps]
    named = [app for app in live if prefix is None or not app.startswith(prefix)]
    count = health.apps - (len(live) - len(named))
    if count <= 0:
        return ""
    some = ", ".join([*named[:MOST_NAMED], *(["..."] if count > min(MOST_NAMED, len(named)) else [])])
    return f"{count} live app{'s' * (count != 1)}: {some}" if named else f"{count} of other users"


def state_dir_of(client: Client, named: Path | None, health: pb.HealthResponse) -> Path:
    """Return the arbiter's state folder as this machine sees it.

    Raises:
        InputError: there is no journal, it cannot be read, or it is another arbiter's.
    """
    folder = (named or Path(health.state_dir)).resolve()
    try:
        there = (folder / JOURNAL).is_file()
    except OSError:
        there = False
    if not there:
        rule = (
            "the arbiter's record must be readable on this machine (--state-dir names its state folder as seen from "
            "here, such as on a file system that machines share)"
        )
        raise InputError(rule, value=f"no {JOURNAL} in {folder} that can be read", place=PLACE)
    for _ in range(TRIES):
        least = client.health().steps
        with read_journal(folder / JOURNAL) as journal:
            steps, policy = journal.last_step, journal.meta.get("policy")
        most = client.health().steps
        if least <= steps <= most and policy == health.profile:
            return folder
        time.sleep(PAUSE_SECONDS)
    rule = "the state folder must be that of the arbiter"
    value = f"one with {steps} steps under {policy}, where the arbiter has {most} under {health.profile}"
    raise InputError(rule, value=value, place=str(folder))


def policy_and_cluster(state_dir: Path) -> tuple[Profile, Cluster]:
    """Return the arbiter's policy, and its cluster without machines that left, from its journal."""
    record = LiveRecord(state_dir, part_from_now(state_dir, GivenNames("")))
    try:
        record.poll()
        cluster = record.cluster
        profile = Profile.parse(str(record.meta("profile")), name=str(record.meta("policy")), place=JOURNAL)
    finally:
        record.close()
    if cluster is None:
        raise InputError("the arbiter must have machines", value="none", place=str(state_dir))
    there = [machine for number, machine in enumerate(cluster.machines) if number not in cluster.left]
    return profile, Cluster.build(there, place=PLACE)


def check_policy(flags: ReplayFlags, profile: Profile) -> None:
    """Check that ``--policy``, if given, names the arbiter's policy.

    Raises:
        InputError: it names another one, or one with other values.
    """
    for given in flags.policies or ():
        if given != profile.name and Profile.load(given).resolved() != profile.resolved():
            rule = "--at must have the policy of the arbiter (leave --policy out)"
            raise InputError(rule, value=f"{given}, where the arbiter has {profile.name}", place="--policy")


def owner_of(client: Client, *, as_me: bool) -> str:
    """Return the user that owns all apps: the caller; empty: the trace's users own them.

    Raises:
        InputError: the trace's users are to own the apps, but the caller cannot add users.
    """
    operates = _is_operator(client)
    if as_me:
        return login_name() if operates else str(client.users()[0].user)
    if not operates:
        rule = "the users of a trace must be added by the operator's token, or --as-me must stand"
        raise InputError(rule, value="the token of a user", place=PLACE)
    return ""


def _is_operator(client: Client) -> bool:
    try:
        client.nodes()
    except InputError:
        return False
    return True


def measured_on(health: pb.HealthResponse) -> str:
    """Return the machine of rates and costs as text: this machine, if the arbiter has no other node."""
    host = socket.gethostname().split(".")[0]
    here = health.host == host and all(node.node == host for node in health.nodes)
    return machine_words() if here else f"the arbiter's machines {health.cluster}"
