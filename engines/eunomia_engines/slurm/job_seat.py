"""The seat of a head in a batch job: takes a number, waits for the journal's lock, and requests the next head's job."""

import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.journal.files import is_locked
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.interfaces import own_addresses
from eunomia_engines.head.files import DOWN, given_flags
from eunomia_engines.head.seats import Seat
from eunomia_engines.slurm.head_certificates import certificates_here
from eunomia_engines.slurm.head_job import HeadJobs
from eunomia_engines.slurm.heads import highest, take_number
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request

if TYPE_CHECKING:
    from eunomia_appmaster.node.supervisor import Serving

log = structlog.get_logger()

JOURNAL: Final = "journal.sqlite"
NEXT_SECONDS: Final = 300.0
"""Seconds between two checks whether the next head's job waits in the queue."""
LOCK_SECONDS: Final = 1.0


class JobSeat(Seat):
    """The seat of a head in a batch job.

    Args:
        state: the arbiter's state folder.
        job: id of the batch job.
        programs: calls Slurm's programs.

    Raises:
        InputError: this process is not in a batch job, or there is no request.
        OSError: the storage is not writable.
    """

    def __init__(self, state: Path, job: str, programs: SlurmPrograms | None = None) -> None:
        super().__init__(state / FOLDER, state)
        if not job.isdecimal():
            raise InputError("a head with --job must run in a batch job of Slurm", value=f'SLURM_JOB_ID="{job}"')
        self._jobs = HeadJobs(Request.load(state), state, programs or SlurmPrograms())
        self.number = take_number(state)
        self.record = {"job": job, "number": self.number, "host": socket.gethostname()}
        self._looked_at = -NEXT_SECONDS

    def wait(self, stopped: threading.Event) -> bool:
        """Wait until the previous head, which ends once it sees this head's number, has released the journal's lock."""
        if is_locked(self.state / JOURNAL):
            log.info("head.waits", number=self.number, what="the head before has the journal")
        while is_locked(self.state / JOURNAL):
            if stopped.wait(LOCK_SECONDS) or self._is_lower():
                return False
        return not stopped.is_set()

    def is_taken(self) -> bool:
        """Return whether there is a head with a higher number; every ``NEXT_SECONDS``, request the next head's job.

        Unreadable storage counts as no: the journal's lock keeps the next head waiting meanwhile.
        """
        if self._is_lower():
            log.warning("head.replaced", number=self.number, by=highest(self.state))
            return True
        if time.monotonic() - self._looked_at >= NEXT_SECONDS and not (self.folder / DOWN).exists():
            self._looked_at = time.monotonic()
            try:
                if (job := self._jobs.ask_for_next()) is not None:
                    log.info("head.next", job=job)
            except EunomiaError as error:
                log.warning("head.no_next", why=str(error))
        return False

    def flags(self) -> ServeFlags:
        """Return the flags of the arbiter, which serves at this machine's own address."""
        given, port = given_flags(self.folder)
        files, host = certificates_here(self.state / "tls"), own_address()
        return ServeFlags(
            **given,
            no_launcher=True,
            address=f"{host}:{port if is_free(host, port) else 0}",
            tls_cert=files.cert,
            tls_key=files.key,
            tls_ca=files.ca,
            state_dir=self.state,
        )

    def address(self, serving: "Serving", here: str) -> str:
        """Return the address at which the arbiter serves."""
        return here

    def _is_lower(self) -> bool:
        try:
            return highest(self.state) > self.number
        except OSError:
            return False


def own_address() -> str:
    """Return the IP address of this machine for others: its host name's if that is not loopback, else its first one."""
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        named = "127.0.0.1"
    found = own_addresses()
    return named if named in found or not found else found[0]


def is_free(host: str, port: int) -> bool:
    """Return whether a server can listen on a port at an address of this machine."""
    try:
        with socket.create_server((host, port)):
            return True
    except (OSError, OverflowError):
        return False
