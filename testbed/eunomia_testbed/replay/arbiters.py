"""Where the runs of a replay are made: on arbiters of its own, one for each run, or on an arbiter that runs already.

A replay uses a ``ReplayArbiter`` in this order: ``slots``, ``policies`` and ``owner`` for the plan; ``kinds`` and
``measuring_run`` if rates are measured; ``serving`` around all real runs, and in it ``run_of`` for each.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_testbed.replay.cells import RealRun
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.measuring.machine import machine_words
from eunomia_testbed.replay.measuring.session import MakeRun, SlotKind, own_run
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.running import PlannedRun, ReplayRun
from eunomia_testbed.replay.slots import LocalSlots, ReplaySlots, slots_of

ONLY_AT: Final = {"--as-me": "as_me", "--shared": "shared", "--state-dir": "state_dir"}
"""Flags that need ``--at``, with their fields."""


class ReplayArbiter(abc.ABC):
    """The arbiters on which a replay's runs are made."""

    owner: str = ""
    """The user that owns all apps; empty: the trace's users own them."""
    scales_times: bool = True
    """Whether the policies' times are divided by the speed."""
    slots_flag: str = "--slots"
    """The flag that names the slots, for errors."""
    notes: tuple[str, ...] = ()
    """Sentences on the arbiter for the screen and ``run.json``."""

    @property
    @abc.abstractmethod
    def slots(self) -> ReplaySlots:
        """Return the slots."""

    @property
    @abc.abstractmethod
    def measured_on(self) -> str:
        """Return the machine of rates and costs as text, which a file of profiles must have."""

    @abc.abstractmethod
    def policies(self, folder: Path) -> tuple[str, ...] | None:
        """Return the policies of the runs as ``--policy`` takes them; None: the default ones.

        Args:
            folder: existing folder for files of profiles.
        """

    @abc.abstractmethod
    def check_users(self, users: Sequence[str], weighed_by: Sequence[str]) -> None:
        """Check that the owners of the apps can be the run's users, and that the policies can do with them.

        Args:
            users: the owners of the apps.
            weighed_by: the policies' plugins whose decisions depend on which user owns an app.

        Raises:
            InputError: they cannot.
        """

    @abc.abstractmethod
    def kinds(self) -> list[SlotKind]:
        """Return the slots on which rates and costs are measured.

        Raises:
            InputError: rates cannot be measured on these slots.
        """

    @abc.abstractmethod
    def measuring_run(self, out: Path) -> MakeRun:
        """Return a function that returns runs for measuring jobs; ``out`` is the folder of the replay."""

    @abc.abstractmethod
    def serving(self, out: Path, users: Sequence[str]) -> AbstractContextManager[object]:
        """Return a context manager within which the runs of a replay are made.

        Args:
            out: folder of the replay.
            users: users of the plan's apps.
        """

    @abc.abstractmethod
    def run_of(self, out: Path, plan: ReplayPlan, run: RealRun, folder: Path) -> PlannedRun:
        """Return the run of a policy and repeat, in its new folder; ``out`` is the folder of the replay."""


class OwnArbiters(ReplayArbiter):
    """An arbiter and a launcher of its own for each run, on slots of this machine.

    Args:
        local: the slots.
        given: the policies as given by ``--policy``; empty: the default ones.
    """

    def __init__(self, local: LocalSlots, given: Sequence[str] = ()) -> None:
        self._local = local
        self._given = tuple(given)

    @property
    def slots(self) -> LocalSlots:
        """Return the slots."""
        return self._local

    @property
    def measured_on(self) -> str:
        """Return this machine as text."""
        return machine_words()

    def policies(self, folder: Path) -> tuple[str, ...] | None:
        """Return the given policies; None: there are none."""
        return self._given or None

    def check_users(self, users: Sequence[str], weighed_by: Sequence[str]) -> None:
        """Accept every policy, since the users of a trace own its apps."""

    def kinds(self) -> list[SlotKind]:
        """Return the slots by type, each with its pace."""
        slots = self._local
        return [
            SlotKind(name=name, count=count, speed=slots.speeds[name], cpu_slots=slots.count is not None)
            for name, count in slots.counts.items()
        ]

    def measuring_run(self, out: Path) -> MakeRun:
        """Return a function that returns runs with arbiters of their own, which preload the programs' modules."""
        return functools.partial(own_run, run_class=ReplayRun)

    def serving(self, out: Path, users: Sequence[str]) -> AbstractContextManager[object]:
        """Return a context manager that does nothing: each run's arbiter ends with the run."""
        return nullcontext()

    def run_of(self, out: Path, plan: ReplayPlan, run: RealRun, folder: Path) -> PlannedRun:
        """Return a run with an arbiter of its own."""
        return ReplayRun.of_plan(plan, run, self._local, folder)


def own_arbiters(flags: ReplayFlags) -> OwnArbiters:
    """Return arbiters of the replay's own.

    Raises:
        InputError: a flag needs ``--at``, or the slots are malformed or missing on this machine.
    """
    for name, field in ONLY_AT.items():
        if getattr(flags, field):
            raise InputError(f"{name} must stand with --at", value="none", place=name)
    return OwnArbiters(slots_of(flags.slots, paced=not flags.unpaced), flags.policies or ())
