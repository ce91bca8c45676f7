"""The arbiter's certificate: checks it against its key, its CA and the served address, or creates one for testing."""

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.protocol.certificate_names import certificates_in, names_of

if TYPE_CHECKING:
    import grpc
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CERT_FILE: Final = "cert.pem"
KEY_FILE: Final = "key.pem"
CA_FILE: Final = "ca.pem"
ANY_HOST: Final = ("0.0.0.0", "[::]", "::")
DAYS: Final = 30
_HOST: Final = re.compile(r"[A-Za-z0-9:*][A-Za-z0-9.:_-]{0,252}")


@value
class Certificates:
    """Paths of PEM files, which ``check`` validates before they are used."""

    cert: Path
    """The arbiter's certificate, followed by intermediate ones up to the CA."""
    key: Path
    ca: Path
    """The CA with which clients verify the certificate; the certificate itself if it is self-signed."""

    @classmethod
    def of(cls, cert: Path | None, key: Path | None, ca: Path | None) -> Self | None:
        """Return the files that the options name; None if no option is given.

        Raises:
            InputError: a certificate has no key, or a key has no certificate.
        """
        if cert is None and key is None and ca is None:
            return None
        if cert is None or key is None:
            missing = "--tls-cert" if cert is None else "--tls-key"
            raise InputError("--tls-cert and --tls-key must be given together", value=f"no {missing}")
        return cls(cert=cert, key=key, ca=ca or cert)

    @classmethod
    def inside(cls, folder: Path) -> Self:
        """Return the paths of the files that ``make`` writes to a folder."""
        return cls(cert=folder / CERT_FILE, key=folder / KEY_FILE, ca=folder / CA_FILE)

    def check(self, host: str) -> None:
        """Check the files against each other and against the host to serve.

        Raises:
            InputError: the first problem that would make every client refuse the certificate.
        """
        chain, roots, own = certificates_of(self.cert), certificates_of(self.ca), public_key_of(self.key)
        cert = chain[0]
        if cert.public_key() != own:
            raise InputError("a certificate must match its key", value=str(self.key), place=str(self.cert))
        now = datetime.now(UTC)
        if not cert.not_valid_before_utc <= now <= cert.not_valid_after_utc:
            span = f"one from {cert.not_valid_before_utc:%Y-%m-%d} to {cert.not_valid_after_utc:%Y-%m-%d}"
            raise InputError("a certificate must be valid now", value=span, place=str(self.cert))
        if not any(_issued(last, root) for last in chain for root in roots):
            raise InputError("a certificate must be signed by the CA", value=str(self.ca), place=str(self.cert))
        names = names_of(cert)
        if host not in ANY_HOST and host.strip("[]") not in names:
            raise InputError(f"a certificate must name {host}", value=", ".join(names) or "none", place=str(self.cert))

    def reached_at(self, host: str) -> str:
        """Return the host by which this machine's own processes call an arbiter that serves ``host``."""
        if host not in ANY_HOST:
            return host
        names = names_of(certificates_of(self.cert)[0])
        return next((name for name in ("localhost", "127.0.0.1") if name in names), names[0] if names else "localhost")

    def called_from_elsewhere(self, host: str) -> str:
        """Return the host by which other machines call an arbiter that serves ``host``."""
        if host not in ANY_HOST:
            return host
        own, names = socket.gethostname(), names_of(certificates_of(self.cert)[0])
        beyond = [name for name in names if name not in ("localhost", "127.0.0.1", "::1")]
        return own if own in beyond or not beyond else beyond[0]

    def configuration(self) -> "grpc.ServerCertificateConfiguration":
        """Return the certificate that a server presents to its clients.

        Raises:
            InputError: a file cannot be read.
        """
        import grpc

        return grpc.ssl_server_certificate_configuration([(_read(self.key), _read(self.cert))])

    @property
    def holds_until(self) -> datetime:
        """Return the time (UTC) at which the certificate expires.

        Raises:
            InputError: the certificate cannot be read.
        """
        return certificates_of(self.cert)[0].not_valid_after_utc


