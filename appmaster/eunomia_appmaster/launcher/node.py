"""A machine's identity as a node, and its persistent state: lock, secret, address, epochs of its slots."""

import contextlib
import dataclasses
import fcntl
import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from google.protobuf import json_format

from eunomia.errors import InputError
from eunomia_appmaster.app.cleaning import RECORDS
from eunomia_appmaster.launcher.attempts import Attempts
from eunomia_appmaster.launcher.errors import ClosedEpochError, NotRegisteredError
from eunomia_appmaster.launcher.files import REMEDY, let_read, put_aside, read_json, read_kept_json, write_json
from eunomia_appmaster.launcher.folder_user import EPOCHS
from eunomia_appmaster.launcher.node_lease import FILE as LEASE
from eunomia_appmaster.launcher.node_lease import NodeLease
from eunomia_appmaster.launcher.numbering import numbered
from eunomia_appmaster.node.job_limits import DEFAULTS, JobLimits
from eunomia_appmaster.node.kept_apart import CA_FILE, CLOSED_FOLDER, PASSED, close
from eunomia_appmaster.node.kept_files import OLDER
from eunomia_appmaster.node.local_machine import LocalMachine
from eunomia_appmaster.node.mark_file import MARK, MarkFile
from eunomia_appmaster.node.orphaned_launcher import LOCK
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

LAUNCHER_FILE, SECRET, LIMITS, ATTEMPTS = "launcher.json", "secret", "limits.json", "attempts.json"


