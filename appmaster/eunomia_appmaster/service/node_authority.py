"""The arbiter's own CA, which signs the certificates that launchers present to app masters on other machines.

The CA's key is in the arbiter's state folder, readable only by the service. A certificate contains the node's name and
the number of its join, so that one of an earlier join is useless, and the addresses known to the arbiter. Names in a
request are ignored.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eunomia.errors import InputError
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.protocol.node_names import tls_name
from eunomia_appmaster.service.certificates import CA_FILE, KEY_FILE, key_of, signed

if TYPE_CHECKING:
    from cryptography import x509

FOLDER: Final = "node-authority"
NODE_DAYS: Final = 30
CA_DAYS: Final = 3650


class NodeAuthority:
    """Signs certificates of nodes; the CA is created at its first use.

    Args:
        state_dir: the arbiter's state folder.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER

    def pem(self) -> bytes:
        """Return the CA's certificate.

        Raises:
            InputError: a file of the CA is damaged.
        """
        return self._present()[0].read_bytes()

    def sign(self, request: bytes, node: str, join: int, addresses: Sequence[str]) -> bytes:
        """Return a certificate, PEM, for the key of a signing request.

        Args:
            request: the signing request, PEM; its signature proves that the caller has the key. Names in it are
                ignored.
            node: the node's name.
            join: number of the node's join.
            addresses: IP addresses and host names of the node that are known to the arbiter.

        Raises:
            InputError: the request is malformed or is not signed by its own key.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        rule = "a signing request must be one in PEM, of an elliptic-curve key, and signed by it"
        try:
            asked = x509.load_pem_x509_csr(request)
            good = asked.is_signature_valid
        except (ValueError, TypeError) as error:
            raise InputError(rule, value=str(error)[:100], place=node) from None
        key = asked.public_key()
        if not good or not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError(rule, value="another one", place=node)
        ca_file, key_file = self._present()
        ca, ca_key = _certificate(ca_file), key_of(key_file)
        names = (tls_name(node, join), *addresses)
        made = signed(f"node {node}"[:64], key, ca, ca_key, names, NODE_DAYS)
        return made.public_bytes(Encoding.PEM)

    def _present(self) -> tuple[Path, Path]:
        """Return the files of the CA's certificate and key; missing files are created."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        ca_file, key_file = self._folder / CA_FILE, self._folder / KEY_FILE
        if ca_file.exists() and key_file.exists():
            if _certificate(ca_file).not_valid_after_utc < datetime.now(UTC) + timedelta(days=NODE_DAYS):
                rule = "the CA of an arbiter's nodes must be valid; delete its folder, and let all nodes join again"
                raise InputError(rule, value="one that ends", place=str(self._folder))
            return ca_file, key_file
        key = ec.generate_private_key(ec.SECP256R1())
        ca = signed("Eunomia nodes", key.public_key(), None, key, (), CA_DAYS)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(key_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), sync=True)
        write_private(ca_file, ca.public_bytes(Encoding.PEM), sync=True)
        return ca_file, key_file


def _certificate(path: Path) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        remedy = "restore it from a backup, or delete its folder and let all nodes join again"
        raise InputError(
            f"the CA of an arbiter's nodes must be PEM; {remedy}", value=str(error)[:100], place=str(path)
        ) from None
