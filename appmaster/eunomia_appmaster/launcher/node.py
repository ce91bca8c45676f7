"""The machine's identity, and its persistent state: lock, secret, address, epochs of its slots."""

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
from eunomia_appmaster.launcher.errors import ClosedEpochError, NotRegisteredError
from eunomia_appmaster.launcher.files import CURE, let_read, put_aside, read_json, read_kept_json, write_json
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

LAUNCHER_FILE, SECRET, LIMITS = "launcher.json", "secret", "limits.json"


class Node:
    """One machine and its state folder, held by one launcher at a time.

    Args:
        state: Eunomia's state folder; several nodes may share it.
        name: node id, the same over restarts.
        machine: what was detected.
        folder: of the node's own files: lock, epochs, secret, live containers, app masters; None: ``launcher`` in the
            state folder.
        apps: the folder of all apps' folders; None: ``apps`` in the state folder.
        system: clocks and connections of the machine.

    Raises:
        InputError: another launcher holds the folder, or the file of epochs is not whole.
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
        """The folder of all apps' folders, as this node has it."""
        self.name = name
        self.launcher_id = uuid.uuid4().hex
        self.is_head = folder is None
        """Whether its own files stand in the state folder."""
        self.folder = self.state / "launcher" if folder is None else folder.resolve()
        for folder in (self.folder, self.folder / "live", self.folder / "app_masters"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _take(self.folder / LOCK)
        try:
            self.machine = numbered(machine, self.folder / "gpus.json")
            self.epochs = Epochs(self.folder / EPOCHS)
        except BaseException:
            os.close(self._lock)
            raise
        self._secret = _read_secret(self.folder / SECRET)
        self._limits = _read_limits(self.folder / LIMITS)
        self.lease = NodeLease(self.folder / LEASE, system=system)
        self._published: dict[str, Any] = {}
        self._mark = MarkFile(self.folder / MARK)
        if self._mark.damage:
            log.error("launcher.mark_damaged", what=self._mark.damage)

    @property
    def secret(self) -> bytes:
        """The arbiter's secret for container tokens; ``NotRegisteredError`` before the first registration."""
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
        """How far the arbiter's journal was written by its last answer; empty: not known."""
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

    @property
    def home(self) -> str:
        """Identifier of the state folder; a copy of the folder has another value."""
        lock = os.fstat(self._lock)
        return f"{self.machine.host}:{lock.st_dev}:{lock.st_ino}"

    @property
    def home_folder(self) -> Path:
        """The folder that names the node's control groups: the state folder on the head, else the node's own."""
        return self.state if self.is_head else self.folder

    @property
    def launcher_file(self) -> Path:
        """The file from which app masters read this launcher's address, after a restart too."""
        return self.folder / LAUNCHER_FILE

    @property
    def last_address(self) -> str | None:
        """Address of the previous launcher, which this one takes again if it is free."""
        record = read_json(self.launcher_file)
        return None if record is None else str(record.get("address", "")) or None

    @property
    def certificate_name(self) -> str:
        """Name in the certificate that this launcher's service shows; empty: it serves without TLS."""
        return str(self._published.get("certificate_name", ""))

    def publish(self, address: str, **certificate: str) -> None:
        """Write the address of this launcher's service for app masters to find.

        Args:
            address: host:port.
            certificate: under TLS, the ``certificate_name`` that it has and the ``authority``, PEM, that signed it.
        """
        known = {"node": self.name, "address": address, "pid": os.getpid(), "launcher_id": self.launcher_id}
        self._published = known | certificate
        write_json(self.launcher_file, self._published)
        let_read(self.launcher_file)  # app masters under accounts of users do

    def mend(self) -> None:
        """Write the files again that are damaged and whose content this process knows: address and secret."""
        known = {self.launcher_file: self._published}
        known[self.folder / SECRET] = {"hex": self._secret.hex()} if self._secret else {}
        for path, content in known.items():
            if content and read_json(path) != content:
                write_json(path, content)
                log.warning("launcher.written_again", file=str(path))
        let_read(self.launcher_file)

    def lose(self, slot: int) -> None:
        """Take a slot out of the machine, until the next launcher finds it."""
        left = tuple(one for one in self.machine.slots if one.index != slot)
        self.machine = dataclasses.replace(self.machine, slots=left)

    def app_folder(self, app: str) -> Path:
        """Return the folder in which all of an app's runs stand."""
        return self.apps / app

    def records_folder(self, app: str) -> Path:
        """Return the folder with the records of an app's containers, where they run under an account of its user's.

        The account passes through it and reads nothing of it; the launcher trusts what stands there.
        """
        return self.folder / RECORDS / app

    def make_records_folder(self, folder: Path) -> None:
        """Make a folder below one of ``records_folder``; others pass through it, and through all above it here.

        Raises:
            FileExistsError: it is there.
        """
        close(self.folder, passed=(RECORDS,), read=(LAUNCHER_FILE, LAUNCHER_FILE + OLDER, CA_FILE))
        missing = [one for one in (folder, *folder.parents) if one.is_relative_to(self.folder) and not one.exists()]
        for one in reversed(missing or [folder]):
            one.mkdir(mode=CLOSED_FOLDER)
            one.chmod(PASSED)


@dataclass(slots=True)
class SlotEpochs:
    """The epochs of one slot's leases."""

    highest: int = 0
    closed: int = 0


class Epochs:
    """The fencing tokens of all slots, in a file that survives the launcher and the machine.

    Raises:
        InputError: the file is damaged, and so is its older copy. It keeps old leases out, so it is not passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The older copy lacks one write at most: a slot still holds one container, and the arbiter revokes strays.
        record = read_kept_json(path)
        try:
            self._slots = {int(slot): SlotEpochs(**known) for slot, known in record.items()}
        except (ValueError, TypeError) as error:  # a file without a sum, of an earlier version
            raise InputError(f"epochs must be numbers by slot; {CURE}", value=str(error), place=str(path)) from None

    def __getitem__(self, slot: int) -> SlotEpochs:
        return self._slots.setdefault(slot, SlotEpochs())

    def check(self, slot: int, epoch: int) -> None:
        """Raise ``ClosedEpochError`` if nothing may be started on ``slot`` under ``epoch`` any more."""
        known = self[slot]
        if epoch < known.highest:
            rule = f"the epoch of slot {slot} must be at least {known.highest}, the newest that was seen"
            raise ClosedEpochError(rule, value=str(epoch))
        if epoch <= known.closed:
            rule = f"the epoch of slot {slot} must be above {known.closed}, the last that was revoked"
            raise ClosedEpochError(rule, value=str(epoch))

    def saw(self, slot: int, epoch: int) -> None:
        """Refuse epochs older than this one from now on."""
        if epoch > self[slot].highest:
            self[slot].highest = epoch
            self._save()

    def close(self, slot: int, epoch: int) -> None:
        """Refuse this epoch and older ones from now on."""
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
    """Name of this host, without its domain."""
    return socket.gethostname().split(".")[0] or "localhost"


def _take(path: Path) -> int:
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
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    return fd


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