class Node:
    """One machine and its state folder, which one launcher at a time has locked.

    Args:
        state: Eunomia's state folder; several nodes may share it.
        name: node id, the same over restarts.
        machine: the detected hardware.
        folder: of the node's own files: lock, epochs, secret, live containers, app masters; None: ``launcher`` in the
            state folder.
        apps: the folder of all apps' folders; None: ``apps`` in the state folder.
        system: clocks and connections of the machine.

    Raises:
        InputError: another launcher has locked the folder, or the file of epochs is damaged.
    """

    def __init__(
        self,
        state: Path,
        name: str,
        machine: LocalMachine,
        *,
        folder: Path | None = None,
        apps: Path | None = None,
        system: System = MACHINE,
    ) -> None:
        self.system = system
        self.state = state.resolve()
        self.apps = (state / "apps" if apps is None else apps).resolve()
        """The folder of all apps' folders, at its path on this node."""
        self.name = name
        self.launcher_id = uuid.uuid4().hex
        self.is_head = folder is None
        """Whether this is the arbiter's machine, where the node's own files are in the state folder."""
        self.folder = self.state / "launcher" if folder is None else folder.resolve()
        for folder in (self.folder, self.folder / "live", self.folder / "app_masters"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock, self.seen_before = _take(self.folder / LOCK)
        """The lock, and the Unix time at which an earlier launcher last ran here."""
        self.began_at = system.unix_time()
        self.note_alive()
        try:
            self.machine = numbered(machine, self.folder / "gpus.json")
            self.epochs = Epochs(self.folder / EPOCHS)
        except BaseException:
            os.close(self._lock)
            raise
        self._secret = _read_secret(self.folder / SECRET)
        self._limits = _read_limits(self.folder / LIMITS)
        self.attempts = Attempts(self.folder / ATTEMPTS)
        self.lease = NodeLease(self.folder / LEASE, system=system)
        self._published: dict[str, Any] = {}
        self._mark = MarkFile(self.folder / MARK)
        if self._mark.damage:
            log.error("launcher.mark_damaged", what=self._mark.damage)

    @property
    def secret(self) -> bytes:
        """The arbiter's secret for container tokens.

        Raises:
            NotRegisteredError: before the first registration.
        """
        if not self._secret:
            raise NotRegisteredError("a launcher must have registered with the arbiter before it checks a token")
        return self._secret

    @secret.setter
    def secret(self, secret: bytes) -> None:
        if secret != self._secret:
            write_json(self.folder / SECRET, {"hex": secret.hex()})
            self._secret = secret

    @property
    def mark(self) -> str:
        """The mark of the arbiter's journal (how far it was written), from the arbiter's last answer; empty: none."""
        return self._mark.text

    @mark.setter
    def mark(self, mark: str) -> None:
        try:
            self._mark.write(mark or self._mark.text)
        except (OSError, ValueError) as error:
            log.warning("mark.refused", why=str(error))

    @property
    def limits(self) -> JobLimits:
        """The cluster's limits on jobs, from the arbiter's last registration; the defaults before the first."""
        return self._limits

    @limits.setter
    def limits(self, limits: JobLimits) -> None:
        if limits == self._limits:
            return
        self._limits = limits
        try:
            message = json_format.MessageToDict(limits.message(), preserving_proto_field_name=True)
            write_json(self.folder / LIMITS, message)
        except OSError as error:  # a full disk: the next registration has them
            log.warning("limits.not_saved", why=str(error))

    def note_alive(self) -> None:
        """Set the lock file's modification time to now, so that a later launcher knows how long this one ran.

        The node's own folder is on a local disk.
        """
        now = self.system.unix_time()
        with contextlib.suppress(OSError):  # a full disk, or one that may only be read
            os.utime(self._lock, (now, now))

    @property
    def home(self) -> str:
        """Identifier of the state folder; a copy of the folder has a different one."""
        lock = os.fstat(self._lock)
        return f"{self.machine.host}:{lock.st_dev}:{lock.st_ino}"

    @property
    def home_folder(self) -> Path:
        """The folder that names the node's control groups: the state folder on the head, else the node's own."""
        return self.state if self.is_head else self.folder

    @property
    def launcher_file(self) -> Path:
        """The file from which app masters read this launcher's address, also after a restart of the launcher."""
        return self.folder / LAUNCHER_FILE

    @property
    def last_address(self) -> str | None:
        """Address of the previous launcher, which this one reuses if it is free."""
        record = read_json(self.launcher_file)
        return None if record is None else str(record.get("address", "")) or None

    @property
    def certificate_name(self) -> str:
        """Name in the certificate of this launcher's service; empty: it serves without TLS."""
        return str(self._published.get("certificate_name", ""))

    def publish(self, address: str, **certificate: str) -> None:
        """Write the address of this launcher's service to a file for app masters.

        Args:
            address: host:port.
            certificate: under TLS, its ``certificate_name`` and the ``authority`` (PEM) that signed it.
        """
        known = {"node": self.name, "address": address, "pid": os.getpid(), "launcher_id": self.launcher_id}
        self._published = known | certificate
        write_json(self.launcher_file, self._published)
        let_read(self.launcher_file)  # app masters under accounts of users do

    def mend(self) -> None:
        """Write the node's damaged files again if this process knows their content: address and secret."""
        known = {self.launcher_file: self._published}
        known[self.folder / SECRET] = {"hex": self._secret.hex()} if self._secret else {}
        for path, content in known.items():
            if content and read_json(path) != content:
                write_json(path, content)
                log.warning("launcher.written_again", file=str(path))
        let_read(self.launcher_file)

    def lose(self, slot: int) -> None:
        """Remove a slot from the machine, until the next launcher detects it again."""
        left = tuple(one for one in self.machine.slots if one.index != slot)
        self.machine = dataclasses.replace(self.machine, slots=left)

    def app_folder(self, app: str) -> Path:
        """Return an app's folder, which contains all runs of its jobs."""
        return self.apps / app

    def records_folder(self, app: str) -> Path:
        """Return the folder with the records of an app's containers that run under its user's account.

        The account may pass through the folder but not read it; the launcher trusts its content.
        """
        return self.folder / RECORDS / app

    def make_records_folder(self, folder: Path) -> None:
        """Create a folder inside one of ``records_folder``; other accounts may pass through it and its parents there.

        Raises:
            FileExistsError: it exists.
        """
        close(self.folder, passed=(RECORDS,), read=(LAUNCHER_FILE, LAUNCHER_FILE + OLDER, CA_FILE))
        missing = [one for one in (folder, *folder.parents) if one.is_relative_to(self.folder) and not one.exists()]
        for one in reversed(missing or [folder]):
            one.mkdir(mode=CLOSED_FOLDER)
            one.chmod(PASSED)


@dataclass(slots=True)
class SlotEpochs:
    """The epochs of one slot's leases: the highest that was seen, and the highest that was closed."""

    highest: int = 0
    closed: int = 0


class Epochs:
    """The fencing tokens of all slots, in a file that survives the launcher and the machine.

    Raises:
        InputError: the file and its backup are damaged. Since it keeps out old leases, it must not be skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The older copy lacks one write at most: a slot still holds one container, and the arbiter revokes strays.
        record = read_kept_json(path)
        try:
            self._slots = {int(slot): SlotEpochs(**known) for slot, known in record.items()}
        except (ValueError, TypeError) as error:  # a file without a sum, of an earlier version
            raise InputError(f"epochs must be numbers by slot; {REMEDY}", value=str(error), place=str(path)) from None

    def __getitem__(self, slot: int) -> SlotEpochs:
        return self._slots.setdefault(slot, SlotEpochs())

    def check(self, slot: int, epoch: int) -> None:
        """Check that containers may be started on ``slot`` under ``epoch``.

        Raises:
            ClosedEpochError: the epoch is closed, or a newer one was seen.
        """
        known = self[slot]
        if epoch < known.highest:
            rule = f"the epoch of slot {slot} must be at least {known.highest}, the newest that was seen"
            raise ClosedEpochError(rule, value=str(epoch))
        if epoch <= known.closed:
            rule = f"the epoch of slot {slot} must be above {known.closed}, the last that was revoked"
            raise ClosedEpochError(rule, value=str(epoch))

    def saw(self, slot: int, epoch: int) -> None:
        """Refuse epochs of the slot that are older than this one from now on."""
        if epoch > self[slot].highest:
            self[slot].highest = epoch
            self._save()

    def close(self, slot: int, epoch: int) -> None:
        """Refuse this and older epochs of the slot from now on."""
        known = self[slot]
        if epoch > known.closed:
            known.closed = epoch
            known.highest = max(known.highest, epoch)
            try:
                self._save()
            except OSError as error:  # a full disk must not keep a lease from ending: the next write has it
                log.error("epochs.not_saved", slot=slot, epoch=epoch, error=str(error))

    def _save(self) -> None:
        record = {str(slot): {"highest": known.highest, "closed": known.closed} for slot, known in self._slots.items()}
        write_json(self._path, record, sync=True)


def default_name() -> str:
    """Return this host's name, without its domain."""
    return socket.gethostname().split(".")[0] or "localhost"


def _take(path: Path) -> tuple[int, float]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 20).decode(errors="replace").strip() or "another"
        os.close(fd)
        raise InputError(
            "a node's folder must have one launcher (end the other one: kill -HUP keeps its workers)",
            value=f"a second one while process {holder} holds it",
            place=str(path),
        ) from None
    changed_at = os.fstat(fd).st_mtime
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    return fd, changed_at


def _read_limits(path: Path) -> JobLimits:
    record = read_json(path)
    try:
        return DEFAULTS if record is None else JobLimits.of(json_format.ParseDict(record, pb.JobLimits()))
    except json_format.ParseError as error:  # of a later version
        put_aside(path, repr(error))
        return DEFAULTS


def _read_secret(path: Path) -> bytes:
    record = read_json(path)
    try:
        return b"" if record is None else bytes.fromhex(record["hex"])
    except (KeyError, TypeError, ValueError) as error:  # a file without a sum, of an earlier version
        put_aside(path, repr(error))
        return b""