class ServedCertificates:
    """The certificate of a running server, which ``reload`` replaces.

    Args:
        files: the certificate's files, read now and at each ``reload``.
        host: the served host.

    Attributes:
        ca: the CA in PEM with which clients verify the certificate that is served now.

    Raises:
        InputError: every client would refuse the certificate.
    """

    def __init__(self, files: Certificates, host: str) -> None:
        self.files = files
        self._host = host
        self.reload()

    def reload(self) -> None:
        """Read the files again and use their certificate for new connections; present connections stay open.

        Raises:
            InputError: every client would refuse the new certificate; the previous one stays in use.
        """
        self.files.check(self._host)
        self._shown, self.ca = self.files.configuration(), _read(self.files.ca).decode()

    def credentials(self) -> "grpc.ServerCredentials":
        """Return the credentials of a gRPC server, which fetches the certificate at each new connection."""
        import grpc

        return grpc.dynamic_ssl_server_credentials(self._shown, lambda: self._shown)


def make(folder: Path, names: Sequence[str] = (), *, days: int = DAYS) -> Certificates:
    """Create a CA and a certificate signed by it, for testing; the CA's key is discarded.

    Args:
        folder: made with mode 0700; gets ``ca.pem``, ``cert.pem`` and ``key.pem`` (0600).
        names: host names and IP addresses in addition to this machine's own.
        days: validity of the CA and the certificate, in days.

    Raises:
        InputError: the files exist already, they cannot be written, or a name is not a valid host name.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    made = Certificates.inside(folder)
    for name in names:
        if not _HOST.fullmatch(name):
            raise InputError("a host must be a name or an IP address, in ASCII", value=f'"{name}"', place="--name")
    try:
        for file in (made.ca, made.cert, made.key):
            if file.exists():
                rule = "certificates must be made in a folder without any"
                raise InputError(rule, value=file.name, place=str(folder))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        rule = "certificates must be made in a folder that can be written"
        raise InputError(rule, value=error.strerror, place=str(folder)) from error
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = signed(f"Eunomia test CA {secrets.token_hex(4)}", ca_key.public_key(), None, ca_key, (), days)
    cert = signed("Eunomia arbiter", key.public_key(), ca, ca_key, (*own_names(), *names), days)
    for file, content in ((made.ca, _pem(ca)), (made.cert, _pem(cert)), (made.key, _key_pem(key))):
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(content)
    return made


def own_names() -> tuple[str, ...]:
    """Return the host names and addresses by which this machine's own processes reach the machine."""
    name = socket.gethostname()
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", *((name,) if name else ()))))


def public_key_of(path: Path) -> object:
    """Return the public key that belongs to a private key's file.

    Raises:
        InputError: the file cannot be read, or has no private key in PEM without a password.
    """
    return key_of(path).public_key()


def key_of(path: Path) -> "ec.EllipticCurvePrivateKey":
    """Return the private key in a file.

    Raises:
        InputError: the file cannot be read, or has no private key in PEM without a password.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return cast("ec.EllipticCurvePrivateKey", load_pem_private_key(_read(path), None))
    except (ValueError, TypeError) as error:
        raise InputError("a key must be a private one in PEM, without a password", place=str(path)) from error


def certificates_of(path: Path) -> "list[x509.Certificate]":
    """Return the certificates in a file.

    Raises:
        InputError: the file cannot be read, or is not PEM.
    """
    try:
        return certificates_in(_read(path))
    except ValueError as error:
        raise InputError("certificates must be PEM", value=str(error)[:100], place=str(path)) from error


def _issued(cert: "x509.Certificate", by: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        cert.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def signed(
    title: str,
    key: "ec.EllipticCurvePublicKey",
    issuer: "x509.Certificate | None",
    issuer_key: "ec.EllipticCurvePrivateKey",
    names: Sequence[str],
    days: int,
) -> "x509.Certificate":
    """Return a new certificate for a public key; ``issuer`` None: a self-signed CA certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(cert: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return cert.public_bytes(Encoding.PEM)


def _key_pem(key: "ec.EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError("a file for TLS must be readable", value=str(error.strerror), place=str(path)) from error
