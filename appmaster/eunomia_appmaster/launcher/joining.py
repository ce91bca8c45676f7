"""A node's join: its key, certificate and credential on disk; and the calls that obtain and renew them.

The files are in the node's own folder, mode 0600:

    joined.json       node, number of the join, credential, address of the arbiter
    node-key.pem      the launcher's key, made at its first start; it never leaves the machine
    node-cert.pem     its certificate, signed by the arbiter, 30 days
    node-ca.pem       the CA of nodes
    arbiter-ca.pem    the CA of the arbiter, from the join token; missing: the arbiter is on loopback
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog

from eunomia.errors import EunomiaError, InputError, UnreachableError
from eunomia_appmaster.launcher.access import ArbiterAccess, ca_environment
from eunomia_appmaster.launcher.files import read_json, write_json
from eunomia_appmaster.launcher.folder_user import ARBITER_CA, JOINED, NODE_CA, FolderUser
from eunomia_appmaster.node.kept_files import OLDER
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2_grpc as rpc
from eunomia_appmaster.protocol.connecting import Address, tls_error
from eunomia_appmaster.protocol.join_text import JoinText
from eunomia_appmaster.protocol.node_names import tls_name
from eunomia_appmaster.service.certificates import certificates_of, key_of, public_key_of

if TYPE_CHECKING:
    from cryptography import x509

log = structlog.get_logger()

KEY, CERTIFICATE = "node-key.pem", "node-cert.pem"
CALL_SECONDS: Final = 30.0
RENEWED_AT: Final = 2.0 / 3.0
"""Fraction of a certificate's validity after which it is renewed."""
LOOK_SECONDS: Final = 3600.0


