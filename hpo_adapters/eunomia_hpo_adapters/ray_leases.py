"""The slots of a Ray Tune search: an app whose trials are Ray nodes, and a thread that watches them.

The search program creates one ``RayLeases`` after ``ray.init``. Its app requests slots; on each slot that is granted, a
Ray node joins the search's cluster, and leaves the cluster with the slot. Needs the extra ``ray-tune``.
"""

import os
import threading
from pathlib import Path
from typing import Any, Self

import ray
import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.space import Parameter
from eunomia_hpo_adapters.driven_app import DrivenApp
from eunomia_hpo_adapters.ray_slots import (
    BEAT_SECONDS,
    SILENT_SECONDS,
    DriverBeat,
    LeaseView,
    Pulse,
    SlotBeat,
    driver_file,
    give_token,
    slot_file,
)

log = structlog.get_logger()


class RayLeases:
    """The slots of a search, as Ray nodes; a context manager that ends the app on exit.

    Attributes:
        app: the app; its trials are the slots.
        slots: maximum number of slots.
        cpus: CPUs of each slot that Ray may assign to trials.
        gpus: GPUs of each slot that Ray may assign to trials.

    Args:
        app_file: app file; the command in ``[job]`` is ``python -m eunomia_hpo_adapters.ray_node {args}``.
        slots: maximum number of slots, at least 1.
        cpus: see the attribute ``cpus``.
        gpus: see the attribute ``gpus``.
        address: address of the arbiter; see ``eunomia_appmaster.Client``.
        token_file: see ``Client``.
        state_dir: see ``Client``.

    Raises:
        InputErrors: all errors of the app file.
        InputError: ``ray.init`` was not called, or a number is out of range.
        UnreachableError: no arbiter answers.
    """

    def __init__(
        self,
        app_file: Path | str,
        *,
        slots: int,
        cpus: float = 1.0,
        gpus: float = 0.0,
        address: str | None = None,
        token_file: Path | str | None = None,
        state_dir: Path | str | None = None,
    ) -> None:
        if not ray.is_initialized():
            raise InputError("ray.init must be called before slots are asked for", value="no cluster")
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise InputError("slots must be a whole number of at least 1", value=repr(slots))
        if cpus < 0 or gpus < 0:
            raise InputError("cpus and gpus of a slot must be at least 0", value=f"{cpus} and {gpus}")
        self.slots, self.cpus, self.gpus = slots, cpus, gpus
        self._head = str(ray.get_runtime_context().gcs_address)
        self._view = LeaseView()
        self._pulses = {number: Pulse() for number in range(1, slots + 1)}
        self._beat = 0
        self._over = threading.Event()
        self.app = DrivenApp(app_file, address=address, token_file=token_file, state_dir=state_dir)
        self._files = self.app.orders.path.with_suffix("")
        self._files.mkdir()
        give_token(self._files, os.environ)
        self._say()
        for number in range(1, slots + 1):
            node: dict[str, Parameter] = {
                "head": self._head,
                "files": str(self._files),
                "number": number,
                "cpus": cpus,
                "gpus": gpus,
            }
            self.app.orders.start(node)
        self._thread = threading.Thread(target=self._watch, name="leases", daemon=True)
        self._thread.start()
        _OPEN[self.app.name] = self
        log.info("leases.asked", app=self.app.name, slots=slots)

    @property
    def view(self) -> LeaseView:
        """Return the slots as last seen, a fraction of a second ago, without blocking."""
        return self._view

    def __enter__(self) -> Self:
        """Return the leases."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the app."""
        self.close()

    def close(self) -> None:
        """Give up all slots, and end the app."""
        if self._over.is_set():
            return
        self._over.set()
        _OPEN.pop(self.app.name, None)
        self._thread.join()
        self._say(over=True)
        self.app.orders.end()
        self.app.orders.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the app's name: Ray Tune copies its schedulers, and all copies share the same leases."""
        return open_leases, (self.app.name,)

    # -- the thread

    def _watch(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            try:
                self._say()
                self.app.check()
                self._look()
            except EunomiaError as error:
                log.error("leases.lost", why=str(error))
                self._view = LeaseView()
                return
            except Exception as error:  # the search continues, and the next attempt may succeed
                log.warning("leases.unseen", why=str(error))

    def _say(self, *, over: bool = False) -> None:
        self._beat += 1
        DriverBeat(process=os.getpid(), beat=self._beat, over=over).write(driver_file(self._files))

    def _look(self) -> None:
        """Read the heartbeats of the nodes, and update the view."""
        up, leaving = 0, set[tuple[str, int]]()
        for number, pulse in self._pulses.items():
            beat = SlotBeat.read(slot_file(self._files, number))
            if beat is None or pulse.silent_seconds(beat) > SILENT_SECONDS:
                continue
            if beat.state == "up":
                up += 1
            elif beat.state == "leaving":
                leaving |= {(beat.host, process) for process in beat.processes}
        view = LeaseView(up=up, leaving=frozenset(leaving))
        if view.up != self._view.up:
            log.info("leases.changed", app=self.app.name, slots=view.up)
        self._view = view


_OPEN: dict[str, RayLeases] = {}
"""The leases of this process that have not been closed, by app name."""


def open_leases(name: str) -> RayLeases:
    """Return the open leases of an app, or else the leases that were opened last in this process.

    Raises:
        InputError: no leases are open, for example if a search is restored before its slots are requested again.
    """
    if not _OPEN:
        rule = "RayLeases must be made before a search that had slots is restored"
        raise InputError(rule, value="none", place=f"app {name}")
    return _OPEN.get(name, next(reversed(_OPEN.values())))
