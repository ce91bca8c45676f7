"""The node and the arbiter that a node's folder belongs to: each folder serves one joined node of one arbiter.

Joining another arbiter would overwrite the credential, and that arbiter's orders would be refused because their epochs
are lower than those recorded; so such a join is refused before anything is sent or written.
An arbiter is recognised by its address or its CA. If that is not enough, the node CA in its answer decides.
"""

from pathlib import Path
from typing import Final, Self

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.launcher.files import read_json
from eunomia_appmaster.protocol.connecting import LOOPBACK, host_of

JOINED: Final = "joined.json"
NODE_CA, ARBITER_CA, EPOCHS = "node-ca.pem", "arbiter-ca.pem", "epochs.json"


@value
class FolderUser:
    """The node that has used a folder.

    Attributes:
        folder: the node's own folder.
        node: its name; empty: it has not joined with a token.
        arbiter: host:port at its join.
        has_credential: whether the folder holds a join's credential.
        has_epochs: whether it holds epochs of an arbiter's orders.
    """

    folder: Path
    node: str = ""
    arbiter: str = ""
    has_credential: bool = False
    has_epochs: bool = False

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the owner from a node's folder."""
        record = read_json(folder / JOINED) or {}
        return cls(
            folder=folder,
            node=str(record.get("node", "")),
            arbiter=str(record.get("arbiter", "")),
            has_credential=bool(record.get("credential")),
            has_epochs=(folder / EPOCHS).exists(),
        )

    def is_at(self, arbiter: str) -> bool:
        """Return whether an arbiter's address is the one with which the folder's node joined."""
        return _plain(self.arbiter) == _plain(arbiter)

    def check_name(self, node: str) -> None:
        """Check that the node's name is that of the folder's credential; for a start without a join token.

        Raises:
            InputError: it is another name.
        """
        if self.has_credential and self.node != node:
            rule = "a folder with the credential of a node must be used under its name (--node, or another --node-dir)"
            raise InputError(rule, value=f'"{node}", in {self._words}', place=str(self.folder))

    def check_arbiter(self, arbiter: str, authority: bytes) -> None:
        """Check that a join is at the arbiter whose node has used the folder.

        Args:
            arbiter: host:port.
            authority: the arbiter's CA from the join token, PEM; empty: the arbiter is on loopback.

        Raises:
            InputError: it is another arbiter.
        """
        if not self._is_used or self._is_known(authority):
            return
        known = _read(self.folder / ARBITER_CA)
        if (self.arbiter and not self.is_at(arbiter)) or (not self.arbiter and known and authority):
            raise self._refusal()

    def check_node_authority(self, authority: bytes, node_authority: bytes) -> None:
        """Check that an answer is from the arbiter whose node has used the folder.

        Args:
            authority: the CA in the join token, PEM.
            node_authority: the CA of nodes in the answer, PEM.

        Raises:
            InputError: it is from another arbiter.
        """
        known = _read(self.folder / NODE_CA)
        if self._is_used and known not in (b"", node_authority) and not self._is_known(authority):
            raise self._refusal()

    @property
    def _is_used(self) -> bool:
        return self.has_credential or self.has_epochs

    def _is_known(self, authority: bytes) -> bool:
        """Return whether a CA is the one of the arbiter that the folder's node joined."""
        return bool(authority) and _read(self.folder / ARBITER_CA) == authority

    @property
    def _words(self) -> str:
        if not self.arbiter:
            return "the folder of a node that has left another arbiter"
        return f"the folder of node {self.node} of the arbiter at {self.arbiter}"

    def _refusal(self) -> InputError:
        rule = "a node's folder must serve one arbiter: give this node a --node-dir of its own"
        rule += "; if the arbiter has moved, leave out --join" if self.has_credential else ""
        return InputError(rule, value=self._words, place=str(self.folder))


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _plain(target: str) -> str:
    """Return an address with each name of the loopback interface replaced by the same one, for comparison."""
    host = host_of(target)
    return f"{LOOPBACK[0]}:{target.rpartition(':')[2]}" if host in LOOPBACK else target