class OwnJoin:
    """A node's join: its credential and certificate.

    Args:
        folder: the node's own folder.
        node: the node's name.
        arbiter: host:port.
        system: connections of the machine.
    """

    def __init__(self, folder: Path, node: str, arbiter: str, *, system: System = MACHINE) -> None:
        self.folder, self.node = folder, node
        self._arbiter, self._system = arbiter, system
        record = read_json(folder / JOINED) or {}
        mine = record if record.get("node") == node else {}
        self._credential, self.number = str(mine.get("credential", "")), int(mine.get("join", 0))
        """The credential for calls to the arbiter, and the number of the join; without a join, empty and 0."""
        self._shown: Any = None

    @property
    def is_joined(self) -> bool:
        """Whether the folder holds the credential of a join under this node's name."""
        return bool(self._credential)

    @property
    def address(self) -> Address:
        """The arbiter's address, with the CA from the join token."""
        ca = self.folder / ARBITER_CA
        return Address(target=self._arbiter, ca_file=ca if ca.exists() else None)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the credential as metadata for a gRPC call to the arbiter."""
        return (("authorization", f"Bearer {self._credential}"),)

    def environment(self) -> Mapping[str, str]:
        """Return the variable with which app masters here check the arbiter's certificate."""
        return ca_environment(self.address)

    def join(self, token: JoinText) -> None:
        """Join the arbiter's cluster; nothing is written before the arbiter has answered.

        Raises:
            InputError: the arbiter refuses the token or the name, or the folder belongs to a node of another arbiter.
            UnreachableError: the arbiter does not answer, or another server answers.
        """
        ca = self.folder / ARBITER_CA
        user = FolderUser.of(self.folder)
        user.check_arbiter(self._arbiter, token.authority)
        answer = self._ask(
            "JoinNode",
            f"Bearer {token.text()}",
            Address(target=self._arbiter, authority=token.authority, joins=True),
        )
        user.check_node_authority(token.authority, answer.authority)
        if token.authority:
            write_private(ca, token.authority, sync=True)
        else:
            ca.unlink(missing_ok=True)
        self._credential, self.number = answer.credential, answer.join
        self._take(answer)
        write_json(
            self.folder / JOINED,
            {"node": self.node, "join": answer.join, "credential": answer.credential, "arbiter": self._arbiter},
            sync=True,
        )
        log.debug("join.token_valid", node=self.node, join=answer.join, arbiter=self._arbiter)

    def forget(self) -> None:
        """Remove the credential and its backup, so that the next start joins with another token."""
        for name in (JOINED, JOINED + OLDER):
            (self.folder / name).unlink(missing_ok=True)

    def renew(self) -> None:
        """Obtain a new certificate for the same key.

        Raises:
            InputError: the arbiter refuses: the node was removed.
            UnreachableError: it does not answer.
        """
        self._take(self._ask("RenewNode", self.metadata()[0][1]))
        log.info("node.certificate_renewed", node=self.node, until=self.certificate.not_valid_after_utc.isoformat())

    async def keep_renewed(self) -> None:
        """Renew the certificate whenever two thirds of its validity have passed, until cancelled."""
        while True:
            try:
                if self.is_due(datetime.now(UTC)):
                    await asyncio.to_thread(self.renew)
            except (EunomiaError, OSError) as error:  # tried again later
                log.warning("node.certificate_not_renewed", why=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    def mend(self) -> None:
        """Obtain a new certificate, for a new key, if a file of the present one is missing or damaged.

        Raises:
            InputError: the arbiter refuses, since the node was removed.
            UnreachableError: the arbiter does not answer.
        """
        if damage := self._damage():
            log.error("node.certificate_damaged", what=damage)
            (self.folder / KEY).unlink(missing_ok=True)
            self.renew()

    def _damage(self) -> str:
        """Return what is wrong with the key, the certificate or the CA of nodes; empty: nothing is."""
        try:
            if self.certificate.public_key() != public_key_of(self.folder / KEY):
                return f"{CERTIFICATE} is of another key"
            if not certificates_of(self.folder / NODE_CA):
                return f"{NODE_CA} has no certificate"
        except InputError as error:
            return str(error)
        return ""

    def is_due(self, now: datetime) -> bool:
        """Return whether two thirds of the certificate's validity have passed."""
        made, ends = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        return now >= made + RENEWED_AT * (ends - made)

    @property
    def certificate(self) -> "x509.Certificate":
        """The present certificate.

        Raises:
            InputError: its file is damaged.
        """
        return certificates_of(self.folder / CERTIFICATE)[0]

    def shown(self) -> Mapping[str, str]:
        """Return the name in the node's certificate and the CA (PEM), with which app masters verify the certificate."""
        authority = (self.folder / NODE_CA).read_text(encoding="ascii")
        return {"certificate_name": tls_name(self.node, self.number), "authority": authority}

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of the launcher's server, which presents the current certificate to each client."""
        self._shown = self._configuration()
        return grpc.dynamic_ssl_server_credentials(self._shown, lambda: self._shown)

    def _configuration(self) -> Any:
        pair = (self.folder / KEY).read_bytes(), (self.folder / CERTIFICATE).read_bytes()
        return grpc.ssl_server_certificate_configuration([pair])

    def _take(self, answer: pb.JoinNodeResponse) -> None:
        write_private(self.folder / NODE_CA, answer.authority, sync=True)
        write_private(self.folder / CERTIFICATE, answer.certificate, sync=True)
        if self._shown is not None:
            self._shown = self._configuration()

    def _ask(self, method: str, authorization: str, address: Address | None = None) -> pb.JoinNodeResponse:
        address = address or self.address
        options: Sequence[tuple[str, int | str]] = [("grpc.initial_reconnect_backoff_ms", 100)]
        request = pb.JoinNodeRequest(node=self.node, signing_request=_signing_request(self.folder / KEY))
        channel = self._system.dial(address, options)
        try:
            call = getattr(rpc.NodeAdmissionStub(channel), method)
            answer: pb.JoinNodeResponse = call(
                request, timeout=CALL_SECONDS, metadata=(("authorization", authorization),)
            )
            return answer
        except grpc.RpcError as error:
            raise _failure(error, address) from None
        finally:
            channel.close()


def joined_of(access: ArbiterAccess) -> OwnJoin | None:
    """Return the join that a launcher's access uses; None: the launcher uses the token on the arbiter's machine."""
    return access if isinstance(access, OwnJoin) else None


def _failure(error: grpc.RpcError, address: Address) -> EunomiaError:
    code, details = (error.code(), error.details() or "") if isinstance(error, grpc.Call) else (None, str(error))
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        known = tls_error(address, details)
        rule = "the arbiter must answer a node that joins"
        return known or UnreachableError(rule, value=details[:200], place=address.target)
    return InputError(details or str(code))


def _signing_request(key_file: Path) -> bytes:
    """Return a certificate signing request (PEM) for the key in a file; a missing key is created."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if not key_file.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        write_private(key_file, made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), sync=True)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return request.sign(key_of(key_file), hashes.SHA256()).public_bytes(Encoding.PEM)
